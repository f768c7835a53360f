"""How long an event loop works at a stretch: what every other call has to wait for."""

import asyncio
import time
from types import TracebackType


class Watchdog:
    """Watches the turns of the running loop while it is entered.

    Measured is the CPU time of the loop's own thread: that a machine is busy, or that other threads are, is no fault of the
    loop's.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        """The longest turn, in seconds."""
        self._watching = False
        self._turn_began = 0.0

    def __enter__(self) -> "Watchdog":
        self._watching = True
        self._turn_began = time.thread_time()
        self._look_again()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watching = False

    def _look(self) -> None:
        """Runs once in every turn."""
        if self._watching:
            self.longest = max(self.longest, time.thread_time() - self._turn_began)
            self._turn_began = time.thread_time()
            self._look_again()

    def _look_again(self) -> None:
        asyncio.get_running_loop().call_soon(self._look)
