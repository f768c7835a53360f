"""Stopping in good order when asked to."""

import signal
from types import FrameType


class Stopped(BaseException):
    """Raised once, where the command is at that moment, by Ctrl-C, SIGTERM or a closed terminal."""


class Signals:
    """Turns the first signal into Stopped. Later ones change nothing: the way out is short, and must be gone to its end."""

    def __init__(self) -> None:
        self._heeded = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._heed)

    def ignore(self) -> None:
        """From now on the command is on its way out."""
        self._heeded = True

    def _heed(self, _number: int, _frame: FrameType | None) -> None:
        if not self._heeded:
            self._heeded = True
            raise Stopped
