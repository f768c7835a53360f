"""What a request may cost: calls at once, and the size and shape of its body."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from pydantic_core import from_json
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
BODY_SECONDS = 15.0
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
    if media_type != "application/json":
        raise unsupported_media_type()
    if "content-encoding" in request.headers:
        raise malformed("Send the body without a content encoding.")
    body = await _read(request)
    _check(body)
    return body


async def _read(request: Request) -> bytes:
    body = bytearray()
    try:
        # A body that never ends would hold one of the calls at once for good.
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > BODY_BYTES:
                    raise body_too_large(BODY_BYTES)
    except ClientDisconnect:
        raise malformed("The body ended early.") from None
    except TimeoutError:
        raise malformed(f"The body did not arrive within {BODY_SECONDS:.0f} seconds.") from None
    return bytes(body)


def _check(body: bytes) -> None:
    try:
        # Stricter than the standard library: refuses NaN, half surrogate pairs, and nesting deeper than 200.
        message: Any = from_json(body, allow_inf_nan=False)
    except ValueError:
        raise malformed("The body is not valid JSON in UTF-8, or escapes half of a surrogate pair.") from None
    if not isinstance(message, dict) or not _is_rpc(message):
        raise malformed(
            "Send one JSON-RPC 2.0 message whose id is a text or a whole number; batches are not supported.",
            INVALID_REQUEST_CODE,
        )


def _is_rpc(message: dict[str, Any]) -> bool:
    """Whether a message has the form of JSON-RPC 2.0: MCP would quote one that has not in its answer, or leave it unanswered."""
    has_id = isinstance(message.get("id"), str | int) and not isinstance(message["id"], bool)
    if message.get("jsonrpc") != "2.0" or not (has_id or "id" not in message):
        return False
    if "method" in message:
        return isinstance(message["method"], str) and isinstance(message.get("params"), dict | None)
    # A response is a client's to send, too; MCP acknowledges it.
    return has_id and (isinstance(message.get("result"), dict) or _is_rpc_error(message.get("error")))


def _is_rpc_error(error: Any) -> bool:
    return isinstance(error, dict) and isinstance(error.get("code"), int) and isinstance(error.get("message"), str)


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
