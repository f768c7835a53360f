"""Signing in to the function as production serves it, with a new process of it for every request.

Whatever one step needs of those before it stands in Firestore, or with the client and the owner's browser.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import httpx2
import pytest

from document_host import NAME, URL, Authority, DocumentHost, document, served
from ops.checkout import FUNCTIONS, ROOT
from ops.function import running_function
from sdk_client import REDIRECT, Flow
from signing import Signing

pytestmark = pytest.mark.slow

DOCUMENTED = FUNCTIONS / "tests/mains/documented.py"
ENDPOINT = "/clients/agent/mcp"


class NewProcesses(httpx2.AsyncBaseTransport):
    """The way to a function that is started for each request, and killed once it has answered."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self.answered: list[tuple[str, int]] = []
        """The path of each request, and the status of its answer."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        await request.aread()
        response = await asyncio.to_thread(self._answered_by_one, request)
        self.answered.append((request.url.path, response.status_code))
        return response

    def _answered_by_one(self, request: httpx2.Request) -> httpx2.Response:
        with running_function(self._settings, source=DOCUMENTED) as function, httpx2.HTTPTransport() as network:
            there = request.url.copy_with(scheme="http", host="127.0.0.1", port=function.port)
            # Whatever stands before a function ends TLS, and passes the name on that the client asked for.
            passed_on = httpx2.Request(request.method, there, headers=request.headers, content=request.content)
            answer = network.handle_request(passed_on)
            response = httpx2.Response(answer.status_code, headers=answer.headers, content=answer.read())
            function.process.stop(grace=0)
            return response


class ProcessSigning(Signing):
    """One installation, of which nothing runs between two requests."""

    transport: NewProcesses

    def connect(self) -> NewProcesses:
        return NewProcesses(self.settings)


@pytest.fixture
async def signing(emulator_host: str, project: str, tmp_path: Path) -> AsyncGenerator[ProcessSigning]:
    authority = Authority(tmp_path)
    host = DocumentHost(served(document(redirect_uris=[REDIRECT])))
    async with host.serving(authority.server(NAME)):
        settings = {
            "FIRESTORE_EMULATOR_HOST": emulator_host,
            "PYTHONPATH": str(FUNCTIONS),
            "DOCUMENT_PORT": str(host.port),
            "DOCUMENT_AUTHORITY": authority.pem,
        }
        yield ProcessSigning(project, settings)


@pytest.mark.parametrize("way", ["registered", "described"])
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_client_connects_refreshes_and_is_shut_out_though_no_process_answers_twice(
    signing: ProcessSigning, emulator_host: str, mode: str, way: str
) -> None:
    flow = Flow(signing, document=URL if way == "described" else None)
    async with flow.connected(mode) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == {
            "save_context",
            "search_context",
            "fetch_context",
        }
        first = flow.tokens
        flow.let_token_end()
        assert (await client.list_tools(cache_mode="refresh")).tools
    assert flow.tokens.refresh_token != first.refresh_token
    assert flow.asked == 1

    await asyncio.to_thread(revoke_the_grant, signing.project, emulator_host)
    before = len(signing.transport.answered)
    flow.answer = "deny"
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - groups of groups
        async with flow.connected(mode) as client:
            await client.list_tools()
    assert signing.transport.answered[before] == (ENDPOINT, 401)
    assert "access_denied" in repr(caught.value)
    assert flow.asked == 2
    registered = [path for path, _ in signing.transport.answered if path == "/oauth/register"]
    assert len(registered) == (1 if way == "registered" else 0)


def revoke_the_grant(project: str, emulator: str) -> None:
    """As the owner does it."""
    [grant] = json.loads(grants("list", "--json", project=project, emulator=emulator))
    grants("revoke", grant["id"], project=project, emulator=emulator)


def grants(*arguments: str, project: str, emulator: str) -> str:
    return subprocess.run(
        [sys.executable, "-P", "-m", "ops", "grant", *arguments, "--project", project],
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": f"{ROOT / 'scripts'}:{FUNCTIONS}",
            "FIRESTORE_EMULATOR_HOST": emulator,
            "no_proxy": "127.0.0.1",
        },
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
