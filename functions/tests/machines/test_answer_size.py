"""Answers of listings and searches as a property: whatever is remembered, they stay within their budget and skip nothing."""

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from builders import NOON, Service, in_memory
from fakes import PLANE, InMemoryMemories, PlaneEmbedder
from metacortex.memory import BranchState, Embedding, Memory, Metadata, Modality, NewMemory, Origin, Provenance
from metacortex.spaces import CollectionSpaces
from metacortex.tools import payloads

BUDGET = 40_000
# What an answer has around its items is less than this.
AROUND = 1_000
MINUTE = 60_000
# Each memory has so many references of so many characters: alone they may fill more than one answer, and few fit into one.
references = st.tuples(st.integers(0, 50), st.integers(1, 500), st.sampled_from("aé"))
collections = st.lists(references, min_size=1, max_size=20)
# These four fill the budget but for what an answer has around them.
JUST_TOO_MUCH = [(25, 500, "a")] * 3 + [(3, 391, "a")]
many = settings(max_examples=100)


def a_memory(position: int, refs: tuple[str, ...]) -> Memory:
    """The nearest to 0 degrees is the newest."""
    metadata = Metadata(
        topic="general",
        branch_state=BranchState.ACTIVE,
        modality=Modality.TEXT,
        created_at=NOON - position * MINUTE,
        artifact_refs=refs,
        provenance=Provenance(origin=Origin.USER_ASSERTED, derived_from=("a-source",)),
    )
    return Memory(id=f"memory-{position}", content=f"Fact at {position}", metadata=metadata)


async def filled(collection: list[tuple[int, int, str]]) -> tuple[Service, list[dict[str, Any]]]:
    """A service that remembers these, and each of them as a listing shows it whole."""
    stores = in_memory()
    service = Service(stores=stores)
    memories = [
        a_memory(position, (letter * length,) * number) for position, (number, length, letter) in enumerate(collection)
    ]
    assert isinstance(stores.memories, InMemoryMemories)
    stores.memories.named = CollectionSpaces.only(PLANE)
    for memory in memories:
        vector = await PlaneEmbedder().embed_query(memory.content, text_format="plain")
        embedding = Embedding(vector=vector, space_id=PLANE.id, vector_field="embedding")
        stores.memories.stored[memory.id] = NewMemory(memory=memory, embedding=embedding)
    fetched = [await service.fetch(memory.id) for memory in memories]
    return service, [{"id": item["id"], "summary": item["content"], "metadata": item["metadata"]} for item in fetched]


def size(answer: dict[str, Any]) -> int:
    return len(payloads.to_json(answer).encode())


def shortened(item: dict[str, Any]) -> dict[str, Any]:
    """The metadata without its long lists."""
    kept = {name: value for name, value in item["metadata"].items() if name != "artifact_refs"}
    return kept | {"provenance": {"origin": "user_asserted"}}


def all_whole(shown: list[dict[str, Any]], items: list[dict[str, Any]]) -> bool:
    """Whether each is shown whole. Only one that would fill an answer by itself may come without its long lists."""
    assert [one["id"] for one in shown] == [item["id"] for item in items]
    cut = [
        (one["metadata"], item) for one, item in zip(shown, items, strict=True) if one["metadata"] != item["metadata"]
    ]
    assert all(metadata == shortened(item) and size(item) > BUDGET - AROUND for metadata, item in cut)
    return not cut


@pytest.mark.slow
@many
@given(collections)
@example(JUST_TOO_MUCH)
async def test_a_listing_shows_everything_in_pages_within_the_budget(collection: list[tuple[int, int, str]]) -> None:
    service, items = await filled(collection)
    cursor, shown = None, 0
    while shown == 0 or cursor is not None:
        page = await service.call("list_context", "default", limit=100, cursor=cursor)
        assert size(page) <= BUDGET
        assert page["items"]
        behind = shown + len(page["items"])
        assert page.get("truncated", False) is not all_whole(page["items"], items[shown:behind])
        cursor, shown = page["next_cursor"], behind
    assert shown == len(items)


@pytest.mark.slow
@many
@given(collections)
@example(JUST_TOO_MUCH)
async def test_a_search_shows_the_best_that_fit_into_the_budget(collection: list[tuple[int, int, str]]) -> None:
    service, items = await filled(collection)
    answer = await service.call("search_context", "agent", query="at 0", limit=20)
    assert size(answer) <= BUDGET
    matches = answer["matches"]
    assert matches
    is_whole = all_whole(matches, items[: len(matches)]) and len(matches) == len(items)
    assert answer.get("truncated", False) is not is_whole
