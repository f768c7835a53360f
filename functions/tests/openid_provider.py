"""An OpenID provider on this machine, which tells the truth unless a test has it lie."""

import base64
import hmac
import json
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from metacortex.oauth.grants import challenge_of, new_secret
from web.wire import serving

CLIENT_ID = "the-client.apps.example.org"
CLIENT_SECRET = "a-client-secret-of-the-tests"
EMAIL = "owner@example.org"
SUBJECT = "1100220033"

Claims = dict[str, Any]


@cache
def key_named(name: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": name, "use": "sig"})


@dataclass
class Lies:
    """What is told instead of the truth."""

    claims: Callable[[Claims], Claims] = lambda claims: claims
    signed: Callable[[Claims], Any] | None = None
    """Makes the token of claims."""
    token: Callable[[dict[str, Any]], Any] = lambda token: token
    """Makes the token endpoint's answer of the right one."""
    metadata: Callable[[dict[str, Any]], Any] = lambda metadata: metadata
    jwks: Callable[[dict[str, Any]], Any] = lambda jwks: jwks
    answers: dict[str, Response] = field(default_factory=dict[str, Response])
    """Whole answers, by path."""
    silent: frozenset[str] = frozenset()
    """Paths that are not answered before the end."""


@dataclass
class OpenIdProvider:
    issuer: str = ""
    lies: Lies = field(default_factory=Lies)
    kid: str = "first"
    asked: list[str] = field(default_factory=list[str])
    """The paths that the service asked for."""
    sent: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    """What the token endpoint was sent."""
    given: list[str] = field(default_factory=list[str])
    """Every secret that it gave away: codes and tokens."""
    _begun: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    ended: threading.Event = field(default_factory=threading.Event)
    """Until it is set, what is silent is silent."""

    # --- The person who signs in ---

    async def approve(self, url: str, **changes: str) -> str:
        """Signs in at an authorization URL; where the browser is sent then, with some of it changed or left out."""
        async with httpx2.AsyncClient(trust_env=False) as http:
            response = await http.get(url)
        assert response.status_code == 302, response.text
        return changed(response.headers["location"], **changes)

    # --- What it serves ---

    @property
    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self._metadata),
                Route("/authorize", self._authorize),
                Route("/token", self._token, methods=["POST"]),
                Route("/jwks", self._jwks),
            ]
        )

    def _told(self, request: Request) -> Response | None:
        self.asked.append(request.url.path)
        if request.url.path in self.lies.silent:
            self.ended.wait()
        return self.lies.answers.get(request.url.path)

    def _metadata(self, request: Request) -> Response:
        told = self._told(request)
        metadata = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/jwks",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "scopes_supported": ["openid", "email", "profile"],
            "token_endpoint_auth_methods_supported": ["client_secret_post", "client_secret_basic"],
            "code_challenge_methods_supported": ["plain", "S256"],
        }
        return told or JSONResponse(self.lies.metadata(metadata))

    def _jwks(self, request: Request) -> Response:
        told = self._told(request)
        return told or JSONResponse(self.lies.jwks({"keys": [key_named(self.kid).as_dict(private=False)]}))

    def _authorize(self, request: Request) -> Response:
        fields = dict(request.query_params)
        assert (fields["client_id"], fields["response_type"]) == (CLIENT_ID, "code")
        code = new_secret()
        self.given.append(code)
        self._begun[code] = fields
        answer = {"code": code, "state": fields["state"], "iss": self.issuer, "scope": fields["scope"]}
        return RedirectResponse(f"{fields['redirect_uri']}?{urlencode(answer)}", 302)

    async def _token(self, request: Request) -> Response:
        # In the loop, since a form is read there; nothing else of this provider goes on meanwhile.
        told = self._told(request)
        form = dict(parse_qsl((await request.body()).decode()))
        self.sent.append(form)
        if told:
            return told
        basic = base64.b64decode(request.headers.get("authorization", "").removeprefix("Basic ")).decode()
        begun = self._begun.pop(form.get("code", ""), None)
        if basic != f"{CLIENT_ID}:{CLIENT_SECRET}":
            return JSONResponse({"error": "invalid_client"}, 401)
        if (
            begun is None
            or begun["redirect_uri"] != form.get("redirect_uri")
            or begun["code_challenge_method"] != "S256"
            or begun["code_challenge"] != challenge_of(form.get("code_verifier", ""))
        ):
            return JSONResponse({"error": "invalid_grant", "error_description": f"Not {form.get('code')}"}, 400)
        return JSONResponse(self.lies.token(self._tokens(begun)))

    def _tokens(self, begun: dict[str, str]) -> dict[str, Any]:
        now = int(time.time())
        claims = self.lies.claims(
            {
                "iss": self.issuer,
                "aud": CLIENT_ID,
                "azp": CLIENT_ID,
                "sub": SUBJECT,
                "email": EMAIL,
                "email_verified": True,
                "iat": now,
                "exp": now + 3600,
                **({"nonce": begun["nonce"]} if "nonce" in begun else {}),
            }
        )
        token = (self.lies.signed or self.sign)(claims)
        access = new_secret()
        self.given += [access, *([token] if token and isinstance(token, str) else [])]
        return {"access_token": access, "token_type": "Bearer", "expires_in": 3600, "id_token": token}

    def sign(self, claims: Claims) -> str:
        return signed(claims, key_named(self.kid), kid=self.kid)


def signed(claims: Claims, key: RSAKey, algorithm: str = "RS256", **header: Any) -> str:
    return jwt.encode({"alg": algorithm, "typ": "JWT", **header}, claims, key, algorithms=[algorithm])


def signed_by_text(claims: Claims, secret: bytes, **header: Any) -> str:
    """A token of the algorithm `HS256`, by a text that others know; libraries would not do that with a public key."""
    body = f"{_part({'alg': 'HS256', 'typ': 'JWT', **header})}.{_part(claims)}"
    return f"{body}.{_encoded(hmac.digest(secret, body.encode(), 'sha256'))}"


def unsigned(claims: Claims) -> str:
    """A token of the algorithm `none`."""
    return f"{_part({'alg': 'none', 'typ': 'JWT'})}.{_part(claims)}."


def _part(fields: dict[str, Any]) -> str:
    return _encoded(json.dumps(fields).encode())


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def changed(url: str, **changes: str) -> str:
    """A URL with other parameters; an empty one is left out."""
    split = urlsplit(url)
    fields = {**dict(parse_qsl(split.query)), **changes}
    return split._replace(query=urlencode({name: value for name, value in fields.items() if value})).geturl()


@contextmanager
def providing() -> Generator[OpenIdProvider]:
    provider = OpenIdProvider()
    with serving(provider.app) as wire:
        provider.issuer = f"http://127.0.0.1:{wire.port}"
        try:
            yield provider
        finally:
            provider.ended.set()
