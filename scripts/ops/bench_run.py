"""The parts of a benchmark, one after the other, and what they found."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from metacortex.settings import RetrievalMode
from ops.bench_burst import Burst, measure_burst
from ops.bench_cold import Cold, measure_cold
from ops.bench_growth import Size, measure_growth
from ops.bench_memory import MemoryUse, measure_memory
from ops.bench_overhead import Overhead, measure_overhead
from ops.bench_plan import Part, Plan
from ops.bench_servers import running_bench
from ops.bench_trips import Trips, measure_trips
from ops.progress import Tell


@dataclass(frozen=True, kw_only=True)
class Results:
    """What each part found; None or nothing for one that was not asked for."""

    cold: Cold | None = None
    load: Sequence[Overhead] = ()
    burst: Burst | None = None
    trips: Mapping[RetrievalMode, Mapping[str, Trips]] | None = None
    memory: MemoryUse | None = None
    growth: Sequence[Size] = ()


def run(plan: Plan, tell: Tell) -> Results:
    """Measures. Raises OpsError where a server does not start or is gone."""
    with running_bench(plan, tell) as bench:
        return Results(
            cold=measure_cold(bench) if Part.COLD in plan.parts else None,
            load=measure_overhead(bench) if Part.LOAD in plan.parts else (),
            burst=measure_burst(bench) if Part.BURST in plan.parts else None,
            trips=measure_trips(bench) if Part.TRIPS in plan.parts else None,
            memory=measure_memory(bench) if Part.MEMORY in plan.parts else None,
            growth=measure_growth(bench) if Part.GROWTH in plan.parts else (),
        )
