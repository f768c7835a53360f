"""What a person connects a client with: the endpoints of a running function, their tokens, and lines to paste."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from metacortex.settings import FUNCTION_NAME, REGION

PROJECT = "demo-metacortex"
PORT = 5001
PREFIX = f"/{PROJECT}/{REGION}/{FUNCTION_NAME}"
VARIABLE = "METACORTEX_TOKEN"


@dataclass(frozen=True)
class Endpoint:
    """One MCP endpoint and who may use it."""

    name: str
    path: str
    token: str | None
    """None where only its hash is stored."""
    tools: tuple[str, ...]

    def url(self, base: str) -> str:
        """The full URL, as the platform writes it."""
        return f"{base}{PREFIX}{self.path}"

    def token_or_placeholder(self) -> str:
        """The token, or a word in its place."""
        return self.token or "ITS_TOKEN"


def endpoints_of(settings: Mapping[str, str]) -> list[Endpoint]:
    """The admin endpoint first, then that of every client profile. The settings must be valid."""
    admin = Endpoint("admin", "/mcp", settings["MCP_ADMIN_TOKEN"].strip(), ())
    profiles: list[dict[str, Any]] = json.loads(settings.get("MCP_CLIENT_PROFILES_JSON", "").strip() or "[]")
    scoped = (
        Endpoint(profile["id"], f"/clients/{profile['id']}/mcp", profile.get("token"), tuple(profile["allowedTools"]))
        for profile in profiles
    )
    return [admin, *scoped]


def endpoint_for_agents(endpoints: list[Endpoint]) -> Endpoint:
    """The endpoint to offer to a client: a scoped one whose token is known, if there is any."""
    scoped = endpoints[1:]
    return next((endpoint for endpoint in scoped if endpoint.token), scoped[0] if scoped else endpoints[0])


def client_lines(endpoint: Endpoint, base: str) -> dict[str, str]:
    """Ready-to-paste configuration by the client's name. No line may be broken."""
    url, token = endpoint.url(base), endpoint.token_or_placeholder()
    header = f"Authorization: Bearer {token}"
    headers = {"Authorization": f"Bearer {token}"}
    search = {"name": "search_context", "arguments": {"query": "what was decided"}}
    request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": search})
    return {
        "Claude Code": f'claude mcp add --transport http metacortex {url} --header "{header}"',
        "Codex, in ~/.codex/config.toml": (
            f'[mcp_servers.metacortex]\nurl = "{url}"\nbearer_token_env_var = "{VARIABLE}"'
        ),
        "Codex, in the shell that starts it": f"export {VARIABLE}={token}",
        "VS Code, in .vscode/mcp.json": json.dumps(
            {"servers": {"metacortex": {"type": "http", "url": url, "headers": headers}}}, indent=2
        ),
        "Cursor, in .cursor/mcp.json": json.dumps(
            {"mcpServers": {"metacortex": {"url": url, "headers": headers}}}, indent=2
        ),
        "curl": (
            f'curl -sS {url} -H "{header}" -H "Content-Type: application/json"'
            f" -H \"Accept: application/json, text/event-stream\" -d '{request}'"
        ),
    }
