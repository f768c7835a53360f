"""What today's schema wants of a document and MetaCortex 0.3 did not write, as the fields an update adds or replaces."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from google.cloud.firestore_v1.base_document import DocumentSnapshot

from metacortex.adapters.firestore_client import timestamp
from metacortex.adapters.firestore_documents import (
    CONTENT,
    COUNTS,
    METADATA,
    RETRIEVAL_TEXT,
    SUMMARY,
    TERMS,
    decode_metadata,
    encode_terms,
)
from metacortex.events import RETENTION_MS, EventKind
from metacortex.memory import BranchState, Modality, Origin
from metacortex.rules import DEFAULT_TOPIC, parse_time, summary
from metacortex.spaces import FIRST_VECTOR_FIELD, CollectionSpaces, Space
from metacortex.terms import memory_terms

SPACE = "embedding_space"
TEXT_IMAGE = "text_image"
EXPIRES_AT = "expires_at"
DEDUPE_EXPIRES_AT = "dedupe_expires_at"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Fields = dict[str, Any]
"""The values of an update by their paths; whatever else a document holds stays."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One collection of an installation, and what a document of it lacks."""

    name: str
    collection: str
    shows: tuple[str, ...]
    """The fields by which a document shows whether it lacks anything."""
    needs: tuple[str, ...]
    """The fields from which what it lacks is made."""
    lacking: Callable[[DocumentSnapshot], Fields]


def parts(collection: str, space: Space, named: CollectionSpaces) -> tuple[Part, ...]:
    """Everything an upgrade looks at, the memories first. `named` is what the collection names, or is going to name."""
    expiring = ("timestamp", EXPIRES_AT)
    # Where vectors have one field only, whatever names no space has its vector in this one.
    is_only = set(named.fields.values()) == {FIRST_VECTOR_FIELD}
    # Of the terms, which may be many, those that show whether there are any.
    shown = (SUMMARY, SPACE, METADATA, f"{TERMS}.{COUNTS}")
    return (
        Part(
            name="memories",
            collection=collection,
            shows=shown,
            needs=(*shown, CONTENT, RETRIEVAL_TEXT),
            lacking=lambda snapshot: _lacking_in_memory(snapshot, space, is_only=is_only),
        ),
        Part(
            name="fingerprints",
            collection=f"{collection}_write_fingerprints",
            shows=(EXPIRES_AT,),
            needs=(EXPIRES_AT,),
            lacking=_lacking_in_fingerprint,
        ),
        *(
            Part(name=kind, collection=kind, shows=expiring, needs=expiring, lacking=_lacking_in_event)
            for kind in EventKind
        ),
    )


def _lacking_in_memory(snapshot: DocumentSnapshot, space: Space, *, is_only: bool) -> Fields:
    document = snapshot.to_dict() or {}
    stored = document.get(METADATA)
    known: Mapping[str, Any] = stored if isinstance(stored, dict) else {}
    provenance = known.get("provenance")
    has_origin = isinstance(provenance, dict) and "origin" in provenance
    lacking: Fields = {
        f"{METADATA}.{name}": value for name, value in _assumed(snapshot).items() if known.get(name) is None
    }
    if known.get("modality") == TEXT_IMAGE:
        lacking[f"{METADATA}.modality"] = Modality.MIXED.value
    if not has_origin:
        lacking[f"{METADATA}.provenance.origin"] = Origin.LEGACY_IMPORT.value
    if SUMMARY not in document:
        lacking[SUMMARY] = summary(document.get(CONTENT) or "")
    if TERMS not in document:
        text = document.get(RETRIEVAL_TEXT) or document.get(CONTENT) or ""
        lacking[TERMS] = encode_terms(memory_terms(text, decode_metadata(document)))
    # Today's writer leaves the space out where the vector is in another field, but never the origin.
    if SPACE not in document and (is_only or not has_origin):
        lacking[SPACE] = space.id
    return lacking


def _assumed(snapshot: DocumentSnapshot) -> Mapping[str, Any]:
    """What fetching a memory takes for granted, and what searching and listing only find where it is stored."""
    return {
        "module_name": DEFAULT_TOPIC,
        "branch_state": BranchState.ACTIVE.value,
        "modality": Modality.TEXT.value,
        "created_at": _stored_at(snapshot),
    }


def _lacking_in_fingerprint(snapshot: DocumentSnapshot) -> Fields:
    expires_at = _instant((snapshot.to_dict() or {}).get(EXPIRES_AT))
    if expires_at is None:
        return {}
    return {EXPIRES_AT: timestamp(expires_at), DEDUPE_EXPIRES_AT: expires_at}


def _lacking_in_event(snapshot: DocumentSnapshot) -> Fields:
    document = snapshot.to_dict() or {}
    if isinstance(document.get(EXPIRES_AT), datetime):
        return {}
    happened_at = _instant(document.get("timestamp"))
    begun = _stored_at(snapshot) if happened_at is None else happened_at
    return {EXPIRES_AT: timestamp(begun + RETENTION_MS)}


def _stored_at(snapshot: DocumentSnapshot) -> int:
    """When Firestore got the document, in epoch milliseconds."""
    moment = snapshot.create_time
    assert isinstance(moment, datetime), "a document that exists has a time"
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _instant(value: object) -> int | None:
    """A stored number of epoch milliseconds; None for anything else, and for a time no calendar has."""
    try:
        return parse_time(value) if isinstance(value, int | float) else None
    except ValueError:
        return None
