"""Watching Firestore at the channel: every call that leaves the process, with its request, and whether calls leave together."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

import grpc.aio
from google.cloud.firestore_v1.types import CommitRequest


class Channel:
    """The calls that went out, in order."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.interceptors: list[Any] = [_Single(self), _Streaming(self)]
        self._barriers: dict[str, asyncio.Barrier] = {}
        self._gone_out: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    @property
    def calls(self) -> list[str]:
        return [name_of(request) for request in self.requests]

    def together(self, name: str, count: int) -> None:
        """From now on calls of this name go on only when so many are on their way: one after the other never would."""
        self._barriers[name] = asyncio.Barrier(count)

    async def saw(self, name: str) -> None:
        """Waits until a call of this name has gone out."""
        async with asyncio.timeout(10):
            await self._gone_out[name].wait()

    async def sees(self, request: Any) -> None:
        self.requests.append(request)
        self._gone_out[name_of(request)].set()
        if barrier := self._barriers.get(name_of(request)):
            async with asyncio.timeout(10):
                await barrier.wait()


def name_of(request: Any) -> str:
    return type(request).__name__.removesuffix("Request")


class _Single(grpc.aio.UnaryUnaryClientInterceptor):
    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def intercept_unary_unary(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        await self._channel.sees(request)
        return await continuation(client_call_details, request)


class _Streaming(grpc.aio.UnaryStreamClientInterceptor):
    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def intercept_unary_stream(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        await self._channel.sees(request)
        return await continuation(client_call_details, request)


class Meanwhile(grpc.aio.UnaryUnaryClientInterceptor):
    """Lets something happen just before the first write that touches a document."""

    def __init__(self, name: str, happen: Callable[[], Awaitable[object]]) -> None:
        self._name = name
        self._happen = happen
        self.happened = False

    async def intercept_unary_unary(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        if not self.happened and isinstance(request, CommitRequest) and self._touched_by(request):
            self.happened = True
            await self._happen()
        return await continuation(client_call_details, request)

    def _touched_by(self, request: CommitRequest) -> bool:
        return any(write.update.name.endswith(self._name) for write in request.writes)
