"""Resident memory of the process that answers, over many calls of every kind."""

from collections.abc import Sequence
from dataclasses import dataclass

from ops.bench_calls import SEED, Texts, fetch, save, search
from ops.bench_corpus import fill
from ops.bench_load import Timing, drive
from ops.bench_servers import Bench, resident_mb
from ops.function import running_function

PROJECT = "demo-bench-memory"
MEMORIES = 200
CALLERS = 4
STRETCHES = 20
WARM_UP = STRETCHES // 4
"""After so many of the stretches, a quarter, everything that is made once is made."""


@dataclass(frozen=True)
class MemoryUse:
    """`resident_mb` is what the process held before the first call and after each stretch, in MiB."""

    resident_mb: Sequence[float]
    calls: Timing

    @property
    def growth(self) -> float:
        """The share by which memory grew from the end of the warm-up to the end."""
        return self.resident_mb[-1] / self.resident_mb[WARM_UP] - 1


def measure_memory(bench: Bench) -> MemoryUse:
    ids = fill(bench, PROJECT, MEMORIES)
    texts = Texts(SEED + 1)
    size = max(bench.plan.calls // STRETCHES, CALLERS)
    with running_function(bench.environment(PROJECT)) as function:
        pid = function.worker_pid()
        resident = [resident_mb(pid)]
        timings: list[Timing] = []
        for stretch in range(STRETCHES):
            bench.tell("Calls while watching memory", stretch * size, STRETCHES * size)
            bodies = [_mixed(texts, ids, number) for number in range(size)]
            timings.append(drive(function.port, bench.token, bodies, CALLERS))
            resident.append(resident_mb(pid))
    total = timings[0]
    for timing in timings[1:]:
        total = total.plus(timing)
    return MemoryUse(resident, total)


def _mixed(texts: Texts, ids: list[str], number: int) -> bytes:
    match number % 3:
        case 0:
            return save(texts.memory(), texts.topic())
        case 1:
            return search(texts.query())
        case _:
            return fetch(texts.choice(ids))
