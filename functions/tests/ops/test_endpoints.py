"""The lines a person pastes into a client."""

import json
import shlex
import tomllib

from ops.endpoints import Endpoint, client_lines, endpoint_for_agents, endpoints_of

BASE = "http://127.0.0.1:5001"
URL = f"{BASE}/demo-metacortex/us-central1/metaCortexMcp/clients/agent/mcp"
AGENT = Endpoint("agent", "/clients/agent/mcp", "agent-token", ("save_context",))


def profiles(*documents: dict[str, object]) -> dict[str, str]:
    return {"MCP_ADMIN_TOKEN": " admin-token\n", "MCP_CLIENT_PROFILES_JSON": json.dumps(documents)}


def test_the_admin_comes_first_and_hashed_tokens_are_not_known() -> None:
    settings = profiles(
        {"id": "one", "tokenSha256": "ab" * 32, "allowedTools": ["fetch_context"]},
        {"id": "two", "token": "token-two", "allowedTools": ["save_context", "fetch_context"]},
    )
    admin, one, two = endpoints_of(settings)
    assert (admin.name, admin.path, admin.token) == ("admin", "/mcp", "admin-token")
    assert (one.token, one.tools) == (None, ("fetch_context",))
    assert (two.path, two.token) == ("/clients/two/mcp", "token-two")
    assert endpoint_for_agents([admin, one, two]) == two
    assert endpoint_for_agents([admin, one]) == one
    assert endpoint_for_agents([admin]) == admin


def test_no_profiles_leave_the_admin_alone() -> None:
    assert [endpoint.name for endpoint in endpoints_of({"MCP_ADMIN_TOKEN": "x"})] == ["admin"]


def test_claude_code_gets_a_command() -> None:
    words = shlex.split(client_lines(AGENT, BASE)["Claude Code"])
    assert words == [
        *("claude", "mcp", "add", "--transport", "http", "metacortex", URL),
        *("--header", "Authorization: Bearer agent-token"),
    ]


def test_codex_gets_a_table_and_its_variable() -> None:
    lines = client_lines(AGENT, BASE)
    server = tomllib.loads(lines["Codex, in ~/.codex/config.toml"])["mcp_servers"]["metacortex"]
    assert server == {"url": URL, "bearer_token_env_var": "METACORTEX_TOKEN"}
    assert lines["Codex, in the shell that starts it"] == "export METACORTEX_TOKEN=agent-token"


def test_the_editors_get_json() -> None:
    lines = client_lines(AGENT, BASE)
    headers = {"Authorization": "Bearer agent-token"}
    assert json.loads(lines["VS Code, in .vscode/mcp.json"]) == {
        "servers": {"metacortex": {"type": "http", "url": URL, "headers": headers}}
    }
    assert json.loads(lines["Cursor, in .cursor/mcp.json"]) == {
        "mcpServers": {"metacortex": {"url": URL, "headers": headers}}
    }


def test_curl_gets_one_line() -> None:
    line = client_lines(AGENT, BASE)["curl"]
    words = shlex.split(line)
    assert "\n" not in line
    assert words[:3] == ["curl", "-sS", URL]
    assert json.loads(words[words.index("-d") + 1])["params"]["name"] == "search_context"


def test_an_unknown_token_leaves_a_word_in_its_place() -> None:
    lines = client_lines(Endpoint("one", "/clients/one/mcp", None, ()), BASE)
    assert all("None" not in text for text in lines.values())
    assert "Bearer ITS_TOKEN" in lines["Claude Code"]
