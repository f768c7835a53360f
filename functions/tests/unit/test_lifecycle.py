"""How memories give way to others, as properties: what a deprecation changes, and what a merged memory takes over."""

import dataclasses
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from metacortex import lifecycle, rules
from metacortex.errors import Conflict, TooLarge
from metacortex.lifecycle import Deprecation
from metacortex.memory import (
    BranchState,
    Initiator,
    Memory,
    Metadata,
    Modality,
    Origin,
    Provenance,
    SupersessionReason,
)

# So close together that they often coincide.
instants = st.integers(1_000, 1_010)
ids = st.sampled_from(["one", "two", "three"])
refs = st.lists(st.sampled_from([f"ref {number}" for number in range(8)]), max_size=4).map(tuple)
current = st.builds(
    Metadata,
    topic=st.just("birds"),
    branch_state=st.sampled_from([state for state in BranchState if state is not BranchState.DEPRECATED]),
    modality=st.sampled_from(Modality),
    created_at=instants,
    updated_at=instants,
    artifact_refs=refs,
    valid_from=st.none() | instants,
    valid_until=st.none() | instants,
    provenance=st.none() | st.builds(Provenance, origin=st.sampled_from(Origin)),
    written_by=st.just("agent"),
).filter(lambda known: known.valid_from is None or known.valid_until is None or known.valid_from < known.valid_until)
deprecations = st.builds(
    Deprecation,
    superseding_id=st.none() | ids,
    reason=st.sampled_from(SupersessionReason),
    initiator=st.none() | st.sampled_from(Initiator),
)
CHANGED_FIELDS = {
    "branch_state",
    "updated_at",
    "superseded_by",
    "supersession_reason",
    "initiator",
    "valid_until",
}


# --- Deprecation ---


@given(current, deprecations, instants)
def test_a_deprecation_says_why_and_leaves_everything_else(known: Metadata, deprecation: Deprecation, now: int) -> None:
    after = lifecycle.deprecated(known, deprecation, now)
    assert (after.branch_state, after.updated_at) == (BranchState.DEPRECATED, now)
    assert (after.superseded_by, after.supersession_reason, after.initiator) == (
        deprecation.superseding_id,
        deprecation.reason,
        deprecation.initiator,
    )
    for field in dataclasses.fields(Metadata):
        if field.name not in CHANGED_FIELDS:
            assert getattr(after, field.name) == getattr(known, field.name)


@given(current, deprecations, instants, instants)
def test_what_has_changed_held_until_now_and_what_has_not_begun_keeps_its_time(
    known: Metadata, deprecation: Deprecation, now: int, moment: int
) -> None:
    after = lifecycle.deprecated(known, replace(deprecation, reason=SupersessionReason.CHANGED), now)
    has_begun = known.valid_from is None or known.valid_from <= now
    held = rules.is_valid_at(known, moment)
    assert rules.is_valid_at(after, moment) is (held and (moment < now or not has_begun))


@given(current, deprecations, instants, instants)
def test_what_was_corrected_keeps_its_time_and_never_held(
    known: Metadata, deprecation: Deprecation, now: int, moment: int
) -> None:
    after = lifecycle.deprecated(known, replace(deprecation, reason=SupersessionReason.CORRECTED), now)
    assert (after.valid_from, after.valid_until) == (known.valid_from, known.valid_until)
    assert not rules.is_valid_at(after, moment)


@given(current, deprecations, instants)
def test_a_deprecation_leaves_no_empty_time(known: Metadata, deprecation: Deprecation, now: int) -> None:
    after = lifecycle.deprecated(known, deprecation, now)
    if after.valid_from != now:
        rules.check_validity(after.valid_from, after.valid_until)


@given(current, deprecations, instants)
def test_a_deprecation_repeated_is_known_again(known: Metadata, deprecation: Deprecation, now: int) -> None:
    after = lifecycle.deprecated(known, deprecation, now)
    assert lifecycle.is_repeated(after, deprecation)
    assert lifecycle.is_repeated(after, replace(deprecation, initiator=None))


@given(current, deprecations, deprecations, instants)
def test_another_deprecation_is_no_repetition(
    known: Metadata, deprecation: Deprecation, other: Deprecation, now: int
) -> None:
    assume(replace(deprecation, initiator=None) != replace(other, initiator=None))
    assert not lifecycle.is_repeated(lifecycle.deprecated(known, deprecation, now), other)


# --- Merging ---


def as_memories(known: Sequence[Metadata]) -> list[Memory]:
    return [
        Memory(id=f"memory-{number}", content="x", metadata=metadata) for number, metadata in enumerate(known, start=1)
    ]


@given(st.lists(current, min_size=1, max_size=4))
def test_sources_share_one_validity_or_are_all_named_with_theirs(known: list[Metadata]) -> None:
    sources = as_memories(known)
    validities = {(metadata.valid_from, metadata.valid_until) for metadata in known}
    if len(validities) == 1:
        assert lifecycle.shared_validity(sources) == validities.pop()
        return
    with pytest.raises(Conflict) as error:
        lifecycle.shared_validity(sources)
    assert all(source.id in error.value.message for source in sources)
    times = {moment for validity in validities for moment in validity if moment is not None}
    assert all(rules.format_time(moment) in error.value.message for moment in times)


@given(st.lists(current, min_size=1, max_size=6))
def test_a_merged_memory_has_every_reference_once_in_their_first_order(known: list[Metadata]) -> None:
    every = [ref for metadata in known for ref in metadata.artifact_refs]
    merged = lifecycle.all_artifact_refs(as_memories(known))
    assert set(merged) == set(every)
    assert [every.index(ref) for ref in merged] == sorted({every.index(ref) for ref in every})


@given(current, st.integers(0, 60))
def test_more_references_than_one_memory_holds_are_refused(known: Metadata, number: int) -> None:
    names = [f"another {position}" for position in range(number)]
    halves = [tuple(names[: number // 2]), tuple(names[number // 2 :])]
    sources = as_memories([replace(known, artifact_refs=half) for half in halves])
    if number <= 50:
        assert lifecycle.all_artifact_refs(sources) == tuple(names)
        return
    with pytest.raises(TooLarge, match=f"{number} artifact_refs and the limit is 50"):
        lifecycle.all_artifact_refs(sources)
