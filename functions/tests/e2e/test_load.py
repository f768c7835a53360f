"""What one instance holds out: callers who send as much as they may, models that hang, clients that dawdle."""

import asyncio
import base64
import json
import random
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from starlette.responses import Response

from builders import JSON_HEADERS, TOKENS, bearer, environment, path_of
from gemini_api import Body, GeminiApi, never, surroundings
from images import PNG
from ops.function import Function, running_function
from running import eventually
from served import Served
from web.wire import serving

pytestmark = pytest.mark.slow

CALLERS = 64
# The function has 512 MB, of which the process that watches over the worker takes some.
MEGABYTES = 400
HANGS = "This hangs"


@pytest.fixture
def api() -> GeminiApi:
    return GeminiApi()


@pytest.fixture
def function(emulator_host: str, project: str, api: GeminiApi, tmp_path: Path) -> Generator[Function]:
    with serving(api.app) as wire:
        settings = environment(
            FIRESTORE_EMULATOR_HOST=emulator_host,
            GCLOUD_PROJECT=project,
            MODEL_PROVIDER="gemini",
            GEMINI_API_KEY="a-gemini-key-of-the-tests",
            **surroundings(f"http://127.0.0.1:{wire.port}", tmp_path),
        )
        with running_function(settings) as function:
            yield function


@pytest.fixture
async def service(function: Function) -> AsyncGenerator[Served]:
    """The function after its first save and search."""
    service = Served(function)
    async with service.http:
        await service.save("A first fact")
        await service.search("first")
        yield service


def text(seed: int, size: int) -> str:
    chance = random.Random(seed)
    return " ".join(f"{chance.getrandbits(32):08x}" for _ in range(size // 9))


def peak_megabytes(pid: int) -> float:
    found = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) / 1024


# --- Memory ---


def long_save(number: int) -> dict[str, Any]:
    return {"name": "save_context", "arguments": {"content": text(number, 400_000)}}


def image(number: int) -> dict[str, Any]:
    picture = PNG[:-12] + random.Random(number).randbytes(780_000) + PNG[-12:]
    encoded = base64.b64encode(picture).decode()
    return {"name": "save_context", "arguments": {"image_base64": encoded, "image_mime_type": "image/png"}}


def fill(_: int) -> dict[str, Any]:
    return {"name": "search_context", "arguments": {"query": "first", "unknown": list(range(1_000, 140_000))}}


def long_query(number: int) -> dict[str, Any]:
    return {"name": "search_context", "arguments": {"query": text(number, 20_000)}}


@pytest.mark.parametrize("params", [long_save, image, fill, long_query])
async def test_callers_who_all_send_as_much_as_they_may_are_served_or_told_to_come_back(
    function: Function, service: Served, params: Callable[[int], dict[str, Any]]
) -> None:
    bodies = [
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params(number)})
        for number in range(CALLERS)
    ]
    answers = await asyncio.gather(*(post(service, body) for body in bodies))
    served = [answer for answer in answers if answer.status_code == 200]
    refused = [answer for answer in answers if answer.status_code != 200]
    assert len(served) >= 4
    assert not any(answer.json()["result"]["isError"] for answer in served)
    assert {(answer.status_code, answer.headers["retry-after"]) for answer in refused} <= {(429, "1")}
    assert peak_megabytes(function.worker_pid()) < MEGABYTES
    assert await service.search("first")


async def post(service: Served, body: str) -> httpx2.Response:
    headers = JSON_HEADERS | bearer("agent")
    return await service.http.post(path_of("agent"), content=body, headers=headers, timeout=300)


async def test_callers_who_all_read_the_longest_memory_are_served(function: Function, service: Served) -> None:
    item = await service.save(text(1, 400_000))
    found = await asyncio.gather(*(service.fetch(item["id"]) for _ in range(CALLERS)))
    assert {memory["content"] for memory in found} == {item["content"][:50_000]}
    assert peak_megabytes(function.worker_pid()) < MEGABYTES


# --- Time ---


async def seconds_of(work: Awaitable[object]) -> float:
    began = time.monotonic()
    await work
    return time.monotonic() - began


async def test_forty_saves_at_once_wait_for_a_slow_model_together(service: Served, api: GeminiApi) -> None:
    together = asyncio.Barrier(40)

    async def answer_all_at_once() -> None:
        await together.wait()

    # The model takes its time: it answers none before all have asked, and a save that waits for another would wait in vain.
    api.before = answer_all_at_once
    await asyncio.gather(*(service.save(f"Fact {number}") for number in range(40)))


def hanging(body: Body) -> Awaitable[Response] | None:
    return never(body) if HANGS in json.dumps(body) else None


async def test_who_waits_for_a_model_that_hangs_or_sends_byte_by_byte_delays_no_one_else(
    function: Function, service: Served, api: GeminiApi
) -> None:
    item = await service.save("Another fact", "default")

    async def others() -> None:
        await asyncio.gather(
            *(service.fetch(item["id"], "default") for _ in range(10)),
            *(service.call("list_context", "default") for _ in range(5)),
            *(service.search("fact", "default") for _ in range(5)),
        )

    await others()
    alone = min([await seconds_of(others()) for _ in range(3)])
    api.instead = hanging
    stuck = [asyncio.create_task(service.save(f"{HANGS} {number}")) for number in range(24)]
    # Texts of several parts, each of which waits.
    stuck += [asyncio.create_task(service.save(f"{HANGS} {text(number, 40_000)}")) for number in range(8)]
    dawdling = [asyncio.create_task(send_slowly(function)) for _ in range(8)]
    await asyncio.to_thread(eventually, lambda: len(api.waiting) == 24 + 3)
    beside = min([await seconds_of(others()) for _ in range(3)])
    assert not any(task.done() for task in (*stuck, *dawdling))
    for task in (*stuck, *dawdling):
        task.cancel()
    await asyncio.gather(*stuck, *dawdling, return_exceptions=True)
    assert beside < 3 * alone


async def send_slowly(function: Function) -> None:
    """A client that declares a megabyte, and sends a byte now and then."""
    address = urlsplit(function.url)
    _, writer = await asyncio.open_connection(address.hostname, address.port)
    head = (
        f"POST {path_of('agent')} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKENS['agent']}\r\n"
        "Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{"
    )
    try:
        writer.write(head.encode())
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.05)
    finally:
        writer.close()
