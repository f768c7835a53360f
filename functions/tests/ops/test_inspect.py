"""`metacortex inspect` as an owner runs it, over what a service left in the emulator."""

import asyncio
import functools
import json
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from google.cloud.firestore_v1.async_client import AsyncClient
from typer.testing import CliRunner, Result

from builders import FakeClock, Service, ToolError, environment
from channel import Channel
from metacortex.bootstrap import Stores, models
from metacortex.events import EventKind
from metacortex.settings import load
from metacortex.spaces import CollectionSpaces
from old_data import MEMORIES, store
from ops.checkout import ROOT
from ops.cli import app
from ops.indexes import needed
from ops.look_costs import Corpus, costs, table
from ops.look_indexes import indexes, shown
from ops.place import Place
from running import executable

Command = Callable[..., Awaitable[Result]]
MINUTE = 60_000


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["inspect", *arguments], catch_exceptions=False)


@pytest.fixture
async def command(monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs the command in a thread, and what it awaits in the loop of the test: grpc's poller belongs to that."""
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(asyncio, "run", lambda work: asyncio.run_coroutine_threadsafe(work, loop).result())
    return functools.partial(asyncio.to_thread, invoke)


@pytest.fixture
def look(firestore: AsyncClient, project: str, command: Command) -> Callable[[], Awaitable[dict[str, Any]]]:
    """What the command tells of the database of this test, as JSON."""

    async def run() -> dict[str, Any]:
        result = await command("--project", project, "--json")
        assert (result.exit_code, result.stderr) == (0, "")
        return json.loads(result.stdout)

    return run


Look = Callable[[], Awaitable[dict[str, Any]]]


@pytest.fixture
def service(firestore_stores: Stores) -> Service:
    """A service whose calls have just happened, so that they are of these thirty days."""
    return Service(stores=firestore_stores, clock=FakeClock(time.time_ns() // 1_000_000 - MINUTE))


# --- What is there ---


async def test_memories_are_counted_by_state_and_topic(service: Service, look: Look) -> None:
    for number in range(3):
        await service.save(f"Owl {number} at {number}", topic="Birds")
    await service.save("Draft at 1", topic="birds", draft=True)
    await service.save("Plan at 1")
    memories = (await look())["memories"]
    assert memories == {
        "total": 5,
        "parts": 0,
        "states": {"active": 4, "merged": 0, "deprecated": 0, "wip": 1},
        "topics": {"Birds": 3, "birds": 1, "general": 1},
        "topic_count": 3,
        "more_topics": False,
    }


async def test_of_many_topics_the_twenty_largest_are_shown(service: Service, look: Look) -> None:
    for number in range(25):
        for again in range(1 + (number >= 23)):
            await service.save(f"{again} at {number}", topic=f"Topic {number}")
    memories = (await look())["memories"]
    assert (len(memories["topics"]), memories["topic_count"]) == (20, 25)
    assert list(memories["topics"].items())[:2] == [("Topic 23", 2), ("Topic 24", 2)]


async def test_memories_are_counted_and_not_read(channel: Channel, firestore: AsyncClient, look: Look) -> None:
    many = {f"m-{number}": MEMORIES["text"] for number in range(400)}
    await store(firestore, {"memory_vectors": many})
    channel.requests.clear()
    assert (await look())["memories"]["topics"] == {"Birds": 400}
    queries = [request.structured_query for request in channel.requests if hasattr(request, "structured_query")]
    assert [query.limit for query in queries if query.from_[0].collection_id == "memory_vectors"] == [1, 1]


async def test_parts_of_long_memories_and_spaces_are_told(firestore_stores: Stores, look: Look) -> None:
    service = Service(stores=firestore_stores, models=models(load(environment()), None))
    await service.save("An owl lives in every barn. " * 300)
    told = await look()
    assert told["memories"]["parts"] > 3
    space = "wordllama-l2-supercat@256/dated"
    assert told["spaces"] == {"current": space, "fields": {space: "embedding"}}
    assert told["move"] is None


async def test_a_move_under_way_is_told(firestore: AsyncClient, look: Look) -> None:
    old = {"space": "plane@2/plain", "field": "embedding"}
    new = {"space": "sphere@3/plain", "field": "embedding_2"}
    space = {"current": "plane@2/plain", "spaces": {"plane@2/plain": "embedding"}}
    await store(
        firestore,
        {
            "memory_vectors": MEMORIES,
            "memory_vectors_meta": {"space": space, "reembedding": {"old": old, "new": new, "step": "fill"}},
        },
    )
    assert (await look())["move"] == {"from": "plane@2/plain", "to": "sphere@3/plain", "step": "fill"}


async def test_a_collection_that_names_no_space_is_looked_at_all_the_same(firestore: AsyncClient, look: Look) -> None:
    await store(firestore, {"memory_vectors": MEMORIES})
    told = await look()
    assert (told["spaces"], told["memories"]["total"]) == (None, 6)


# --- What happened ---


async def test_calls_errors_clients_and_rejections_are_counted(
    firestore: AsyncClient, service: Service, look: Look
) -> None:
    item = await service.save("Owls at 1")
    await service.search("at 1")
    await service.search("at 2", "reader")
    with pytest.raises(ToolError):
        await service.fetch(f"not-{item['id']}")
    await service.http.post("/mcp")
    flood = {
        "event_type": "request",
        "status": "rejected",
        "status_code": 401,
        "reason": "unauthorized",
        "count": 128,
        "timestamp": service.clock.now,
    }
    await firestore.collection(EventKind.MEMORY).document("flood").set(flood)
    long_ago = {**flood, "timestamp": service.clock.now - 40 * 24 * 60 * MINUTE}
    await firestore.collection(EventKind.MEMORY).document("long-ago").set(long_ago)
    events = (await look())["events"]
    assert (events["found"], events["days"]) == (6, 30)
    assert events["calls"] == {"save_context": 1, "search_context": 2, "fetch_context": 1}
    assert events["errors"] == {"not_found": 1}
    assert events["rejections"] == {"unauthorized": 129}
    assert events["clients"] == {"agent": 3, "reader": 1, "default": 1, "-": 1}
    assert len(events["last"]) == 5


async def test_a_month_is_estimated_from_the_calls_and_the_corpus(
    firestore: AsyncClient, service: Service, look: Look
) -> None:
    await happened(firestore, service, days_ago=40)
    for number in range(3):
        await service.save(f"Owl {number} at {number}")
    await service.search("at 1")
    each = costs(Corpus(memories=3, parts=0))
    month = (await look())["month"]
    assert month["reads"] == 3 * each["save_context"].reads + each["search_context"].reads
    assert month["writes"] == 3 * 3 + 1


async def happened(firestore: AsyncClient, service: Service, *, days_ago: float) -> None:
    """Keeps an event of so long ago, which is no call."""
    fields = {"event_type": "evaluation", "timestamp": service.clock.now - round(days_ago * 24 * 60 * MINUTE)}
    await firestore.collection(EventKind.MEMORY).document("long-ago").set(fields)


async def test_a_young_installation_is_taken_for_as_old_as_its_first_event(
    firestore: AsyncClient, service: Service, look: Look
) -> None:
    await happened(firestore, service, days_ago=3)
    await service.save("Owls at 1")
    told = await look()
    assert told["events"]["days"] == pytest.approx(3, abs=0.01)
    assert told["month"]["writes"] == pytest.approx((3 + 1) * 10, abs=1)


# --- For a person ---


async def test_a_person_is_told_the_place_first_and_then_everything(
    service: Service, project: str, command: Command
) -> None:
    await service.save("Owls at 1", topic="Bi\x1b[2Jrds")
    result = await command("--project", project)
    lines = result.stdout.splitlines()
    assert lines[0] == f"memory_vectors of {project} in the emulator at {os.environ['FIRESTORE_EMULATOR_HOST']}"
    assert "\x1b" not in result.stdout
    assert "         1  Bi [2Jrds" in result.stdout
    names = [words[0] for line in lines[1:] if line[2:3].strip() and (words := line.split("  ")[1:])]
    assert names == [
        *("memories", "states", "topics", "spaces", "events", "calls", "clients", "errors", "rejections", "last"),
        *("indexes", "a month", "storage"),
    ]
    assert "cannot be seen in the emulator" in result.stdout


@pytest.mark.slow
async def test_an_emulator_that_is_gone_is_told(monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", "127.0.0.1:1")
    result = await command("--json")
    assert result.exit_code == 1
    assert "No emulator answers at 127.0.0.1:1" in json.loads(result.stdout)["error"]


def test_the_project_is_never_guessed_and_never_another_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FIRESTORE_EMULATOR_HOST", raising=False)
    assert "--project: is needed" in invoke().stderr
    assert "'--json' is not a project's id" in invoke("--project", "--json").stderr
    assert invoke("--project", "--json").exit_code == 2


def test_without_credentials_it_says_how_to_get_some(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FIRESTORE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    result = invoke("--project", "demo-nobody")
    assert result.exit_code == 1
    assert "`gcloud auth application-default login`" in result.stderr


# --- Indexes, as gcloud lists them ---

IN_PRODUCTION = Place(project="demo-looked-at", emulator=None, collection="memory_vectors")


@pytest.fixture
def gcloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[list[Any], list[Any]], None]:
    """Puts a gcloud on PATH that lists these indexes and these fields."""

    def lists(composite: list[Any], ttls: list[Any]) -> None:
        (tmp_path / "composite").write_text(json.dumps(composite))
        (tmp_path / "ttls").write_text(json.dumps(ttls))
        executable(
            tmp_path / "bin/gcloud",
            f'case "$*" in\n'
            f'"firestore indexes composite list --project=demo-looked-at --format=json --quiet") cat {tmp_path}/composite;;\n'
            f'"firestore fields ttls list --project=demo-looked-at --format=json --quiet") cat {tmp_path}/ttls;;\n'
            f"*) exit 2;; esac",
        )
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")

    return lists


Gcloud = Callable[[list[Any], list[Any]], None]


def made(index: dict[str, Any], state: str = "READY") -> dict[str, Any]:
    """An index as Firestore lists it: with its name, its state, and the document's name among its fields."""
    *ordered, ranked = index["fields"]
    fields = [*ordered, {"fieldPath": "__name__", "order": "ASCENDING"}, ranked] if "vectorConfig" in ranked else None
    group = f"projects/demo-looked-at/databases/(default)/collectionGroups/{index['collectionGroup']}"
    return {
        "name": f"{group}/indexes/x",
        "fields": fields or index["fields"],
        "state": state,
        "queryScope": "COLLECTION",
    }


def policy(collection: str, state: str = "ACTIVE") -> dict[str, Any]:
    group = f"projects/demo-looked-at/databases/(default)/collectionGroups/{collection}"
    return {"name": f"{group}/fields/expires_at", "ttlConfig": {"state": state}}


SIGN_IN = ("oauth_requests", "oauth_grants", "owner_sessions")
EXPIRING = ("memory_vectors_write_fingerprints", "memory_events", "retrieval_query_events", *SIGN_IN)


def named(*listed: tuple[str, str]) -> CollectionSpaces:
    return CollectionSpaces(listed[0][0], dict(listed))


async def test_indexes_and_policies_that_are_there_are_ready(gcloud: Gcloud) -> None:
    wanted = needed("memory_vectors", 768, "embedding")["indexes"]
    gcloud([made(index) for index in wanted], [policy(name) for name in EXPIRING])
    seen = await indexes(IN_PRODUCTION, named(("a@768/plain", "embedding")))
    assert seen.indexes
    assert seen.ttl
    assert (seen.indexes.needed, seen.indexes.missing, seen.indexes.unfinished) == (len(wanted), (), ())
    assert (seen.ttl.needed, seen.ttl.missing, seen.ttl.unfinished) == (len(EXPIRING), (), ())


async def test_what_is_missing_or_being_made_is_named_for_every_space(gcloud: Gcloud) -> None:
    [first, *others] = needed("memory_vectors", 768, "embedding")["indexes"]
    listed = [made(first, "CREATING"), *map(made, others)]
    ready = [policy(name) for name in ("memory_events", *SIGN_IN)]
    gcloud(listed, [*ready, policy("retrieval_query_events", "CREATING")])
    seen = await indexes(IN_PRODUCTION, named(("a@768/plain", "embedding"), ("b@128/plain", "embedding_2")))
    assert seen.indexes
    assert seen.ttl
    assert seen.indexes.unfinished == ("memory_vectors metadata.branch_state:ascending embedding:768",)
    assert len(seen.indexes.missing) == 8
    assert all(missing.endswith("embedding_2:128") for missing in seen.indexes.missing)
    assert seen.ttl.missing == ("memory_vectors_write_fingerprints expires_at",)
    assert seen.ttl.unfinished == ("retrieval_query_events expires_at",)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("exit 1", "see what `gcloud firestore indexes composite list --project demo-looked-at` says"),
        ("echo nonsense", "gcloud did not answer with a list"),
        ("echo '[{}]'", "gcloud did not answer with a list"),
    ],
)
async def test_a_gcloud_that_cannot_tell_spoils_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, told: str
) -> None:
    executable(tmp_path / "gcloud", script)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    seen = await indexes(IN_PRODUCTION, named(("a@768/plain", "embedding")))
    assert told in (seen.unseen or "")


async def test_before_the_first_save_it_says_that_no_space_is_named(gcloud: Gcloud) -> None:
    gcloud([], [policy(name) for name in EXPIRING])
    seen = await indexes(IN_PRODUCTION, None)
    assert seen.indexes
    assert seen.ttl
    assert "names no space yet" in shown(seen.indexes)
    assert shown(seen.ttl) == f"{len(EXPIRING)} of {len(EXPIRING)} are ready"


async def test_without_gcloud_indexes_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "gcloud is not installed" in ((await indexes(IN_PRODUCTION, None)).unseen or "")


# --- What calls cost ---


async def test_no_search_reads_more_documents_than_is_said(
    channel: Channel, firestore: AsyncClient, firestore_stores: Stores
) -> None:
    service = Service(stores=firestore_stores)
    words = [f"word{number}" for number in range(8)]
    for number in range(60):
        await service.save(f"{' '.join(words)} at {number}")
    channel.requests.clear()
    await service.search(f"{' '.join(words)} at 7")
    queries = [request.structured_query for request in channel.requests if hasattr(request, "structured_query")]
    documents = sum(query.limit or query.find_nearest.limit for query in queries)
    # Of the parts, of which there are none, nothing is returned.
    assert documents - 50 <= costs(Corpus(memories=60, parts=0))["search_context"].reads
    assert channel.calls.count("RunAggregationQuery") <= 8


def test_the_page_of_scaling_shows_what_the_arithmetic_says() -> None:
    page = (ROOT / "docs/OPERATIONS.md").read_text()
    assert "\n".join(table()) in page
