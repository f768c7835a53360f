"""What every MemoryStore does: the same tests over Firestore in the emulator and over the fake that other tests use."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from google.cloud.firestore_v1.async_client import AsyncClient

from builders import NOON
from fakes import InMemoryEvents, InMemoryMemories
from metacortex.bootstrap import Stores
from metacortex.events import Event, EventKind
from metacortex.memory import (
    BranchState,
    Embedding,
    Memory,
    Metadata,
    Modality,
    NewMemory,
    Origin,
    Provenance,
)
from metacortex.ports import Fingerprint, MemoryStore, Nearest
from metacortex.rules import DUPLICATE_WINDOW_MS
from metacortex.spaces import CollectionSpaces, Space

SPACES = CollectionSpaces.only(Space("plane", 2, "plain"))
WHOLE = Memory(
    id="memory-1",
    content="Ready\nfor NUL \0, 🦉 and \u202eright to left",
    metadata=Metadata(
        topic="Birds/Owls",
        branch_state=BranchState.WIP,
        modality=Modality.MIXED,
        created_at=NOON,
        updated_at=NOON + 1,
        artifact_refs=("https://example.org/a", "b.txt"),
        valid_from=-62_135_596_800_000,
        valid_until=253_402_300_799_999,
        provenance=Provenance(
            origin=Origin.USER_ASSERTED, source_session="s", derived_from=("x", "y"), confidence=0.25
        ),
        written_by="agent",
    ),
)


class ExpiringMemories(InMemoryMemories):
    """The fake, with fingerprints that can go as a TTL policy makes them go."""

    async def expire(self, fingerprint_id: str) -> None:
        del self._fingerprints[fingerprint_id]


@pytest.fixture(params=["fake", "firestore"])
def stores(request: pytest.FixtureRequest) -> Stores:
    if request.param == "firestore":
        return request.getfixturevalue("firestore_stores")
    events = InMemoryEvents()
    return Stores(memories=ExpiringMemories(events), events=events)


@pytest.fixture
def store(stores: Stores) -> MemoryStore:
    return stores.memories


@pytest.fixture
def expire(store: MemoryStore, request: pytest.FixtureRequest) -> Callable[[str], Awaitable[object]]:
    """Deletes a fingerprint behind the store's back."""
    if isinstance(store, ExpiringMemories):
        return store.expire
    firestore: AsyncClient = request.getfixturevalue("firestore")
    return lambda name: firestore.collection("memory_vectors_write_fingerprints").document(name).delete()


def a_memory(name: str, vector: tuple[float, float] = (1.0, 0.0), **metadata: object) -> NewMemory:
    known = Metadata(
        topic="general", branch_state=BranchState.ACTIVE, modality=Modality.TEXT, created_at=NOON, updated_at=NOON
    )
    memory = Memory(id=name, content=f"About {name}", metadata=replace(known, **metadata))  # pyright: ignore[reportArgumentType]
    return NewMemory(
        memory=memory,
        embedding=Embedding(vector=vector, space_id="plane@2/plain", vector_field="embedding"),
    )


def an_event(name: str) -> Event:
    return Event(id=name, kind=EventKind.MEMORY, timestamp=NOON, fields={"event_type": "tool_call"})


async def save(store: MemoryStore, new: NewMemory) -> None:
    assert await store.save(new, Fingerprint(id=f"print of {new.memory.id}"), an_event(f"event of {new.memory.id}"))


def question(**changes: object) -> Nearest:
    plain = Nearest(
        vector=(1.0, 0.0),
        vector_field="embedding",
        branch_state=BranchState.ACTIVE,
        topic=None,
        origin=None,
        limit=10,
    )
    return replace(plain, **changes)  # pyright: ignore[reportArgumentType]


async def test_a_memory_comes_back_as_it_was_saved(store: MemoryStore) -> None:
    await save(store, replace(a_memory("memory-1"), memory=WHOLE, retrieval_text="other", image_mime_type="image/png"))
    assert await store.get("memory-1") == WHOLE


async def test_an_unknown_id_is_no_memory(store: MemoryStore) -> None:
    assert await store.get("nothing") is None


async def test_a_collection_is_empty_until_its_first_memory(store: MemoryStore) -> None:
    assert await store.is_empty()
    await save(store, a_memory("one"))
    assert not await store.is_empty()


async def test_a_new_collection_names_no_space_and_the_first_to_name_one_wins(store: MemoryStore) -> None:
    assert await store.spaces() is None
    other = CollectionSpaces.only(Space("other", 3, "plain"))
    assert await store.name_space(SPACES) == SPACES
    assert await store.name_space(other) == SPACES
    assert await store.spaces() == SPACES


async def test_a_fingerprint_names_the_last_memory_saved_with_it(store: MemoryStore) -> None:
    unused, spaces = await store.fingerprint("print")
    assert (unused.id, unused.memory_id, unused.revision, spaces) == ("print", None, None, None)
    await store.name_space(SPACES)
    assert await store.save(a_memory("one"), unused, an_event("e"))
    used, spaces = await store.fingerprint("print")
    assert (used.memory_id, used.dedupe_expires_at, spaces) == ("one", NOON + DUPLICATE_WINDOW_MS, SPACES)


async def test_a_save_against_a_changed_fingerprint_stores_nothing(store: MemoryStore) -> None:
    before, _ = await store.fingerprint("print")
    assert await store.save(a_memory("one"), before, an_event("e1"))
    assert not await store.save(a_memory("two"), before, an_event("e2"))
    assert await store.get("two") is None
    again, _ = await store.fingerprint("print")
    assert await store.save(a_memory("three"), again, an_event("e3"))
    assert not await store.save(a_memory("four"), again, an_event("e4"))
    assert (await store.fingerprint("print"))[0].memory_id == "three"


async def test_a_save_against_a_fingerprint_that_has_expired_since_stores_nothing(
    store: MemoryStore, expire: Callable[[str], Awaitable[object]]
) -> None:
    await save(store, a_memory("one"))
    before, _ = await store.fingerprint("print of one")
    await expire("print of one")
    assert not await store.save(a_memory("two"), before, an_event("e2"))
    assert await store.get("two") is None
    unused, _ = await store.fingerprint("print of one")
    assert unused == Fingerprint(id="print of one")
    assert await store.save(a_memory("two"), unused, an_event("e3"))


async def test_a_memory_is_never_overwritten(store: MemoryStore) -> None:
    await save(store, a_memory("one"))
    assert not await store.save(a_memory("one", topic="other"), Fingerprint(id="other print"), an_event("e"))
    kept = await store.get("one")
    assert kept is not None
    assert kept.metadata.topic == "general"


async def test_of_ten_equal_saves_at_once_one_is_stored(store: MemoryStore) -> None:
    unused, _ = await store.fingerprint("print")
    saves = [store.save(a_memory(f"m{i}"), unused, an_event(f"e{i}")) for i in range(10)]
    assert sorted(await asyncio.gather(*saves)) == [False] * 9 + [True]


async def test_the_nearest_memories_come_nearest_first_with_scores_and_summaries(store: MemoryStore) -> None:
    await save(store, a_memory("far", (0.0, 1.0)))
    await save(store, a_memory("near", (0.6, 0.8)))
    await save(store, a_memory("same", (1.0, 0.0)))
    await save(store, a_memory("opposite", (-1.0, 0.0)))
    found = await store.nearest(question(limit=4))
    assert [(match.id, match.score) for match in found] == [
        ("same", 1.0),
        ("near", 0.6),
        ("far", 0.0),
        ("opposite", 0.0),
    ]
    assert [match.summary for match in found[:2]] == ["About same", "About near"]
    assert [match.id for match in await store.nearest(question(limit=1))] == ["same"]


FILTERS: list[tuple[dict[str, object], Callable[[int], dict[str, object]]]] = [
    ({"branch_state": BranchState.WIP}, lambda i: {"branch_state": BranchState.WIP if i == 9 else BranchState.ACTIVE}),
    ({"topic": "Owls"}, lambda i: {"topic": "Owls" if i == 9 else "owls"}),
    (
        {"origin": Origin.USER_ASSERTED},
        lambda i: {"provenance": Provenance(origin=Origin.USER_ASSERTED if i == 9 else Origin.AGENT_INFERRED)},
    ),
]


@pytest.mark.parametrize(("asked", "stored"), FILTERS, ids=["state", "topic", "origin"])
async def test_filters_apply_before_neighbours_are_chosen(
    store: MemoryStore, asked: dict[str, object], stored: Callable[[int], dict[str, object]]
) -> None:
    for i in range(10):
        await save(store, a_memory(f"m{i}", (1.0, 0.0) if i < 9 else (0.0, 1.0), **stored(i)))
    assert [match.id for match in await store.nearest(question(limit=1, **asked))] == ["m9"]


async def test_a_match_carries_the_whole_metadata(store: MemoryStore) -> None:
    await save(store, replace(a_memory("memory-1"), memory=WHOLE))
    [match] = await store.nearest(question(branch_state=BranchState.WIP))
    assert match.metadata == WHOLE.metadata
