"""What the answers to cases are worth, as pure functions.

An answer is ranks (the places, from 1, of what was looked for) and the best score among all results, which should be lower
where nothing answers the case.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

KEPT = 0.95
"""The share of answerable cases that a floor is to leave their best result."""
FLOOR_STEPS = 1_000


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of one case. With an `error` there was no answer, which is something else than an empty one."""

    positives: int
    """How many memories were looked for; 0 where nothing answers the case."""
    ranks: tuple[int, ...] = ()
    """Where they were found, ascending; those that were not found have none."""
    results: int = 0
    """How many results there were."""
    best_score: float = 0.0
    """The highest score of a result, 0..1; 0 where there was none."""
    latency_ms: float = 0.0
    error: str | None = None

    @property
    def is_answerable(self) -> bool:
        return self.positives > 0


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The figures of several cases.

    Shares, from 0 to 1, and `empty` are of the answerable cases that got an answer; shares are None where none did.
    """

    cases: int
    errors: int
    empty: int
    hit: Mapping[int, float | None]
    """By cutoff: the share of cases with something right among the first k results."""
    recall: Mapping[int, float | None]
    """By cutoff: the mean share of what was looked for that is among the first k results."""
    mrr: float | None
    """The mean of 1 / rank of the first right result, 0 where there is none."""
    p50_ms: float | None
    p95_ms: float | None


@dataclass(frozen=True, kw_only=True)
class OffTopic:
    """How well the best scores tell answerable cases from those that nothing answers. Cases that failed do not count.

    All but the number of cases is None where either kind got no answer.
    """

    cases: int
    """How many unanswerable cases got an answer."""
    auc: float | None = None
    """The chance that an answerable case has a higher best score than an unanswerable one; equal ones count half."""
    floor: float | None = None
    """The highest score, in thousandths, that 95 % of the answerable cases reach with their best one."""
    hidden: int | None = None
    """How many unanswerable cases have no score that reaches the floor."""


def ranks(found: Sequence[str], positives: Iterable[str]) -> tuple[int, ...]:
    """The places, from 1, of the positives in the order that was found."""
    wanted = set(positives)
    return tuple(place for place, memory_id in enumerate(found, 1) if memory_id in wanted)


def hit_at(outcome: Outcome, cutoff: int) -> bool:
    return any(rank <= cutoff for rank in outcome.ranks)


def recall_at(outcome: Outcome, cutoff: int) -> float:
    """0 where nothing was looked for."""
    return sum(rank <= cutoff for rank in outcome.ranks) / max(1, outcome.positives)


def reciprocal_rank(outcome: Outcome) -> float:
    return 1 / outcome.ranks[0] if outcome.ranks else 0.0


def percentile(values: Sequence[float], share: float) -> float | None:
    """The least of the values that a share of them does not exceed (the nearest-rank method)."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def summary(outcomes: Sequence[Outcome], cutoffs: Sequence[int]) -> Summary:
    answered = [outcome for outcome in outcomes if outcome.error is None]
    looked_for = [outcome for outcome in answered if outcome.is_answerable]
    latencies = [outcome.latency_ms for outcome in answered]
    return Summary(
        cases=len(outcomes),
        errors=len(outcomes) - len(answered),
        empty=sum(outcome.results == 0 for outcome in looked_for),
        hit={cutoff: _mean([hit_at(outcome, cutoff) for outcome in looked_for]) for cutoff in cutoffs},
        recall={cutoff: _mean([recall_at(outcome, cutoff) for outcome in looked_for]) for cutoff in cutoffs},
        mrr=_mean([reciprocal_rank(outcome) for outcome in looked_for]),
        p50_ms=percentile(latencies, 0.5),
        p95_ms=percentile(latencies, 0.95),
    )


def off_topic(outcomes: Sequence[Outcome]) -> OffTopic:
    answered = [outcome for outcome in outcomes if outcome.error is None]
    on = [outcome.best_score for outcome in answered if outcome.is_answerable]
    off = [outcome.best_score for outcome in answered if not outcome.is_answerable]
    if not on or not off:
        return OffTopic(cases=len(off))
    reached = sorted(on, reverse=True)[math.ceil(KEPT * len(on)) - 1]
    floor = math.floor(reached * FLOOR_STEPS) / FLOOR_STEPS
    return OffTopic(cases=len(off), auc=_auc(on, off), floor=floor, hidden=sum(score < floor for score in off))


def _auc(on: Sequence[float], off: Sequence[float]) -> float:
    won = sum((higher > lower) + (higher == lower) / 2 for higher in on for lower in off)
    return won / (len(on) * len(off))


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
