"""MCP Inspector on the command line, in both eras of the protocol."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from builders import TOKENS, path_of
from ops.function import Function
from ops.hosts import HostTools

pytestmark = [pytest.mark.hosts, pytest.mark.slow]


class Inspector:
    """One way to connect: an era, and where the token is."""

    def __init__(self, tools: HostTools, home: Path, function: Function, era: str, credential: str) -> None:
        url = f"{function.url}{path_of('agent')}"
        inspector = tools.command("@modelcontextprotocol/inspector", "mcp-inspector")
        in_url = credential == "url"
        self._command = [
            *(*inspector, "--cli", f"{url}?auth_token={TOKENS['agent']}" if in_url else url),
            *([] if in_url else ["--header", f"Authorization: Bearer {TOKENS['agent']}"]),
            *("--transport", "http", "--protocol-era", era, "--format", "json", "--stored-auth-only"),
        ]
        self._env = tools.environment(home)

    def ask(self, *arguments: str) -> dict[str, Any]:
        answer = subprocess.run(
            [*self._command, *arguments], env=self._env, capture_output=True, text=True, check=False, timeout=120
        )
        assert answer.returncode == 0, answer.stderr
        return json.loads(answer.stdout)["result"]

    def call(self, tool: str, **arguments: str) -> dict[str, Any]:
        given = ["--tool-name", tool, "--tool-args-json", json.dumps(arguments)]
        result = self.ask("--method", "tools/call", *given)
        assert not result.get("isError"), result
        return result["structuredContent"]


@pytest.fixture(params=["header", "url"])
def credential(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=["legacy", "modern"])
def inspector(
    request: pytest.FixtureRequest, tools: HostTools, home: Path, function: Function, credential: str
) -> Inspector:
    return Inspector(tools, home, function, request.param, credential)


def test_the_tools_are_listed_and_every_client_can_use_their_schemas(inspector: Inspector) -> None:
    listed = inspector.ask("--method", "tools/list", "--strict")
    assert [tool["name"] for tool in listed["tools"]] == ["save_context", "search_context", "fetch_context"]


def test_what_was_saved_is_found_and_fetched(inspector: Inspector, request: pytest.FixtureRequest) -> None:
    saved = inspector.call("save_context", content=f"The inspector of {request.node.name} keeps a heron.")
    found = inspector.call("search_context", query=saved["item"]["content"])
    assert found["matches"][0]["id"] == saved["item"]["id"]
    assert inspector.call("fetch_context", id=saved["item"]["id"])["item"] == saved["item"]
