"""The conformance suite's scenarios for authorization servers, all of them, with the owner in Chromium."""

import asyncio
import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.async_api import Browser

from builders import environment, path_of
from hosts.owner import answer, sign_in
from ops.function import Function, running_function
from ops.hosts import HostTools
from ops.processes import free_port
from signing import HASH

pytestmark = [pytest.mark.hosts, pytest.mark.slow]


@pytest.fixture
def authority(emulator_host: str) -> Generator[Function]:
    """The function in which the owner signs in by passphrase."""
    port = free_port()
    settings = environment(
        FIRESTORE_EMULATOR_HOST=emulator_host,
        GCLOUD_PROJECT="demo-conformance-sign-in",
        PUBLIC_BASE_URL=f"http://127.0.0.1:{port}",
        OWNER_PASSPHRASE_HASH=HASH,
    )
    with running_function(settings, port=port) as running:
        yield running


async def test_every_check_of_an_authorization_server_passes(
    tools: HostTools, home: Path, tmp_path: Path, authority: Function, chromium: Browser
) -> None:
    port = free_port()
    suite = await asyncio.create_subprocess_exec(
        *tools.command("@modelcontextprotocol/conformance", "conformance"),
        "authorization",
        *("--url", authority.url, "--client-id", registered(authority, port), "--port", str(port)),
        *("--resource", f"{authority.url}{path_of('agent')}", "--output-dir", str(tmp_path)),
        env=tools.environment(home),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(120):
            await approve(chromium, await address_told(suite, f"{authority.url}/oauth/authorize?"))
            said, _ = await suite.communicate()
    finally:
        if suite.returncode is None:
            suite.kill()
    assert suite.returncode == 0, said.decode()
    assert statuses_in(tmp_path) == {
        "authorization-server-metadata": "SUCCESS",
        "authorization-server-metadata-cimd": "SUCCESS",
        "authorization-code-grant": "SUCCESS",
    }


def registered(authority: Function, port: int) -> str:
    metadata = {"client_name": "The suite", "redirect_uris": [f"http://127.0.0.1:{port}/callback"]}
    with httpx2.Client(trust_env=False) as http:
        return http.post(f"{authority.url}/oauth/register", json=metadata).json()["client_id"]


async def address_told(suite: asyncio.subprocess.Process, beginning: str) -> str:
    """The address that the suite asks its user to open."""
    assert suite.stdout
    told: list[str] = []
    async for line in suite.stdout:
        told.append(line.decode().strip())
        if told[-1].startswith(beginning):
            return told[-1]
    pytest.fail("\n".join(told))


async def approve(chromium: Browser, url: str) -> None:
    page = await chromium.new_page()
    await sign_in(page, url)
    await answer(page, "Approve")
    await page.wait_for_url("http://127.0.0.1:*/callback?*")
    await page.close()


def statuses_in(results: Path) -> dict[str, str]:
    checks: list[dict[str, Any]] = [
        check for file in results.rglob("checks.json") for check in json.loads(file.read_text())
    ]
    return {check["id"]: check["status"] for check in checks}
