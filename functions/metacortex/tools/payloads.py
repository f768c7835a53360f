"""What clients see: results and errors as plain JSON, in the contract's shapes."""

import json
from collections.abc import Sequence
from typing import Any, NotRequired, TypeVar

from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from metacortex import errors
from metacortex.errors import MetaCortexError
from metacortex.memory import (
    BranchState,
    Entry,
    Initiator,
    Match,
    MatchedBy,
    Memory,
    Metadata,
    Modality,
    Origin,
    Provenance,
    SupersessionReason,
)
from metacortex.profiles import Profile
from metacortex.rules import format_time

ANSWER_CHARACTERS = 40_000


class ProvenancePayload(TypedDict):
    origin: Origin
    source_session: NotRequired[str]
    derived_from: NotRequired[list[str]]
    confidence: NotRequired[float]


class MetadataPayload(TypedDict):
    topic: str
    branch_state: BranchState
    modality: Modality
    artifact_refs: NotRequired[list[str]]
    created_at: NotRequired[str]
    updated_at: NotRequired[str]
    valid_from: NotRequired[str]
    valid_until: NotRequired[str]
    superseded_by: NotRequired[str]
    supersession_reason: NotRequired[SupersessionReason]
    initiator: NotRequired[Initiator]
    provenance: NotRequired[ProvenancePayload]
    written_by: NotRequired[str]


class ItemPayload(TypedDict):
    id: str
    content: str
    metadata: MetadataPayload


class EntryPayload(TypedDict):
    id: str
    summary: str
    metadata: MetadataPayload


class MatchPayload(TypedDict):
    id: str
    summary: str
    score: float
    matched_by: MatchedBy
    metadata: MetadataPayload


class SimilarPayload(TypedDict):
    id: str
    score: float
    summary: str


P = TypeVar("P", EntryPayload, MatchPayload)


def item(memory: Memory, profile: Profile) -> ItemPayload:
    return {"id": memory.id, "content": memory.content, "metadata": metadata(memory.metadata, profile)}


def entry(listed: Entry, profile: Profile) -> EntryPayload:
    return {"id": listed.id, "summary": listed.summary, "metadata": metadata(listed.metadata, profile)}


def match(found: Match, profile: Profile) -> MatchPayload:
    return {
        "id": found.id,
        "summary": found.summary,
        "score": found.score,
        "matched_by": found.matched_by,
        "metadata": metadata(found.metadata, profile),
    }


def similar(found: Match) -> SimilarPayload:
    return {"id": found.id, "score": found.score, "summary": found.summary}


def metadata(known: Metadata, profile: Profile) -> MetadataPayload:
    """Public metadata in the contract's order; who wrote it is for the admin alone."""
    fields: dict[str, Any] = {
        "topic": known.topic,
        "branch_state": known.branch_state,
        "modality": known.modality,
        "artifact_refs": list(known.artifact_refs) or None,
        "created_at": shown_time(known.created_at),
        "updated_at": shown_time(known.updated_at),
        "valid_from": shown_time(known.valid_from),
        "valid_until": shown_time(known.valid_until),
        "superseded_by": known.superseded_by,
        "supersession_reason": known.supersession_reason,
        "initiator": known.initiator,
        "provenance": _provenance(known.provenance) if known.provenance else None,
        "written_by": known.written_by if profile.is_admin else None,
    }
    return present(fields)


def _provenance(provenance: Provenance) -> dict[str, Any]:
    return present(
        {
            "origin": provenance.origin,
            "source_session": provenance.source_session,
            "derived_from": list(provenance.derived_from) or None,
            "confidence": provenance.confidence,
        }
    )


def present(fields: dict[str, Any]) -> Any:
    """The fields that there are: what is absent is omitted."""
    return {name: value for name, value in fields.items() if value is not None}


def shown_time(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else format_time(milliseconds)


def to_json(payload: Any) -> str:
    """Compact JSON, not escaped to ASCII."""
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def within_budget(items: Sequence[P], around: Any) -> tuple[list[P], bool]:
    """The leading items that fit into one answer, whole ones only, and whether anything was left out of them.

    `around` is the rest of the answer. An item that would fill it by itself comes without its long lists: fetching it shows
    them.
    """
    budget = room = ANSWER_CHARACTERS - _size(around)
    kept: list[P] = []
    shortened = False
    for item in items:
        # What has lists that are too long is not measured whole: a hundred such items are 20 MB.
        fitting, size = item, (budget if _length_of_lists(item) > budget else _size(item)) + 1
        if size > budget:
            fitting, shortened = _without_lists(item), True
            size = _size(fitting) + 1
        if size > room:
            break
        room -= size
        kept.append(fitting)
    return kept, shortened


def all_within_budget(items: Sequence[P]) -> tuple[list[P], bool]:
    """All of the items, and whether they come without their long lists because they would pass the budget with them."""
    if _size(items) <= ANSWER_CHARACTERS:
        return list(items), False
    return [_without_lists(item) for item in items], True


def _size(payload: Any) -> int:
    """How much of a reader's attention it takes, in characters of English: models spend about as many tokens on a
    character as it has bytes, and four bytes of English are one token."""
    return len(to_json(payload).encode())


def _length_of_lists(item: P) -> int:
    metadata = item["metadata"]
    sources = metadata["provenance"].get("derived_from", []) if "provenance" in metadata else []
    return sum(map(len, (*metadata.get("artifact_refs", []), *sources)))


def _without_lists(item: P) -> P:
    shorter: dict[str, Any] = {**item["metadata"]}
    shorter.pop("artifact_refs", None)
    if "provenance" in shorter:
        shorter["provenance"] = {name: value for name, value in shorter["provenance"].items() if name != "derived_from"}
    return {**item, "metadata": shorter}  # pyright: ignore[reportReturnType]


STATUS_CODES: dict[type[MetaCortexError], int] = {
    errors.InvalidArgument: 400,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.TooLarge: 413,
    errors.NothingToDo: 422,
    errors.RateLimited: 429,
    errors.ModelFailed: 502,
    errors.Unavailable: 503,
    errors.EmbeddingSpaceMismatch: 503,
    errors.TimedOut: 504,
}


def status_code(error: BaseException) -> int:
    """The status a tool error carries; 500 for one that was not foreseen."""
    return next((STATUS_CODES[kind] for kind in type(error).__mro__ if kind in STATUS_CODES), 500)


def error(raised: MetaCortexError) -> dict[str, Any]:
    return {"error": {"status": status_code(raised), "code": raised.code, "message": raised.message}}


def internal_error(request_id: str) -> dict[str, Any]:
    message = "Something unexpected happened here; try again, and give the owner the requestId if it happens again."
    return {"error": {"status": 500, "code": MetaCortexError.code, "message": message, "requestId": request_id}}
