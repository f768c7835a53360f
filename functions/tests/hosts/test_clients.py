"""The connection checks of clients, each in a home of its own and without an account."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from builders import TOKENS, path_of
from ops.function import Function
from ops.hosts import HostTools

pytestmark = [pytest.mark.hosts, pytest.mark.slow]

HEADER = f"Authorization: Bearer {TOKENS['agent']}"
QUIET = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1"}


def said(tools: HostTools, home: Path, command: list[str]) -> str:
    answer = subprocess.run(
        command,
        cwd=home,
        env=tools.environment(home, **QUIET),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    text = f"{answer.stdout}\n{answer.stderr}"
    assert answer.returncode == 0, text
    return text


def line_about_metacortex(text: str) -> str:
    found = re.search(r"^.*\bmetacortex: http.*$", text, re.MULTILINE)
    assert found, text
    return found[0]


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
