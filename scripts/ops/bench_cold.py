"""Cold starts: from the start of the process to its first answers, by turns with the same server with nothing in it.

Every start is a process group of its own. It is asked `tools/list` again and again until it answers, and then, in the same
process, to search. The first round, which may write bytecode, does not count.
"""

import statistics
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass

from ops.bench_calls import SEED, Texts, list_tools, search
from ops.bench_corpus import fill
from ops.bench_load import Caller
from ops.bench_servers import Bench, resident_mb, running_empty
from ops.function import Function, running_function
from ops.processes import OpsError, free_port

PROJECT = "demo-bench-cold"
MEMORIES = 100
PAUSE = 0.003
LONGEST = 60


@dataclass(frozen=True)
class Start:
    """One start. Seconds from the start of the process to its first list of tools, and from there to its first search."""

    listed: float
    searched: float
    resident_mb: float


@dataclass(frozen=True)
class Cold:
    """All starts that count."""

    function: Sequence[Start]
    empty: Sequence[Start]
    delay_ms: int
    """What the model took of the first search."""

    @property
    def ratio(self) -> float:
        return median_listed(self.function) / median_listed(self.empty)

    @property
    def first_search(self) -> float:
        """Seconds from the first list of tools to the first search, without the model's delay: the median."""
        return statistics.median(start.searched for start in self.function) - self.delay_ms / 1000


def median_listed(starts: Sequence[Start]) -> float:
    return statistics.median(start.listed for start in starts)


def measure_cold(bench: Bench) -> Cold:
    fill(bench, PROJECT, MEMORIES)
    environment = bench.environment(PROJECT)
    texts = Texts(SEED)
    rounds: list[tuple[Start, Start]] = []
    for number in range(bench.plan.starts + 1):
        bench.tell("Cold starts", number, bench.plan.starts + 1)
        port = free_port()
        empty = _start(running_empty(port), port, bench.token, [list_tools()] * 2)
        port = free_port()
        asked = [list_tools(), search(texts.query())]
        rounds.append((_start(running_function(environment, port=port), port, bench.token, asked), empty))
    return Cold(
        function=[function for function, _ in rounds[1:]],
        empty=[empty for _, empty in rounds[1:]],
        delay_ms=bench.plan.delay_ms,
    )


def _start(server: AbstractContextManager[Function], port: int, token: str, asked: Sequence[bytes]) -> Start:
    given_up = threading.Event()
    began = time.perf_counter()
    with ThreadPoolExecutor(1) as watcher:
        answers = watcher.submit(_first_answers, port, token, asked, given_up)
        try:
            with server as function:
                listed, searched = answers.result()
                return Start(listed - began, searched - listed, resident_mb(function.worker_pid()))
        finally:
            given_up.set()


def _first_answers(port: int, token: str, asked: Sequence[bytes], given_up: threading.Event) -> tuple[float, float]:
    """When each of two requests was first answered, the second one sent after the first answer."""
    first, second = asked
    deadline = time.perf_counter() + LONGEST
    while time.perf_counter() < deadline and not given_up.wait(PAUSE):
        with Caller(port, token) as caller, suppress(ConnectionRefusedError):
            caller.connect()
            caller.call(first)
            listed = time.perf_counter()
            caller.call(second)
            return listed, time.perf_counter()
    raise OpsError(f"A server did not answer within {LONGEST} seconds of its start.")
