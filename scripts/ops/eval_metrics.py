"""What the answers to cases are worth, as pure functions. An answer is ranks: the places, from 1, of what was looked for."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of one case. With an `error` there was no answer, which is something else than an empty one."""

    positives: int
    """How many memories were looked for; at least one."""
    ranks: tuple[int, ...] = ()
    """Where they were found, ascending; those that were not found have none."""
    results: int = 0
    """How many results there were."""
    latency_ms: float = 0.0
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The figures of several cases. Shares are of the cases that were answered, from 0 to 1; None where none was."""

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


def ranks(found: Sequence[str], positives: Iterable[str]) -> tuple[int, ...]:
    """The places, from 1, of the positives in the order that was found."""
    wanted = set(positives)
    return tuple(place for place, memory_id in enumerate(found, 1) if memory_id in wanted)


def hit_at(outcome: Outcome, cutoff: int) -> bool:
    return any(rank <= cutoff for rank in outcome.ranks)


def recall_at(outcome: Outcome, cutoff: int) -> float:
    return sum(rank <= cutoff for rank in outcome.ranks) / outcome.positives


def reciprocal_rank(outcome: Outcome) -> float:
    return 1 / outcome.ranks[0] if outcome.ranks else 0.0


def percentile(values: Sequence[float], share: float) -> float | None:
    """The least of the values that a share of them does not exceed (the nearest-rank method)."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def summary(outcomes: Sequence[Outcome], cutoffs: Sequence[int]) -> Summary:
    answered = [outcome for outcome in outcomes if outcome.error is None]
    latencies = [outcome.latency_ms for outcome in answered]
    return Summary(
        cases=len(outcomes),
        errors=len(outcomes) - len(answered),
        empty=sum(outcome.results == 0 for outcome in answered),
        hit={cutoff: _mean([hit_at(outcome, cutoff) for outcome in answered]) for cutoff in cutoffs},
        recall={cutoff: _mean([recall_at(outcome, cutoff) for outcome in answered]) for cutoff in cutoffs},
        mrr=_mean([reciprocal_rank(outcome) for outcome in answered]),
        p50_ms=percentile(latencies, 0.5),
        p95_ms=percentile(latencies, 0.95),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
