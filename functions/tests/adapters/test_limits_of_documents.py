"""Numbers that a store holds to: how long a space is remembered, how far a search looks, and how large a memory may be."""

from dataclasses import replace
from typing import Any

import pytest
from google.cloud.firestore_v1.async_client import AsyncClient

from builders import NOON, FakeClock, Service, ToolError, environment, plane_models
from channel import Channel, name_of
from fakes import InMemoryMemories, PlaneEmbedder, SeeingImages
from images import PNG_BASE64
from metacortex import rules
from metacortex.adapters.firestore_spaces import FirestoreSpaces
from metacortex.bootstrap import Stores
from metacortex.service import ROOM_BYTES, words_bytes
from metacortex.spaces import CollectionSpaces, Space
from metacortex.terms import terms_about

PLANE = CollectionSpaces.only(Space("plane", 2, "plain"))

# --- How long a space is remembered ---


async def test_a_named_space_is_read_again_after_thirty_seconds(channel: Channel, firestore: AsyncClient) -> None:
    seconds = FakeClock(1_000)
    spaces = FirestoreSpaces(firestore, "memory_vectors", seconds)
    await spaces.name(PLANE)
    channel.requests.clear()
    for seconds.now, reads in ((1_000, 0), (1_029, 0), (1_030, 1), (1_059, 1), (1_060, 2)):
        assert await spaces.read() == PLANE
        assert len(channel.calls) == reads


async def test_that_nothing_is_named_is_never_remembered(channel: Channel, firestore: AsyncClient) -> None:
    spaces = FirestoreSpaces(firestore, "memory_vectors")
    assert [await spaces.read(), await spaces.read()] == [None, None]
    assert channel.calls == ["BatchGetDocuments"] * 2


# --- How far a search looks ---


def crowd(service: Service, item: dict[str, Any], copies: int) -> None:
    """Puts copies of a saved memory beside it, as near to every query as it is."""
    memories = service.stores.memories
    assert isinstance(memories, InMemoryMemories)
    saved = memories.stored[item["id"]]
    for i in range(copies):
        memories.stored[f"copy-{i}"] = replace(saved, memory=replace(saved.memory, id=f"copy-{i}"))


@pytest.mark.parametrize("number", [20, 21, 500])
async def test_a_plain_search_that_fills_its_limit_is_whole(service: Service, number: int) -> None:
    crowd(service, await service.save("Fact at 10"), number - 1)
    answer = await service.call("search_context", query="at 10", limit=20)
    assert len(answer["matches"]) == 20
    assert "truncated" not in answer


async def test_a_search_of_a_moment_that_fills_its_limit_is_whole(service: Service) -> None:
    crowd(service, await service.save("Fact at 10"), 2_000)
    answer = await service.call("search_context", query="at 10", limit=20, valid_at=NOON)
    assert len(answer["matches"]) == 20
    assert "truncated" not in answer


@pytest.mark.parametrize(
    ("expired", "is_found", "truncated"), [(998, True, False), (999, True, True), (1_000, False, True)]
)
async def test_a_search_of_a_moment_looks_at_the_nearest_thousand_and_says_if_there_may_be_more(
    service: Service,
    expired: int,
    is_found: bool,  # noqa: FBT001
    truncated: bool,  # noqa: FBT001
) -> None:
    crowd(service, await service.save("Expired at 10", valid_until=NOON), expired - 1)
    valid = await service.save("Valid at 100")
    answer = await service.call("search_context", query="at 10", valid_at=NOON)
    assert (valid["id"] in [match["id"] for match in answer["matches"]]) is is_found
    assert ("truncated" in answer) is truncated


async def test_the_wider_query_asks_firestore_for_a_thousand_without_their_vectors(
    channel: Channel, firestore_stores: Stores
) -> None:
    service = Service(settings=environment(RETRIEVAL_CANDIDATES="1"), stores=firestore_stores)
    await service.save("Expired at 10", valid_until=NOON)
    channel.requests.clear()
    assert await service.search("at 10", valid_at=NOON, limit=1) == []
    queries = [request.structured_query for request in channel.requests if hasattr(request, "structured_query")]
    nearest = [
        query for query in queries if query.find_nearest.limit and query.from_[0].collection_id == "memory_vectors"
    ]
    assert [query.find_nearest.limit for query in nearest] == [1, 1_000]
    for query in nearest:
        assert "embedding" not in [field.field_path for field in query.select.fields]


# --- How much one commit holds ---


class FinestEmbedder(PlaneEmbedder):
    """Vectors of the default size, of parts as short as any model's."""

    def __init__(self) -> None:
        super().__init__(Space("finest", 768, "plain"))
        self.part_characters = 1_000

    async def embed_query(self, text: str, *, text_format: str) -> tuple[float, ...]:
        return tuple(1 / self.space.dimensions**0.5 for _ in range(self.space.dimensions))


@pytest.mark.slow
async def test_the_longest_memory_with_all_its_parts_is_less_than_firestore_takes_in_one_commit(
    channel: Channel, firestore_stores: Stores, firestore: AsyncClient
) -> None:
    service = Service(stores=firestore_stores, models=plane_models(embedder=FinestEmbedder()))
    item = await service.save(
        ("x" * 1_499 + "\n\n") * 260, artifact_refs=["r" * 1_000] * 50, derived_from=["s" * 1_500] * 100
    )
    commits = [request for request in channel.requests if name_of(request) == "Commit"]
    # The emulator takes 4 MiB and production 10, which leaves room for vectors of 2,048 numbers.
    assert max(len(type(commit).serialize(commit)) for commit in commits) < 4 * 1_024 * 1_024
    parts = [snapshot.to_dict() or {} async for snapshot in firestore.collection("memory_vectors_parts").stream()]
    assert 150 <= len(parts) <= rules.MOST_PARTS
    assert {part["memory_id"] for part in parts} == {item["id"]}
    assert all("artifact_refs" not in part["metadata"] for part in parts)
    assert len((await service.fetch(item["id"]))["metadata"]["artifact_refs"]) == 50


async def test_a_match_that_only_a_part_without_lists_was_found_for_says_that_something_is_left_out(
    firestore_stores: Stores,
) -> None:
    embedder = PlaneEmbedder()
    embedder.part_characters = 1_000
    settings = environment(RETRIEVAL_MODE="vector", RETRIEVAL_CANDIDATES="1")
    service = Service(settings=settings, stores=firestore_stores, models=plane_models(embedder=embedder))
    refs = ["r" * 300] * 50
    item = await service.save(" at 90" * 7_000 + " at 0" * 7_000, artifact_refs=refs)
    whole = await service.call("search_context", query="at 0", limit=1)
    assert [match["metadata"]["artifact_refs"] for match in whole["matches"]] == [refs]
    assert "truncated" not in whole
    for degrees in (0, 10):
        await service.save(f"Nearer than the whole, at {degrees}")
    part = await service.call("search_context", query="at 0", limit=2)
    assert part["truncated"] is True
    [match] = [match for match in part["matches"] if match["id"] == item["id"]]
    assert "artifact_refs" not in match["metadata"]


@pytest.mark.slow
async def test_the_largest_memory_with_an_image_is_one_that_firestore_takes(firestore_stores: Stores) -> None:
    embedder = FinestEmbedder()
    embedder.space, embedder.part_characters = Space("finest", 2_048, "plain"), 1_000_000
    service = Service(
        stores=firestore_stores, models=plane_models(embedder=embedder, describer=SeeingImages("🦉" * 4_000))
    )
    words = " ".join(f"я{number:03}{'ы' * 60}" for number in range(300)) * 2
    taken = 2 * len(words.encode()) + words_bytes(terms_about(words, ("general",))) + 50 * 1_000 + 100 * 1_500
    content = words + "🦉" * ((ROOM_BYTES - taken) // 8)
    texts: dict[str, Any] = {
        "content": content,
        "artifact_refs": ["🦉" * 250] * 50,
        "derived_from": ["d" * 1_500] * 100,
    }
    image = {"image_base64": PNG_BASE64, "image_mime_type": "image/png"}
    with pytest.raises(ToolError) as error:
        await service.call("save_context", **(texts | {"content": f"{content}🦉"}), **image)
    assert error.value.status == 413
    assert (await service.call("save_context", **texts, **image))["write_status"] == "created"


async def test_what_firestore_finds_too_large_is_told_as_that(firestore_stores: Stores, firestore: AsyncClient) -> None:
    service = Service(stores=firestore_stores)
    new = (await service.save("New at 1"))["id"]
    document = {"content": "x" * 1_048_450, "metadata": {"branch_state": "active"}}
    await firestore.collection("memory_vectors").document("huge").set(document)
    with pytest.raises(ToolError) as error:
        await service.call("deprecate_context", "default", id="huge", superseding_id=new)
    assert (error.value.status, error.value.code) == (413, "too_large")
    assert (await service.fetch("huge"))["metadata"]["branch_state"] == "active"
