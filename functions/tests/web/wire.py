"""HTTP as bytes on a socket, to a real server: what no well-behaved client sends."""

import http.client
import json
import socket
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from builders import TOKENS, path_of

AUTHORIZED = f"Authorization: Bearer {TOKENS['agent']}"
JSON = "Content-Type: application/json"
CHUNKED = "Transfer-Encoding: chunked"
MESSAGE = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'


@dataclass(frozen=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Wire:
    """The way to a server on this machine."""

    port: int

    def ask(self) -> "Answer":
        """Sends one valid message as the agent."""
        return self.send(whole(MESSAGE, AUTHORIZED, JSON))

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def send(self, *parts: bytes) -> Answer:
        """Sends bytes as they are, as far as the server takes them, and reads one answer."""
        with self.connect() as connection:
            return exchange(connection, parts)


def exchange(connection: socket.socket, parts: Iterable[bytes] = ()) -> Answer:
    with suppress(ConnectionError):
        for part in parts:
            connection.sendall(part)
    with http.client.HTTPResponse(connection) as response:
        response.begin()
        return Answer(response.status, response.headers, response.read())


def head(*headers: str, method: str = "POST", target: str = path_of("agent")) -> bytes:
    """A request line and headers, with the end of them."""
    lines = (f"{method} {target} HTTP/1.1", "Host: 127.0.0.1", *headers, "", "")
    return "\r\n".join(lines).encode("latin-1")


def whole(body: bytes, *headers: str, method: str = "POST", target: str = path_of("agent")) -> bytes:
    """A request with a body of the length it declares."""
    return head(*headers, f"Content-Length: {len(body)}", method=method, target=target) + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@contextmanager
def serving(app: ASGIApp) -> Generator[Wire]:
    """Serves an app in a thread of its own, as the host does: uvicorn."""
    server = uvicorn.Server(
        uvicorn.Config(
            app, log_config=None, lifespan="off", ws="none", timeout_keep_alive=300, timeout_graceful_shutdown=1
        )
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield Wire(listener.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join()
