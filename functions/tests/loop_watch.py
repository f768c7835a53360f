"""How long an event loop works at a stretch: what every other call has to wait for."""

import asyncio
import statistics
import time
from types import TracebackType


class Watchdog:
    """Watches the turns of the running loop while it is entered.

    Measured is the CPU time of the loop's own thread: that a machine is busy, or that other threads are, is no fault of the
    loop's. Where two processors are one that takes turns, a busy machine shows in CPU time, too: it is told in the time of a
    processor of its own, by how long a piece of known work takes before and after.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        """The longest turn, in seconds; told rightly when it is left."""
        self._slowness = 1.0
        self._watching = False
        self._turn_began = 0.0

    def __enter__(self) -> "Watchdog":
        self._slowness = slowness()
        self._watching = True
        self._turn_began = time.thread_time()
        self._look_again()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watching = False
        self.longest /= max(1.0, (self._slowness + slowness()) / 2)

    def _look(self) -> None:
        """Runs once in every turn."""
        if self._watching:
            self.longest = max(self.longest, time.thread_time() - self._turn_began)
            self._turn_began = time.thread_time()
            self._look_again()

    def _look_again(self) -> None:
        asyncio.get_running_loop().call_soon(self._look)


ALONE = 0.00105
"""Seconds that the known work takes on a processor of its own, of the machine in docs/PERFORMANCE.md."""


def slowness() -> float:
    """How much longer known work takes on this machine at this moment: the median of several times."""
    return statistics.median(_known_work() for _ in range(9)) / ALONE


def _known_work() -> float:
    began = time.thread_time()
    total = 0
    for number in range(20_000):
        total += number * number % 7
    return time.thread_time() - began
