"""Whether the vectors of a collection can belong to a space: seen in a sample, and compared with what a model makes."""

import math
from collections.abc import Sequence

from google.cloud.firestore_v1.base_document import DocumentSnapshot
from google.cloud.firestore_v1.vector import Vector

from metacortex.adapters.firestore_documents import CONTENT, RETRIEVAL_TEXT, decode_metadata
from metacortex.memory import Modality
from metacortex.ports import Document, Embedder
from metacortex.rules import DEFAULT_TOPIC
from metacortex.spaces import FIRST_VECTOR_FIELD, Space
from ops.processes import OpsError
from ops.upgrade_report import Vectors

SAMPLE = 50
COMPARED = 5
LEAST_COSINE = 0.99


class Spread:
    """Of names that come one by one and nobody counts, a sample spread evenly: all of them, or 50 to 100."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._step = 1
        self._seen = 0

    def offer(self, name: str) -> None:
        if self._seen % self._step == 0:
            self.names.append(name)
        if len(self.names) > 2 * SAMPLE:
            self.names = self.names[::2]
            self._step *= 2
        self._seen += 1


def seen_in(sample: Sequence[DocumentSnapshot], space: Space) -> Vectors:
    """What the sampled vectors show; raises OpsError where they cannot be of the space."""
    lengths: dict[str, float] = {}
    others: dict[str, int] = {}
    for snapshot in sample:
        vector = _vector(snapshot)
        lengths[snapshot.id] = math.hypot(*vector)
        if vector and len(vector) != space.dimensions:
            others[snapshot.id] = len(vector)
    if others:
        name, size = next(iter(others.items()))
        raise OpsError(
            f"Of {len(sample)} vectors looked at, {len(others)} have not {space.dimensions} dimensions: that of {name} has "
            f"{size}. Name the space that all vectors of the collection were made in."
        )
    usable = [length for length in lengths.values() if _has_direction(length)]
    if not usable:
        raise OpsError(f"None of {len(sample)} memories looked at has a vector in the field {FIRST_VECTOR_FIELD}.")
    return Vectors(
        looked_at=len(sample),
        unusable=tuple(name for name, length in lengths.items() if not _has_direction(length)),
        shortest=min(usable),
        longest=max(usable),
    )


async def compare(sample: Sequence[DocumentSnapshot], embedder: Embedder, space: Space) -> float:
    """The least cosine between a few stored vectors and those the model makes of the same texts.

    Raises OpsError where it is below 0.99 or nothing can be compared, MetaCortexError where the model does not answer.
    """
    texts = sorted((len(text), text, _vector(snapshot)) for snapshot in sample if (text := _plain_text(snapshot)))
    chosen = [(text, vector) for _, text, vector in texts if _has_direction(math.hypot(*vector))][:COMPARED]
    if not chosen:
        raise OpsError("None of the memories looked at has a text of its own and a vector; leave out --verify.")
    documents = [Document(text=text, topic=DEFAULT_TOPIC) for text, _ in chosen]
    made = await embedder.embed_documents(documents, text_format=space.text_format)
    least = min(_cosine(vector, other) for (_, vector), other in zip(chosen, made, strict=True))
    if least < LEAST_COSINE:
        raise OpsError(
            f"{space.model} makes other vectors of these texts than those stored (the least cosine of {len(chosen)} is "
            f"{least:.2f}). Name the model and the dimensions that they were made with."
        )
    return least


def _vector(snapshot: DocumentSnapshot) -> tuple[float, ...]:
    stored = (snapshot.to_dict() or {}).get(FIRST_VECTOR_FIELD)
    return tuple(stored) if isinstance(stored, Vector) else ()


def _has_direction(length: float) -> bool:
    return 0 < length < math.inf


def _plain_text(snapshot: DocumentSnapshot) -> str:
    """The text a vector was made of; empty where an image may have had a part in it."""
    document = snapshot.to_dict() or {}
    if decode_metadata(document).modality is not Modality.TEXT:
        return ""
    return document.get(RETRIEVAL_TEXT) or document.get(CONTENT) or ""


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True)) / (math.hypot(*one) * math.hypot(*other))
