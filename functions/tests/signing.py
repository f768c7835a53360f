"""Signing in over HTTP: a client's side, the owner's browser, and the app between them, in this process."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
from argon2 import PasswordHasher
from starlette.types import Receive, Scope, Send

from builders import JSON_HEADERS, FakeClock, environment
from metacortex import bootstrap
from metacortex.oauth.grants import challenge_of
from metacortex.oauth.ports import ClientDocuments
from metacortex.settings import Settings, load
from metacortex.startup import once
from metacortex.web.app import create_app

BASE = "https://memory.example.org"
PASSPHRASE = "correct horse battery staple"
# Cheap on purpose: what it costs to guess is argon2's matter.
HASH = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(PASSPHRASE)
VERIFIER = "v" * 43
REDIRECT = "https://claude.ai/api/mcp/auth_callback"
RESOURCE = f"{BASE}/clients/agent/mcp"
# Where nobody's answer may be sent, whoever names it.
FORBIDDEN_REDIRECTS = [
    "javascript:alert(1)",
    "JavaScript://claude.ai/%0aalert(1)",
    "data:text/html,hello",
    "vbscript:MsgBox",
    "file:///etc/passwd",
    "blob:https://claude.ai/1",
    "filesystem:https://claude.ai/1",
    "about:blank",
    "view-source:https://claude.ai/callback",
    "intent://callback#Intent;scheme=https;end",
    "intent:callback",
    "ms-msdt:/id",
    "chrome-extension://aaaa/callback",
    "ws://claude.ai/callback",
    "wss://claude.ai/callback",
    "ftp://claude.ai/callback",
    "mailto:owner@claude.ai",
    "urn:ietf:wg:oauth:2.0:oob",
    "http://claude.ai/callback",
    "http://localhost.claude.ai/callback",
    "http://127.0.0.1.claude.ai/callback",
    "http://localhost@claude.ai/callback",
    "http://0.0.0.0/callback",
    "https://claude.ai/callback#fragment",
    "https://owner@claude.ai/callback",
    "https://claude.ai%2eevil.example.org/callback",
    "https://claude.ai\\@evil.example.org/callback",
    "https:///callback",
    "https:callback",
    "//claude.ai/callback",
    "/callback",
    "claude.ai/callback",
    "not an address",
    "application://callback",
    "vscode://callback",
    "cursor://anysphere.cursor-mcp/oauth/callback/",
    "cursor://anysphere.cursor-mcp/oauth/callback?install=1",
    "cursor://anysphere.cursor-deeplink/mcp/install",
    "CURSOR://anysphere.cursor-mcp/oauth/callback",
    "com.example.app:/callback#fragment",
    "com.example.app:/call back",
    ".example.app:/callback",
    "",
]
FORM = {"content-type": "application/x-www-form-urlencoded"}


class ColdApp:
    """The app as a new process has it, for every request anew."""

    def __init__(self, signing: "Signing") -> None:
        self._signing = signing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._signing.new_app()(scope, receive, send)


@dataclass
class Signing:
    """One installation in which the owner signs in."""

    project: str
    settings: dict[str, str] = field(default_factory=dict[str, str])
    clock: FakeClock = field(default_factory=FakeClock)
    is_cold: bool = False
    documents: ClientDocuments | None = None

    def __post_init__(self) -> None:
        self.settings = environment(
            PUBLIC_BASE_URL=BASE, OWNER_PASSPHRASE_HASH=HASH, GCLOUD_PROJECT=self.project, **self.settings
        )
        self.transport = self.connect()
        self.http = httpx2.AsyncClient(transport=self.transport, base_url=BASE)

    def connect(self) -> httpx2.AsyncBaseTransport:
        """How requests get there."""
        return httpx2.ASGITransport(ColdApp(self) if self.is_cold else self.new_app())

    def new_app(self) -> Any:
        def installed() -> Any:
            settings = load(self.settings)
            models = bootstrap.models(settings, self.project)
            return bootstrap.install(settings, lambda: self._stores(settings), models, self.clock)

        return create_app(once(installed), project_id=self.project, service_name="metacortex")

    def _stores(self, settings: Settings) -> bootstrap.Stores:
        return replace(bootstrap.firestore(settings, self.project), documents=self.documents)

    # --- The client's side ---

    async def register(self, name: str = "A client", *redirects: str, **metadata: Any) -> dict[str, Any]:
        body = {"client_name": name, "redirect_uris": list(redirects or (REDIRECT,)), **metadata}
        response = await self.http.post("/oauth/register", json=body)
        assert response.status_code == 201, response.text
        return response.json()

    def authorize_url(self, client_id: str, **changes: str | None) -> str:
        asked: dict[str, str | None] = {
            "client_id": client_id,
            "redirect_uri": REDIRECT,
            "response_type": "code",
            "code_challenge": challenge_of(VERIFIER),
            "code_challenge_method": "S256",
            "state": "a state",
            "scope": "memory offline_access",
            "resource": RESOURCE,
            **changes,
        }
        sent = {name: value for name, value in asked.items() if value is not None}
        return f"/oauth/authorize?{urlencode(sent)}"

    async def redeem(self, client_id: str, code: str, **changes: str | None) -> httpx2.Response:
        return await self.token(
            grant_type="authorization_code",
            client_id=client_id,
            code=code,
            **{"redirect_uri": REDIRECT, "code_verifier": VERIFIER, **changes},
        )

    async def refresh(self, client_id: str, token: str, **changes: str | None) -> httpx2.Response:
        return await self.token(grant_type="refresh_token", client_id=client_id, refresh_token=token, **changes)

    async def token(self, **fields: str | None) -> httpx2.Response:
        sent = {name: value for name, value in fields.items() if value is not None}
        return await self.http.post("/oauth/token", data=sent)

    async def connected(self, client_id: str | None = None) -> dict[str, Any]:
        """The tokens of a client that was approved; with its id."""
        if client_id is None:
            client_id = str((await self.register())["client_id"])
        returned = await Browser(self).approve(self.authorize_url(client_id))
        response = await self.redeem(client_id, returned["code"])
        assert response.status_code == 200, response.text
        return {**response.json(), "client_id": client_id}

    async def call(self, token: str | None, profile: str = "agent") -> httpx2.Response:
        """One MCP request with a token, or with none."""
        path = "/mcp" if profile == "default" else f"/clients/{profile}/mcp"
        headers = JSON_HEADERS | ({"authorization": f"Bearer {token}"} if token else {})
        return await self.http.post(path, json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, headers=headers)


class Browser:
    """The owner's browser: follows what stands on the pages, and keeps the cookie."""

    def __init__(self, signing: Signing) -> None:
        self._signing = signing
        self.cookies: dict[str, str] = {}

    async def open(self, url: str) -> httpx2.Response:
        return self._kept(await self._signing.http.get(url, headers=self._headers()))

    async def send(self, path: str, *, origin: str | None = BASE, **fields: str) -> httpx2.Response:
        """Sends a form, from a page of an origin."""
        headers = self._headers() | FORM | ({"origin": origin} if origin else {})
        return self._kept(await self._signing.http.post(path, content=urlencode(fields), headers=headers))

    def _headers(self) -> dict[str, str]:
        return {"cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())} if self.cookies else {}

    def _kept(self, response: httpx2.Response) -> httpx2.Response:
        for name, value in response.cookies.items():
            self.cookies[name] = value
        return response

    async def sign_in(self, url: str, passphrase: str = PASSPHRASE) -> str:
        """Opens an authorization URL and signs in; the id of the request that waits for an answer."""
        request = request_on(await self.open(url))
        response = await self.send("/oauth/sign-in", request=request, passphrase=passphrase)
        assert response.status_code == 303, response.text
        assert (await self.open(response.headers["location"])).status_code == 200
        return request

    async def answer(self, request: str, answer: str) -> dict[str, str]:
        """What the client is told once the owner has answered."""
        response = await self.send("/oauth/consent", request=request, answer=answer)
        assert response.status_code == 303, response.text
        return returned_to(response)

    async def approve(self, url: str) -> dict[str, str]:
        return await self.answer(await self.sign_in(url), "approve")


def request_on(page: httpx2.Response) -> str:
    """The id of the request that a page is about."""
    assert page.status_code == 200, page.text
    found = re.search(r'name="request" value="([^"]+)"', page.text)
    assert found, page.text
    return unescape(found[1])


def returned_to(response: httpx2.Response) -> dict[str, str]:
    """The parameters that a redirect brings back to the client."""
    return dict(parse_qsl(urlsplit(response.headers["location"]).query))


def refused_on(page: httpx2.Response) -> tuple[str, dict[str, str]]:
    """Where the page about a wrong request leads the owner back to, and the parameters that the client finds there."""
    assert page.status_code == 400, page.text
    assert "location" not in page.headers
    [onward] = re.findall(r'class="button" href="([^"]+)"', page.text)
    address, _, query = unescape(onward).partition("?")
    return address, dict(parse_qsl(query))


def said_on(page: httpx2.Response) -> str:
    """The text of a page, without its marks."""
    body = page.text.partition("<main>")[2]
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


def error_of(response: httpx2.Response) -> tuple[int, str]:
    answer: Mapping[str, Any] = response.json()
    assert set(answer) == {"error", "error_description"}, answer
    return response.status_code, answer["error"]
