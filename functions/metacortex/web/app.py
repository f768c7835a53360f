"""The HTTP edge: paths, and the order in which a request is checked before MCP sees it."""

import logging
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from metacortex import logs
from metacortex.errors import ConfigurationError, MetaCortexError
from metacortex.profiles import ADMIN_ID, Profile
from metacortex.settings import FUNCTION_NAME, REGION, Settings
from metacortex.trail import Rejections
from metacortex.web import cors
from metacortex.web.auth import authenticate
from metacortex.web.limits import Capacity, read_message, replaying, require_post
from metacortex.web.responses import NOT_FOUND, Answer, Refused, failure
from metacortex.web.sign_in import SignIn

logger = logging.getLogger(__name__)

ENDPOINTS = ["/mcp", "/clients/:clientId/mcp"]


@dataclass(frozen=True)
class Installation:
    """Everything a request needs once the configuration is known to be good."""

    settings: Settings
    mcp: ASGIApp
    rejections: Rejections
    sign_in: SignIn | None = None


def create_app(load: Callable[[], Awaitable[Installation]], *, project_id: str | None, service_name: str) -> Starlette:
    """The ASGI app. `load` answers the installation, or raises ConfigurationError on every request until it can."""
    endpoint = McpEndpoint(load)

    async def health(_: Request) -> Response:
        return JSONResponse({"ok": True, "service": service_name, "endpoints": ENDPOINTS})

    routes = [
        route
        for prefix in _prefixes(project_id)
        for route in (
            WholePath(f"{prefix}/healthz", health),
            WholePath(f"{prefix}/health", health),
            WholePath(f"{prefix}/mcp", endpoint),
            WholePath(f"{prefix}/clients/{{client_id}}/mcp", endpoint),
        )
    ]
    sign_in = SignInPaths(load)
    routes += [WholePath(path, sign_in) for path in ("/oauth/{rest:path}", "/.well-known/{rest:path}")]
    app = Starlette(routes=routes, exception_handlers={404: _not_found, 405: _method_not_allowed})
    app.router.redirect_slashes = False
    return app


class WholePath(Route):
    """A route that nothing may follow: the `$` of a pattern would let a line feed pass."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return (Match.NONE, {}) if scope["path"].endswith("\n") else super().matches(scope)


def _prefixes(project_id: str | None) -> list[str]:
    """What may stand before a path: the platform strips these mostly, but not always."""
    own = f"/{FUNCTION_NAME}"
    return ["", own, f"/{project_id}/{REGION}{own}"] if project_id else ["", own]


async def _not_found(_: Request, __: Exception) -> Response:
    return JSONResponse(NOT_FOUND, 404)


async def _method_not_allowed(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": "Method not allowed"}, 405, error.headers)


class SignInPaths:
    """The paths of the authorization server; where nobody signs in there are none."""

    def __init__(self, load: Callable[[], Awaitable[Installation]]) -> None:
        self._load = load

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        logs.trace_id.set(logs.trace_of(Headers(scope=scope)))
        try:
            sign_in = (await self._load()).sign_in
        except ConfigurationError as error:
            await _unavailable(error)(scope, receive, send)
            return
        app: ASGIApp = JSONResponse(NOT_FOUND, 404) if sign_in is None else await sign_in.app()
        await app(scope, receive, send)


class McpEndpoint:
    """One MCP path. Its checks come in the contract's order, and none costs more than the one after it."""

    def __init__(self, load: Callable[[], Awaitable[Installation]]) -> None:
        self._load = load
        self._capacity = Capacity()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        logs.trace_id.set(logs.trace_of(Headers(scope=scope)))
        answer = Answer(send)
        try:
            await self._serve(await self._load(), scope, receive, answer)
        except ConfigurationError as error:
            await _unavailable(error)(scope, receive, answer)
        except MetaCortexError as error:
            # Tools answer for themselves: this is the store, asked whose token it is.
            request_id = uuid.uuid4().hex
            logger.warning("A token could not be looked up: %s (requestId %s)", type(error).__name__, request_id)
            await failure(503, "Service unavailable", request_id)(scope, receive, answer)
        except Exception:
            request_id = uuid.uuid4().hex
            logger.exception("A request failed unexpectedly (requestId %s)", request_id)
            if not answer.begun:
                await failure(500, "Internal server error", request_id)(scope, receive, answer)

    async def _serve(self, installation: Installation, scope: Scope, receive: Receive, answer: Answer) -> None:
        request = Request(scope, receive)
        client_id = scope["path_params"].get("client_id")
        profile = installation.settings.profiles.get(client_id or ADMIN_ID)
        if profile is None or client_id == ADMIN_ID:
            await JSONResponse(NOT_FOUND, 404)(scope, receive, answer)
            return
        try:
            answer.headers = cors.headers_for(request, profile)
            if request.method == "OPTIONS":
                await cors.preflight()(scope, receive, answer)
                return
            await authenticate(
                request, profile, url_tokens=installation.settings.url_tokens, sign_in=installation.sign_in
            )
            with self._capacity.call() as room:
                require_post(request)
                body = await read_message(request, room)
                await installation.mcp(_checked(scope, profile), replaying(body, receive), answer)
        except Refused as refused:
            await installation.rejections.record(
                client_id=profile.id,
                method=request.method,
                path=scope["path"],
                status_code=refused.status_code,
                reason=refused.reason,
            )
            await refused.response()(scope, receive, answer)


# MCP's own checks of these two are stricter than HTTP: they refuse `Application/JSON`, and a request without Accept.
_CHECKED_HEADERS = {b"content-type": b"application/json", b"accept": b"application/json, text/event-stream"}


def _checked(scope: Scope, profile: Profile) -> Scope:
    """A request that has stood every check, as MCP gets it."""
    others = [(name, value) for name, value in scope["headers"] if name not in _CHECKED_HEADERS]
    return {**scope, "headers": [*others, *_CHECKED_HEADERS.items()], "state": {"profile": profile}}


def _unavailable(error: ConfigurationError) -> Response:
    request_id = uuid.uuid4().hex
    for fault in error.faults:
        logger.error("Configuration: %s (requestId %s)", fault, request_id)
    return failure(503, "Service unavailable", request_id)
