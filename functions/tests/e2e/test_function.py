"""functions/main.py as production serves it, in its own process, against the emulator, driven by the SDK's client."""

import asyncio
import json
import re
import subprocess
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from builders import TOKENS, bearer, environment, path_of
from ops.checkout import ROOT
from ops.function import Function, running_function

pytestmark = pytest.mark.slow

PREFIXES = ["", "/metaCortexMcp", "/demo-e2e/us-central1/metaCortexMcp"]
TOOLS = ["save_context", "search_context", "fetch_context"]


def settings(emulator_host: str, **more: str) -> dict[str, str]:
    return environment(FIRESTORE_EMULATOR_HOST=emulator_host, GCLOUD_PROJECT="demo-e2e", MCP_URL_TOKENS="true", **more)


@pytest.fixture(scope="module")
def function(emulator_host: str) -> Generator[Function]:
    # Far from UTC, as stored and shown times must not be.
    with running_function(settings(emulator_host, TZ="Asia/Kolkata")) as running:
        yield running


@asynccontextmanager
async def connected(url: str, mode: str, headers: dict[str, str]) -> AsyncGenerator[Client]:
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


async def call(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return result.structured_content


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28", "auto"])
@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("credential", ["header", "url"])
async def test_a_client_of_either_era_lists_and_calls_the_tools(
    function: Function, mode: str, prefix: str, credential: str
) -> None:
    url = f"{function.url}{prefix}{path_of('agent')}"
    in_url = credential == "url"
    url += f"?auth_token={TOKENS['agent']}" if in_url else ""
    async with connected(url, mode, {} if in_url else bearer("agent")) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == TOOLS
        text = f"The {mode or 'bare'} client of {prefix} sent its token in the {credential}."
        saved = await call(client, "save_context", content=text)
        [match] = (await call(client, "search_context", query=text, limit=1))["matches"]
        assert match["id"] == saved["item"]["id"]
        assert (await call(client, "fetch_context", id=match["id"]))["item"] == saved["item"]


async def test_a_machine_far_from_utc_keeps_and_shows_the_same_instants(function: Function) -> None:
    async with connected(f"{function.url}{path_of('agent')}", "legacy", bearer("agent")) as client:
        saved = await call(client, "save_context", content="Spring begins.", valid_from="2026-03-20T14:46")
    assert saved["item"]["metadata"]["valid_from"] == "2026-03-20T14:46:00.000Z"
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", saved["item"]["metadata"]["created_at"])


async def save(http: httpx2.AsyncClient, function: Function, **arguments: Any) -> dict[str, Any]:
    params = {"name": "save_context", "arguments": arguments}
    response = await http.post(
        f"{function.url}{path_of('agent')}",
        json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params},
        headers={"accept": "application/json, text/event-stream"},
    )
    return json.loads(response.json()["result"]["content"][0]["text"])


async def test_a_thousand_calls_leave_memory_where_it_was(function: Function) -> None:
    async with httpx2.AsyncClient(headers=bearer("agent"), timeout=30, trust_env=False) as http:
        await asyncio.gather(*(save(http, function, content=f"Warm {i}", topic="memory") for i in range(50)))
        for start in range(0, 1_000, 20):
            batch = (save(http, function, content=f"Memory {start + i}", topic="memory") for i in range(20))
            await asyncio.gather(*batch)
        # Also the largest texts there may be, several at once.
        await asyncio.gather(*(save(http, function, content=f"{i} " + "long words " * 36_000) for i in range(8)))
    assert resident_megabytes(function.worker_pid()) < 220


def resident_megabytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
    assert found
    return int(found[1]) / 1024


async def test_the_log_tells_what_happened_without_secrets(emulator_host: str, tmp_path: Path) -> None:
    log = tmp_path / "function.log"
    with running_function(settings(emulator_host), log=log) as function:
        async with httpx2.AsyncClient(headers=bearer("agent"), timeout=30, trust_env=False) as http:
            await save(http, function, content="A fact that no log may hold")
            await http.post(f"{function.url}{path_of('agent')}?auth_token={TOKENS['agent']}", json=["a batch"])
    text = log.read_text()
    assert "tool_call save_context" in text
    assert "malformed" in text
    assert not any(secret in text for secret in (*TOKENS.values(), "no log may hold", "auth_token"))


def test_the_first_save_and_search_of_the_readme_work_as_they_stand(function: Function) -> None:
    [snippet] = re.findall(r"```sh\n(URL=.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    given = {"URL": f"{function.url}{path_of('agent')}", "TOKEN": TOKENS["agent"]}
    lines = [
        f"{name}={given[name]}" if (name := line.partition("=")[0]) in given else line for line in snippet.splitlines()
    ]
    answers = subprocess.run(["sh", "-ec", "\n".join(lines)], capture_output=True, text=True, check=True).stdout
    saved, found = (
        json.loads(answer)["result"] for answer in re.findall(r"\{\"jsonrpc.*?\}(?=\{\"jsonrpc|$)", answers)
    )
    assert saved["structuredContent"]["write_status"] == "created"
    assert found["structuredContent"]["matches"][0]["id"] == saved["structuredContent"]["item"]["id"]
