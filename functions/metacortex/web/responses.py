"""Answers of the HTTP edge: one table of refusals, always JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Send

NOT_FOUND = {"error": "Not found"}
SERVICE_ERROR_CODE = -32000
PARSE_ERROR_CODE = -32700
INVALID_REQUEST_CODE = -32600


# Not frozen: contextlib sets the traceback of an exception that passes through one of its managers.
@dataclass(eq=False)
class Refused(Exception):
    """A request that is turned away before it reaches MCP. `reason` is what the audit trail calls it."""

    status_code: int
    reason: str
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    def response(self) -> Response:
        return JSONResponse(self.body, self.status_code, self.headers)


class Answer:
    """A `send` that adds headers to the answer, whoever makes it, and knows whether it has begun."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.headers: Mapping[str, str] = {}
        self.begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            MutableHeaders(scope=message).update(self.headers)
        await self._send(message)


def origin_not_allowed() -> Refused:
    return Refused(403, "origin_not_allowed", {"error": "Origin not allowed"})


def unauthorized(*, resource_metadata: str = "", with_token: bool = False) -> Refused:
    """`resource_metadata` is where a client finds out how to sign in (RFC 9728 §5.1); empty where nobody does."""
    challenge = 'Bearer realm="metacortex"'
    if resource_metadata:
        # RFC 6750 §3: without a token there is no error to tell.
        error = ', error="invalid_token"' if with_token else ""
        challenge += f'{error}, resource_metadata="{resource_metadata}", scope="memory"'
    return Refused(401, "unauthorized", {"error": "Unauthorized"}, {"WWW-Authenticate": challenge})


def too_many_requests() -> Refused:
    return Refused(429, "too_many_requests", {"error": "Too many requests"}, {"Retry-After": "1"})


def method_not_allowed() -> Refused:
    message = "Method not allowed: send JSON-RPC messages by POST; this server offers no stream."
    return Refused(405, "method_not_allowed", _rpc_error(SERVICE_ERROR_CODE, message), {"Allow": "POST, OPTIONS"})


def body_too_large(limit: int) -> Refused:
    return Refused(
        413, "body_too_large", _rpc_error(SERVICE_ERROR_CODE, f"The body is over the limit of {limit:,} bytes.")
    )


def unsupported_media_type() -> Refused:
    message = "Send the body as Content-Type: application/json."
    return Refused(415, "unsupported_media_type", _rpc_error(SERVICE_ERROR_CODE, message))


def malformed(message: str, code: int = PARSE_ERROR_CODE) -> Refused:
    return Refused(400, "malformed", _rpc_error(code, message))


def _rpc_error(code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}


def failure(status_code: int, message: str, request_id: str) -> Response:
    """An answer whose reason only the log knows, under the request id."""
    return JSONResponse({"error": message, "requestId": request_id}, status_code)
