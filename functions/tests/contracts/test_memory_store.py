"""What every MemoryStore does: the same tests over Firestore in the emulator and over the fake that other tests use."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from google.cloud.firestore_v1.async_client import AsyncClient

from builders import NOON
from fakes import InMemoryEvents, InMemoryMemories
from metacortex.bootstrap import Stores
from metacortex.errors import Conflict
from metacortex.events import Event, EventKind
from metacortex.memory import (
    BranchState,
    Embedding,
    Memory,
    Metadata,
    Modality,
    NewMemory,
    Origin,
    Part,
    Provenance,
)
from metacortex.ports import (
    Change,
    Fingerprint,
    ListFilters,
    MemoryStore,
    Position,
    Question,
    ReadMetadata,
    SearchFilters,
)
from metacortex.rules import DUPLICATE_WINDOW_MS, EARLIEST_MS, LATEST_MS
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


def question(terms: tuple[str, ...] = (), **filters: Any) -> Question:
    chosen = replace(SearchFilters(branch_state=BranchState.ACTIVE), **filters)
    return Question(vector=(1.0, 0.0), vector_field="embedding", filters=chosen, terms=terms)


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
    found = await store.nearest(question(), 4)
    assert [match.id for match in found] == ["same", "near", "far", "opposite"]
    assert [match.score for match in found] == pytest.approx([1, 0.6, 0, -1], abs=1e-6)
    assert [match.summary for match in found[:2]] == ["About same", "About near"]
    assert [match.id for match in await store.nearest(question(), 1)] == ["same"]


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
    store: MemoryStore, asked: dict[str, Any], stored: Callable[[int], dict[str, Any]]
) -> None:
    for i in range(10):
        await save(store, a_memory(f"m{i}", (1.0, 0.0) if i < 9 else (0.0, 1.0), **stored(i)))
    assert [match.id for match in await store.nearest(question(**asked), 1)] == ["m9"]


async def test_a_match_carries_the_whole_metadata(store: MemoryStore) -> None:
    await save(store, replace(a_memory("memory-1"), memory=WHOLE))
    [match] = await store.nearest(question(branch_state=BranchState.WIP), 10)
    assert match.metadata == WHOLE.metadata


# --- Words ---


def holding(name: str, *words: str, vector: tuple[float, float] = (1.0, 0.0), **metadata: object) -> NewMemory:
    """A memory that holds these words, each as often as it is named."""
    return replace(a_memory(name, vector, **metadata), terms={word: words.count(word) for word in words})


async def held_by(store: MemoryStore, term: str, limit: int = 50, **filters: Any) -> list[str]:
    return sorted(found.id for found in await store.holding(question((term,), **filters), term, limit))


async def test_words_are_counted_in_the_memories_that_pass_the_filters(store: MemoryStore) -> None:
    await save(store, holding("a", "owl", "owl", "barn"))
    await save(store, holding("b", "owl", topic="Owls"))
    await save(store, holding("c", "owl", branch_state=BranchState.WIP))
    await save(store, a_memory("no words"))
    active = SearchFilters(branch_state=BranchState.ACTIVE)
    assert await store.count_terms(active, ["owl", "barn", "mouse"]) == {"owl": 2, "barn": 1, "mouse": 0}
    assert await store.count_terms(replace(active, topic="Owls"), ["barn", "owl"]) == {"barn": 0, "owl": 1}
    assert await store.count_terms(active, []) == {}


async def test_what_holds_a_word_comes_with_its_similarity_its_words_and_its_metadata(store: MemoryStore) -> None:
    far = replace(holding("memory-1", "owl", "owl", "barn", "mouse", vector=(0.6, 0.8)), memory=WHOLE)
    await save(store, far)
    await save(store, holding("without", "barn", branch_state=BranchState.WIP))
    [found] = await store.holding(question(("owl", "barn"), branch_state=BranchState.WIP), "owl", 50)
    assert (found.id, found.score, found.by_vector) == ("memory-1", 0.6, False)
    assert found.held == {"owl": 2, "barn": 1}
    assert found.metadata == WHOLE.metadata
    assert found.summary == "Ready for NUL \0, 🦉 and \u202eright to left"


async def test_what_is_near_comes_with_the_words_that_are_asked_for(store: MemoryStore) -> None:
    await save(store, holding("a", "owl", "owl", "barn"))
    await save(store, a_memory("b", (0.0, 1.0)))
    found = await store.nearest(question(("owl", "mouse")), 5)
    assert [(each.id, each.held, each.by_vector) for each in found] == [("a", {"owl": 2}, True), ("b", {}, True)]


@pytest.mark.parametrize(("asked", "stored"), FILTERS, ids=["state", "topic", "origin"])
async def test_filters_apply_before_memories_are_chosen_by_their_words(
    store: MemoryStore, asked: dict[str, Any], stored: Callable[[int], dict[str, Any]]
) -> None:
    for i in range(10):
        metadata: dict[str, Any] = stored(i)
        await save(store, holding(f"m{i}", "owl", **metadata))
    assert await held_by(store, "owl", 1, **asked) == ["m9"]


async def test_no_more_memories_that_hold_a_word_come_than_asked_for(store: MemoryStore) -> None:
    for i in range(5):
        await save(store, holding(f"m{i}", "owl"))
    assert len(await held_by(store, "owl", 3)) == 3


ODD_WORDS = [
    "a.md",
    "e-1042",
    "v1.2.3",
    "owner/repo#42",
    "c++",
    "a@b.c",
    "12:30",
    "雾凇",
    "हिन्दी",
    "42",
    "𠮷野",
    "x" * 64,
]


async def test_every_kind_of_word_is_counted_and_found(store: MemoryStore) -> None:
    await save(store, holding("all", *ODD_WORDS, *ODD_WORDS))
    await save(store, holding("none", "owl"))
    active = SearchFilters(branch_state=BranchState.ACTIVE)
    assert await store.count_terms(active, ODD_WORDS) == dict.fromkeys(ODD_WORDS, 1)
    for word in ODD_WORDS:
        assert await held_by(store, word) == ["all"]
    [found] = await store.holding(question(tuple(ODD_WORDS)), "a.md", 50)
    assert found.held == dict.fromkeys(ODD_WORDS, 2)


async def test_what_has_no_vector_of_the_space_is_found_neither_by_meaning_nor_by_words(store: MemoryStore) -> None:
    elsewhere = holding("elsewhere", "owl")
    await save(store, replace(elsewhere, embedding=replace(elsewhere.embedding, vector_field="embedding_2")))
    await save(store, holding("here", "owl"))
    assert await held_by(store, "owl") == ["here"]
    assert [found.id for found in await store.nearest(question(), 5)] == ["here"]


# --- Parts of long memories ---


def long(name: str, *vectors: tuple[float, float], **metadata: object) -> NewMemory:
    """A memory in parts with these vectors, itself far from everything that tests ask for."""
    parts = tuple(Part(summary=f"Part {i} of {name}", vector=vector) for i, vector in enumerate(vectors))
    return replace(a_memory(name, (0.0, -1.0), **metadata), parts=parts)


async def parts_of(store: MemoryStore, limit: int = 10, **filters: Any) -> list[tuple[str, str]]:
    return [(found.id, found.summary) for found in await store.nearest_parts(question(**filters), limit)]


async def test_the_nearest_parts_come_nearest_first_under_their_memories(store: MemoryStore) -> None:
    await save(store, long("a", (0.0, 1.0), (1.0, 0.0)))
    await save(store, long("b", (0.6, 0.8)))
    await save(store, a_memory("short"))
    found = await store.nearest_parts(question(("owl",)), 10)
    assert [(part.id, part.summary, part.score) for part in found] == [
        ("a", "Part 1 of a", 1.0),
        ("b", "Part 0 of b", 0.6),
        ("a", "Part 0 of a", 0.0),
    ]
    assert all(part.by_vector and part.held is None for part in found)
    assert await parts_of(store, 1) == [("a", "Part 1 of a")]


async def test_the_words_that_memories_hold_are_told_by_their_ids(store: MemoryStore) -> None:
    await save(store, holding("both", "owl", "owl", "barn", "mouse"))
    await save(store, holding("none", "mouse"))
    await save(store, a_memory("without"))
    found = await store.held(question(("owl", "barn")), ["both", "none", "without", "unknown"])
    assert found == {"both": {"owl": 2, "barn": 1}, "none": {}, "without": {}, "unknown": {}}
    assert await store.held(question(("owl",)), []) == {}


async def test_a_part_carries_the_whole_metadata_of_its_memory(store: MemoryStore) -> None:
    await save(store, replace(long("memory-1", (1.0, 0.0)), memory=WHOLE))
    [found] = await store.nearest_parts(question(branch_state=BranchState.WIP), 10)
    assert found.metadata == WHOLE.metadata


@pytest.mark.parametrize(("asked", "stored"), FILTERS, ids=["state", "topic", "origin"])
async def test_filters_apply_before_parts_are_chosen(
    store: MemoryStore, asked: dict[str, Any], stored: Callable[[int], dict[str, Any]]
) -> None:
    for i in range(10):
        metadata: dict[str, Any] = stored(i)
        await save(store, long(f"m{i}", (1.0, 0.0) if i < 9 else (0.0, 1.0), **metadata))
    assert [name for name, _ in await parts_of(store, 1, **asked)] == ["m9"]


async def test_parts_are_stored_with_their_memory_or_not_at_all(store: MemoryStore) -> None:
    before, _ = await store.fingerprint("print")
    assert await store.save(long("one", (1.0, 0.0)), before, an_event("e1"))
    assert not await store.save(long("two", (1.0, 0.0)), before, an_event("e2"))
    assert [name for name, _ in await parts_of(store)] == ["one"]


async def test_parts_change_with_a_deprecated_memory(store: MemoryStore) -> None:
    await save(store, long("old", (1.0, 0.0), (0.6, 0.8)))
    await save(store, long("kept", (0.8, 0.6)))

    async def work(read: ReadMetadata) -> tuple[None, Change | None]:
        before = await read("old")
        assert before is not None
        return None, deprecation("old", before, "kept")

    await store.transact(work, lambda _: an_event("e"))
    assert [name for name, _ in await parts_of(store)] == ["kept"]
    found = await store.nearest_parts(question(branch_state=BranchState.DEPRECATED), 10)
    assert [part.summary for part in found] == ["Part 0 of old", "Part 1 of old"]
    old = await store.get("old")
    assert old is not None
    assert {part.metadata.superseded_by for part in found} == {"kept"}
    assert all(part.metadata == old.metadata for part in found)


async def test_parts_change_with_the_sources_of_a_merge_and_the_merged_memory_has_its_own(store: MemoryStore) -> None:
    for name in ("a", "b"):
        await save(store, long(name, (1.0, 0.0), (0.6, 0.8), branch_state=BranchState.WIP))
    found = await store.versions(["a", "b"])
    changes = [
        replace(deprecation(source.memory.id, source.memory.metadata, "merged"), revision=source.revision)
        for source in found
        if source
    ]
    assert await store.consolidate(long("merged", (1.0, 0.0)), changes, an_event("e"))
    assert [name for name, _ in await parts_of(store)] == ["merged"]
    assert await parts_of(store, branch_state=BranchState.WIP) == []
    assert len(await parts_of(store, branch_state=BranchState.DEPRECATED)) == 4


async def test_of_a_merge_that_is_refused_no_parts_are_stored(store: MemoryStore) -> None:
    changes = await sources(store)
    assert await store.consolidate(a_memory("first"), changes, an_event("e1"))
    assert not await store.consolidate(long("second", (1.0, 0.0)), changes, an_event("e2"))
    assert await parts_of(store) == []


@pytest.mark.parametrize("name", ["x" * 1_480, "a b", "雾凇", "%2F..", "`.`"])
async def test_parts_belong_to_their_memory_whatever_its_id(store: MemoryStore, name: str) -> None:
    await save(store, long(name, (1.0, 0.0)))
    await save(store, long(f"{name[:1_400]}!", (0.6, 0.8)))
    assert [memory_id for memory_id, _ in await parts_of(store)] == [name, f"{name[:1_400]}!"]


# --- Listings ---


async def newest(store: MemoryStore, *, after: Position | None = None, limit: int = 10, **filters: object) -> list[str]:
    chosen = replace(ListFilters(branch_state=BranchState.ACTIVE), **filters)  # pyright: ignore[reportArgumentType]
    return [entry.id for entry in await store.newest(chosen, after, limit)]


async def test_a_listing_is_newest_first_and_then_by_id(store: MemoryStore) -> None:
    for name, minute in (("b", 1), ("a", 1), ("c", 1), ("old", 0), ("new", 2)):
        await save(store, a_memory(name, created_at=NOON + minute))
    assert await newest(store) == ["new", "a", "b", "c", "old"]
    assert await newest(store, limit=2) == ["new", "a"]


async def test_a_listing_goes_on_from_a_place_whether_a_memory_is_there_or_not(store: MemoryStore) -> None:
    for name in ("a", "b", "c"):
        await save(store, a_memory(name))
    await save(store, a_memory("old", created_at=NOON - 1))
    assert await newest(store, after=Position(created_at=NOON, memory_id="b")) == ["c", "old"]
    assert await newest(store, after=Position(created_at=NOON, memory_id="bb")) == ["c", "old"]
    assert await newest(store, after=Position(created_at=NOON + 5, memory_id="z")) == ["a", "b", "c", "old"]
    assert await newest(store, after=Position(created_at=NOON - 1, memory_id="old")) == []
    assert await newest(store, after=Position(created_at=-(2**62), memory_id="old")) == []


@pytest.mark.parametrize(("asked", "stored"), FILTERS, ids=["state", "topic", "origin"])
async def test_a_listing_is_filtered_before_it_is_cut(
    store: MemoryStore, asked: dict[str, Any], stored: Callable[[int], dict[str, Any]]
) -> None:
    for i in range(10):
        metadata: dict[str, Any] = {"created_at": NOON - i, **stored(i)}
        await save(store, a_memory(f"m{i}", **metadata))
    narrow: dict[str, Any] = dict(asked)
    assert await newest(store, limit=1, **narrow) == ["m9"]


async def test_a_listing_includes_its_beginning_and_excludes_its_end(store: MemoryStore) -> None:
    for i in range(4):
        await save(store, a_memory(f"m{i}", created_at=NOON + i))
    assert await newest(store, created_after=NOON + 1, created_before=NOON + 3) == ["m2", "m1"]
    after = Position(created_at=NOON + 2, memory_id="m2")
    assert await newest(store, created_after=NOON + 1, created_before=NOON + 3, after=after) == ["m1"]


# A fingerprint, which lives on for 30 days, must be able to expire.
LAST = LATEST_MS - 31 * 24 * 60 * 60 * 1000


async def test_a_listing_spans_every_time_that_can_be_told(store: MemoryStore) -> None:
    for name, moment in (("first", EARLIEST_MS), ("before", -1), ("zero", 0), ("last", LAST)):
        await save(store, a_memory(name, created_at=moment))
    await save(store, a_memory("never", created_at=None))
    assert await newest(store) == ["last", "zero", "before", "first"]


async def test_an_entry_carries_summary_and_metadata(store: MemoryStore) -> None:
    await save(store, replace(a_memory("memory-1"), memory=WHOLE))
    [entry] = await store.newest(ListFilters(branch_state=BranchState.WIP), None, 1)
    assert entry.metadata == WHOLE.metadata
    assert entry.summary == "Ready for NUL \0, 🦉 and \u202eright to left"


# --- Transactions ---


def deprecation(memory_id: str, before: Metadata, superseded_by: str | None = None) -> Change:
    after = replace(before, branch_state=BranchState.DEPRECATED, superseded_by=superseded_by, valid_until=NOON)
    return Change(memory_id=memory_id, before=before, after=after)


async def test_a_transaction_stores_its_change_and_the_event_of_its_result(stores: Stores) -> None:
    store = stores.memories
    await save(store, replace(a_memory("memory-1"), memory=WHOLE, retrieval_text="kept"))

    async def work(read: ReadMetadata) -> tuple[str, Change | None]:
        before = await read("memory-1")
        assert before == WHOLE.metadata
        assert await read("nothing") is None
        return "done", deprecation("memory-1", WHOLE.metadata)

    assert await store.transact(work, lambda result: an_event(f"event of {result}")) == "done"
    changed = replace(WHOLE.metadata, branch_state=BranchState.DEPRECATED, superseded_by=None, valid_until=NOON)
    assert await store.get("memory-1") == replace(WHOLE, metadata=changed)
    [version] = await store.versions(["memory-1"])
    assert version is not None
    assert version.retrieval_text == "kept"


async def test_a_transaction_may_change_nothing_or_refuse(store: MemoryStore) -> None:
    await save(store, a_memory("one"))

    async def look(read: ReadMetadata) -> tuple[Metadata | None, Change | None]:
        return await read("one"), None

    async def refuse(read: ReadMetadata) -> tuple[None, Change | None]:
        await read("one")
        raise Conflict("Not now.")

    found = await store.transact(look, lambda _: pytest.fail("no change, no event"))
    assert found == a_memory("one").memory.metadata
    with pytest.raises(Conflict, match=r"Not now\."):
        await store.transact(refuse, lambda _: pytest.fail("no change, no event"))
    assert await store.get("one") == a_memory("one").memory


async def test_of_two_transactions_that_would_contradict_each_other_one_sees_the_other(store: MemoryStore) -> None:
    for name in ("a", "b"):
        await save(store, a_memory(name))

    def work(memory_id: str, other: str) -> Callable[[ReadMetadata], Awaitable[tuple[bool, Change | None]]]:
        async def supersede(read: ReadMetadata) -> tuple[bool, Change | None]:
            replacement, before = await read(other), await read(memory_id)
            assert replacement is not None
            assert before is not None
            if replacement.superseded_by == memory_id:
                return False, None
            return True, deprecation(memory_id, before, other)

        return supersede

    outcomes = await asyncio.gather(
        store.transact(work("a", "b"), lambda _: an_event("e1")),
        store.transact(work("b", "a"), lambda _: an_event("e2")),
    )
    assert sorted(outcomes) == [False, True]


# --- Merges ---


async def test_versions_come_in_the_order_they_were_asked_for(store: MemoryStore) -> None:
    for name in ("a", "b"):
        await save(store, a_memory(name))
    found = await store.versions(["b", "nothing", "a"])
    assert [version and version.memory.id for version in found] == ["b", None, "a"]


async def test_the_oldest_drafts_of_a_topic_come_oldest_first_with_their_number(store: MemoryStore) -> None:
    wip: dict[str, Any] = {"branch_state": BranchState.WIP, "topic": "Owls"}
    for i in range(5):
        await save(store, a_memory(f"m{i}", created_at=NOON - i, **wip))
    await save(store, a_memory("other topic", branch_state=BranchState.WIP, topic="owls"))
    await save(store, a_memory("active", topic="Owls"))
    drafts, count = await store.oldest_drafts("Owls", 3)
    assert [draft.memory.id for draft in drafts] == ["m4", "m3", "m2"]
    assert drafts[0].memory.content == "About m4"
    assert count == 5
    assert await store.oldest_drafts("Nothing", 3) == ([], 0)


async def sources(store: MemoryStore) -> list[Change]:
    """Two stored memories as the sources of a merge."""
    for name in ("a", "b"):
        await save(store, a_memory(name))
    found = await store.versions(["a", "b"])
    return [
        replace(deprecation(source.memory.id, source.memory.metadata, "merged"), revision=source.revision)
        for source in found
        if source
    ]


async def test_a_merge_stores_the_new_memory_and_the_change_of_every_source(store: MemoryStore) -> None:
    changes = await sources(store)
    assert await store.consolidate(a_memory("merged"), changes, an_event("e"))
    assert await store.get("merged") == a_memory("merged").memory
    for name in ("a", "b"):
        source = await store.get(name)
        assert source is not None
        assert (source.metadata.branch_state, source.metadata.superseded_by) == (BranchState.DEPRECATED, "merged")


async def test_a_merge_stores_nothing_once_a_source_has_changed(store: MemoryStore) -> None:
    changes = await sources(store)

    async def touch(read: ReadMetadata) -> tuple[None, Change | None]:
        before = await read("b")
        assert before is not None
        return None, Change(memory_id="b", before=before, after=replace(before, updated_at=NOON + 1))

    await store.transact(touch, lambda _: an_event("e1"))
    assert not await store.consolidate(a_memory("merged"), changes, an_event("e2"))
    assert await store.get("merged") is None
    untouched = await store.get("a")
    assert untouched == a_memory("a").memory


async def test_a_merge_that_meets_its_own_success_stores_nothing_again(store: MemoryStore) -> None:
    changes = await sources(store)
    assert await store.consolidate(a_memory("merged"), changes, an_event("e"))
    assert not await store.consolidate(a_memory("merged"), changes, an_event("e"))


async def test_of_ten_merges_of_the_same_sources_at_once_one_is_stored(store: MemoryStore) -> None:
    changes = await sources(store)
    merges = [store.consolidate(a_memory(f"merged {i}"), changes, an_event(f"e{i}")) for i in range(10)]
    assert sorted(await asyncio.gather(*merges)) == [False] * 9 + [True]
