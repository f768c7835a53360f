"""`metacortex indexes`: what Firestore must index for a collection of memories and a vector field."""

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from metacortex.settings import Settings
from metacortex.spaces import FIRST_VECTOR_FIELD
from ops.terminal import show

ALWAYS = "metadata.branch_state"
TOPIC = "metadata.module_name"
SOMETIMES = (TOPIC, "metadata.provenance.origin")
CREATED_AT = "metadata.created_at"
# Firestore cuts an indexed string at 1,500 bytes and pays for every index; these may be longer, or are never asked for.
UNINDEXED = ("content", "summary", "retrieval_text", "media", "terms.counts", "metadata.artifact_refs")
EVENTS = ("memory_events", "retrieval_query_events")
SIGN_IN = ("oauth_requests", "oauth_grants", "owner_sessions")
LARGEST = 2_048


def indexes(
    *,
    collection: Annotated[str, typer.Option(metavar="NAME", help="The collection, as MEMORY_COLLECTION names it.")] = (
        Settings.memory_collection
    ),
    dimensions: Annotated[
        int, typer.Option(min=1, max=LARGEST, help="The size of its vectors, as the embedding space names it.")
    ] = Settings.gemini_embedding_dimensions,
    field: Annotated[str, typer.Option(metavar="NAME", help="The field that holds them.")] = FIRST_VECTOR_FIELD,
) -> None:
    """Print what firestore.indexes.json must hold for a collection of memories and a vector field.

    The file in this repository is that of the defaults. For another collection, size or field, print its own, join both
    lists of the file with those printed here, and deploy it.

    Example, for another collection:

    \b
    ./scripts/metacortex indexes --collection work_memories --dimensions 1536
    """
    show([json.dumps(needed(collection, dimensions, field), indent=2)])


def needed(collection: str, dimensions: int, field: str) -> dict[str, Any]:
    """The content of an index file: composite indexes for every query, exemptions, and the policies of what expires."""
    nearest = {"fieldPath": field, "vectorConfig": {"dimension": dimensions, "flat": {}}}
    return {
        "indexes": [
            *(_index(name, filters, nearest) for name in (collection, f"{collection}_parts") for filters in _filters()),
            *(_index(collection, filters, *NEWEST_FIRST) for filters in _filters()),
            _index(collection, (ALWAYS, TOPIC), *OLDEST_FIRST),
            _index("oauth_clients", ("used",), *OLDEST_REGISTRATION_FIRST),
        ],
        "fieldOverrides": [
            *(_override(collection, path) for path in (*UNINDEXED, field)),
            *(_override(f"{collection}_parts", path) for path in ("summary", "metadata.artifact_refs", field)),
            *(_override(name, "query") for name in ("retrieval_query_events", "retrieval_eval_cases")),
            *(
                _override(name, "expires_at", ttl=True)
                for name in (f"{collection}_write_fingerprints", *EVENTS, *SIGN_IN)
            ),
            _override("oauth_requests", "state"),
        ],
    }


NEWEST_FIRST = (
    {"fieldPath": CREATED_AT, "order": "DESCENDING"},
    # Ties by id: without this line Firestore would sort ids as it sorts times, the other way round.
    {"fieldPath": "__name__", "order": "ASCENDING"},
)
OLDEST_REGISTRATION_FIRST = (
    {"fieldPath": "registered_at", "order": "ASCENDING"},
    {"fieldPath": "__name__", "order": "ASCENDING"},
)
OLDEST_FIRST = ({"fieldPath": CREATED_AT, "order": "ASCENDING"}, {"fieldPath": "__name__", "order": "ASCENDING"})


def _index(collection: str, filters: tuple[str, ...], *ranked: Mapping[str, Any]) -> dict[str, Any]:
    fields = [*({"fieldPath": path, "order": "ASCENDING"} for path in filters), *ranked]
    return {"collectionGroup": collection, "queryScope": "COLLECTION", "fields": fields}


def _filters() -> Iterator[tuple[str, ...]]:
    """Every set of filters that a search or a listing may have."""
    for count in range(len(SOMETIMES) + 1):
        for some in itertools.combinations(SOMETIMES, count):
            yield (ALWAYS, *some)


def _override(collection: str, path: str, *, ttl: bool = False) -> dict[str, Any]:
    return {"collectionGroup": collection, "fieldPath": path, **({"ttl": True} if ttl else {}), "indexes": []}
