"""A gRPC proxy before Firestore: forwards every call byte for byte, and keeps what went by.

It knows nothing of Firestore's messages. Answers can be held back, so that what a client sends without waiting for them is
seen to be sent at once.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar, cast

import grpc
import grpc.aio
import proto

UNLIMITED = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))
# What gRPC itself sends on each of the two ways.
HOP_BY_HOP = ("user-agent", "te", "content-type", "grpc-")

M = TypeVar("M", bound=proto.Message)

Handler = grpc.RpcMethodHandler
Metadata = tuple[tuple[str, str | bytes], ...]


@dataclass(kw_only=True)
class Exchange:
    """One call that went by. Times are seconds of this machine's monotonic clock."""

    method: str
    began: float
    ended: float = 0.0
    metadata: Metadata = ()
    request: bytes = field(default=b"", repr=False)
    answers: list[bytes] = field(default_factory=list[bytes], repr=False)

    @property
    def name(self) -> str:
        """The method's name alone, such as `Commit`."""
        return self.method.rpartition("/")[2]


def decoded(kind: type[M], message: bytes) -> M:
    """A message that went by, as Google's clients have it."""
    return cast("M", kind.deserialize(message))


class Proxy(grpc.GenericRpcHandler):
    def __init__(self, upstream: grpc.aio.Channel) -> None:
        self._upstream = upstream
        self.exchanges: list[Exchange] = []
        self.hold = 0.0
        """Seconds from a request until its answer goes on."""
        self.port = 0

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler:
        method = handler_call_details.method

        async def forward(
            requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]
        ) -> AsyncIterator[bytes]:
            exchange = Exchange(method=method, began=time.monotonic(), metadata=_forwarded(context))
            self.exchanges.append(exchange)
            async for answer in self._forward(exchange, requests, context):
                yield answer
            exchange.ended = time.monotonic()

        return grpc.stream_stream_rpc_method_handler(forward)  # pyright: ignore[reportArgumentType]

    async def _forward(
        self, exchange: Exchange, requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]
    ) -> AsyncIterator[bytes]:
        call = self._upstream.stream_stream(exchange.method, None, None)(
            _kept(exchange, requests), timeout=context.time_remaining(), metadata=exchange.metadata
        )
        try:
            exchange.answers = [answer async for answer in call]
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details() or "")
        await asyncio.sleep(max(0.0, exchange.began + self.hold - time.monotonic()))
        for answer in exchange.answers:
            yield answer


async def _kept(exchange: Exchange, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for request in requests:
        exchange.request = request
        yield request


def _forwarded(context: "grpc.aio.ServicerContext[bytes, bytes]") -> Metadata:
    received = context.invocation_metadata() or ()
    return tuple((key, value) for key, value in received if not key.startswith(HOP_BY_HOP))


@asynccontextmanager
async def running_proxy(upstream: str) -> AsyncGenerator[Proxy]:
    """A proxy on 127.0.0.1 before the server at `upstream`."""
    async with grpc.aio.insecure_channel(upstream, UNLIMITED) as channel:
        proxy = Proxy(channel)
        server = grpc.aio.server(handlers=[proxy], options=UNLIMITED)
        proxy.port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            yield proxy
        finally:
            await server.stop(None)
