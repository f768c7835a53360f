"""What a benchmark found: as JSON, and as tables that are Markdown already."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metacortex.rules import format_time
from ops.bench_burst import MODEL_MS, SAVES
from ops.bench_cold import Cold, Start, median_listed
from ops.bench_growth import Size
from ops.bench_load import Timing, percentile
from ops.bench_memory import STRETCHES, WARM_UP, MemoryUse
from ops.bench_overhead import Overhead
from ops.bench_plan import Plan
from ops.bench_run import Results
from ops.bench_targets import Target, targets, timings_of
from ops.bench_trips import Trips

Row = Sequence[str]
NONE = "–"


@dataclass(frozen=True, kw_only=True)
class Report:
    """A run with all that its figures depend on. `began_at` is epoch milliseconds."""

    plan: Plan
    machine: Mapping[str, str]
    began_at: int
    results: Results

    @property
    def targets(self) -> Sequence[Target]:
        return targets(self.results)

    @property
    def is_well(self) -> bool:
        """Whether every target is met."""
        return all(target.is_met for target in self.targets)

    @property
    def first_error(self) -> str | None:
        return next((timing.errors[0] for timing in timings_of(self.results) if timing.errors), None)

    def as_json(self) -> dict[str, Any]:
        results = self.results
        return {
            "ok": self.is_well,
            "began_at": format_time(self.began_at),
            "machine": dict(self.machine),
            "parts": list(self.plan.parts),
            "model_delay_ms": self.plan.delay_ms,
            "targets": [_target_json(target) for target in self.targets],
            "first_error": self.first_error,
            "cold": _cold_json(results.cold) if results.cold else None,
            "load": [_overhead_json(figure) for figure in results.load],
            "burst": [_timing_json(burst) for burst in results.burst.bursts] if results.burst else None,
            "trips": _trips_json(results.trips) if results.trips else None,
            "memory": _memory_json(results.memory) if results.memory else None,
            "growth": [_size_json(size) for size in results.growth],
        }


def _target_json(target: Target) -> dict[str, Any]:
    return {
        "target": target.says,
        "limit": target.limit,
        "found": round(target.found, 3),
        "unit": target.unit,
        "met": target.is_met,
    }


def _timing_json(timing: Timing) -> dict[str, Any]:
    return {
        "callers": timing.callers,
        "calls": len(timing.latencies),
        "errors": len(timing.errors),
        "p50_ms": round(timing.p50, 3),
        "p95_ms": round(timing.p95, 3),
        "per_second": round(timing.per_second, 1),
        "seconds": round(timing.seconds, 3),
    }


def _cold_json(cold: Cold) -> dict[str, Any]:
    return {
        "ratio": round(cold.ratio, 3),
        "first_search_s": round(cold.first_search, 3),
        "function": [_start_json(start) for start in cold.function],
        "empty": [_start_json(start) for start in cold.empty],
    }


def _start_json(start: Start) -> dict[str, Any]:
    return {
        "listed_s": round(start.listed, 3),
        "searched_s": round(start.searched, 3),
        "resident_mb": round(start.resident_mb, 1),
    }


def _overhead_json(figure: Overhead) -> dict[str, Any]:
    return {
        "call": figure.call,
        "callers": figure.service.callers,
        "own_ms": round(figure.own_ms, 3),
        "ratio": round(figure.ratio, 3),
        "steps": [list(step) for step in figure.steps],
        "service": _timing_json(figure.service),
        "empty": _timing_json(figure.empty),
        "bare": _timing_json(figure.bare) if figure.bare else None,
        "wire": _timing_json(figure.wire) if figure.wire else None,
    }


def _trips_json(trips: Mapping[Any, Mapping[str, Trips]]) -> dict[str, Any]:
    return {
        mode: {
            call: {"firestore": dict(each.firestore), "reads": each.reads, "model": each.model}
            for call, each in calls.items()
        }
        for mode, calls in trips.items()
    }


def _memory_json(memory: MemoryUse) -> dict[str, Any]:
    return {
        "growth": round(memory.growth, 4),
        "resident_mb": [round(value, 1) for value in memory.resident_mb],
        "calls": _timing_json(memory.calls),
    }


def _size_json(size: Size) -> dict[str, Any]:
    return {
        "memories": size.memories,
        "search": _timing_json(size.search) if size.search else None,
        "reads_seen": size.seen,
        "reads": size.reads,
        "dollars_a_thousand": round(size.dollars, 4),
    }


# --- As tables ---


@dataclass(frozen=True, kw_only=True)
class Section:
    """One table, with what a reader must know of it."""

    title: str
    heads: Row
    rows: Sequence[Row]
    note: str = ""


def to_text(report: Report) -> Iterator[str]:
    """The lines of the whole report."""
    for name, value in report.machine.items():
        yield f"- {name}: {value}"
    for section in sections(report):
        yield from ("", f"## {section.title}", "")
        yield from _markdown(section.heads, section.rows)
        if section.note:
            yield from ("", section.note)
    if report.first_error:
        yield from ("", f"The first error: {report.first_error}")


def _markdown(heads: Row, rows: Sequence[Row]) -> Iterator[str]:
    columns = [*zip(heads, *rows, strict=True)]
    widths = [max(map(len, column)) for column in columns]
    figures = [is_figures(column[1:]) for column in columns]

    def line(cells: Row) -> str:
        placed = zip(cells, widths, figures, strict=True)
        return f"| {' | '.join(cell.rjust(width) if figure else cell.ljust(width) for cell, width, figure in placed)} |"

    yield line(heads)
    yield (
        "|"
        + "|".join("-" * (width + 1) + (":" if figure else "-") for width, figure in zip(widths, figures, strict=True))
        + "|"
    )
    yield from map(line, rows)


def is_figures(cells: Row) -> bool:
    """Whether a column holds nothing but figures, which stand at the right."""
    return all(cell[0] in f"0123456789-${NONE}" for cell in cells)


def sections(report: Report) -> Iterator[Section]:
    results = report.results
    if report.targets:
        yield _targets_section(report.targets)
    if results.cold:
        yield _cold_section(results.cold)
    if results.load:
        yield _load_section(results.load)
        yield _steps_section(results.load)
    if results.burst:
        yield _burst_section(results.burst.bursts)
    if results.trips:
        yield _trips_section(results.trips)
    if results.memory:
        yield _memory_section(results.memory)
    if results.growth:
        yield _growth_section(results.growth)


def _targets_section(found: Sequence[Target]) -> Section:
    return Section(
        title="Targets",
        heads=("target", "at most", "found", "so it is"),
        rows=[
            (
                target.says,
                f"{target.limit:g} {target.unit}".strip(),
                f"{target.found:.2f} {target.unit}".strip() if target.unit else f"{target.found:g}",
                "met" if target.is_met else "MISSED",
            )
            for target in found
        ],
    )


def _cold_section(cold: Cold) -> Section:
    def row(name: str, starts: Sequence[Start], searched: str) -> Row:
        listed = [start.listed for start in starts]
        resident = percentile([start.resident_mb for start in starts], 0.5)
        return (
            name,
            str(len(starts)),
            f"{median_listed(starts):.3f}",
            f"{min(listed):.3f}",
            searched,
            f"{resident:.0f}",
        )

    return Section(
        title="Cold start",
        heads=("server", "starts", "to tools/list, s", "the fastest, s", "then to a search, s", "resident, MiB"),
        rows=[
            row("the function", cold.function, f"{cold.first_search:.3f}"),
            row("the empty server", cold.empty, NONE),
        ],
        note=f"Medians. The function takes {cold.ratio:.2f} times as long as the empty server to its first tools/list.",
    )


def _load_section(load: Sequence[Overhead]) -> Section:
    heads = (
        "call",
        "callers",
        "p50",
        "p95",
        "calls/s",
        "errors",
        "empty p50",
        "bare p50",
        "wire p50",
        "own",
        "× floor",
    )

    def row(figure: Overhead) -> Row:
        return (
            figure.call,
            str(figure.service.callers),
            _ms(figure.service),
            f"{figure.service.p95:.2f}",
            f"{figure.service.per_second:.0f}",
            str(len(figure.service.errors)),
            _ms(figure.empty),
            _ms(figure.bare),
            _ms(figure.wire),
            f"{figure.own_ms:.2f}",
            f"{figure.ratio:.2f}",
        )

    return Section(
        title="Calls",
        heads=heads,
        rows=[row(figure) for figure in load],
        note=(
            "Milliseconds. Empty: the same server with nothing in it. Bare: what the call asks of Firestore and the model, in the"
            " same steps, by Google's own clients; the cost of these clients is theirs. Wire: the same as recorded bytes. Own:"
            " what lies above bare, and for tools/list above empty; that is also the floor."
        ),
    )


def _steps_section(load: Sequence[Overhead]) -> Section:
    def told(step: Sequence[str]) -> str:
        return " + ".join(f"{count} {name}" if count > 1 else name for name, count in Counter(step).items())

    return Section(
        title="What the bare calls are",
        heads=("call", "in these steps"),
        rows=[
            (figure.call, " → ".join(map(told, figure.steps)))
            for figure in load
            if figure.steps and figure.service.callers == 1
        ],
        note="As one such call of the service was recorded. What stands in one step goes out at once.",
    )


def _ms(timing: Timing | None) -> str:
    return f"{timing.p50:.2f}" if timing else NONE


def _burst_section(bursts: Sequence[Timing]) -> Section:
    return Section(
        title=f"{SAVES} saves at once, the model takes {MODEL_MS} ms",
        heads=("burst", "seconds", "p50 ms", "p95 ms", "errors"),
        rows=[
            (str(place), f"{burst.seconds:.2f}", f"{burst.p50:.0f}", f"{burst.p95:.0f}", str(len(burst.errors)))
            for place, burst in enumerate(bursts, 1)
        ],
    )


def _trips_section(trips: Mapping[Any, Mapping[str, Trips]]) -> Section:
    rows = [
        (
            f"{call}, {mode}",
            f"{each.total:g}",
            f"{sum(each.firestore.values()):g}",
            f"{each.model:g}",
            f"{each.reads:g}",
            ", ".join(f"{name} {count:g}" for name, count in each.firestore.items()),
        )
        for mode, calls in trips.items()
        for call, each in calls.items()
    ]
    return Section(
        title="Round trips of a call",
        heads=("call", "all", "Firestore", "model", "reads", "which"),
        rows=rows,
        note="Means. Reads as Firestore bills them, but for the vector index entries that a query scans.",
    )


def _memory_section(memory: MemoryUse) -> Section:
    size = len(memory.calls.latencies) // STRETCHES
    shown = (0, WARM_UP, STRETCHES // 2, STRETCHES)
    return Section(
        title="Resident memory",
        heads=("calls", "MiB"),
        rows=[(f"{size * place:,}", f"{memory.resident_mb[place]:.1f}") for place in shown],
        note=f"Saves, searches and fetches in turn. Growth after the first quarter: {memory.growth:.1%}.",
    )


def _growth_section(growth: Sequence[Size]) -> Section:
    def row(size: Size) -> Row:
        p95 = f"{size.search.p95:.1f}" if size.search else NONE
        p50 = f"{size.search.p50:.1f}" if size.search else NONE
        seen = NONE if size.seen is None else f"{size.seen:.0f}"
        return (f"{size.memories:,}", p50, p95, seen, f"{size.reads:,.0f}", f"${size.dollars:.2f}")

    return Section(
        title="A search as memories grow",
        heads=("active memories", "p50 ms", "p95 ms", "reads seen", "reads", "1,000 searches"),
        rows=[row(size) for size in growth],
        note=(
            "Times are the emulator's, which compares every vector. Reads are those seen, and the vector index entries by"
            " Firestore's rule; where nothing was measured, at most all of them by the rules. Prices are those of"
            " docs/OPERATIONS.md, for the reads alone."
        ),
    )
