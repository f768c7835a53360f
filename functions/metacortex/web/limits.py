"""What a request may cost: calls at once, and the size and shape of its body."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, NoReturn

from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive

from metacortex.web.responses import (
    INVALID_REQUEST_CODE,
    body_too_large,
    malformed,
    method_not_allowed,
    too_many_requests,
    unsupported_media_type,
)

BODY_BYTES = 1_048_576
CALLS_AT_ONCE = 64


class Capacity:
    """The calls this instance serves at once. One over the limit is told to come back, before its body is read."""

    def __init__(self, limit: int = CALLS_AT_ONCE) -> None:
        self._free = limit

    @contextmanager
    def call(self) -> Generator[None]:
        if self._free == 0:
            raise too_many_requests()
        self._free -= 1
        try:
            yield
        finally:
            self._free += 1


def require_post(request: Request) -> None:
    if request.method != "POST":
        raise method_not_allowed()


async def read_message(request: Request) -> bytes:
    """The body of a request, read up to its limit and checked to be one JSON-RPC message. Raises Refused."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and (len(declared) > len(str(BODY_BYTES)) or int(declared) > BODY_BYTES):
        raise body_too_large(BODY_BYTES)
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json" or "content-encoding" in request.headers:
        raise unsupported_media_type()
    body = await _read(request)
    _check(body)
    return body


async def _read(request: Request) -> bytes:
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > BODY_BYTES:
                raise body_too_large(BODY_BYTES)
    except ClientDisconnect:
        raise malformed("The body ended early.") from None
    return bytes(body)


def _check(body: bytes) -> None:
    try:
        message: Any = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise malformed("The body is not valid JSON.") from None
    # Responses (without a method) are a client's to send, too; the protocol layer acknowledges them.
    named = isinstance(message, dict) and (
        isinstance(message.get("method"), str) or not message.keys().isdisjoint({"result", "error"})
    )  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    if not named or message.get("jsonrpc") != "2.0":
        raise malformed("Send one JSON-RPC 2.0 message; batches are not supported.", INVALID_REQUEST_CODE)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def replaying(body: bytes, receive: Receive) -> Receive:
    """A `receive` that hands out a body already read, then whatever the connection says next."""
    handed_out = False

    async def receive_again() -> Message:
        nonlocal handed_out
        if handed_out:
            return await receive()
        handed_out = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again
