"""Claude Code, Codex and Gemini CLI sign in, each given the address of an endpoint and no account, with the owner in Chromium."""

import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from google.cloud.firestore_v1.async_client import AsyncClient
from playwright.async_api import Browser, Page

from builders import environment, path_of
from document_host import Authority, DocumentHost, document, served
from hosts.app_server import app_server
from hosts.clients import AUTHORIZATION_URL, Program, line_about_metacortex
from hosts.obedient_model import ObedientModel
from hosts.owner import answer, sign_in
from ops.checkout import FUNCTIONS, ROOT
from ops.function import running_function
from ops.hosts import HostTools
from ops.processes import free_port
from served import stored
from signing import HASH
from web.wire import serving

pytestmark = [pytest.mark.hosts, pytest.mark.slow]

DOCUMENTED = FUNCTIONS / "tests/mains/documented.py"
TOOLS = {"save_context", "search_context", "fetch_context"}
LOGIN = ("mcp", "login", "metacortex")
HERON = "The heron of the north pond is called Ada."

CLAUDE_CODE = document(
    "https://claude.ai/oauth/claude-code-client-metadata",
    client_name="Claude Code",
    redirect_uris=["http://localhost/callback", "http://127.0.0.1/callback"],
)
CODEX = document(
    "https://chatgpt.com/oauth/codex/client.json",
    client_name="Codex",
    redirect_uris=["http://127.0.0.1/callback", "http://localhost/callback"],
    token_endpoint_auth_method=None,
    token_endpoint_auth_methods_supported=["none", "private_key_jwt"],
)


@dataclass(frozen=True)
class Installation:
    """One in which the owner signs in. Its function is started as often as a test wants: a new one knows no token."""

    project: str
    emulator_host: str
    documents: DocumentHost
    authority: Authority
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{path_of('agent')}"

    @contextmanager
    def running(self) -> Generator[None]:
        settings = environment(
            FIRESTORE_EMULATOR_HOST=self.emulator_host,
            GCLOUD_PROJECT=self.project,
            PUBLIC_BASE_URL=f"http://127.0.0.1:{self.port}",
            OWNER_PASSPHRASE_HASH=HASH,
            DOCUMENT_PORT=str(self.documents.port),
            DOCUMENT_AUTHORITY=self.authority.pem,
            PYTHONPATH=str(FUNCTIONS),
        )
        with running_function(settings, port=self.port, source=DOCUMENTED) as function:
            # Clients do not wait for a first answer as long as a busy machine may need for it.
            found = httpx2.get(f"{function.url}/.well-known/oauth-authorization-server", timeout=60, trust_env=False)
            assert found.json()["issuer"] == function.url
            yield

    def grants(self) -> list[dict[str, Any]]:
        return json.loads(self._metacortex("grant", "list", "--json"))

    def end(self, grant: dict[str, Any]) -> None:
        self._metacortex("grant", "revoke", grant["id"])

    def _metacortex(self, *arguments: str) -> str:
        env = {
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": f"{ROOT / 'scripts'}:{FUNCTIONS}",
            "FIRESTORE_EMULATOR_HOST": self.emulator_host,
            "no_proxy": "127.0.0.1",
        }
        command = [sys.executable, "-P", "-m", "ops", *arguments, "--project", self.project]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout


@pytest.fixture
async def installation(emulator_host: str, project: str, tmp_path: Path) -> AsyncGenerator[Installation]:
    authority = Authority(tmp_path)
    async with DocumentHost().serving(authority.server("claude.ai", "chatgpt.com")) as documents:
        yield Installation(project, emulator_host, documents, authority, free_port())


@pytest.fixture
async def owner(chromium: Browser) -> AsyncGenerator[Page]:
    context = await chromium.new_context()
    yield await context.new_page()
    await context.close()


# --- Claude Code ---


@pytest.fixture
def claude(tools: HostTools, home: Path, installation: Installation) -> Program:
    installation.documents.says = served(CLAUDE_CODE)
    claude = Program(tools.command("@anthropic-ai/claude-code", "claude"), tools, home)
    claude.run("mcp", "add", "--transport", "http", "metacortex", installation.url)
    return claude


def state_in(claude: Program) -> str:
    """How Claude Code finds the server when it looks."""
    return line_about_metacortex(claude.run("mcp", "list")).rpartition(" - ")[2]


async def test_claude_code_signs_in_and_saves_until_its_grant_ends(
    claude: Program, installation: Installation, owner: Page, firestore: AsyncClient
) -> None:
    with installation.running():
        assert state_in(claude) == "! Needs authentication"
        status, shown = await claude.asks(owner, *LOGIN)
        assert (status, 'Authenticated with "metacortex"' in shown) == (0, True), shown
        [grant] = installation.grants()
        assert (grant["application"], grant["application_id"]) == ("Claude Code", CLAUDE_CODE["client_id"])
    with installation.running():
        assert state_in(claude) == "✔ Connected"
        tool = "mcp__metacortex__save_context"
        with serving(ObedientModel(tool, {"content": HERON}).app) as model:
            model_url = f"http://127.0.0.1:{model.port}"
            claude.run(
                *("-p", "Remember the heron.", "--allowedTools", tool),
                ANTHROPIC_BASE_URL=model_url,
                ANTHROPIC_API_KEY="none",
            )
    kept = await stored(firestore)
    assert kept.contents() == [HERON]
    assert [event["client_id"] for event in kept.events_of("save_context")] == ["agent"]
    installation.end(grant)
    with installation.running():
        assert state_in(claude) == "! Needs authentication"


async def test_claude_code_gives_its_grant_back_when_it_is_logged_out(
    claude: Program, installation: Installation, owner: Page
) -> None:
    with installation.running():
        await claude.asks(owner, *LOGIN)
        assert len(installation.grants()) == 1
        claude.run("mcp", "logout", "metacortex")
        assert installation.grants() == []


async def test_claude_code_is_told_of_a_denial(claude: Program, installation: Installation, owner: Page) -> None:
    with installation.running():
        status, shown = await claude.asks(owner, *LOGIN, answering="Deny")
        assert (status, "The owner did not approve." in shown) == (1, True), shown
        assert installation.grants() == []


# --- Codex ---

CODEX_SETTINGS = """
mcp_oauth_credentials_store = "file"
check_for_update_on_startup = false
model_provider = "none"

[analytics]
enabled = false

[model_providers.none]
name = "None"
base_url = "http://127.0.0.1:9/v1"

[mcp_servers.metacortex]
url = "{url}"
"""


@pytest.fixture
def codex(tools: HostTools, home: Path, installation: Installation) -> Program:
    installation.documents.says = served(CODEX)
    (home / ".codex").mkdir()
    (home / ".codex/config.toml").write_text(CODEX_SETTINGS.format(url=installation.url))
    return Program(tools.command("@openai/codex", "codex"), tools, home)


@pytest.mark.parametrize("registration", ["auto", "dcr"])
async def test_codex_signs_in_and_saves_until_its_grant_ends(
    codex: Program, installation: Installation, owner: Page, firestore: AsyncClient, registration: str
) -> None:
    with installation.running():
        status, shown = await codex.asks(owner, *LOGIN, "--oauth-client-registration", registration)
        assert (status, "Successfully logged in" in shown) == (0, True), shown
        [listed] = json.loads(codex.run("mcp", "list", "--json").partition("\n\n")[0])
        assert listed["auth_status"] == "o_auth"
        [grant] = installation.grants()
        assert grant["application"] == "Codex"
        assert (grant["application_id"] == CODEX["client_id"]) == (registration == "auto")
    with installation.running():
        async with app_server(codex) as server:
            assert set((await server.metacortex())["tools"]) == TOOLS
            await server.call("save_context", content=HERON)
    kept = await stored(firestore)
    assert kept.contents() == [HERON]
    assert [event["client_id"] for event in kept.events_of("save_context")] == ["agent"]
    installation.end(grant)
    with installation.running():
        async with app_server(codex) as server:
            found = await server.metacortex()
            assert (found["tools"], "Auth required" in found["toolsError"]) == ({}, True), found


async def test_codex_takes_a_denial_for_one_of_scopes_and_asks_once_more(
    codex: Program, installation: Installation, owner: Page
) -> None:
    with installation.running():
        async with codex.in_terminal(*LOGIN) as terminal:
            await sign_in(owner, await terminal.shows(AUTHORIZATION_URL))
            await answer(owner, "Deny")
            await owner.goto(await terminal.shows(AUTHORIZATION_URL))
            await answer(owner, "Deny")
            status, shown = await terminal.ends()
        assert (status, "access_denied" in shown) == (1, True), shown
        assert installation.grants() == []


# --- Gemini CLI ---


@pytest.fixture
def gemini(tools: HostTools, home: Path, installation: Installation) -> Program:
    (home / ".gemini").mkdir()
    (home / ".gemini/trustedFolders.json").write_text(json.dumps({str(home.resolve()): "TRUST_FOLDER"}))
    gemini = Program(tools.command("@google/gemini-cli", "gemini"), tools, home)
    gemini.run("mcp", "add", "--scope", "user", "--transport", "http", "metacortex", installation.url)
    return gemini


async def test_gemini_cli_signs_in_until_its_grant_ends(
    gemini: Program, installation: Installation, owner: Page
) -> None:
    with installation.running():
        async with gemini.in_terminal("-p", "/mcp auth metacortex") as terminal:
            await terminal.shows(r"\[Y/n\]")
            terminal.type("y\n")
            await sign_in(owner, await terminal.shows(AUTHORIZATION_URL))
            await answer(owner, "Approve")
            await terminal.shows("Successfully authenticated with MCP server 'metacortex'")
        [grant] = installation.grants()
        assert grant["application"] == "Gemini CLI MCP Client"
    with installation.running():
        assert line_about_metacortex(gemini.run("mcp", "list")).endswith("- Connected")
    installation.end(grant)
    with installation.running():
        assert line_about_metacortex(gemini.run("mcp", "list")).endswith("- Disconnected")
