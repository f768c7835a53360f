"""How often a call goes out to Firestore, counted at the channel: what an owner pays for, and waits for."""

from typing import Any

import pytest
from google.cloud.firestore_v1.async_client import AsyncClient

from builders import Service, environment, plane_models
from channel import Channel, name_of
from fakes import PlaneEmbedder
from metacortex.adapters.firestore_memories import FirestoreMemories
from metacortex.bootstrap import Stores


async def warmed(firestore_stores: Stores, channel: Channel) -> Service:
    """A service whose collection has a space that it knows."""
    service = Service(stores=firestore_stores)
    await service.save("first at 0")
    await service.search("at 0")
    channel.requests.clear()
    return service


async def test_a_save_is_one_batched_read_and_one_commit(channel: Channel, firestore_stores: Stores) -> None:
    service = await warmed(firestore_stores, channel)
    await service.save("second at 90")
    assert channel.calls[0] == "BatchGetDocuments"
    # What is similar is looked up beside the commit.
    assert sorted(channel.calls[1:]) == ["Commit", "RunQuery"]


async def test_a_save_reads_the_space_beside_the_fingerprint(
    channel: Channel, firestore: AsyncClient, firestore_stores: Stores
) -> None:
    await warmed(firestore_stores, channel)
    # The same collection as another instance sees it: nothing remembered.
    cold = Service(
        stores=Stores(memories=FirestoreMemories(firestore, "memory_vectors"), events=firestore_stores.events)
    )
    await cold.save("second at 90")
    assert len(channel.requests[0].documents) == 2
    assert sorted(channel.calls) == ["BatchGetDocuments", "Commit", "RunQuery"]


async def test_a_duplicate_is_two_reads_and_one_event_and_no_model_call(
    channel: Channel, firestore_stores: Stores
) -> None:
    service = await warmed(firestore_stores, channel)
    embedded = len(service.models.embedder.calls)  # pyright: ignore[reportAttributeAccessIssue]
    await service.save("first at 0")
    assert channel.calls == ["BatchGetDocuments", "BatchGetDocuments", "Commit"]
    assert len(service.models.embedder.calls) == embedded  # pyright: ignore[reportAttributeAccessIssue]


class ConcurrentEmbedder(PlaneEmbedder):
    """Answers only when something else has gone out meanwhile."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel

    async def embed_query(self, text: str, *, text_format: str) -> tuple[float, ...]:
        await self._channel.saw("RunAggregationQuery")
        return await super().embed_query(text, text_format=text_format)


async def test_a_search_counts_its_words_while_it_is_embedded_and_then_asks_everything_at_once(
    channel: Channel, firestore_stores: Stores
) -> None:
    service = await warmed(firestore_stores, channel)
    await service.save("An owl of the barn at 90")
    channel.requests.clear()
    # The nearest memories, the nearest parts, and those that hold each of the three rarest words.
    channel.together("RunQuery", 5)
    searching = Service(stores=firestore_stores, models=plane_models(embedder=ConcurrentEmbedder(channel)))
    assert len(await searching.search("which owl of the barn at 90")) == 2
    assert channel.calls == ["RunAggregationQuery"] * 3 + ["RunQuery"] * 5 + ["Commit"]
    vectors = ["embedding" in fields_of(request) for request in channel.requests if name_of(request) == "RunQuery"]
    assert vectors == [False, False, True, True, True]


class PagedEmbedder(PlaneEmbedder):
    """The plane with small pages."""

    def __init__(self) -> None:
        super().__init__()
        self.part_characters = 40


async def with_a_long_memory(firestore_stores: Stores, channel: Channel) -> tuple[Service, str]:
    """A service that looks at one candidate, and the id of a long memory of which it finds only a part for 30 degrees."""
    settings = environment(RETRIEVAL_CANDIDATES="1", SEARCH_RESULT_LIMIT="1")
    service = Service(settings=settings, stores=firestore_stores, models=plane_models(embedder=PagedEmbedder()))
    for text in ("near at 30", "pelican at 180", "flamingo at 180", "heron at 180", "swallow at 180"):
        await service.save(text)
    item = await service.save("The swallow of the old barn at 32. \n\nThe mouse of the mill at 220. ")
    await service.search("at 30")
    channel.requests.clear()
    return service, item["id"]


async def test_words_of_a_memory_of_which_only_a_part_was_found_are_one_more_read_without_texts_and_vectors(
    channel: Channel, firestore_stores: Stores
) -> None:
    service, long = await with_a_long_memory(firestore_stores, channel)
    # Thirty characters point to 30 degrees. Only holders of the three rarest of the four words are looked up.
    [match] = await service.search("pelican flamingo heron swallow")
    assert match["id"] == long
    assert channel.calls == [*["RunAggregationQuery"] * 4, *["RunQuery"] * 5, "BatchGetDocuments", "Commit"]
    [read] = [request for request in channel.requests if name_of(request) == "BatchGetDocuments"]
    assert [name.rsplit("/", 1)[-1] for name in read.documents] == [long]
    words = ("flamingo", "heron", "pelican", "swallow")
    assert set(read.mask.field_paths) == {f"terms.{kind}.{word}" for kind in ("words", "counts") for word in words}


@pytest.mark.parametrize("query", ["swallow pelican unheard-of", "unheard-of", "?!"])
async def test_nothing_more_is_read_where_all_memories_that_hold_a_word_were_looked_up(
    channel: Channel, firestore_stores: Stores, query: str
) -> None:
    service, _ = await with_a_long_memory(firestore_stores, channel)
    await service.search(query)
    assert "BatchGetDocuments" not in channel.calls


def fields_of(request: Any) -> list[str]:
    return [field.field_path for field in request.structured_query.select.fields]


async def test_a_search_by_vectors_alone_is_two_queries_at_once(channel: Channel, firestore_stores: Stores) -> None:
    await warmed(firestore_stores, channel)
    channel.together("RunQuery", 2)
    service = Service(settings=environment(RETRIEVAL_MODE="vector"), stores=firestore_stores)
    await service.search("which owl at 0")
    limits = [request.structured_query.find_nearest.limit for request in channel.requests[:2]]
    assert limits == [5, 50]
    assert channel.calls == ["RunQuery", "RunQuery", "Commit"]


async def test_a_query_that_was_asked_before_is_not_embedded_again(channel: Channel, firestore_stores: Stores) -> None:
    service = await warmed(firestore_stores, channel)
    embedder = service.models.embedder
    assert isinstance(embedder, PlaneEmbedder)
    embedder.calls.clear()
    for state in ("active", "wip", "active"):
        await service.search("owl at 90", "default", filter_state=state)
    assert embedder.calls == ["owl at 90"]


async def test_a_fetch_is_one_read_and_one_event(channel: Channel, firestore_stores: Stores) -> None:
    service = await warmed(firestore_stores, channel)
    [match] = await service.search("at 0")
    channel.requests.clear()
    await service.fetch(match["id"])
    [read, _] = channel.requests
    assert list(read.mask.field_paths) == ["content", "metadata"]
    assert channel.calls == ["BatchGetDocuments", "Commit"]


async def test_a_page_of_a_listing_is_one_query_without_texts_and_vectors_and_one_event(
    channel: Channel, firestore_stores: Stores
) -> None:
    service = await warmed(firestore_stores, channel)
    await service.call("list_context", "default")
    [query, _] = channel.requests
    assert [field.field_path for field in query.structured_query.select.fields] == ["summary", "metadata"]
    assert channel.calls == ["RunQuery", "Commit"]


async def test_a_deprecation_reads_each_memory_of_the_chain_once_and_commits_once(
    channel: Channel, firestore_stores: Stores
) -> None:
    service = await warmed(firestore_stores, channel)
    old, new, newest = [(await service.save(f"Fact at {degrees}"))["id"] for degrees in (10, 20, 30)]
    await service.call("deprecate_context", "default", id=new, superseding_id=newest)
    channel.requests.clear()
    await service.call("deprecate_context", "default", id=old, superseding_id=new)
    reads = ["BatchGetDocuments"] * 3
    assert channel.calls == [*reads, "Commit"]


async def test_a_merge_is_one_read_of_its_sources_and_one_commit(channel: Channel, firestore_stores: Stores) -> None:
    service = await warmed(firestore_stores, channel)
    ids = [(await service.save(f"Fact at {degrees}", draft=True))["id"] for degrees in (10, 20)]
    channel.requests.clear()
    await service.call("consolidate_context", "default", source_ids=ids)
    assert channel.calls == ["BatchGetDocuments", "Commit"]


async def test_a_merge_of_drafts_is_one_query_beside_one_count_and_one_commit(
    channel: Channel, firestore_stores: Stores
) -> None:
    service = await warmed(firestore_stores, channel)
    for degrees in (10, 20):
        await service.save(f"Fact at {degrees}", draft=True)
    channel.requests.clear()
    await service.call("consolidate_context", "default")
    assert sorted(channel.calls) == ["Commit", "RunAggregationQuery", "RunQuery"]


async def test_a_refused_call_costs_one_event(channel: Channel, firestore_stores: Stores) -> None:
    service = await warmed(firestore_stores, channel)
    await service.http.post("/mcp")
    assert channel.calls == ["Commit"]


async def test_telemetry_shares_the_commit_of_the_event(channel: Channel, firestore_stores: Stores) -> None:
    await warmed(firestore_stores, channel)
    settings = environment(RETRIEVAL_EVENT_LOGGING_ENABLED="true")
    await Service(settings=settings, stores=firestore_stores).search("at 0")
    assert channel.calls.count("Commit") == 1
