"""`metacortex tail` as an owner runs it: a process of its own beside a service at work, over the emulator."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.async_collection import AsyncCollectionReference
from typer.testing import CliRunner

from builders import NOON, FakeClock, Service
from metacortex.bootstrap import Stores
from metacortex.events import EventKind
from ops.checkout import ROOT
from ops.cli import app
from ops.place import Place
from ops.tail import line
from ops.tail_follow import Follower
from tcp_proxy import running_proxy

SINCE = "2026-05-28T20:00"
"""A little before NOON, when the services of these tests are at work."""


class Tail:
    """One run of the command."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def line(self) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        async with asyncio.timeout(30):
            return (await self.process.stdout.readline()).decode().rstrip("\n")

    async def json(self) -> dict[str, Any]:
        return json.loads(await self.line())

    async def says(self) -> str:
        """The next line on standard error."""
        assert self.process.stderr is not None
        async with asyncio.timeout(30):
            return (await self.process.stderr.readline()).decode().rstrip("\n")

    async def ends(self) -> int:
        async with asyncio.timeout(30):
            return await self.process.wait()


@asynccontextmanager
async def running(host: str, *arguments: str) -> AsyncGenerator[Tail]:
    path = os.pathsep.join([str(ROOT / "scripts"), str(ROOT / "functions")])
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "ops", "tail", *arguments),
        env={"PATH": os.environ["PATH"], "PYTHONPATH": path, "FIRESTORE_EMULATOR_HOST": host},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield Tail(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.fixture
def service(firestore_stores: Stores) -> Service:
    return Service(stores=firestore_stores)


@pytest.mark.slow
async def test_each_event_is_one_line_as_it_happens_until_ctrl_c(
    service: Service, emulator_host: str, project: str
) -> None:
    await service.save("Owls at 1", topic="Birds")
    async with running(emulator_host, "--project", project) as tail:
        assert await tail.line() == f"{project} in the emulator at {emulator_host}"
        assert "  agent  save_context  success  topic=Birds" in await tail.line()
        service.clock.advance(minutes=1)
        await service.search("at 1")
        shown = await tail.line()
        assert shown.startswith("2026-05-28T20:27:40.000Z  agent  search_context  success  ")
        assert shown.endswith("query_preview=at 1  result_count=1")
        await service.http.post("/mcp")
        assert (await tail.line()).endswith("  default  rejected  401 unauthorized  POST /mcp")
        tail.process.send_signal(signal.SIGINT)
        assert await tail.says() == "Stopped."
        assert await tail.ends() == 0


@pytest.mark.slow
async def test_json_lines_hold_whole_events_of_one_client_and_tool(
    service: Service, emulator_host: str, project: str
) -> None:
    await service.search("at 1")
    await service.search("at 2", "reader")
    await service.save("Owls at 3")
    wanted = ("--client", "agent", "--tool", "search_context", "--since", SINCE, "--json")
    async with running(emulator_host, "--project", project, *wanted) as tail:
        first = await tail.json()
        assert (first["client_id"], first["tool_name"]) == ("agent", "search_context")
        assert first["request"]["query_preview"] == "at 1"
        assert first["expires_at"].startswith("2026-08-26T20:26:40")
        await service.search("at 4", "reader")
        await service.search("at 5")
        assert (await tail.json())["request"]["query_preview"] == "at 5"


@pytest.fixture
def events(firestore: AsyncClient) -> AsyncCollectionReference:
    return firestore.collection(EventKind.MEMORY)


@pytest.fixture
def follower(events: AsyncCollectionReference, emulator_host: str, project: str) -> Follower:
    """Follows the events of this test from a little before NOON on."""
    return Follower(Place(project=project, emulator=emulator_host, collection="memory_vectors"), NOON - 60_000)


async def test_an_event_that_arrives_late_is_shown_and_none_is_shown_twice_but_a_count_that_grew(
    events: AsyncCollectionReference, follower: Follower
) -> None:
    flood = {"status": "rejected", "timestamp": NOON, "count": 1}
    await events.document("flood").set(flood)
    assert await follower.begin() == [flood]
    assert await follower.news() == []
    late = {"timestamp": NOON - 30_000, "tool_name": "late"}
    await events.document("late").set(late)
    await events.document("flood").update({"count": 2})
    assert await follower.news() == [late, {**flood, "count": 2}]
    later = {"timestamp": NOON + 600_000, "tool_name": "later"}
    await events.document("later").set(later)
    assert await follower.news() == [later]
    assert await follower.news() == []


async def test_more_events_than_fit_into_one_answer_are_all_shown(
    events: AsyncCollectionReference, firestore: AsyncClient, follower: Follower
) -> None:
    batch = firestore.batch()
    for number in range(450):
        batch.set(events.document(), {"timestamp": NOON + number})
    await batch.commit()
    assert [event["timestamp"] - NOON for event in await follower.begin()] == list(range(450))


async def test_without_a_moment_to_begin_at_the_last_ten_events_come_first(
    events: AsyncCollectionReference, emulator_host: str, project: str
) -> None:
    follower = Follower(Place(project=project, emulator=emulator_host, collection="memory_vectors"), None)
    assert await follower.begin() == []
    for number in range(12):
        await events.document(f"e-{number}").set({"timestamp": NOON + number})
    await events.document("no-time").set({"timestamp": "yesterday"})
    again = Follower(Place(project=project, emulator=emulator_host, collection="memory_vectors"), None)
    assert [event["timestamp"] - NOON for event in await again.begin()] == list(range(2, 12))
    assert await again.news() == []
    assert len(await follower.news()) == 12


@pytest.mark.slow
async def test_a_store_that_is_away_for_a_while_ends_nothing(
    service: Service, emulator_host: str, project: str
) -> None:
    await service.search("at 1")
    async with running_proxy(emulator_host) as proxy, running(proxy.host, "--project", project, "--json") as tail:
        await tail.json()
        proxy.cut()
        assert (await tail.says()).endswith("Still looking.")
        proxy.heal()
        await service.search("at 2")
        assert (await tail.json())["request"]["query_preview"] == "at 2"


@pytest.mark.slow
async def test_it_ends_when_nobody_reads_any_more(service: Service, emulator_host: str, project: str) -> None:
    await service.search("at 1")
    async with running(emulator_host, "--project", project, "--json") as tail:
        await tail.json()
        assert tail.process.stdout is not None
        tail.process.stdout._transport.close()  # noqa: SLF001 # pyright: ignore
        await service.search("at 2")
        assert await tail.ends() == 0
        assert await tail.says() == ""


@pytest.mark.slow
async def test_an_emulator_that_is_not_there_is_told() -> None:
    async with running("127.0.0.1:1") as tail:
        assert "No emulator answers at 127.0.0.1:1" in await tail.says()
        assert await tail.ends() == 1


def test_what_a_client_sent_cannot_move_the_cursor() -> None:
    shown = line({"timestamp": NOON, "tool_name": "search_context", "request": {"query_preview": "\x1b[2J\nowl"}})
    assert shown.endswith("query_preview= [2J owl")


def test_an_event_of_another_form_is_shown_as_far_as_it_goes() -> None:
    assert line({"timestamp": "yesterday"}).startswith("at no known time  -")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--since", "yesterday"], "neither a time such as 2026-03-01T09:30 nor a while"),
        (["--since", "20260301"], "neither a time"),
        (["--tool", "serch_context"], "'serch_context' is no tool; name one of "),
        (["--project", "--json"], "'--json' is not a project's id"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], sentence: str
) -> None:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", "127.0.0.1:1")
    result = CliRunner().invoke(app, ["tail", *arguments])
    assert result.exit_code == 2
    assert sentence in " ".join(result.stderr.split())


def test_without_credentials_it_says_how_to_get_some(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FIRESTORE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    result = CliRunner().invoke(app, ["tail", "--project", "demo-nobody"])
    assert result.exit_code == 1
    assert "`gcloud auth application-default login`" in result.stderr


@pytest.mark.slow
async def test_a_while_ago_begins_there(service: Service, emulator_host: str, project: str) -> None:
    now = time.time_ns() // 1_000_000
    service = Service(stores=service.stores, clock=FakeClock(now - 2 * 3_600_000))
    await service.search("at 1")
    service.clock.now = now - 60_000
    await service.search("at 2")
    async with running(emulator_host, "--project", project, "--since", "15m", "--json") as tail:
        assert (await tail.json())["request"]["query_preview"] == "at 2"
