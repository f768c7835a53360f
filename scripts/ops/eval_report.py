"""What a run found: as JSON, and as tables for a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from metacortex.rules import format_time
from ops.eval_baseline import Comparison
from ops.eval_metrics import KEPT, OffTopic, Outcome, Summary, off_topic, summary
from ops.eval_plan import Half, Partition
from ops.eval_run import Asked, Result

OVERALL = "overall"
NARROWEST = 80


@dataclass(frozen=True, kw_only=True)
class Report:
    """A run with all that its figures depend on. `began_at` is epoch milliseconds."""

    mode: Partition
    half: Half
    cutoffs: tuple[int, ...]
    began_at: int
    searched: Mapping[str, str]
    """What was searched, and how: names and values for the reader."""
    result: Result
    comparison: Comparison | None = None

    @property
    def limit(self) -> int:
        """How many results each case asked for."""
        return max(self.cutoffs)

    @property
    def is_well(self) -> bool:
        """Whether every case was answered."""
        return not any(asked.outcome.error for asked in self.result.asked)

    @property
    def is_worse(self) -> bool:
        return bool(self.comparison and self.comparison.worse)

    def summaries(self) -> dict[str, Summary]:
        """The figures of all cases, and then of each category by its name."""
        by_category: dict[str, list[Outcome]] = {}
        for asked in self.result.asked:
            by_category.setdefault(asked.case.category, []).append(asked.outcome)
        everything = [asked.outcome for asked in self.result.asked]
        groups = {OVERALL: everything, **dict(sorted(by_category.items()))}
        return {name: summary(outcomes, self.cutoffs) for name, outcomes in groups.items()}

    def off_topic(self) -> OffTopic:
        return off_topic([asked.outcome for asked in self.result.asked])

    def as_json(self) -> dict[str, Any]:
        overall, *categories = self.summaries().items()
        return {
            "ok": self.is_well and not self.is_worse,
            "mode": self.mode,
            "source": self.result.source,
            "searched": dict(self.searched),
            "half": self.half,
            "limit": self.limit,
            "cutoffs": list(self.cutoffs),
            "began_at": format_time(self.began_at),
            OVERALL: _summary_json(overall[1]),
            "categories": {name: _summary_json(figures) for name, figures in categories},
            "off_topic": _off_topic_json(self.off_topic()),
            "baseline": _comparison_json(self.comparison) if self.comparison else None,
            "cases": [_case_json(asked) for asked in self.result.asked],
        }


def _summary_json(figures: Summary) -> dict[str, Any]:
    return {
        "cases": figures.cases,
        "errors": figures.errors,
        "empty": figures.empty,
        "hit": {str(cutoff): _rounded(share, 4) for cutoff, share in figures.hit.items()},
        "recall": {str(cutoff): _rounded(share, 4) for cutoff, share in figures.recall.items()},
        "mrr": _rounded(figures.mrr, 4),
        "latency_ms": {"p50": _rounded(figures.p50_ms, 1), "p95": _rounded(figures.p95_ms, 1)},
    }


def _off_topic_json(figures: OffTopic) -> dict[str, Any]:
    return {
        "cases": figures.cases,
        "auc": _rounded(figures.auc, 4),
        "floor": figures.floor,
        "hidden": figures.hidden,
    }


def _case_json(asked: Asked) -> dict[str, Any]:
    outcome = asked.outcome
    return {
        "key": asked.case.key,
        "query": asked.case.query,
        "category": asked.case.category,
        "filters": asked.case.filters,
        "positives": outcome.positives,
        "ranks": list(outcome.ranks),
        "results": outcome.results,
        "best_score": outcome.best_score,
        "latency_ms": outcome.latency_ms,
        "error": outcome.error,
    }


def _comparison_json(comparison: Comparison) -> dict[str, Any]:
    return {
        "compared": comparison.compared,
        "better": comparison.better,
        "worse": [
            {"key": worse.asked.case.key, "query": worse.asked.case.query, "says": worse.says}
            for worse in comparison.worse
        ],
    }


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


# --- For a terminal ---


def show_report(report: Report) -> None:
    console = Console(highlight=False)
    # A file or a pipe has no width, and figures cut short are no figures.
    console.width = max(console.width, NARROWEST) if console.is_terminal else 200
    for part in _parts(report):
        console.print(part)


def _parts(report: Report) -> Iterator[RenderableType]:
    searched = ", ".join(f"{name} {value}" for name, value in report.searched.items())
    half = "" if report.half is Half.ALL else f", {report.half} cases only"
    yield Text(f"{report.result.source}: {searched}{half}, {report.limit} results a case")
    yield _table(report)
    if told := told_off_topic(report):
        yield Text(told)
    if failed := [asked for asked in report.result.asked if asked.outcome.error]:
        yield Text(f"{_counted(len(failed))} failed and counts in no share:")
        yield from (Text(f"  {asked.case.query}: {asked.outcome.error}") for asked in failed)
    if report.comparison:
        yield from _compared(report.comparison)


def told_off_topic(report: Report) -> str | None:
    """How well off-topic cases are told apart, in one line; None where that cannot be said."""
    figures = report.off_topic()
    if figures.auc is None:
        return None
    return (
        f"off-topic AUC {figures.auc:.3f}; the floor {figures.floor} keeps {KEPT:.0%} of the answerable cases"
        f" and hides {figures.hidden} of {_counted(figures.cases)} that nothing answers"
    )


def _table(report: Report) -> Table:
    table = Table("category")
    heads = ["cases", "errors", "empty"]
    heads += [f"{name}@{cutoff}" for name in ("hit", "recall") for cutoff in report.cutoffs]
    for head in (*heads, "MRR", "p50 ms", "p95 ms"):
        table.add_column(head, justify="right")
    for name, figures in report.summaries().items():
        table.add_row(name, *_cells(figures), end_section=name == OVERALL)
    return table


def _cells(figures: Summary) -> Sequence[str]:
    counts = [str(figures.cases), str(figures.errors), str(figures.empty)]
    shares = [*figures.hit.values(), *figures.recall.values(), figures.mrr]
    times = (figures.p50_ms, figures.p95_ms)
    return [
        *counts,
        *("–" if share is None else f"{share:.3f}" for share in shares),
        *("–" if time is None else f"{time:.0f}" for time in times),
    ]


def _compared(comparison: Comparison) -> Iterator[Text]:
    worse = len(comparison.worse)
    yield Text(
        f"Against the baseline: {_counted(comparison.compared)} compared, {comparison.better} better, {worse} worse"
    )
    for each in comparison.worse:
        yield Text(f"  {each.asked.case.query}: {each.says}")


def _counted(count: int) -> str:
    return "1 case" if count == 1 else f"{count} cases"
