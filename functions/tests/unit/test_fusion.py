"""One ranking out of two, by hand and as properties."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metacortex.fusion import (
    LEXICAL_CANDIDATES,
    RARE_TERMS,
    Candidate,
    above_floor,
    joined,
    ranked,
    rare_terms,
    unseen,
)
from metacortex.memory import BranchState, Match, MatchedBy, Metadata, Modality

KNOWN = Metadata(topic="t", branch_state=BranchState.ACTIVE, modality=Modality.TEXT)


def candidate(
    name: str,
    score: float,
    held: Mapping[str, int] | None = None,
    *,
    by_vector: bool = True,
    summary: str = "",
) -> Candidate:
    return Candidate(
        id=name, summary=summary or name, score=score, metadata=KNOWN, held=held or {}, by_vector=by_vector
    )


def part(name: str, score: float) -> Candidate:
    """A part of a long memory, which does not tell what words that holds."""
    return replace(candidate(name, score, summary="the part"), held=None)


def order(matches: Sequence[Match]) -> list[str]:
    return [match.id for match in matches]


# --- Each memory once ---


@pytest.mark.parametrize("scores", [(0.9, 0.1), (0.1, 0.9)])
def test_a_memory_has_the_whole_metadata_wherever_one_that_was_found_has_it(scores: tuple[float, float]) -> None:
    whole = replace(candidate("a", scores[0]), metadata=replace(KNOWN, artifact_refs=("a.md",)))
    part = replace(candidate("a", scores[1]), is_shortened=True)
    for found in ([whole, part, part], [part, whole], [part, part, whole]):
        [match] = ranked(joined(found), {}, 0)
        assert (match.score, match.metadata, match.is_shortened) == (0.9, whole.metadata, False)
    [match] = ranked(joined([part, part]), {}, 0)
    assert (match.metadata, match.is_shortened) == (KNOWN, True)


# --- The rarest words ---


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({}, {}),
        ({"a": 0, "b": 0}, {}),
        ({"a": 3}, {"a": 3}),
        ({"a": 3, "b": 0, "c": 1}, {"c": 1, "a": 3}),
        ({"a": 4, "b": 3, "c": 2, "d": 1}, {"d": 1, "c": 2, "b": 3}),
        ({"a": 10_000}, {"a": 50}),
        ({"a": 10_000, "b": 10_000, "c": 10_000}, {"a": 50}),
        ({"a": 30, "b": 30, "c": 30}, {"a": 30, "b": 20}),
        ({"a": 49, "b": 10_000, "c": 10_000}, {"a": 49, "b": 1}),
    ],
)
def test_the_three_rarest_words_are_looked_up_in_fifty_memories_at_most(
    counts: Mapping[str, int], expected: Mapping[str, int]
) -> None:
    assert list(rare_terms(counts).items()) == list(expected.items())


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 100_000), max_size=8))
def test_however_many_memories_hold_them_no_more_are_looked_up(counts: Mapping[str, int]) -> None:
    chosen = rare_terms(counts)
    assert len(chosen) <= RARE_TERMS
    assert sum(chosen.values()) <= LEXICAL_CANDIDATES
    assert all(0 < limit <= counts[term] for term, limit in chosen.items())
    assert bool(chosen) == any(counts.values())


# --- Each memory once ---


def test_a_memory_found_twice_is_there_once_with_its_best_score_and_what_scored_so() -> None:
    found = joined(
        [
            candidate("m", 0.2, {"owl": 2}, summary="the whole"),
            candidate("other", 0.5),
            candidate("m", 0.9, summary="the part"),
            candidate("m", 0.4, summary="another part"),
            candidate("m", 0.2, {"barn": 1}, by_vector=False, summary="the whole"),
        ]
    )
    assert order(ranked(found, {}, 0)) == ["m", "other"]
    [memory, _] = found
    assert (memory.score, memory.summary, memory.by_vector) == (0.9, "the part", True)
    assert memory.held == {"owl": 2, "barn": 1}


def test_of_the_whole_and_a_part_that_score_alike_the_first_found_is_shown() -> None:
    [memory] = joined([candidate("m", 0.5, summary="the whole"), candidate("m", 0.5, summary="the part")])
    assert memory.summary == "the whole"


def test_what_only_words_found_stays_so() -> None:
    [memory] = joined([candidate("m", 0.1, {"a": 1}, by_vector=False), candidate("m", 0.1, {"b": 1}, by_vector=False)])
    assert not memory.by_vector


def test_a_part_takes_the_words_of_its_memory_wherever_that_was_found() -> None:
    whole = candidate("m", 0.2, {"owl": 2}, by_vector=False)
    for found in ([part("m", 0.9), part("m", 0.1), whole], [whole, part("m", 0.9), part("m", 0.1)]):
        [memory] = joined(found)
        assert (memory.score, memory.summary, memory.held, memory.by_vector) == (0.9, "the part", {"owl": 2}, True)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({}, []),
        ({"a": 0}, []),
        ({"a": 50}, []),
        ({"a": 51}, ["long"]),
        ({"a": 30, "b": 20}, []),
        ({"a": 30, "b": 21}, ["long"]),
        ({"a": 1, "b": 1, "c": 1, "d": 0}, []),
        ({"a": 1, "b": 1, "c": 1, "d": 1}, ["long"]),
    ],
)
def test_words_are_unseen_only_where_not_every_holder_was_looked_up(
    counts: Mapping[str, int], expected: list[str]
) -> None:
    found = joined([part("long", 0.9), part("long", 0.8), part("both", 0.7), candidate("both", 0.1), candidate("m", 1)])
    assert unseen(found, counts) == expected


# --- The order ---


def test_without_weight_the_order_is_that_of_the_scores() -> None:
    found = [candidate("far", 0.1, {"owl": 9}), candidate("near", 0.9), candidate("middle", 0.5, {"owl": 1})]
    assert order(ranked(found, {"owl": 1}, 0)) == ["near", "middle", "far"]


def test_with_all_weight_the_order_is_that_of_the_words_and_then_of_the_scores() -> None:
    found = [
        candidate("none", 0.9),
        candidate("common", 0.1, {"barn": 1}),
        candidate("rare", 0.2, {"owl": 1}),
        candidate("nearer", 0.3, {"owl": 1}),
        candidate("all", 0.0, {"owl": 1, "barn": 1}),
    ]
    assert order(ranked(found, {"owl": 2, "barn": 40}, 1)) == ["all", "nearer", "rare", "common", "none"]


def test_both_are_stretched_over_the_candidates_before_they_are_added() -> None:
    # Meaning: 1, 0.5, 0; words: 0, 0, 1.
    found = [candidate("near", 0.30), candidate("middle", 0.25), candidate("named", 0.20, {"owl": 1})]
    assert order(ranked(found, {"owl": 1}, 0.49)) == ["near", "named", "middle"]
    assert order(ranked(found, {"owl": 1}, 0.51)) == ["named", "near", "middle"]
    assert order(ranked(found, {"owl": 1}, 0.3)) == ["near", "middle", "named"]


def test_words_that_nobody_holds_take_their_part_of_the_say() -> None:
    found = [candidate("near", 0.9), candidate("named", 0.5, {"team": 1}), candidate("far", 0.1)]
    assert order(ranked(found, {"team": 2}, 0.6))[0] == "named"
    assert order(ranked(found, {"team": 2, "lunch": 0, "eat": 0}, 0.6))[0] == "near"
    everything = {"team": 2, "lunch": 1, "eat": 1}
    found += [candidate("all", 0.1, dict.fromkeys(everything, 1))]
    assert order(ranked(found, everything, 0.6))[0] == "all"


def test_words_that_nobody_holds_take_nothing_from_what_is_asked_for_by_name() -> None:
    found = [candidate("near", 0.9), candidate("named", 0.1, {"err-42": 1, "42": 1}), candidate("middle", 0.5)]
    counts = {"err-42": 1, "42": 1, "lunch": 0, "eat": 0, "team": 0, "err-43": 0}
    assert order(ranked(found, counts, 0.6))[0] == "named"
    common = dict.fromkeys(("err-42", "42"), LEXICAL_CANDIDATES + 1)
    assert order(ranked(found, {**counts, **common}, 0.6))[0] == "near"


def test_holding_a_small_share_of_the_query_says_little_even_for_the_only_one_that_does() -> None:
    found = [candidate("near", 0.9), candidate("named", 0.1, {"e": 1})]
    counts = {"a": 1, "b": 1, "c": 1, "d": 1, "e": 1}
    assert order(ranked(found, counts, 0.6)) == ["near", "named"]
    assert order(ranked([replace(found[1], held=counts), found[0]], counts, 0.6)) == ["named", "near"]


@pytest.mark.parametrize(
    "found",
    [
        [candidate("near", 0.92, {"user": 1}), candidate("far", 0.10, {"user": 3})],
        [candidate("near", 0.92), candidate("far", 0.05, {"user": 1})],
    ],
    ids=["more often", "once"],
)
def test_a_word_that_hundreds_hold_does_not_outweigh_meaning(found: list[Candidate]) -> None:
    assert order(ranked(found, {"user": 900}, 0.7)) == ["near", "far"]
    assert order(ranked(found, {"user": 900}, 1)) == ["far", "near"]


def test_a_rare_word_outweighs_meaning() -> None:
    found = [candidate("near", 0.92), candidate("far", 0.05, {"user": 1})]
    assert order(ranked(found, {"user": LEXICAL_CANDIDATES}, 0.7)) == ["far", "near"]


def test_holding_a_word_more_often_counts_but_less_and_less() -> None:
    def lead(often: int) -> bool:
        """Whether so many of a common word outweigh one of a rare word."""
        found = [candidate("often", 0.5, {"barn": often}), candidate("rare", 0.5, {"owl": 1}), candidate("none", 0.5)]
        return order(ranked(found, {"owl": 1, "barn": 10}, 1))[0] == "often"

    found = [candidate("once", 0.5, {"owl": 1}), candidate("twice", 0.5, {"owl": 2})]
    assert order(ranked(found, {"owl": 2}, 1)) == ["twice", "once"]
    assert not any(lead(often) for often in (1, 2, 10, 1_000_000))


def test_equal_words_and_scores_leave_the_order_to_the_ids() -> None:
    found = [candidate(name, 0.5, {"owl": 1}) for name in ("c", "a", "b")]
    assert order(ranked(found, {"owl": 10_000}, 0.6)) == ["a", "b", "c"]


def test_words_that_all_memories_hold_change_nothing() -> None:
    found = [candidate(f"m{i}", i / 10, {"owl": 1, "barn": 1}) for i in range(5)]
    matches = ranked(found, {"owl": 5, "barn": 5}, 0.6)
    assert order(matches) == ["m4", "m3", "m2", "m1", "m0"]
    assert all(match.matched_by is MatchedBy.BOTH for match in matches)


def test_one_memory_keeps_its_score_however_it_is_ranked() -> None:
    for weight in (0, 0.6, 1):
        [match] = ranked([candidate("only", 0.07)], {"pancake": 0}, weight)
        assert match.score == 0.07


def test_nothing_found_is_no_match() -> None:
    assert ranked([], {"owl": 0}, 0.6) == []
    assert joined([]) == []


# --- How a memory was found ---


@pytest.mark.parametrize(
    ("held", "by_vector", "expected"),
    [
        ({}, True, MatchedBy.VECTOR),
        ({"owl": 1}, False, MatchedBy.LEXICAL),
        ({"owl": 1}, True, MatchedBy.BOTH),
        # The fourth rarest word was not looked up.
        ({"d": 1}, True, MatchedBy.VECTOR),
    ],
)
def test_a_match_says_what_found_it(held: Mapping[str, int], by_vector: bool, expected: MatchedBy) -> None:  # noqa: FBT001
    counts = {"owl": 1, "b": 2, "c": 3, "d": 4}
    [match] = ranked([candidate("m", 0.5, held, by_vector=by_vector)], counts, 0.6)
    assert match.matched_by is expected


# --- The floor ---


@pytest.mark.parametrize(
    ("floor", "expected", "below"),
    [(None, ["a", "b", "c"], 0), (0, ["a", "b", "c"], 0), (0.5, ["a", "b"], 1), (0.51, ["a"], 2), (1, [], 3)],
)
def test_what_scores_below_the_floor_is_left_out_and_counted(
    floor: float | None, expected: list[str], below: int
) -> None:
    matches = ranked([candidate("a", 0.9), candidate("b", 0.5), candidate("c", 0.1)], {}, 0)
    kept, left_out = above_floor(matches, floor, 5)
    assert (order(kept), left_out) == (expected, below)


def test_what_holds_every_word_of_the_query_is_shown_whatever_its_score() -> None:
    found = [
        candidate("exact", 0.0, {"err-42": 1, "42": 3}),
        candidate("partly", 0.1, {"42": 1}),
        candidate("near", 0.9),
    ]
    counts = {"err-42": 1, "42": 2}
    kept, below = above_floor(ranked(found, counts, 0.6), 0.5, 5)
    assert (order(kept), below) == (["exact", "near"], 1)


def test_a_query_without_words_lets_nothing_pass_the_floor() -> None:
    assert above_floor(ranked([candidate("m", 0.1)], {}, 0.6), 0.5, 5) == ([], 1)


def test_what_is_left_out_makes_room_for_what_is_behind_it() -> None:
    found = [candidate("named", 0.0, {"owl": 1}), candidate("near", 0.9)]
    kept, below = above_floor(ranked(found, {"owl": 1, "barn": 0}, 1), 0.5, 1)
    assert (order(kept), below) == (["near"], 1)


def test_only_what_would_have_been_shown_is_counted() -> None:
    matches = ranked([candidate(f"m{i}", i / 100) for i in range(10)], {}, 0)
    assert above_floor(matches, 0.5, 3) == ([], 3)


# --- What holds for all candidates ---

TERMS = ["owl", "barn", "mouse", "err-42"]
CANDIDATES = st.lists(
    st.builds(
        candidate,
        st.sampled_from("abcdefgh"),
        st.integers(0, 1_000_000).map(lambda millionths: millionths / 1_000_000),
        st.dictionaries(st.sampled_from(TERMS), st.integers(1, 20)),
        by_vector=st.booleans(),
    ),
    unique_by=lambda found: found.id,
)
COUNTS = st.fixed_dictionaries({term: st.integers(0, 200) for term in TERMS})
WEIGHTS = st.floats(0, 1)


@given(CANDIDATES, COUNTS, WEIGHTS, st.randoms(use_true_random=False))
def test_the_order_does_not_depend_on_the_order_in_which_they_were_found(
    found: list[Candidate], counts: Mapping[str, int], weight: float, chance: Random
) -> None:
    shuffled = chance.sample(found, len(found))
    assert ranked(shuffled, counts, weight) == ranked(found, counts, weight)


@given(CANDIDATES, COUNTS, WEIGHTS)
def test_every_candidate_is_ranked_once_with_the_score_it_had(
    found: list[Candidate], counts: Mapping[str, int], weight: float
) -> None:
    matches = ranked(found, counts, weight)
    assert sorted((match.id, match.score) for match in matches) == sorted((each.id, each.score) for each in found)


@given(CANDIDATES, COUNTS)
def test_without_weight_scores_never_rise_down_the_list(found: list[Candidate], counts: Mapping[str, int]) -> None:
    scores = [match.score for match in ranked(found, counts, 0)]
    assert scores == sorted(scores, reverse=True)


@given(CANDIDATES, COUNTS, WEIGHTS)
def test_what_is_nearer_and_holds_more_is_never_behind(
    found: list[Candidate], counts: Mapping[str, int], weight: float
) -> None:
    best = candidate("A", 1.0, dict.fromkeys(TERMS, 20))
    assert order(ranked([*found, best], counts, weight))[0] == "A"


@given(CANDIDATES, COUNTS, WEIGHTS, st.none() | st.floats(0, 1), st.integers(1, 20))
def test_the_floor_changes_no_order_and_counts_what_it_hides(
    found: list[Candidate], counts: Mapping[str, int], weight: float, floor: float | None, limit: int
) -> None:
    matches = ranked(found, counts, weight)
    kept, below = above_floor(matches, floor, limit)
    assert len(kept) <= limit
    assert kept == [match for match in matches if match in kept]
    assert 0 <= below <= min(limit, len(matches))
    assert len(kept) >= min(limit, len(matches)) - below
    assert floor is not None or (kept, below) == (matches[:limit], 0)
    assert all(match.score >= (floor or 0) or match.holds_all_terms for match in kept)
    assert not any(math.isnan(match.score) for match in kept)


@given(st.lists(CANDIDATES, max_size=4))
def test_joining_keeps_every_memory_its_best_score_and_all_its_words(legs: list[list[Candidate]]) -> None:
    found = [each for leg in legs for each in leg]
    once = joined(found)
    assert sorted(each.id for each in once) == sorted({each.id for each in found})
    for memory in once:
        same = [each for each in found if each.id == memory.id]
        assert memory.score == max(each.score for each in same)
        assert (memory.held or {}).keys() == {term for each in same for term in each.held or {}}
        assert memory.by_vector == any(each.by_vector for each in same)
