"""The emulator needs no index, production does: every query the store can issue has its index, and every index its query."""

import itertools
import json
from pathlib import Path
from typing import Any

from channel import Channel
from metacortex.bootstrap import Stores
from metacortex.memory import BranchState, Origin
from metacortex.ports import Nearest
from metacortex.rules import CONTENT_BYTES

INDEXES: dict[str, Any] = json.loads((Path(__file__).parents[3] / "firestore.indexes.json").read_text())
# Firestore refuses an indexed string over 1,500 bytes; these may be longer, or are never asked for.
UNINDEXED = {
    "memory_vectors": {"content", "summary", "retrieval_text", "media", "embedding", "metadata.artifact_refs"},
    "retrieval_query_events": {"query"},
}
EXPIRING = {"memory_vectors_write_fingerprints", "memory_events", "retrieval_query_events"}


def needed_index(request: Any) -> tuple[str, tuple[str, ...], str]:
    """The composite vector index that a query asks for: its collection, its filters, its vector field."""
    query = request.structured_query
    where = query.where
    filters = [part.field_filter for part in where.composite_filter.filters] or [where.field_filter]
    fields = tuple(sorted(part.field.field_path for part in filters))
    return query.from_[0].collection_id, fields, query.find_nearest.vector_field.field_path


async def test_every_query_has_an_index_and_every_index_a_query(channel: Channel, firestore_stores: Stores) -> None:
    for topic, origin in itertools.product([None, "Birds"], [None, Origin.USER_ASSERTED]):
        question = Nearest(
            vector=(1.0, 0.0),
            vector_field="embedding",
            branch_state=BranchState.ACTIVE,
            topic=topic,
            origin=origin,
            limit=5,
        )
        await firestore_stores.memories.nearest(question)
    listed = [
        (
            index["collectionGroup"],
            tuple(sorted(field["fieldPath"] for field in index["fields"] if "order" in field)),
            index["fields"][-1]["fieldPath"],
        )
        for index in INDEXES["indexes"]
    ]
    assert sorted(needed_index(request) for request in channel.requests) == sorted(listed)


def test_vector_indexes_have_the_default_dimensions() -> None:
    assert {index["fields"][-1]["vectorConfig"]["dimension"] for index in INDEXES["indexes"]} == {768}


def test_what_may_be_too_long_for_an_index_has_none() -> None:
    unindexed = {
        (field["collectionGroup"], field["fieldPath"]) for field in INDEXES["fieldOverrides"] if not field.get("ttl")
    }
    assert unindexed == {(collection, path) for collection, paths in UNINDEXED.items() for path in paths}
    assert CONTENT_BYTES > 1_500


def test_what_expires_has_a_ttl_policy() -> None:
    expiring = {field["collectionGroup"] for field in INDEXES["fieldOverrides"] if field.get("ttl")}
    assert expiring == EXPIRING
    assert all(field["fieldPath"] == "expires_at" for field in INDEXES["fieldOverrides"] if field.get("ttl"))
