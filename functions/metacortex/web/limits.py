"""What a request may cost: calls at once, and the size and shape of its body."""

import asyncio
import re
from collections.abc import Generator
from contextlib import contextmanager, suppress
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
# A memory of 400,000 bytes takes 7 MB and a second and a half until it is stored, and an image of a megabyte as much memory: an
# instance has 512 MB, and a caller the patience for some ten others.
BODIES_BYTES = 4 * BODY_BYTES
# What an ordinary call sends is never too much, whatever others send.
ORDINARY_BYTES = 16_384
# Lists, objects and names: a call needs a few. Half a million would hold up all others, though they fit into a body.
MOST_PIECES = 10_000
# A text in JSON, closed or not: what is not JSON is found out later.
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.?)*+"?', re.DOTALL)


class Capacity:
    """What this instance serves at once: so many calls, and so many bytes of their bodies."""

    def __init__(self) -> None:
        self._free_calls = CALLS_AT_ONCE
        self._free_bytes = BODIES_BYTES

    @contextmanager
    def call(self) -> Generator["Room"]:
        """The room that a call has until its end. One over the limit is told to come back, before its body is read."""
        if self._free_calls == 0:
            raise too_many_requests()
        room = Room(self)
        self._free_calls -= 1
        try:
            yield room
        finally:
            self._free_calls += 1
            room.leave()

    def take(self, size: int) -> bool:
        """Whether there is room for so many bytes more, which are taken from now on; a negative number gives some back."""
        if size > self._free_bytes:
            return False
        self._free_bytes -= size
        return True


class Room:
    """What the body of one call takes up."""

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity
        self._taken = 0

    def holds(self, size: int) -> bool:
        """Whether a body may have this size, which is at least what was asked before."""
        more = max(0, size - ORDINARY_BYTES) - self._taken
        if not self._capacity.take(more):
            return False
        self._taken += more
        return True

    def leave(self) -> None:
        self._capacity.take(-self._taken)
        self._taken = 0


def require_post(request: Request) -> None:
    if request.method != "POST":
        raise method_not_allowed()


async def read_message(request: Request, room: Room) -> bytes:
    """The body of a request, read up to its limit and checked to be one JSON-RPC message. Raises Refused."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and (len(declared) > len(str(BODY_BYTES)) or int(declared) > BODY_BYTES):
        raise body_too_large(BODY_BYTES)
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise unsupported_media_type()
    if "content-encoding" in request.headers:
        raise malformed("Send the body without a content encoding.")
    body = await _read(request, room)
    _check(body)
    if len(body) > ORDINARY_BYTES:
        # MCP reads it once more: other calls may go in between.
        await asyncio.sleep(0)
    return body


async def _read(request: Request, room: Room) -> bytes:
    body = bytearray()
    size = 0
    has_room = True
    try:
        # A body that never ends would hold one of the calls at once for good.
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                size += len(chunk)
                if size > BODY_BYTES:
                    raise body_too_large(BODY_BYTES)
                has_room = has_room and room.holds(size)
                if has_room:
                    body += chunk
                else:
                    # The rest is let pass: a client that is still sending would not see the answer.
                    body.clear()
                    room.leave()
    except ClientDisconnect:
        raise malformed("The body ended early.") from None
    except TimeoutError:
        raise malformed(f"The body did not arrive within {BODY_SECONDS:.0f} seconds.") from None
    if not has_room:
        raise too_many_requests()
    return bytes(body)


def _check(body: bytes) -> None:
    message = _parsed(body)
    if not isinstance(message, dict) or not _is_rpc(message):
        raise malformed(
            "Send one JSON-RPC 2.0 message whose id is a text or a whole number; batches are not supported.",
            INVALID_REQUEST_CODE,
        )


def _parsed(body: bytes) -> Any:
    # Stricter than the standard library: refuses NaN, half surrogate pairs, and nesting deeper than 200.
    with suppress(ValueError):
        if not _is_crowded(body):
            return from_json(body, allow_inf_nan=False)
    raise malformed(
        "The body is not valid JSON in UTF-8, escapes half of a surrogate pair, or holds more than "
        f"{MOST_PIECES:,} lists, objects and names."
    )


def _is_crowded(body: bytes) -> bool:
    """Whether JSON has too many pieces. Looks closer only where their signs, which texts may hold, are too many."""
    return _signs(body) > MOST_PIECES and _signs(_TEXT.sub(b"", body)) > MOST_PIECES


def _signs(body: bytes) -> int:
    return sum(map(body.count, (b"[", b"{", b":")))


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
