"""The whole promise on one machine: ./scripts/dev, a client that is given an address alone, and the owner's browser."""

import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.auth import OAuthClientProvider
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata
from playwright.async_api import Browser, Page
from pydantic import AnyUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from hosts.owner import answer, sign_in
from ops.processes import free_port
from running import DevRun, eventually, make_checkout
from sdk_client import Kept
from web.wire import serving

pytestmark = [pytest.mark.hosts, pytest.mark.slow, pytest.mark.usefixtures("emulator_host")]

PROFILE = "chatgpt-web"
NAME = "A program of mine"
MEMORY = "The spare key hangs behind the blue door."
# An instance believes a token that it has checked for 60 seconds.
SECONDS_UNTIL_REFUSED = 65


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return make_checkout(tmp_path / "checkout")


@pytest.fixture
def dev(checkout: Path, home: Path) -> Generator[DevRun]:
    """A run that knows the profile, and nothing of signing in but its own defaults."""
    metacortex(checkout, "profile", "add", PROFILE)
    run = DevRun(checkout, home, ("--port", str(free_port()), "--ephemeral"), {})
    try:
        yield run.ready()
    finally:
        run.process.terminate()
        run.process.wait(30)


@pytest.fixture
async def page(chromium: Browser) -> AsyncGenerator[Page]:
    context = await chromium.new_context()
    yield await context.new_page()
    await context.close()


def metacortex(checkout: Path, *arguments: str, **env: str) -> str:
    """What a command says on standard output; it must succeed."""
    path = os.pathsep.join([str(checkout / "scripts"), str(checkout / "functions")])
    done = subprocess.run(
        [sys.executable, "-P", "-m", "ops", *arguments],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": path, "NO_COLOR": "1", "no_proxy": "127.0.0.1", **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def printed(dev: DevRun, pattern: str) -> str:
    """What a run printed at a place."""
    found = re.search(pattern, dev.out.read_text(), re.MULTILINE)
    assert found, dev.out.read_text()
    return found[1]


class Program:
    """A program on this machine, given the address of an endpoint; the owner answers it in a browser."""

    def __init__(self, url: str, passphrase: str, page: Page) -> None:
        self.kept = Kept()
        self.callback = Starlette(routes=[Route("/callback", self._hear)])
        self._url = url
        self._passphrase = passphrase
        self._page = page
        self._answered: dict[str, Any] = {}

    def provider(self, port: int) -> OAuthClientProvider:
        redirect = AnyUrl(f"http://127.0.0.1:{port}/callback")
        return OAuthClientProvider(
            server_url=self._url,
            client_metadata=OAuthClientMetadata(client_name=NAME, redirect_uris=[redirect]),
            storage=self.kept,
            redirect_handler=self._open,
            callback_handler=self._wait,
        )

    async def _hear(self, request: Request) -> Response:
        self._answered = dict(request.query_params)
        return HTMLResponse("<title>Connected</title>")

    async def _open(self, url: str) -> None:
        await sign_in(self._page, url, self._passphrase)
        await answer(self._page, "Approve")
        await self._page.wait_for_url("http://127.0.0.1:*/callback?*")

    async def _wait(self) -> AuthorizationCodeResult:
        return AuthorizationCodeResult(**self._answered)


def status_of_a_call(url: str, token: str) -> int:
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    with httpx2.Client(trust_env=False) as http:
        return http.post(url, json=request, headers=headers).status_code


async def test_a_client_is_let_in_by_sign_in_and_approval_alone_until_the_owner_ends_it(
    checkout: Path, dev: DevRun, page: Page
) -> None:
    base = printed(dev, r"^ready in .* at (\S+) ")
    url = f"{base}/clients/{PROFILE}/mcp"
    program = Program(url, printed(dev, r"the owner's passphrase of this run is (\S+)$"), page)
    with serving(program.callback) as wire:
        async with (
            httpx2.AsyncClient(auth=program.provider(wire.port), timeout=30, trust_env=False) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            saved = await client.call_tool("save_context", {"content": MEMORY})
            found = await client.call_tool("search_context", {"query": "spare key"})
    assert saved.structured_content
    assert found.structured_content
    assert [match["id"] for match in found.structured_content["matches"]] == [saved.structured_content["item"]["id"]]

    emulator = printed(dev, r"FIRESTORE_EMULATOR_HOST=(\S+) \./scripts/metacortex grant list")
    [grant] = json.loads(metacortex(checkout, "grant", "list", "--json", FIRESTORE_EMULATOR_HOST=emulator))
    assert (grant["application"], grant["client"]) == (NAME, PROFILE)

    assert program.kept.tokens
    token = program.kept.tokens.access_token
    assert status_of_a_call(url, token) == 200
    metacortex(checkout, "grant", "revoke", grant["id"], FIRESTORE_EMULATOR_HOST=emulator)
    eventually(lambda: status_of_a_call(url, token) == 401, seconds=SECONDS_UNTIL_REFUSED)
    assert json.loads(metacortex(checkout, "grant", "list", "--json", FIRESTORE_EMULATOR_HOST=emulator)) == []
