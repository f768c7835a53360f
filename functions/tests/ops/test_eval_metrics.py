"""The figures of an evaluation, against ones worked out by hand."""

import pytest

from ops.eval_baseline import Baseline, compare
from ops.eval_cases import Case
from ops.eval_metrics import OffTopic, Outcome, Summary, off_topic, percentile, ranks, summary
from ops.eval_run import Asked


def test_ranks_are_the_places_of_what_was_looked_for() -> None:
    assert ranks(["c", "a", "x", "b"], ["a", "b", "missing"]) == (2, 4)
    assert ranks([], ["a"]) == ()


def test_figures_are_means_over_the_cases() -> None:
    outcomes = [
        Outcome(positives=1, ranks=(1,), results=10, latency_ms=10),
        Outcome(positives=2, ranks=(2, 7), results=10, latency_ms=20),
        Outcome(positives=4, ranks=(5,), results=10, latency_ms=30),
        Outcome(positives=1, ranks=(), results=10, latency_ms=40),
    ]
    assert summary(outcomes, (1, 5, 10)) == Summary(
        cases=4,
        errors=0,
        empty=0,
        hit={1: 1 / 4, 5: 3 / 4, 10: 3 / 4},
        recall={1: 1 / 4, 5: (1 + 1 / 2 + 1 / 4) / 4, 10: (1 + 1 + 1 / 4) / 4},
        mrr=(1 + 1 / 2 + 1 / 5) / 4,
        p50_ms=20,
        p95_ms=40,
    )


def test_an_error_is_counted_apart_and_an_empty_answer_is_a_miss() -> None:
    outcomes = [
        Outcome(positives=1, ranks=(1,), results=3, latency_ms=5),
        Outcome(positives=1, results=0, latency_ms=7),
        Outcome(positives=1, error="unavailable: no store"),
    ]
    figures = summary(outcomes, (1,))
    assert (figures.cases, figures.errors, figures.empty) == (3, 1, 1)
    assert (figures.hit[1], figures.recall[1], figures.mrr) == (0.5, 0.5, 0.5)
    assert (figures.p50_ms, figures.p95_ms) == (5, 7)


def test_without_any_answer_there_are_no_figures() -> None:
    figures = summary([Outcome(positives=1, error="timed_out: slow")], (1, 5))
    assert figures.hit == {1: None, 5: None}
    assert (figures.mrr, figures.p50_ms) == (None, None)


# --- Cases that nothing answers ---


def answerable(*scores: float) -> list[Outcome]:
    return [Outcome(positives=1, results=1, best_score=score) for score in scores]


def unanswerable(*scores: float) -> list[Outcome]:
    return [Outcome(positives=0, results=1, best_score=score) for score in scores]


def test_cases_that_nothing_answers_count_in_no_share() -> None:
    outcomes = [
        Outcome(positives=1, ranks=(1,), results=3, latency_ms=5),
        Outcome(positives=0, results=3, latency_ms=7),
        Outcome(positives=0, results=0, latency_ms=9),
    ]
    figures = summary(outcomes, (1,))
    assert (figures.cases, figures.empty, figures.hit[1], figures.recall[1], figures.mrr) == (3, 0, 1.0, 1.0, 1.0)
    assert figures.p95_ms == 9
    alone = summary(outcomes[1:], (1,))
    assert (alone.cases, alone.empty, alone.hit[1], alone.recall[1], alone.mrr) == (2, 0, None, None, None)


def test_the_auc_is_the_share_of_pairs_in_which_the_answerable_case_scores_higher() -> None:
    # Of eight pairs five are won, and two are ties.
    figures = off_topic(answerable(0.9, 0.5) + unanswerable(0.5, 0.5, 0.7, 0.1))
    assert figures.auc == (5 + 2 / 2) / 8


@pytest.mark.parametrize(("on", "off", "auc"), [(0.9, 0.1, 1.0), (0.1, 0.9, 0.0), (0.4, 0.4, 0.5), (0.0, 0.0, 0.5)])
def test_the_auc_goes_from_always_wrong_to_always_right(on: float, off: float, auc: float) -> None:
    assert off_topic(answerable(on) + unanswerable(off)).auc == auc


def test_the_floor_is_what_all_but_a_twentieth_of_the_answerable_cases_reach() -> None:
    on = answerable(*[0.5 + place / 100 for place in range(19)], 0.1)
    figures = off_topic(on + unanswerable(0.2, 0.499, 0.5, 0.6))
    assert (figures.cases, figures.floor, figures.hidden) == (4, 0.5, 2)
    # One more that is low is more than a twentieth.
    assert off_topic([*on, *answerable(0.1234), *unanswerable(0.1, 0.2)]).floor == 0.123


def test_cases_that_failed_do_not_count_among_those_that_are_told_apart() -> None:
    failed = [Outcome(positives=positives, error="timed_out: slow") for positives in (0, 1)]
    figures = off_topic(answerable(0.6) + unanswerable(0.3) + failed)
    assert figures == OffTopic(cases=1, auc=1.0, floor=0.6, hidden=1)


@pytest.mark.parametrize(("outcomes", "cases"), [([], 0), (answerable(0.4), 0), (unanswerable(0.4, 0.2), 2)])
def test_with_one_kind_of_cases_alone_nothing_is_told_apart(outcomes: list[Outcome], cases: int) -> None:
    assert off_topic(outcomes) == OffTopic(cases=cases, auc=None, floor=None, hidden=None)


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 10), (0.51, 11), (0.95, 19), (0.96, 20), (1.0, 20), (0.0, 1), (0.05, 1)]
)
def test_a_percentile_is_the_nearest_rank(share: float, expected: float) -> None:
    assert percentile([float(value) for value in range(20, 0, -1)], share) == expected


# --- Against an earlier run ---


def asked(query: str, outcome: Outcome) -> Asked:
    return Asked(case=Case(query=query, positive_ids=("any",), category="plain"), outcome=outcome)


def compared(before: Outcome, after: Outcome, *, limit: int = 10, earlier_limit: int = 10) -> tuple[int, list[str]]:
    """How many cases are better, and what is said of those that are worse."""
    now = asked("q", after)
    comparison = compare([now], limit, Baseline(earlier_limit, {now.case.key: before}))
    assert comparison.compared == 1
    return comparison.better, [worse.says for worse in comparison.worse]


def found(*places: int, of: int = 2) -> Outcome:
    return Outcome(positives=of, ranks=places, results=10)


FAILED = Outcome(positives=2, error="unavailable: gone")


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (found(1, 2), found(2, 3), "first right result at 1 before, at 2 now; recall@10 1.00 before, 1.00 now"),
        (found(1, 9), found(1), "first right result at 1 before, at 1 now; recall@10 1.00 before, 0.50 now"),
        (found(3), found(), "first right result at 3 before, nowhere now; recall@10 0.50 before, 0.00 now"),
        (found(), FAILED, "failed: unavailable: gone"),
    ],
)
def test_a_later_first_result_a_smaller_share_or_a_new_error_is_worse(
    before: Outcome, after: Outcome, says: str
) -> None:
    assert compared(before, after) == (0, [says])
    assert compared(after, before) == (1, [])


@pytest.mark.parametrize("same", [found(1, 4), found(), FAILED])
def test_the_same_again_is_neither_better_nor_worse(same: Outcome) -> None:
    assert compared(same, same) == (0, [])


def test_a_case_that_nothing_answers_gets_worse_by_failing_alone() -> None:
    answered, failed = Outcome(positives=0, results=10), Outcome(positives=0, error="unavailable: gone")
    assert compared(answered, answered) == (0, [])
    assert compared(answered, failed) == (0, ["failed: unavailable: gone"])


def test_a_second_result_that_moves_within_the_list_is_not_worse() -> None:
    assert compared(found(1, 2), found(1, 8)) == (0, [])


def test_what_only_the_longer_list_shows_does_not_count() -> None:
    assert compared(found(1, 9), found(1), limit=5) == (0, [])
    assert compared(found(1), found(1, 9), earlier_limit=5) == (0, [])


def test_cases_are_the_same_by_query_and_filters_whatever_their_ids() -> None:
    one = Case(query="q", positive_ids=("a",), category="x", topic="t")
    assert one.key == Case(query="q", positive_ids=("b", "c"), category="y", topic="t").key
    assert one.key != Case(query="q", positive_ids=("a",), category="x").key
