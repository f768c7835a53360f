"""The authorization server's paths. Nothing of this is imported before one of them is asked for."""

import asyncio
import logging
import re
import uuid
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, request_response
from starlette.types import ASGIApp

from metacortex.errors import MetaCortexError
from metacortex.oauth.errors import Gone, OAuthError
from metacortex.oauth.owner import Owner
from metacortex.oauth.ports import ProviderSignIn
from metacortex.oauth.service import Authorization
from metacortex.web.oauth import pages
from metacortex.web.oauth.bodies import take_in
from metacortex.web.oauth.browser import Browser
from metacortex.web.oauth.discovery import Discovery
from metacortex.web.oauth.tokens import NO_STORE, Tokens
from metacortex.web.responses import NOT_FOUND

Handler = Callable[[Request], Awaitable[Response]]

RESOURCE = "/.well-known/oauth-protected-resource"
SERVER = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")
REQUESTS_AT_ONCE = 16

_AUTH_SCHEME = re.compile(r"[A-Za-z]{1,20}")

logger = logging.getLogger(__name__)


def create_oauth_app(authorization: Authorization, owner: Owner, provider: ProviderSignIn | None) -> ASGIApp:
    discovery, tokens, browser = (
        Discovery(authorization),
        Tokens(authorization),
        Browser(authorization, owner, provider),
    )
    # Strangers at the door keep no client from renewing its tokens.
    limit, tokens_limit = _Limit(), _Limit()
    routes = [
        _public(RESOURCE, discovery.of_origin),
        _public(f"{RESOURCE}/clients/{{client_id}}/mcp", discovery.of_endpoint),
        *(_public(path, discovery.of_server) for server in SERVER for path in (server, f"{server}/{{suffix:path}}")),
        _for_clients("/oauth/register", limit.around(tokens.register)),
        _for_clients("/oauth/token", tokens_limit.around(tokens.token)),
        _for_clients("/oauth/revoke", tokens_limit.around(tokens.revoke)),
        _for_people("/oauth/authorize", limit.around(browser.authorize), "GET", "POST"),
        _for_people("/oauth/sign-in", limit.around(browser.sign_in), "POST"),
        _for_people("/oauth/google", limit.around(browser.to_google), "GET"),
        _for_people("/oauth/google/callback", limit.around(browser.from_google), "GET"),
        _for_people("/oauth/consent", limit.around(browser.consent), "GET", "POST"),
    ]
    app = Starlette(routes=routes, exception_handlers={404: _not_found, 405: _method_not_allowed})
    app.router.redirect_slashes = False
    return app


class _Limit:
    """How many requests of one kind, which need no credential, this instance serves at once."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(REQUESTS_AT_ONCE)

    def around(self, handler: Handler) -> Handler:
        async def limited(request: Request) -> Response:
            # Who is slow to say what they want keeps nobody from a place.
            await take_in(request)
            if self._free.locked():
                raise OAuthError("temporarily_unavailable", "Too many requests at once; try again in a second.", 429)
            async with self._free:
                return await handler(request)

        return limited


def _public(path: str, handler: Handler) -> Route:
    """A document that any web page may read."""
    return Route(path, _cors(_answering(handler, _as_json), "GET"), methods=["GET", "OPTIONS"])


def _for_clients(path: str, handler: Handler) -> Route:
    """An endpoint of clients, of which some run in web pages. No cookie counts here, so any page may call it."""
    return Route(path, _cors(_answering(handler, _as_json), "POST"), methods=["POST", "OPTIONS"])


def _for_people(path: str, handler: Handler, *methods: str) -> Route:
    return Route(path, _answering(handler, _as_page), methods=list(methods))


def _cors(handler: Handler, method: str) -> ASGIApp:
    async def answer(request: Request) -> Response:
        if request.method == "OPTIONS":
            # Not a browser's, which the middleware answers: nobody asks for anything to happen.
            return Response(status_code=204, headers={"Allow": f"{method}, OPTIONS", **NO_STORE})
        return await handler(request)

    return CORSMiddleware(
        request_response(answer), allow_origins=["*"], allow_methods=[method], allow_headers=["*"], max_age=3600
    )


def _answering(handler: Handler, shown: Callable[[OAuthError, Request], Response]) -> Handler:
    """A handler whose refusals are answers: `shown` makes them for whoever reads them."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except OAuthError as error:
            return shown(error, request)
        except Gone as gone:
            return pages.message("This cannot go on", gone.says, 400)
        except MetaCortexError as error:
            return shown(OAuthError("temporarily_unavailable", error.message, 503), request)
        except Exception:
            request_id = uuid.uuid4().hex
            logger.exception("Signing in failed unexpectedly (requestId %s)", request_id)
            says = f"Something unexpected happened; the log has it as {request_id}."
            return shown(OAuthError("server_error", says, 500), request)

    return answer


def _as_json(error: OAuthError, request: Request) -> Response:
    headers = dict(NO_STORE)
    if error.status_code in {429, 503}:
        headers["Retry-After"] = "1"
    scheme = request.headers.get("authorization", "").partition(" ")[0]
    if error.status_code == 401 and _AUTH_SCHEME.fullmatch(scheme):
        # RFC 6749 §5.2: a client that tried to authenticate in the header is told so there, in its own way.
        headers["WWW-Authenticate"] = f'{scheme} realm="metacortex"'
    return JSONResponse({"error": error.code, "error_description": error.description}, error.status_code, headers)


def _as_page(error: OAuthError, _: Request) -> Response:
    return pages.message("This request cannot be answered", error.description, error.status_code)


async def _not_found(_: Request, __: Exception) -> Response:
    return JSONResponse(NOT_FOUND, 404, NO_STORE)


async def _method_not_allowed(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": "Method not allowed"}, 405, {**(error.headers or {}), **NO_STORE})
