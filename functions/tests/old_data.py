"""What MetaCortex 0.3 left in a database: no space, no origin, no summary, and numbers where Timestamps are today."""

import math
from collections.abc import Mapping
from typing import Any

from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.vector import Vector

THEN = 1_700_000_000_000
"""2023-11-14T22:13:20Z, when all of it was written."""
MINUTE = 60_000
DAY = 24 * 60 * MINUTE

Document = dict[str, Any]


def vector_at(degrees: float) -> Vector:
    """The vector of a text that says `at DEGREES`, in the plane that tests embed in. 0.3 did not normalise."""
    return Vector([0.5 * math.cos(math.radians(degrees)), 0.5 * math.sin(math.radians(degrees))])


def old_memory(
    content: str, degrees: float = 0, *, fields: Mapping[str, Any] | None = None, **metadata: Any
) -> Document:
    """A memory with some of its fields and metadata as a test wants them."""
    known = {
        "module_name": "Birds",
        "branch_state": "active",
        "created_at": THEN,
        "updated_at": THEN + 1,
        "modality": "text",
    }
    return {
        "content": content,
        "embedding": vector_at(degrees),
        "metadata": {**known, **metadata},
        **(fields or {}),
    }


MEMORIES: Mapping[str, Document] = {
    "text": old_memory("Owls hunt\nin the dark, at 10", 10, artifact_refs=["owls.md"]),
    "long": old_memory("Owls sleep at 20 " + "z" * 300, 20, created_at=THEN + MINUTE),
    "image": old_memory(
        "My chart",
        30,
        fields={
            "media": {"kind": "inline_image", "mime_type": "image/png"},
            "retrieval_text": "My chart\n\nA chart of owls at 30",
        },
        modality="text_image",
    ),
    "draft": old_memory("Owls may migrate at 40", 40, branch_state="wip"),
    "replaced": old_memory("Owls hunt by day at 50", 50, branch_state="deprecated", superseded_by="text"),
    "noted": old_memory(
        "Owls are noted at 60", 60, fields={"import": {"line": 7}}, reviewer={"name": "r", "marks": [1]}
    ),
}
FINGERPRINTS: Mapping[str, Document] = {
    "ab" * 32: {"id": "text", "expires_at": THEN + 15 * MINUTE, "updated_at": THEN, "extra": "kept"},
}
EVENTS: Mapping[str, Document] = {
    "event-1": {"event_type": "tool_call", "timestamp": THEN, "client_id": "agent", "tool_name": "save_context"},
    "event-2": {"event_type": "tool_call", "timestamp": THEN, "expires_at": THEN + 7 * DAY},
}
RETRIEVAL_EVENTS: Mapping[str, Document] = {"query-1": {"event_type": "retrieval", "timestamp": THEN, "query": "owls"}}

DATABASE: Mapping[str, Mapping[str, Document]] = {
    "memory_vectors": MEMORIES,
    "memory_vectors_write_fingerprints": FINGERPRINTS,
    "memory_events": EVENTS,
    "retrieval_query_events": RETRIEVAL_EVENTS,
}


async def store(firestore: AsyncClient, database: Mapping[str, Mapping[str, Document]] = DATABASE) -> None:
    """Writes documents as they are, in batches."""
    for collection, documents in database.items():
        names = list(documents)
        for start in range(0, len(names), 400):
            batch = firestore.batch()
            for name in names[start : start + 400]:
                batch.set(firestore.collection(collection).document(name), documents[name])
            await batch.commit()


async def stored(firestore: AsyncClient) -> dict[str, tuple[Document, Any]]:
    """The whole database: every document by its path, with the time of its last write."""
    return {
        snapshot.reference.path: (snapshot.to_dict() or {}, snapshot.update_time)
        async for collection in firestore.collections()
        async for snapshot in collection.stream()
    }
