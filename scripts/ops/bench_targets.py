"""What the figures of a benchmark must be, and whether they are."""

from collections.abc import Iterator
from dataclasses import dataclass

from ops.bench_burst import MODEL_MS, SAVES
from ops.bench_load import Timing
from ops.bench_overhead import LIST
from ops.bench_run import Results

COLD_RATIO = 4.0
FIRST_SEARCH_SECONDS = 1.2
LIST_MS = 2.0
TOOL_MS = 4.0
BURST_SECONDS = 1.5
GROWTH = 0.05


@dataclass(frozen=True, kw_only=True)
class Target:
    """What a figure may be at most."""

    says: str
    limit: float
    found: float
    unit: str

    @property
    def is_met(self) -> bool:
        return self.found <= self.limit


def targets(results: Results) -> list[Target]:
    """Those that the parts which were measured can tell."""
    return [*_cold(results), *_own_time(results), *_burst(results), *_memory(results), *_errors(results)]


def _cold(results: Results) -> Iterator[Target]:
    if cold := results.cold:
        yield Target(
            says="cold start to the first tools/list, against the empty server (medians)",
            limit=COLD_RATIO,
            found=cold.ratio,
            unit="times",
        )
        yield Target(
            says="from there to the first search (median, without the model's delay)",
            limit=FIRST_SEARCH_SECONDS,
            found=cold.first_search,
            unit="s",
        )


def _own_time(results: Results) -> Iterator[Target]:
    for figure in results.load:
        if figure.service.callers == 1:
            floor = "the empty server" if figure.bare is None else "the bare calls of Firestore and the model"
            yield Target(
                says=f"{figure.call}: our own time above {floor} (p50, one caller)",
                limit=LIST_MS if figure.call == LIST else TOOL_MS,
                found=figure.own_ms,
                unit="ms",
            )


def _burst(results: Results) -> Iterator[Target]:
    if burst := results.burst:
        yield Target(
            says=f"{SAVES} saves at once against a model that takes {MODEL_MS} ms (the slowest burst)",
            limit=BURST_SECONDS,
            found=burst.slowest,
            unit="s",
        )


def _memory(results: Results) -> Iterator[Target]:
    if memory := results.memory:
        yield Target(
            says=f"growth of resident memory over {len(memory.calls.latencies):,} calls, after the first quarter",
            limit=GROWTH * 100,
            found=memory.growth * 100,
            unit="%",
        )


def _errors(results: Results) -> Iterator[Target]:
    if timings := [*timings_of(results)]:
        yield Target(says="calls that failed", limit=0, found=sum(len(timing.errors) for timing in timings), unit="")


def timings_of(results: Results) -> Iterator[Timing]:
    """Every figure of calls of the function and of the empty server."""
    for figure in results.load:
        yield figure.service
        yield figure.empty
    if results.burst:
        yield from results.burst.bursts
    if results.memory:
        yield results.memory.calls
    yield from (size.search for size in results.growth if size.search)
