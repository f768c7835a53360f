"""Many saves at once against a slow model: whether they wait for the model together, or for each other."""

from collections.abc import Sequence
from dataclasses import dataclass

from ops.bench_calls import SEED, Texts, save
from ops.bench_load import Timing, drive
from ops.bench_servers import Bench
from ops.function import running_function

PROJECT = "demo-bench-burst"
SAVES = 40
MODEL_MS = 500
WARM_UP = 10
BURSTS = 3


@dataclass(frozen=True)
class Burst:
    bursts: Sequence[Timing]

    @property
    def slowest(self) -> float:
        """Seconds from the first request of a burst to its last answer."""
        return max(burst.seconds for burst in self.bursts)


def measure_burst(bench: Bench) -> Burst:
    texts = Texts(SEED + 4)

    def saves(count: int, callers: int) -> Timing:
        return drive(function.port, bench.token, [save(texts.memory(), texts.topic()) for _ in range(count)], callers)

    with running_function(bench.environment(PROJECT)) as function:
        saves(WARM_UP, 1)
        bench.model.control(delay_ms=MODEL_MS)
        bursts: list[Timing] = []
        for number in range(BURSTS):
            bench.tell("Saves at once against a slow model", number, BURSTS)
            bursts.append(saves(SAVES, SAVES))
        bench.model.control(delay_ms=bench.plan.delay_ms)
        return Burst(bursts)
