"""The parts of long memories in Firestore: their documents, and that they are written with their memory."""

from typing import Any

import pytest
from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.vector import Vector

from builders import NOON, Service, plane_models
from channel import Channel, name_of
from fakes import PlaneEmbedder
from metacortex.bootstrap import Stores

LONG = "The owl of the old barn at 90. \n\nThe owl of the mill at 0. \n\nThe owl of the town at 270."
SUMMARIES = ["The owl of the old barn at 90.", "90. The owl of the mill at 0.", "0. The owl of the town at 270."]


class PagedEmbedder(PlaneEmbedder):
    """The plane with small pages."""

    def __init__(self) -> None:
        super().__init__()
        self.part_characters = 40


@pytest.fixture
def service(channel: Channel, firestore_stores: Stores) -> Service:
    return Service(stores=firestore_stores, models=plane_models(embedder=PagedEmbedder()))


async def documents(firestore: AsyncClient, collection: str) -> dict[str, dict[str, Any]]:
    return {snapshot.id: snapshot.to_dict() or {} async for snapshot in firestore.collection(collection).stream()}


async def parts(firestore: AsyncClient) -> list[dict[str, Any]]:
    """The documents of all parts, in the order of their ids."""
    return [document for _, document in sorted((await documents(firestore, "memory_vectors_parts")).items())]


def written(channel: Channel) -> list[list[str]]:
    """The collections that each commit wrote to."""
    return [
        sorted(write.update.name.split("/")[-2] for write in request.writes)
        for request in channel.requests
        if name_of(request) == "Commit"
    ]


async def test_a_part_is_stored_with_what_a_hit_shows_and_no_more(service: Service, firestore: AsyncClient) -> None:
    item = await service.save(
        LONG,
        topic="Birds",
        artifact_refs=["a.md"],
        valid_from=NOON,
        valid_until=NOON + 1,
        origin="user_asserted",
        source_session="s1",
        derived_from=["x"],
        confidence=0.5,
    )
    [memory] = (await documents(firestore, "memory_vectors")).values()
    assert memory["parts"] == 3
    assert memory["content"] == LONG
    stored = await parts(firestore)
    vectors = [list(part.pop("embedding")) for part in stored]
    assert vectors == [pytest.approx(vector) for vector in ([0, 1], [1, 0], [0, -1])]
    assert stored == [
        {"memory_id": item["id"], "summary": summary, "metadata": memory["metadata"]} for summary in SUMMARIES
    ]
    assert isinstance(memory["embedding"], Vector)
    assert sum(value * value for value in memory["embedding"]) == pytest.approx(1)


async def test_a_short_memory_leaves_no_trace_of_parts(service: Service, firestore: AsyncClient) -> None:
    await service.save("Fact at 90")
    [memory] = (await documents(firestore, "memory_vectors")).values()
    assert "parts" not in memory
    assert await parts(firestore) == []


async def test_a_memory_and_its_parts_are_one_commit(service: Service, channel: Channel) -> None:
    await service.save("first at 0")
    channel.requests.clear()
    await service.save(LONG)
    kinds = ["memory_events", "memory_vectors", *["memory_vectors_parts"] * 3, "memory_vectors_write_fingerprints"]
    assert written(channel) == [kinds]


async def test_a_deprecation_changes_a_memory_and_its_parts_in_one_commit(
    service: Service, firestore: AsyncClient, channel: Channel
) -> None:
    item = await service.save(LONG)
    before = await parts(firestore)
    channel.requests.clear()
    await service.call("deprecate_context", "default", id=item["id"])
    assert written(channel) == [["memory_events", "memory_vectors", *["memory_vectors_parts"] * 3]]
    [memory] = (await documents(firestore, "memory_vectors")).values()
    assert memory["metadata"]["branch_state"] == "deprecated"
    assert await parts(firestore) == [{**part, "metadata": memory["metadata"]} for part in before]


async def test_a_merge_changes_its_sources_and_their_parts_in_one_commit(
    service: Service, firestore: AsyncClient, channel: Channel
) -> None:
    ids = [(await service.save(text, draft=True))["id"] for text in (LONG, "Short at 0")]
    channel.requests.clear()
    answer = await service.call("consolidate_context", "default", source_ids=ids)
    [kinds] = written(channel)
    stored = await parts(firestore)
    assert kinds.count("memory_vectors") == 3
    assert kinds.count("memory_vectors_parts") == len(stored)
    states = {part["memory_id"]: part["metadata"]["branch_state"] for part in stored}
    assert states == {ids[0]: "deprecated", answer["item"]["merged_id"]: "active"}


async def test_what_is_beside_the_metadata_of_a_part_survives_a_change(
    service: Service, firestore: AsyncClient
) -> None:
    item = await service.save(LONG)
    for snapshot in await firestore.collection("memory_vectors_parts").get():
        await snapshot.reference.update({"note": "kept", "metadata.custom": 7, "embedding_2": Vector([0.5])})
    await service.call("deprecate_context", "default", id=item["id"])
    for part in await parts(firestore):
        assert (part["note"], part["metadata"]["custom"], list(part["embedding_2"])) == ("kept", 7, [0.5])


@pytest.mark.parametrize("lost", [[0], [1, 2], [0, 1, 2]])
async def test_a_memory_that_has_lost_parts_is_retired_with_those_it_has(
    service: Service, firestore: AsyncClient, lost: list[int]
) -> None:
    item = await service.save(LONG)
    await lose(firestore, lost)
    answer = await service.call("deprecate_context", "default", id=item["id"])
    assert answer["previous_state"] == "active"
    assert (await service.fetch(item["id"], "default"))["metadata"]["branch_state"] == "deprecated"
    stored = await parts(firestore)
    assert len(stored) == 3 - len(lost)
    assert all(part["metadata"]["branch_state"] == "deprecated" for part in stored)


@pytest.mark.parametrize("lost", [[0], [1, 2], [0, 1, 2]])
async def test_a_memory_that_has_lost_parts_is_merged_with_those_it_has(
    service: Service, firestore: AsyncClient, lost: list[int]
) -> None:
    ids = [(await service.save(text, draft=True))["id"] for text in (LONG, "Short at 0")]
    await lose(firestore, lost)
    answer = await service.call("consolidate_context", "default", source_ids=ids)
    assert answer["deprecated_ids"] == ids
    stored = [part for part in await parts(firestore) if part["memory_id"] == ids[0]]
    assert len(stored) == 3 - len(lost)
    assert all(part["metadata"]["branch_state"] == "deprecated" for part in stored)


async def lose(firestore: AsyncClient, places: list[int]) -> None:
    """Deletes some of the parts behind the service's back."""
    names = sorted(await documents(firestore, "memory_vectors_parts"))
    for place in places:
        await firestore.collection("memory_vectors_parts").document(names[place]).delete()


async def test_a_long_memory_without_parts_is_found_and_deprecated_as_it_is(
    service: Service, firestore: AsyncClient, firestore_stores: Stores
) -> None:
    older = Service(stores=firestore_stores)
    item = await older.save(LONG)
    assert await parts(firestore) == []
    [match] = await service.search("at 0")
    assert match["id"] == item["id"]
    await service.call("deprecate_context", "default", id=item["id"])
    assert await service.search("at 0") == []


async def test_a_memory_without_terms_is_found_by_meaning_alone(service: Service, firestore: AsyncClient) -> None:
    await service.save("An owl at 0")
    [snapshot] = await firestore.collection("memory_vectors").get()
    document = snapshot.to_dict() or {}
    del document["terms"]
    await snapshot.reference.set(document)
    [match] = await service.search("owl, at 0")
    assert (match["id"], match["matched_by"], match["score"]) == (snapshot.id, "vector", 1.0)


async def test_parts_of_another_space_are_not_compared(service: Service, firestore: AsyncClient) -> None:
    item = await service.save(LONG)
    for snapshot in await firestore.collection("memory_vectors_parts").get():
        document = snapshot.to_dict() or {}
        document["embedding_2"] = document.pop("embedding")
        await snapshot.reference.set(document)
    [match] = await service.search("at 0")
    assert match["id"] == item["id"]
    assert match["summary"] == " ".join(LONG.split())
