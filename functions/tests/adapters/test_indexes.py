"""The emulator needs no index, production does: every query the store can issue has its index, and every index its query."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from google.cloud.firestore_v1.async_client import AsyncClient

from builders import JSON_HEADERS, ProtocolError, Service, ToolError, bearer, environment, path_of, plane_models
from channel import Channel, name_of
from fakes import PlaneEmbedder, SeeingImages
from images import PNG_BASE64
from metacortex import rules
from metacortex.adapters.firestore_memories import CREATED_AT
from metacortex.adapters.firestore_oauth import FirestoreOAuth
from metacortex.bootstrap import Stores
from metacortex.memory import BranchState, Origin
from metacortex.oauth.clients import Client
from metacortex.ports import ListFilters, Position, Question
from metacortex.spaces import Space

INDEXES: dict[str, Any] = json.loads((Path(__file__).parents[3] / "firestore.indexes.json").read_text())
# Firestore cuts what is longer in an index, so that a query would find what it should not.
INDEXED_BYTES = 1_500
# Short enough for an index, but nothing asks for them: each would cost a write per index entry.
NEVER_ASKED_FOR = {
    *(("memory_vectors", path) for path in ("summary", "media", "embedding", "metadata.artifact_refs", "terms.counts")),
    *(("memory_vectors_parts", path) for path in ("summary", "embedding", "metadata.artifact_refs")),
    ("retrieval_eval_cases", "query"),
    ("oauth_requests", "state"),
}
EXPIRING = {
    "memory_vectors_write_fingerprints",
    "memory_events",
    "retrieval_query_events",
    "oauth_requests",
    "oauth_grants",
    "owner_sessions",
}


TIMES = (CREATED_AT, "registered_at")
Index = tuple[str, tuple[str, ...], tuple[str, ...]]


def needed_index(request: Any) -> Index:
    """The composite index that a query asks for: its collection, its filters in any order, and how it ranks."""
    query = getattr(request, "structured_aggregation_query", request).structured_query
    where = query.where
    asked = [part.field_filter for part in where.composite_filter.filters] or [where.field_filter]
    filters = [part for part in asked if part.field.field_path]
    equal = sorted(part.field.field_path for part in filters if part.op.name == "EQUAL")
    ranked = [f"{order.field.field_path} {order.direction.name}" for order in query.order_by]
    if ranked and not ranked[-1].startswith("__name__"):
        # Firestore breaks ties by id, in the direction of the last field.
        ranked.append(f"__name__ {query.order_by[-1].direction.name}")
    ranges = {part.field.field_path for part in filters if part.op.name != "EQUAL"}
    assert ranges <= {order.field.field_path for order in query.order_by[:1]}
    nearest = query.find_nearest.vector_field.field_path
    return query.from_[0].collection_id, tuple(equal), tuple([nearest] if nearest else ranked)


def listed_index(index: Mapping[str, Any]) -> Index:
    fields = index["fields"]
    ranked_from = next(
        place for place, field in enumerate(fields) if "vectorConfig" in field or field["fieldPath"] in TIMES
    )
    ranked = (" ".join(filter(None, (field["fieldPath"], field.get("order")))) for field in fields[ranked_from:])
    return index["collectionGroup"], tuple(sorted(field["fieldPath"] for field in fields[:ranked_from])), tuple(ranked)


async def test_every_query_has_an_index_and_every_index_a_query(
    channel: Channel, firestore: AsyncClient, firestore_stores: Stores
) -> None:
    store = firestore_stores.memories
    sign_in = FirestoreOAuth(firestore)
    for name in ("first", "second"):
        await sign_in.add_client(Client(id=name, name=name, redirect_uris=(), registered_at=1), keep_unused=0)
    await sign_in.grants()
    await sign_in.remove_sessions()
    for topic, origin in itertools.product([None, "Birds"], [None, Origin.USER_ASSERTED]):
        filters = ListFilters(branch_state=BranchState.ACTIVE, topic=topic, origin=origin)
        question = Question(vector=(1.0, 0.0), vector_field="embedding", filters=filters, terms=("owl",))
        await store.nearest(question, 5)
        await store.nearest_parts(question, 5)
        await store.count_terms(filters, ["owl"])
        await store.holding(question, "owl", 5)
        await store.newest(filters, None, 5)
        await store.newest(replace(filters, created_after=1), Position(created_at=2, memory_id="x"), 5)
    await store.oldest_drafts("Birds", 5)
    needed = {needed_index(request) for request in channel.requests if name_of(request).startswith("Run")}
    # Equality alone is answered by merging the indexes that every single field has, and so is an order alone.
    needed = {index for index in needed if index[1] and index[2]}
    assert sorted(needed) == sorted(listed_index(index) for index in INDEXES["indexes"])


def test_vector_indexes_have_the_default_dimensions() -> None:
    configured = [
        field["vectorConfig"]
        for index in INDEXES["indexes"]
        for field in index["fields"][-1:]
        if "vectorConfig" in field
    ]
    assert {config["dimension"] for config in configured} == {768}


OWL = "\N{OWL}"
LONGEST_ID = OWL * (rules.DOCUMENT_ID_BYTES // 4)
LONGEST: dict[str, Any] = {
    "content": OWL * (rules.CONTENT_BYTES // 4),
    "topic": OWL * rules.TOPIC_CHARACTERS,
    "artifact_refs": [OWL * (rules.ARTIFACT_REF_BYTES // 4)] * rules.ARTIFACT_REFS,
    "image_base64": PNG_BASE64,
    "image_mime_type": "image/png",
    "source_session": OWL * rules.SOURCE_SESSION_CHARACTERS,
    "derived_from": [LONGEST_ID] * rules.DERIVED_FROM,
}
ENDLESS = OWL * 20_000
WIDE = " " * 20_000
TAKEN: list[tuple[str, dict[str, Any]]] = [
    ("save_context", LONGEST),
    ("save_context", {"content": "Fact", "topic": f"{WIDE}Birds", "source_session": f"{WIDE}s"}),
    ("search_context", {"query": OWL * rules.QUERY_CHARACTERS, "filter_topic": LONGEST["topic"], "limit": 20}),
    ("search_context", {"query": f"{WIDE}owl", "filter_topic": f"{WIDE}Birds"}),
    ("list_context", {"profile": "default", "filter_topic": LONGEST["topic"]}),
]
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("save_context", {"content": "Fact", "topic": ENDLESS}),
    ("save_context", {"content": "Fact", "branch_state": ENDLESS, "origin": ENDLESS, "valid_from": ENDLESS}),
    ("save_context", {"content": "Fact", "valid_from": WIDE, "artifact_refs": list(range(1_000)), "draft": ENDLESS}),
    ("search_context", {"query": ENDLESS + OWL}),
    ("search_context", {"query": "owl", "filter_topic": ENDLESS}),
    ("fetch_context", {"id": LONGEST_ID}),
    ("fetch_context", {"id": ENDLESS, "document_id": ENDLESS}),
    ("list_context", {"profile": "default", "filter_topic": ENDLESS, "cursor": ENDLESS}),
    ("deprecate_context", {"profile": "default", "id": LONGEST_ID, "superseding_id": LONGEST_ID}),
    ("deprecate_context", {"profile": "default", "id": ENDLESS, "initiator": ENDLESS, "supersession_reason": ENDLESS}),
    ("consolidate_context", {"profile": "default", "topic": ENDLESS, "source_ids": [f"{n}" for n in range(1_000)]}),
    ("consolidate_context", {"profile": "default", "source_ids": [LONGEST_ID, ENDLESS]}),
    (ENDLESS, {}),
]


class WidestEmbedder(PlaneEmbedder):
    """The plane in as many dimensions as Firestore's vectors may have."""

    async def embed_query(self, text: str, *, text_format: str) -> tuple[float, ...]:
        return *await super().embed_query(text, text_format=text_format), *[0.0] * 2_046


@pytest.fixture
async def longest(firestore_stores: Stores, firestore: AsyncClient) -> dict[str, list[dict[str, Any]]]:
    """Every document there is, by collection, after clients have sent the longest they can."""
    # A description of 2,048 tokens hardly has more than these 16,000 bytes.
    seeing = plane_models(embedder=WidestEmbedder(Space("plane", 2_048, "plain")), describer=SeeingImages(OWL * 4_000))
    settings = environment(RETRIEVAL_EVENT_LOGGING_ENABLED="true")
    service = Service(settings=settings, stores=firestore_stores, models=seeing)
    for tool, arguments in TAKEN:
        await service.call(tool, **arguments)
    for tool, arguments in REFUSED:
        with pytest.raises((ToolError, ProtocolError)):
            await service.call(tool, **arguments)
    await service.http.request("M" * 20_000, path_of("agent"), headers=JSON_HEADERS | bearer("agent"))
    return {
        collection.id: [snapshot.to_dict() or {} async for snapshot in collection.stream()]
        async for collection in firestore.collections()
    }


def too_long(value: object, path: str = "") -> Iterator[str]:
    """The field paths of the texts in a document that no index takes; those in a list have the list's."""
    if isinstance(value, str):
        if len(value.encode()) > INDEXED_BYTES:
            yield path
    elif isinstance(value, Mapping):
        for name, part in cast("Mapping[str, object]", value).items():
            yield from too_long(part, f"{path}.{name}".lstrip("."))
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for part in cast("Sequence[object]", value):
            yield from too_long(part, path)


async def test_exactly_what_is_too_long_for_an_index_or_never_asked_for_has_none(
    longest: dict[str, list[dict[str, Any]]],
) -> None:
    found = {
        (collection, path)
        for collection, documents in longest.items()
        for document in documents
        for path in too_long(document)
    }
    unindexed = {
        (field["collectionGroup"], field["fieldPath"]) for field in INDEXES["fieldOverrides"] if not field.get("ttl")
    }
    assert found | NEVER_ASKED_FOR == unindexed


async def test_the_longest_memory_is_stored_and_the_longest_calls_leave_their_events(
    longest: dict[str, list[dict[str, Any]]],
) -> None:
    assert max(len(memory["content"].encode()) for memory in longest["memory_vectors"]) == rules.CONTENT_BYTES
    assert len(longest["memory_events"]) == len(TAKEN) + len(REFUSED) + 1


def test_what_expires_has_a_ttl_policy() -> None:
    expiring = {field["collectionGroup"] for field in INDEXES["fieldOverrides"] if field.get("ttl")}
    assert expiring == EXPIRING
    assert all(field["fieldPath"] == "expires_at" for field in INDEXES["fieldOverrides"] if field.get("ttl"))
