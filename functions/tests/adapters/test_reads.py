"""What a search reads in Firestore, at the most: an owner pays by the document, and waits for the bytes."""

from typing import Any

import pytest
from google.cloud.firestore_v1.async_client import AsyncClient

from builders import NOON, Service, environment, plane_models
from channel import Channel, name_of
from fakes import PlaneEmbedder
from metacortex.bootstrap import Stores

OWL = "An owl of the barn near the old mill hunts mice, rats and voles by night; see OWL-7 at 0"
MEMORIES = 60


class PagedEmbedder(PlaneEmbedder):
    """The plane with small pages, so that every memory here is a long one."""

    def __init__(self) -> None:
        super().__init__()
        self.part_characters = 60


@pytest.fixture
async def stores(channel: Channel, firestore: AsyncClient, firestore_stores: Stores) -> Stores:
    """Sixty long memories that hold the same words, and one that also holds rare ones."""
    service = Service(stores=firestore_stores, models=plane_models(embedder=PagedEmbedder()))
    await service.save(OWL)
    copies = firestore.batch()
    for collection in ("memory_vectors", "memory_vectors_parts"):
        for snapshot in await firestore.collection(collection).get():
            document = snapshot.to_dict() or {}
            for i in range(1, MEMORIES):
                copy = firestore.collection(collection).document(f"{snapshot.id}-{i}")
                owner = {"memory_id": f"{document['memory_id']}-{i}"} if "memory_id" in document else {}
                copies.set(copy, {**document, **owner})
    await copies.commit()
    await service.save(f"{OWL} pelican flamingo E-1042")
    await service.search("at 0")
    channel.requests.clear()
    return firestore_stores


def queries(channel: Channel, collection: str) -> list[Any]:
    found = [request.structured_query for request in channel.requests if name_of(request) == "RunQuery"]
    return [query for query in found if query.from_[0].collection_id == collection]


def by_vector(channel: Channel, collection: str) -> list[Any]:
    return [query for query in queries(channel, collection) if query.find_nearest.limit]


def by_words(channel: Channel) -> list[Any]:
    return [query for query in queries(channel, "memory_vectors") if not query.find_nearest.limit]


def fields(query: Any) -> set[str]:
    return {field.field_path for field in query.select.fields}


EVERYTHING = f"{OWL} {' '.join(f'word{i}' for i in range(500))} pelican E-1042 at 0"


@pytest.mark.parametrize(
    ("query", "limits"),
    [
        ("owl barn mice", [50]),
        ("owl pelican", [1, 49]),
        ("owl barn pelican flamingo", [1, 1, 48]),
        ("unheard-of", []),
        ("?!", []),
    ],
)
async def test_of_the_rarest_words_fifty_memories_are_read_in_all(
    channel: Channel, stores: Stores, query: str, limits: list[int]
) -> None:
    assert len(await Service(stores=stores).search(query)) == 5
    assert sorted(search.limit for search in by_words(channel)) == limits


async def test_a_search_is_bounded_however_many_words_it_has(channel: Channel, stores: Stores) -> None:
    await Service(stores=stores).search(EVERYTHING, limit=20, filter_topic="general", filter_origin="agent_inferred")
    assert channel.calls.count("RunAggregationQuery") == 8
    assert [query.find_nearest.limit for query in by_vector(channel, "memory_vectors")] == [50]
    assert [query.find_nearest.limit for query in by_vector(channel, "memory_vectors_parts")] == [50]
    limits = [query.limit for query in by_words(channel)]
    assert len(limits) <= 3
    assert sum(limits) <= 50
    # Of long memories of which only a part was found, their words, all at once.
    assert set(channel.calls) - {"BatchGetDocuments"} == {"RunAggregationQuery", "RunQuery", "Commit"}
    assert channel.calls.count("BatchGetDocuments") <= 1
    reads = [request for request in channel.requests if name_of(request) == "BatchGetDocuments"]
    assert all(len(read.documents) <= 50 for read in reads)


async def test_no_search_reads_texts_and_only_that_by_words_reads_vectors(channel: Channel, stores: Stores) -> None:
    await Service(stores=stores).search("pelican at 0")
    [memories], [parts] = by_vector(channel, "memory_vectors"), by_vector(channel, "memory_vectors_parts")
    words = {f"terms.{kind}.{word}" for kind in ("words", "counts") for word in ("pelican", "`0`")}
    assert fields(memories) == {"summary", "metadata", "distance"} | words
    assert fields(parts) == {"memory_id", "summary", "metadata", "shortened", "distance"}
    assert by_words(channel)
    for query in by_words(channel):
        assert fields(query) == {"summary", "metadata", "embedding"} | words


async def test_words_are_counted_without_reading_a_document(channel: Channel, stores: Stores) -> None:
    await Service(stores=stores).search("owl pelican unheard-of at 0")
    counts = [
        request.structured_aggregation_query
        for request in channel.requests
        if name_of(request) == "RunAggregationQuery"
    ]
    # The unheard-of word is counted as a whole and in its parts.
    assert len(counts) == 5
    for count in counts:
        [aggregation] = count.aggregations
        assert "count" in aggregation
        [state, word] = count.structured_query.where.composite_filter.filters
        assert state.field_filter.field.field_path == "metadata.branch_state"
        assert word.field_filter.field.field_path.startswith("terms.words.")


@pytest.mark.parametrize("settings", [{"RETRIEVAL_MODE": "vector"}, {"RETRIEVAL_LEXICAL_WEIGHT": "0"}])
async def test_by_meaning_alone_nothing_is_counted_and_no_more_than_the_limit_is_read(
    channel: Channel, stores: Stores, settings: dict[str, str]
) -> None:
    await Service(settings=environment(**settings), stores=stores).search("owl pelican at 0", limit=7)
    assert channel.calls == ["RunQuery", "RunQuery", "Commit"]
    assert [query.find_nearest.limit for query in by_vector(channel, "memory_vectors")] == [7]
    assert by_words(channel) == []


@pytest.mark.parametrize(("candidates", "limit", "read"), [("7", 5, 7), ("7", 20, 20), ("200", 5, 200)])
async def test_the_owner_says_how_many_candidates_are_read(
    channel: Channel, stores: Stores, candidates: str, limit: int, read: int
) -> None:
    settings = environment(RETRIEVAL_CANDIDATES=candidates)
    await Service(settings=settings, stores=stores).search("owl at 0", limit=limit)
    for collection in ("memory_vectors", "memory_vectors_parts"):
        assert [query.find_nearest.limit for query in by_vector(channel, collection)] == [read]


async def test_a_moment_that_enough_of_the_nearest_were_valid_at_costs_no_more(
    channel: Channel, stores: Stores
) -> None:
    await Service(stores=stores).search("pelican at 0", valid_at=NOON)
    assert [query.find_nearest.limit for query in by_vector(channel, "memory_vectors")] == [50]


async def test_what_is_similar_is_one_small_query_of_a_save(channel: Channel, stores: Stores) -> None:
    await Service(stores=stores).save("An owl at 0")
    [query] = queries(channel, "memory_vectors")
    assert query.find_nearest.limit == 4
    assert fields(query) == {"summary", "metadata", "distance"}
    assert queries(channel, "memory_vectors_parts") == []
    assert channel.calls.count("RunAggregationQuery") == 0
