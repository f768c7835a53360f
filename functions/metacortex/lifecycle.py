"""How memories give way to others, as pure functions: deprecation, and what a merged memory takes over from its sources."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from metacortex.errors import Conflict, TooLarge
from metacortex.memory import BranchState, Initiator, Memory, Metadata, SupersessionReason
from metacortex.rules import ARTIFACT_REFS, format_time

Validity = tuple[int | None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deprecation:
    """Why a memory no longer counts, and what counts instead. `superseding_id` is None where nothing does."""

    superseding_id: str | None
    reason: SupersessionReason
    initiator: Initiator | None


def deprecated(metadata: Metadata, deprecation: Deprecation, now: int) -> Metadata:
    """The metadata of a memory once it is deprecated."""
    return replace(
        metadata,
        branch_state=BranchState.DEPRECATED,
        updated_at=now,
        superseded_by=deprecation.superseding_id,
        supersession_reason=deprecation.reason,
        initiator=deprecation.initiator,
        valid_until=_end(metadata, now) if deprecation.reason is SupersessionReason.CHANGED else metadata.valid_until,
    )


def _end(metadata: Metadata, now: int) -> int | None:
    """Until when a memory held that has just changed: until now, unless it ended earlier or has not begun.

    One that began at this very moment never held: its time is empty.
    """
    begun = metadata.valid_from is None or metadata.valid_from <= now
    ended = metadata.valid_until is not None and metadata.valid_until <= now
    return now if begun and not ended else metadata.valid_until


def is_repeated(metadata: Metadata, deprecation: Deprecation) -> bool:
    """Whether a memory is deprecated by this very deprecation. MetaCortex 0.3 stored neither reason nor initiator."""
    return (
        metadata.branch_state is BranchState.DEPRECATED
        and metadata.superseded_by == deprecation.superseding_id
        and deprecation.reason is (metadata.supersession_reason or SupersessionReason.CHANGED)
        and deprecation.initiator in {None, metadata.initiator}
    )


def shared_validity(sources: Sequence[Memory]) -> Validity:
    """The validity that all sources have. Raises Conflict naming them by their validity where they differ."""
    by_validity: dict[Validity, list[str]] = {}
    for source in sources:
        by_validity.setdefault((source.metadata.valid_from, source.metadata.valid_until), []).append(source.id)
    if len(by_validity) == 1:
        return next(iter(by_validity))
    groups = (f"{_in_words(validity)}: {', '.join(ids)}" for validity, ids in by_validity.items())
    raise Conflict(
        "These memories hold at different times, so that no one memory can stand for all; merge those of one time: "
        f"{'; '.join(groups)}."
    )


def _in_words(validity: Validity) -> str:
    if validity == (None, None):
        return "always"
    begin, end = (None if moment is None else format_time(moment) for moment in validity)
    return " ".join(filter(None, (begin and f"from {begin}", end and f"until {end}")))


def all_artifact_refs(sources: Sequence[Memory]) -> tuple[str, ...]:
    """Every reference of any source, once. Raises TooLarge where one memory cannot hold them."""
    refs = tuple(dict.fromkeys(ref for source in sources for ref in source.metadata.artifact_refs))
    if len(refs) > ARTIFACT_REFS:
        raise TooLarge(
            f"Together these memories have {len(refs)} artifact_refs and the limit is {ARTIFACT_REFS}; merge fewer at once."
        )
    return refs
