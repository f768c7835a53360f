"""The service over what MetaCortex 0.3 stored, as it stands: read, listed, found and deprecated without an upgrade."""

from dataclasses import replace
from typing import Any

import pytest
from google.cloud.firestore_v1.async_client import AsyncClient

from builders import NOON, Service, ToolError
from metacortex.bootstrap import Stores
from metacortex.events import Event, EventKind
from metacortex.ports import Change, ReadMetadata
from old_data import MEMORIES, MINUTE, THEN, old_memory, store, stored, vector_at

SHOWN_THEN = "2023-11-14T22:13:20.000Z"
NAMED = {"memory_vectors_meta": {"space": {"current": "plane@2/plain", "spaces": {"plane@2/plain": "embedding"}}}}


@pytest.fixture
async def service(firestore_stores: Stores, firestore: AsyncClient) -> Service:
    await store(firestore)
    return Service(stores=firestore_stores)


def an_event(_: None) -> Event:
    return Event(id="e", kind=EventKind.MEMORY, timestamp=NOON, fields={})


async def document(firestore: AsyncClient, name: str) -> dict[str, Any]:
    snapshot = await firestore.collection("memory_vectors").document(name).get()
    return snapshot.to_dict() or {}


async def test_fetching_shows_what_is_stored_and_no_more(service: Service) -> None:
    assert await service.fetch("text", "default") == {
        "id": "text",
        "content": "Owls hunt\nin the dark, at 10",
        "metadata": {
            "topic": "Birds",
            "branch_state": "active",
            "modality": "text",
            "artifact_refs": ["owls.md"],
            "created_at": SHOWN_THEN,
            "updated_at": "2023-11-14T22:13:20.001Z",
        },
    }


async def test_an_image_with_a_text_is_mixed_and_its_description_stays_hidden(service: Service) -> None:
    item = await service.fetch("image")
    assert (item["content"], item["metadata"]["modality"]) == ("My chart", "mixed")
    assert "owls" not in str(item)


async def test_a_memory_that_was_replaced_says_by_which(service: Service) -> None:
    metadata = (await service.fetch("replaced", "reader"))["metadata"]
    assert (metadata["branch_state"], metadata["superseded_by"]) == ("deprecated", "text")
    assert not metadata.keys() & {"supersession_reason", "initiator", "provenance"}


async def test_states_are_kept_from_clients_that_may_not_read_them(service: Service) -> None:
    for hidden in ("draft", "replaced"):
        with pytest.raises(ToolError) as refused:
            await service.fetch(hidden, "agent")
        assert refused.value.status == 404


async def test_a_listing_makes_summaries_of_the_texts(service: Service) -> None:
    listed = await service.call("list_context", "default")
    assert [(item["id"], item["summary"]) for item in listed["items"]] == [
        ("long", ("Owls sleep at 20 " + "z" * 300)[:217] + "..."),
        ("image", "My chart"),
        ("noted", "Owls are noted at 60"),
        ("text", "Owls hunt in the dark, at 10"),
    ]
    assert listed["next_cursor"] is None


async def test_a_listing_filters_and_pages_over_old_memories(service: Service) -> None:
    first = await service.call("list_context", "default", filter_topic="Birds", created_after=THEN, limit=3)
    assert [item["id"] for item in first["items"]] == ["long", "image", "noted"]
    cursor = first["next_cursor"]
    rest = await service.call(
        "list_context", "default", filter_topic="Birds", created_after=THEN, limit=3, cursor=cursor
    )
    assert [item["id"] for item in rest["items"]] == ["text"]
    assert (await service.call("list_context", "default", filter_origin="legacy_import"))["items"] == []
    drafts = await service.call("list_context", "default", filter_state="wip")
    assert [item["id"] for item in drafts["items"]] == ["draft"]


async def test_a_listing_goes_through_memories_of_less_than_a_millisecond_apart(
    service: Service, firestore: AsyncClient
) -> None:
    fractions = {f"f{number}": old_memory("Owls", created_at=NOON + number / 8) for number in range(5)}
    await store(firestore, {"memory_vectors": fractions})
    seen: list[str] = []
    cursor = None
    for _ in range(5):
        page = await service.call("list_context", "default", created_after=NOON, limit=1, cursor=cursor)
        seen += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"]
    assert (seen, cursor) == (["f4", "f3", "f2", "f1", "f0"], None)


async def test_nothing_is_searched_saved_or_merged_until_the_space_is_named(
    service: Service, firestore: AsyncClient
) -> None:
    before = await stored(firestore)
    calls = (
        service.search("owls at 10"),
        service.save("New at 10"),
        service.call("consolidate_context", "default", source_ids=["text", "long"]),
    )
    for call in calls:
        with pytest.raises(ToolError) as refused:
            await call
        assert (refused.value.status, refused.value.code) == (503, "embedding_space_mismatch")
        assert "`metacortex upgrade --space MODEL@DIMENSIONS/plain`" in refused.value.message
        assert "plane@2/plain" in refused.value.message
    after = await stored(firestore)
    assert {path: after[path] for path in before} == before
    assert {path.split("/")[0] for path in after.keys() - before.keys()} == {"memory_events"}


async def test_fetching_listing_and_deprecating_go_on_without_a_named_space(service: Service) -> None:
    await service.fetch("text")
    await service.call("list_context", "default")
    answer = await service.call("deprecate_context", "default", id="long", superseding_id="text")
    assert answer["previous_state"] == "active"


async def test_once_the_space_is_named_searches_find_what_was_not_upgraded(
    service: Service, firestore: AsyncClient
) -> None:
    await store(firestore, NAMED)
    matches = await service.search("owls at 20")
    assert matches[0] == {
        "id": "long",
        "summary": ("Owls sleep at 20 " + "z" * 300)[:217] + "...",
        "score": 1.0,
        "matched_by": "vector",
        "metadata": {
            "topic": "Birds",
            "branch_state": "active",
            "modality": "text",
            "created_at": "2023-11-14T22:14:20.000Z",
            "updated_at": "2023-11-14T22:13:20.001Z",
        },
    }
    assert {match["id"] for match in matches} == {"text", "long", "image", "noted"}
    assert [match["id"] for match in await service.search("at 40", "reader", filter_state="wip")] == ["draft"]
    assert await service.search("at 10", filter_origin="legacy_import") == []


async def test_saves_stand_beside_old_memories_once_the_space_is_named(
    service: Service, firestore: AsyncClient
) -> None:
    await store(firestore, NAMED)
    item = await service.save("New at 11")
    assert [match["id"] for match in await service.search("at 11", limit=2)] == [item["id"], "text"]


async def test_a_deprecation_changes_its_own_fields_and_keeps_every_other(
    service: Service, firestore: AsyncClient
) -> None:
    before = MEMORIES["noted"]
    answer = await service.call("deprecate_context", "default", id="noted", superseding_id="text", initiator="user")
    assert answer == {
        "item": {
            "id": "noted",
            "branch_state": "deprecated",
            "superseded_by": "text",
            "supersession_reason": "changed",
        },
        "previous_state": "active",
    }
    changed = {
        "branch_state": "deprecated",
        "updated_at": NOON,
        "superseded_by": "text",
        "supersession_reason": "changed",
        "initiator": "user",
        "valid_until": NOON,
    }
    assert await document(firestore, "noted") == {**before, "metadata": {**before["metadata"], **changed}}


async def test_deprecating_an_old_image_keeps_its_stored_modality(service: Service, firestore: AsyncClient) -> None:
    await service.call("deprecate_context", "default", id="image")
    after = await document(firestore, "image")
    assert after["metadata"]["modality"] == "text_image"
    assert {**after, "metadata": None} == {**MEMORIES["image"], "metadata": None}


async def test_repeating_a_deprecation_that_was_made_then_changes_nothing(
    service: Service, firestore: AsyncClient
) -> None:
    answer = await service.call("deprecate_context", "default", id="replaced", superseding_id="text")
    assert answer == {
        "item": {
            "id": "replaced",
            "branch_state": "deprecated",
            "superseded_by": "text",
            "supersession_reason": "changed",
        },
        "previous_state": "deprecated",
    }
    assert await document(firestore, "replaced") == MEMORIES["replaced"]


@pytest.mark.parametrize("other", [{"superseding_id": "long"}, {}, {"supersession_reason": "corrected"}])
async def test_contradicting_a_deprecation_that_was_made_then_is_a_conflict(
    service: Service, firestore: AsyncClient, other: dict[str, str]
) -> None:
    arguments = {"superseding_id": "text", **other} if "supersession_reason" in other else other
    with pytest.raises(ToolError) as refused:
        await service.call("deprecate_context", "default", id="replaced", **arguments)
    assert refused.value.status == 409
    assert await document(firestore, "replaced") == MEMORIES["replaced"]


async def test_a_chain_that_was_made_then_is_followed(service: Service) -> None:
    with pytest.raises(ToolError) as circle:
        await service.call("deprecate_context", "default", id="text", superseding_id="replaced")
    assert circle.value.status == 409
    await service.call("deprecate_context", "default", id="long", superseding_id="replaced")


async def test_a_memory_of_which_nothing_but_its_text_is_known_closes_no_circle(
    service: Service, firestore: AsyncClient, firestore_stores: Stores
) -> None:
    bare = {"content": "Owls at 70", "embedding": vector_at(70)}
    await store(firestore, {"memory_vectors": {"a": bare, "b": bare}})
    read = await document(firestore, "b")
    outcomes: list[bool] = []

    async def retire_a(read: ReadMetadata) -> tuple[None, Change | None]:
        before, replacement = await read("a"), await read("b")
        assert before is not None
        assert replacement is not None
        outcomes.append(replacement.superseded_by == "a")
        if outcomes == [False]:
            await service.call("deprecate_context", "default", id="b", superseding_id="a")
        if replacement.superseded_by == "a":
            return None, None
        return None, Change(memory_id="a", before=before, after=replace(before, superseded_by="b"))

    await firestore_stores.memories.transact(retire_a, an_event)
    assert outcomes == [False, True]
    assert await document(firestore, "a") == read


async def test_old_drafts_are_merged_once_the_space_is_named(service: Service, firestore: AsyncClient) -> None:
    another = old_memory("Owls may sing at 41", 41, branch_state="wip", created_at=THEN + MINUTE)
    await store(firestore, {**NAMED, "memory_vectors": {"draft-2": another}})
    answer = await service.call("consolidate_context", "default", topic="Birds")
    assert answer["deprecated_ids"] == ["draft", "draft-2"]
    assert (await service.fetch("draft", "default"))["metadata"]["superseded_by"] == answer["item"]["merged_id"]
