"""The whole service in this process, driven as a client drives it: over HTTP, by JSON-RPC."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2

from fakes import InMemoryEvents, InMemoryMemories, PlaneEmbedder
from metacortex.adapters.local_models import LocalImages, LocalMerger
from metacortex.bootstrap import Models, Stores, install
from metacortex.events import Event
from metacortex.settings import load
from metacortex.startup import once
from metacortex.web.app import Installation, create_app

ADMIN_TOKEN = "an-admin-token-of-the-tests"
TOKENS = {"default": ADMIN_TOKEN, "agent": "a-scoped-token-of-the-tests", "reader": "a-reading-token-of-the-tests"}
ALL_STATES = ["active", "merged", "deprecated", "wip"]
PROFILES: list[dict[str, Any]] = [
    {
        "id": "agent",
        "token": TOKENS["agent"],
        "allowedTools": ["save_context", "search_context", "fetch_context"],
        "allowedOrigins": ["https://claude.ai"],
    },
    {
        "id": "reader",
        "token": TOKENS["reader"],
        "allowedTools": ["search_context", "fetch_context"],
        "allowedFilterStates": ALL_STATES,
    },
]
PROJECT = "demo-tests"
JSON_HEADERS = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
NOON = 1_780_000_000_000


class ToolError(Exception):
    """A tool answered isError: its status, code and message."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(error["message"])
        self.status: int = error["status"]
        self.code: str = error["code"]
        self.message: str = error["message"]


class ProtocolError(Exception):
    """The server answered a JSON-RPC error."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(error["message"])
        self.code: int = error["code"]


@dataclass
class FakeClock:
    """Epoch milliseconds that move only when a test moves them."""

    now: int = NOON

    def __call__(self) -> int:
        return self.now

    def advance(self, *, minutes: float = 0, days: float = 0) -> None:
        self.now += round((minutes + days * 24 * 60) * 60_000)


def environment(**settings: str) -> dict[str, str]:
    """Valid settings for the local route, with the given ones on top."""
    return {
        "MCP_ADMIN_TOKEN": ADMIN_TOKEN,
        "MCP_CLIENT_PROFILES_JSON": json.dumps(PROFILES),
        "MODEL_PROVIDER": "local",
        **settings,
    }


def in_memory() -> Stores:
    events = InMemoryEvents()
    return Stores(memories=InMemoryMemories(events), events=events)


def plane_models(**replacements: Any) -> Models:
    """Models whose vectors a test chooses by its texts, with others in place of some of them."""
    return replace(Models(embedder=PlaneEmbedder(), describer=LocalImages(), merger=LocalMerger()), **replacements)


class Client:
    """The clients' side of a service: every profile's, over one connection."""

    http: httpx2.AsyncClient

    async def rpc(self, method: str, params: Mapping[str, Any], profile: str = "agent") -> dict[str, Any]:
        """The result of one JSON-RPC request; raises ProtocolError."""
        response = await self.http.post(
            path_of(profile),
            json={"jsonrpc": "2.0", "id": 1, "method": method, "params": params},
            headers=JSON_HEADERS | bearer(profile),
        )
        answer = response.json()
        if "error" in answer:
            raise ProtocolError(answer["error"])
        return answer["result"]

    async def call(self, tool: str, profile: str = "agent", **arguments: Any) -> dict[str, Any]:
        """The structured result of one tool call; raises ToolError or ProtocolError."""
        result = await self.rpc("tools/call", {"name": tool, "arguments": arguments}, profile)
        [content] = result["content"]
        payload = json.loads(content["text"])
        if result["isError"]:
            assert "structuredContent" not in result
            raise ToolError(payload["error"])
        assert payload == result["structuredContent"]
        return payload

    async def save(self, content: str, profile: str = "agent", **arguments: Any) -> dict[str, Any]:
        return (await self.call("save_context", profile, content=content, **arguments))["item"]

    async def search(self, query: str, profile: str = "agent", **arguments: Any) -> list[dict[str, Any]]:
        return (await self.call("search_context", profile, query=query, **arguments))["matches"]

    async def fetch(self, memory_id: str, profile: str = "agent") -> dict[str, Any]:
        return (await self.call("fetch_context", profile, id=memory_id))["item"]


@dataclass
class Service(Client):
    """One service in this process, and the clients' side of it."""

    settings: dict[str, str] = field(default_factory=environment)
    stores: Stores = field(default_factory=in_memory)
    models: Models = field(default_factory=plane_models)
    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        def installed() -> Installation:
            return install(load(self.settings), lambda: self.stores, self.models, self.clock)

        self.app = create_app(once(installed), project_id=PROJECT, service_name="metacortex")
        self.http = httpx2.AsyncClient(transport=httpx2.ASGITransport(self.app), base_url="http://127.0.0.1")

    @property
    def events(self) -> list[Event]:
        assert isinstance(self.stores.events, InMemoryEvents)
        return list(self.stores.events.stored.values())


def path_of(profile: str) -> str:
    return "/mcp" if profile == "default" else f"/clients/{profile}/mcp"


def bearer(profile: str) -> dict[str, str]:
    return {"authorization": f"Bearer {TOKENS[profile]}"}
