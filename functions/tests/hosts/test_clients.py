"""The connection checks of clients, each in a home of its own and without an account."""

import json
from pathlib import Path

import pytest

from builders import TOKENS, path_of
from hosts.clients import line_about_metacortex, said
from ops.function import Function
from ops.hosts import HostTools

pytestmark = [pytest.mark.hosts, pytest.mark.slow]

HEADER = f"Authorization: Bearer {TOKENS['agent']}"


def test_claude_code_connects(tools: HostTools, home: Path, function: Function) -> None:
    claude = tools.command("@anthropic-ai/claude-code", "claude")
    url = f"{function.url}{path_of('agent')}"
    said(tools, home, [*claude, "mcp", "add", "--transport", "http", "metacortex", url, "--header", HEADER])
    line = line_about_metacortex(said(tools, home, [*claude, "mcp", "list"]))
    assert url in line
    assert line.endswith("✔ Connected")


def test_gemini_cli_connects_in_a_trusted_folder(tools: HostTools, home: Path, function: Function) -> None:
    gemini = tools.command("@google/gemini-cli", "gemini")
    url = f"{function.url}{path_of('agent')}"
    (home / ".gemini").mkdir()
    (home / ".gemini/trustedFolders.json").write_text(json.dumps({str(home.resolve()): "TRUST_FOLDER"}))
    added = ["mcp", "add", "--scope", "user", "--transport", "http", "--header", HEADER, "metacortex", url]
    said(tools, home, [*gemini, *added])
    line = line_about_metacortex(said(tools, home, [*gemini, "mcp", "list"]))
    assert url in line
    assert line.endswith("- Connected")
