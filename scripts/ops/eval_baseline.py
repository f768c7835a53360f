"""An earlier run to compare with: which cases got worse since, and which better."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.eval_metrics import Outcome, recall_at, reciprocal_rank
from ops.eval_run import Asked
from ops.local_settings import shown
from ops.processes import OpsError


@dataclass(frozen=True)
class Baseline:
    """The outcomes of an earlier run by the keys of their cases."""

    limit: int
    outcomes: Mapping[str, Outcome]


@dataclass(frozen=True, kw_only=True)
class Worse:
    """A case whose answer was better before, and how."""

    asked: Asked
    says: str


@dataclass(frozen=True, kw_only=True)
class Comparison:
    compared: int
    """How many cases stand in both runs."""
    better: int
    worse: tuple[Worse, ...]


def read_baseline(path: Path) -> Baseline:
    """What `eval run --json` printed into a file; raises OpsError where it is something else."""
    try:
        document = json.loads(path.read_bytes())
        return Baseline(document["limit"], {case["key"]: _outcome(case) for case in document["cases"]})
    except OSError as error:
        raise OpsError(f"{shown(path)} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError):
        raise OpsError(f"{shown(path)} is not what `eval run --json` prints.") from None


def _outcome(case: Mapping[str, Any]) -> Outcome:
    return Outcome(positives=case["positives"], ranks=tuple(case["ranks"]), error=case["error"])


def compare(asked: Sequence[Asked], limit: int, baseline: Baseline) -> Comparison:
    """Raises OpsError where the runs have no case in common. Of both only what the shorter lists show counts."""
    shared = min(limit, baseline.limit)
    pairs = [
        (each, _within(baseline.outcomes[each.case.key], shared), _within(each.outcome, shared))
        for each in asked
        if each.case.key in baseline.outcomes
    ]
    if not pairs:
        raise OpsError("The baseline has no case in common with this run; it is of other cases.")
    return Comparison(
        compared=len(pairs),
        better=sum(_is_worse(after, before, shared) for _, before, after in pairs),
        worse=tuple(
            Worse(asked=each, says=_says(before, after, shared))
            for each, before, after in pairs
            if _is_worse(before, after, shared)
        ),
    )


def _within(outcome: Outcome, limit: int) -> Outcome:
    places = tuple(rank for rank in outcome.ranks if rank <= limit)
    return Outcome(positives=outcome.positives, ranks=places, error=outcome.error)


def _is_worse(before: Outcome, after: Outcome, limit: int) -> bool:
    if before.error is not None or after.error is not None:
        return before.error is None
    return reciprocal_rank(after) < reciprocal_rank(before) or recall_at(after, limit) < recall_at(before, limit)


def _says(before: Outcome, after: Outcome, limit: int) -> str:
    if after.error is not None:
        return f"failed: {after.error}"
    return (
        f"first right result {_place(before)} before, {_place(after)} now;"
        f" recall@{limit} {recall_at(before, limit):.2f} before, {recall_at(after, limit):.2f} now"
    )


def _place(outcome: Outcome) -> str:
    return f"at {outcome.ranks[0]}" if outcome.ranks else "nowhere"
