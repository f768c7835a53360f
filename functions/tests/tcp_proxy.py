"""The network between the function and its store, which fails as a test says: cut, silent, slow, or mute in mid-commit."""

import asyncio
import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

CHUNK_BYTES = 65_536
# A socket that closes with this sends a reset, and drops what it still holds.
NO_LINGER = struct.pack("ii", 1, 0)


class TcpProxy:
    """Passes bytes between clients and the server at `target`, a HOST:PORT, until it is told to fail.

    It lives in the event loop of the test, which so must not block while bytes should pass.
    """

    def __init__(self, target: str) -> None:
        self.host = ""
        """The HOST:PORT at which it listens."""
        self.connections = 0
        """How many it has passed on."""
        self.refusals: list[float] = []
        """When it refused a connection, by the loop's clock."""
        self.reached = asyncio.Event()
        """Set once a request has held the text from which, or after which, nothing is answered."""
        self._server_host, _, self._server_port = target.rpartition(":")
        self._pumps: set[asyncio.Task[None]] = set()
        self._requests_pass = asyncio.Event()
        self._answers_pass = asyncio.Event()
        self.heal()

    def heal(self) -> None:
        """Passes everything again, first what it holds."""
        self._refusing = False
        self._slow_by = 0.0
        self._silent_from: bytes | None = None
        self._mute_after: bytes | None = None
        self._requests_pass.set()
        self._answers_pass.set()

    def reset(self) -> None:
        """Resets every connection, with what it holds; new ones pass."""
        for pump in self._pumps:
            pump.cancel()
        self.heal()

    def cut(self) -> None:
        """Resets every connection, with what it holds, and each new one as soon as it is made."""
        self.reset()
        self._refusing = True

    def slow_down(self, seconds: float) -> None:
        """Holds each piece of a request or an answer for so long."""
        self._slow_by = seconds

    def fall_silent(self) -> None:
        """Takes connections and bytes, and holds them."""
        self._requests_pass.clear()
        self._answers_pass.clear()

    def fall_silent_from(self, text: str) -> None:
        """Falls silent as soon as a request holds this short text: it is the first that does not arrive."""
        self._silent_from = text.encode()

    def mute_after(self, text: str) -> None:
        """Holds every answer as soon as a request holds this short text: it is the first that arrives unanswered."""
        self._mute_after = text.encode()

    async def link(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """One connection, until either side ends it or the test does."""
        if self._refusing:
            self.refusals.append(asyncio.get_running_loop().time())
            _reset(to_client)
            return
        self.connections += 1
        server, to_server = await asyncio.open_connection(self._server_host, self._server_port)
        pumps = {
            asyncio.create_task(self._pass_requests(client, to_server)),
            asyncio.create_task(self._pass_answers(server, to_client)),
        }
        self._pumps |= pumps
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        self._pumps -= pumps
        _reset(to_client)
        _reset(to_server)

    async def _pass_requests(self, client: asyncio.StreamReader, to_server: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await client.read(CHUNK_BYTES):
                self._look_at(data)
                await asyncio.sleep(self._slow_by)
                await self._requests_pass.wait()
                to_server.write(data)
                await to_server.drain()

    def _look_at(self, data: bytes) -> None:
        if self._silent_from and self._silent_from in data:
            self.fall_silent()
            self.reached.set()
        if self._mute_after and self._mute_after in data:
            self._answers_pass.clear()
            self.reached.set()

    async def _pass_answers(self, server: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await server.read(CHUNK_BYTES):
                await asyncio.sleep(self._slow_by)
                await self._answers_pass.wait()
                to_client.write(data)
                await to_client.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    connection: socket.socket = writer.get_extra_info("socket")
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    writer.transport.abort()


@asynccontextmanager
async def running_proxy(target: str) -> AsyncGenerator[TcpProxy]:
    """A proxy before the server at `target`, on a free port of 127.0.0.1."""
    proxy = TcpProxy(target)
    async with asyncio.TaskGroup() as links:
        server = await asyncio.start_server(
            lambda client, to_client: links.create_task(proxy.link(client, to_client)), "127.0.0.1", 0
        )
        host, port = server.sockets[0].getsockname()
        proxy.host = f"{host}:{port}"
        yield proxy
        server.close()
        proxy.cut()
