"""Keeping the emulator's data while it runs and when it stops."""

import time
from datetime import datetime

from ops.emulator import Emulator
from ops.exports import Exports
from ops.function import Function
from ops.processes import OpsError
from ops.terminal import say


class Keeper:
    """Exports what the emulator holds soon after calls of the function, and once more at the end, whatever happened.

    An export of 1,000 memories takes a second and 20 MB, too much for a machine that is idle. What another client of the
    emulator writes is kept with the next call, and at the end.
    """

    def __init__(self, exports: Exports, emulator: Emulator, project: str, every: float) -> None:
        self._exports = exports
        self._emulator = emulator
        self._project = project
        self._every = every
        self._function: Function | None = None
        self._due = 0.0
        self._saved_at = datetime.now().astimezone()
        self._saved_log_size = -1

    def begin(self, function: Function) -> None:
        """From now on there is something to keep: what this function stores."""
        self._function = function
        self._due = time.monotonic() + self._every

    def save_if_due(self) -> None:
        """Export if it is time and there were calls. A failure is told, and tried again when it is next due."""
        if self._function is None or time.monotonic() < self._due:
            return
        try:
            log_size = self._function.log_size()
            if log_size != self._saved_log_size:
                self._save()
                self._saved_log_size = log_size
        except OpsError as error:
            say(f"{error} Trying again in {self._every:.0f} seconds.")
        self._due = time.monotonic() + self._every

    def finish(self) -> None:
        """Export for the last time; raises OpsError, saying what is lost, if that fails."""
        if self._function is None:
            return
        if self._emulator.process.exit_code() is not None:
            raise OpsError(f"What was stored after {self._saved_at:%H:%M:%S} is lost.")
        say("Saving the data ...")
        self._save()

    def _save(self) -> None:
        now = datetime.now().astimezone()
        try:
            self._exports.add(lambda folder: self._emulator.export(self._project, folder))
        except (OpsError, OSError) as error:
            raise OpsError(
                f"The data could not be saved ({error}); saved is that of {self._saved_at:%H:%M:%S}."
            ) from error
        self._saved_at = now
