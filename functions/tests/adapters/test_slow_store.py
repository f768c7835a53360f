"""A store that hangs and a store that is gone: every caller hears so in time, in words that say what to do."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any

import pytest
from google.cloud.firestore_v1.async_client import AsyncClient

from builders import Service, ToolError, in_memory
from metacortex import trail
from metacortex.adapters import firestore_client
from metacortex.adapters.firestore_client import create_client
from metacortex.adapters.firestore_events import FirestoreEvents
from metacortex.adapters.firestore_memories import FirestoreMemories
from metacortex.bootstrap import Stores
from metacortex.errors import TimedOut
from metacortex.events import Event, EventKind
from metacortex.memory import BranchState, Embedding, Memory, Metadata, Modality, NewMemory
from metacortex.ports import Change, Fingerprint, ListFilters, Question, ReadMetadata
from metacortex.spaces import CollectionSpaces, Space

RETRYING_SECONDS = 5.0
SLACK_SECONDS = 2.5
CALLS: dict[str, dict[str, str]] = {
    "save_context": {"content": "Fact at 10"},
    "search_context": {"query": "at 10"},
    "fetch_context": {"id": "memory-1"},
}


@pytest.fixture
def hanging() -> Generator[str]:
    """The address of a store that takes every connection and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def gone() -> Generator[str]:
    """The address of a store that nothing listens at, and nothing else takes meanwhile."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{unused.getsockname()[1]}"


Connect = Callable[[str], Stores]


@pytest.fixture
async def connect(project: str, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Connect]:
    """Makes stores at an address, and ends their connections afterwards."""
    clients: list[AsyncClient] = []

    def at(host: str) -> Stores:
        monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", host)
        client = create_client(project)
        clients.append(client)
        return Stores(memories=FirestoreMemories(client, "memory_vectors"), events=FirestoreEvents(client))

    yield at
    for client in clients:
        await client._firestore_api.transport.close()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


@pytest.fixture
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firestore_client, "DEADLINE_SECONDS", 0.1)


async def refusals(service: Service, within: float) -> set[tuple[int, str, str]]:
    """How every tool fails, all called at once."""

    async def refusal(tool: str) -> tuple[int, str, str]:
        with pytest.raises(ToolError) as error:
            await service.call(tool, **CALLS[tool])
        return error.value.status, error.value.code, error.value.message

    async with asyncio.timeout(within):
        return set(await asyncio.gather(*map(refusal, CALLS)))


TOO_SLOW = (504, "timed_out", "The store did not answer in time; the same call is safe to repeat.")
AWAY = (
    503,
    "unavailable",
    "The store cannot be reached at the moment; the same call is safe to repeat in a few seconds.",
)


def test_a_caller_waits_for_seconds_and_not_for_minutes() -> None:
    assert firestore_client.DEADLINE_SECONDS <= 15
    assert trail.WRITE_SECONDS <= 2


@pytest.mark.slow
async def test_every_tool_tells_within_its_deadline_that_the_store_hangs(connect: Connect, hanging: str) -> None:
    within = firestore_client.DEADLINE_SECONDS + trail.WRITE_SECONDS + SLACK_SECONDS
    assert await refusals(Service(stores=connect(hanging)), within) == {TOO_SLOW}


@pytest.mark.slow
async def test_every_tool_tells_within_seconds_that_the_store_is_gone(connect: Connect, gone: str) -> None:
    within = RETRYING_SECONDS + trail.WRITE_SECONDS + SLACK_SECONDS
    assert await refusals(Service(stores=connect(gone)), within) == {AWAY}


SPACES = CollectionSpaces.only(Space("plane", 2, "plain"))
METADATA = Metadata(topic="general", branch_state=BranchState.ACTIVE, modality=Modality.TEXT)
NEW = NewMemory(
    memory=Memory(id="memory-1", content="Fact", metadata=METADATA),
    embedding=Embedding(vector=(1.0, 0.0), space_id=SPACES.current, vector_field="embedding"),
)
FILTERS = ListFilters(branch_state=BranchState.ACTIVE)
QUESTION = Question(vector=(1.0, 0.0), vector_field="embedding", filters=FILTERS)
EVENT = Event(id="event-1", kind=EventKind.MEMORY, timestamp=0, fields={})
Call = Callable[[Stores], Coroutine[Any, Any, object]]


async def nothing_to_change(read: ReadMetadata) -> tuple[Metadata | None, Change | None]:
    return await read("memory-1"), None


PORTS: dict[str, Call] = {
    "spaces": lambda stores: stores.memories.spaces(),
    "is_empty": lambda stores: stores.memories.is_empty(),
    "name_space": lambda stores: stores.memories.name_space(SPACES),
    "fingerprint": lambda stores: stores.memories.fingerprint("print"),
    "get": lambda stores: stores.memories.get("memory-1"),
    "count_terms": lambda stores: stores.memories.count_terms(FILTERS, ["owl"]),
    "nearest": lambda stores: stores.memories.nearest(QUESTION, 5),
    "nearest_parts": lambda stores: stores.memories.nearest_parts(QUESTION, 5),
    "holding": lambda stores: stores.memories.holding(QUESTION, "owl", 5),
    "newest": lambda stores: stores.memories.newest(FILTERS, None, 5),
    "transact": lambda stores: stores.memories.transact(nothing_to_change, lambda _: EVENT),
    "versions": lambda stores: stores.memories.versions(["memory-1"]),
    "oldest_drafts": lambda stores: stores.memories.oldest_drafts("general", 5),
    "consolidate": lambda stores: stores.memories.consolidate(NEW, [], EVENT),
    "save": lambda stores: stores.memories.save(NEW, Fingerprint(id="print"), EVENT),
    "append": lambda stores: stores.events.append([EVENT]),
}


@pytest.mark.parametrize("call", PORTS.values(), ids=PORTS)
async def test_every_call_of_a_store_has_a_deadline(
    connect: Connect, hanging: str, in_a_hurry: None, call: Call
) -> None:
    stores = connect(hanging)
    with pytest.raises(TimedOut):
        async with asyncio.timeout(2):
            await call(stores)


@pytest.mark.slow
async def test_a_read_waits_about_two_seconds_for_an_event_log_that_hangs(connect: Connect, hanging: str) -> None:
    service = Service(stores=Stores(memories=in_memory().memories, events=connect(hanging).events))
    item = await service.save("Fact at 10")
    async with asyncio.timeout(trail.WRITE_SECONDS + SLACK_SECONDS):
        assert [match["id"] for match in await service.search("at 10")] == [item["id"]]
