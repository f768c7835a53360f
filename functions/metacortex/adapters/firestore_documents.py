"""A memory as a Firestore document, in the contract's shape, and back. Reads what MetaCortex 0.3 wrote, too."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, TypeVar

from google.cloud.firestore_v1.transforms import DELETE_FIELD
from google.cloud.firestore_v1.vector import Vector

from metacortex.errors import InvalidArgument
from metacortex.fusion import Candidate
from metacortex.memory import (
    BranchState,
    Entry,
    Initiator,
    Memory,
    Metadata,
    Modality,
    NewMemory,
    Origin,
    Provenance,
    SupersessionReason,
)
from metacortex.rules import DEFAULT_TOPIC, confidence, parse_time, summary
from metacortex.spaces import FIRST_VECTOR_FIELD

# Firestore takes 10 MiB in one commit, and vectors may need most of it.
PARTS_METADATA_BYTES = 1_000_000

CONTENT = "content"
SUMMARY = "summary"
RETRIEVAL_TEXT = "retrieval_text"
MEMORY_ID = "memory_id"
PARTS = "parts"
SHORTENED = "shortened"
# The words a memory holds, as a map whose keys are found by equality; and how often, where that is more than once.
TERMS, WORDS, COUNTS = "terms", "words", "counts"
METADATA = "metadata"
DISTANCE = "distance"

E = TypeVar("E", bound=Enum)


def encode(new: NewMemory) -> dict[str, Any]:
    content = new.memory.content
    document: dict[str, Any] = {
        CONTENT: content,
        SUMMARY: summary(content),
        RETRIEVAL_TEXT: new.retrieval_text,
        new.embedding.vector_field: Vector(new.embedding.vector),
        "embedding_space": new.embedding.space_id if new.embedding.vector_field == FIRST_VECTOR_FIELD else None,
        "media": {"kind": "inline_image", "mime_type": new.image_mime_type} if new.image_mime_type else None,
        TERMS: encode_terms(new.terms),
        PARTS: len(new.parts) or None,
        METADATA: _encode_metadata(new.memory.metadata),
    }
    return _present(document)


def encode_terms(terms: Mapping[str, int]) -> dict[str, Any]:
    return {
        WORDS: dict.fromkeys(terms, True),
        COUNTS: {term: often for term, often in terms.items() if often > 1},
    }


def encode_parts(new: NewMemory) -> dict[str, dict[str, Any]]:
    """The documents of a long memory's parts, by their ids. Each has what a hit shows of the memory.

    Where a memory's references and sources, once in every part, would be too much for one commit, the parts do without, and
    say so.
    """
    metadata = _encode_metadata(new.memory.metadata)
    shortened = len(json.dumps(metadata, ensure_ascii=False).encode()) * len(new.parts) > PARTS_METADATA_BYTES
    if shortened:
        metadata = _encode_metadata(_without_lists(new.memory.metadata))
    return {
        part_id: _present(
            {
                MEMORY_ID: new.memory.id,
                SUMMARY: part.summary,
                new.embedding.vector_field: Vector(part.vector),
                METADATA: metadata,
                SHORTENED: shortened or None,
            }
        )
        for part_id, part in zip(part_ids(new.memory.id, len(new.parts)), new.parts, strict=True)
    }


def part_ids(memory_id: str, count: int) -> list[str]:
    """The ids of a memory's parts. An id may be as long as Firestore takes one: it is hashed."""
    name = hashlib.sha256(memory_id.encode()).hexdigest()[:32]
    return [f"{name}-{number:04}" for number in range(count)]


def encode_change(before: Metadata, after: Metadata) -> dict[str, Any]:
    """What an update writes: the fields that differ, by their paths, so that whatever else the document holds stays."""
    was, is_now = _encode_metadata(before), _encode_metadata(after)
    changed = [name for name in was | is_now if was.get(name) != is_now.get(name)]
    return {f"{METADATA}.{name}": is_now.get(name, DELETE_FIELD) for name in changed}


def _without_lists(metadata: Metadata) -> Metadata:
    """Metadata without its long lists: references and sources."""
    provenance = metadata.provenance and replace(metadata.provenance, derived_from=())
    return replace(metadata, artifact_refs=(), provenance=provenance)


def _encode_metadata(metadata: Metadata) -> dict[str, Any]:
    return _present(
        {
            "module_name": metadata.topic,
            "branch_state": metadata.branch_state.value,
            "created_at": metadata.created_at,
            "updated_at": metadata.updated_at,
            "modality": metadata.modality.value,
            "written_by": metadata.written_by,
            "artifact_refs": list(metadata.artifact_refs) or None,
            "superseded_by": metadata.superseded_by,
            "valid_from": metadata.valid_from,
            "valid_until": metadata.valid_until,
            "supersession_reason": metadata.supersession_reason.value if metadata.supersession_reason else None,
            "initiator": metadata.initiator.value if metadata.initiator else None,
            "provenance": _encode_provenance(metadata.provenance) if metadata.provenance else None,
        }
    )


def _encode_provenance(provenance: Provenance) -> dict[str, Any]:
    return _present(
        {
            "origin": provenance.origin.value,
            "source_session": provenance.source_session,
            "derived_from": list(provenance.derived_from) or None,
            "confidence": provenance.confidence,
        }
    )


def _present(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def decode_memory(memory_id: str, document: Mapping[str, Any]) -> Memory:
    return Memory(id=memory_id, content=decode_content(document), metadata=decode_metadata(document))


def decode_content(document: Mapping[str, Any]) -> str:
    return _text(document.get(CONTENT)) or ""


def decode_retrieval_text(document: Mapping[str, Any]) -> str | None:
    return _text(document.get(RETRIEVAL_TEXT))


def decode_parts(document: Mapping[str, Any]) -> int:
    """How many parts a memory has."""
    parts = document.get(PARTS)
    return parts if isinstance(parts, int) else 0


def decode_entry(memory_id: str, document: Mapping[str, Any], content: str | None) -> Entry:
    """One line of a listing. `content` is read only for a document that has no summary of its own."""
    return Entry(
        id=memory_id,
        summary=decode_summary(document) or summary(content or ""),
        metadata=decode_metadata(document),
        listed_at=_fields(document.get(METADATA)).get("created_at"),
    )


def decode_summary(document: Mapping[str, Any]) -> str:
    """Empty for a document that has none: those of MetaCortex 0.3, until they are upgraded."""
    return _text(document.get(SUMMARY)) or ""


def decode_candidate(memory_id: str, document: Mapping[str, Any], score: float, *, by_vector: bool) -> Candidate:
    """What a query of a search found. Documents that lack a summary have an empty one; parts do not know what words they hold."""
    return Candidate(
        id=memory_id,
        summary=decode_summary(document),
        score=score,
        metadata=decode_metadata(document),
        held=None if MEMORY_ID in document else decode_held(document),
        by_vector=by_vector,
        is_shortened=bool(document.get(SHORTENED)),
    )


def decode_held(document: Mapping[str, Any]) -> dict[str, int]:
    """How often a memory holds each of the words that were read of it."""
    stored = _fields(document.get(TERMS))
    counts = _fields(stored.get(COUNTS))
    return {term: counts.get(term, 1) for term in _fields(stored.get(WORDS))}


def decode_metadata(document: Mapping[str, Any]) -> Metadata:
    stored = _fields(document.get(METADATA))
    return Metadata(
        topic=_text(stored.get("module_name")) or DEFAULT_TOPIC,
        branch_state=_branch_state(stored.get("branch_state")),
        modality=_modality(stored.get("modality")),
        created_at=_time(stored.get("created_at")),
        updated_at=_time(stored.get("updated_at")),
        artifact_refs=_texts(stored.get("artifact_refs")),
        valid_from=_time(stored.get("valid_from")),
        valid_until=_time(stored.get("valid_until")),
        superseded_by=_text(stored.get("superseded_by")),
        supersession_reason=_enum(SupersessionReason, stored.get("supersession_reason")),
        initiator=_enum(Initiator, stored.get("initiator")),
        provenance=_decode_provenance(stored.get("provenance")),
        written_by=_text(stored.get("written_by")),
    )


def _decode_provenance(value: object) -> Provenance | None:
    stored = _fields(value)
    origin = _enum(Origin, stored.get("origin"))
    if origin is None:
        return None
    return Provenance(
        origin=origin,
        source_session=_text(stored.get("source_session")),
        derived_from=_texts(stored.get("derived_from")),
        confidence=_confidence(stored.get("confidence")),
    )


def _branch_state(value: object) -> BranchState:
    """The stored state. One that this version does not know says at least that the memory is not simply active."""
    return BranchState.ACTIVE if value is None else _enum(BranchState, value) or BranchState.DEPRECATED


def _confidence(value: object) -> float | None:
    try:
        return confidence(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    except InvalidArgument:
        return None


def _modality(value: object) -> Modality:
    # MetaCortex 0.3 called an image with a text text_image.
    return Modality.MIXED if value == "text_image" else _enum(Modality, value) or Modality.TEXT


def _enum(kind: type[E], value: object) -> E | None:
    return next((member for member in kind if member.value == value), None)


def _time(value: object) -> int | None:
    """A stored instant; one that could not be shown is none, so that it spoils no answer."""
    try:
        return parse_time(value) if isinstance(value, int | float) else None
    except ValueError:
        return None


def _fields(value: object) -> Mapping[str, Any]:
    """A stored map; what is none has no fields."""
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _texts(value: object) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()
