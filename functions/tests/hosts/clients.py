"""Clients from npm, each in a home of its own: run to their end, or in a terminal while the owner signs in."""

import re
import subprocess
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from playwright.async_api import Page

from hosts.owner import answer, sign_in
from hosts.terminal import Terminal, in_terminal
from ops.hosts import HostTools

AUTHORIZATION_URL = r"http://127\.0\.0\.1:\d+/oauth/authorize\?[\w.~%&=+-]+(?=[^\w.~%&=+-])"

QUIET = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1"}
# No browser of this machine is opened, tokens stay in the home instead of a keyring, and Gemini CLI starts with any key.
SIGNING_IN = {**QUIET, "BROWSER": "true", "GEMINI_FORCE_FILE_STORAGE": "true", "GEMINI_API_KEY": "none"}


def said(tools: HostTools, home: Path, command: list[str], settings: Mapping[str, str] = QUIET) -> str:
    ended = subprocess.run(
        command,
        cwd=home,
        env=tools.environment(home, **settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    text = f"{ended.stdout}\n{ended.stderr}"
    assert ended.returncode == 0, text
    return text


def line_about_metacortex(text: str) -> str:
    found = re.search(r"^.*\bmetacortex: http.*$", text, re.MULTILINE)
    assert found, text
    return found[0]


@dataclass(frozen=True)
class Program:
    """A client that may ask the owner to sign in."""

    command: list[str]
    tools: HostTools
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        return self.tools.environment(self.home, **SIGNING_IN)

    def run(self, *arguments: str, **settings: str) -> str:
        """What it says; it must succeed."""
        return said(self.tools, self.home, [*self.command, *arguments], {**SIGNING_IN, **settings})

    def in_terminal(self, *arguments: str) -> AbstractAsyncContextManager[Terminal]:
        return in_terminal([*self.command, *arguments], self.environment, self.home)

    async def asks(self, owner: Page, *arguments: str, answering: str = "Approve") -> tuple[int, str]:
        """Runs it while the owner signs in and answers: the exit status, and what it showed."""
        async with self.in_terminal(*arguments) as terminal:
            await sign_in(owner, await terminal.shows(AUTHORIZATION_URL))
            await answer(owner, answering)
            return await terminal.ends()
