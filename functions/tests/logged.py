"""What the process logs, as its host would read it."""

import io
import json
import logging
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout
from typing import Any


class Log:
    """The log since the start of the block."""

    def __init__(self) -> None:
        self.out = io.StringIO()

    @property
    def text(self) -> str:
        return self.out.getvalue()

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Its JSON lines."""
        return [json.loads(line) for line in self.text.splitlines()]


@contextmanager
def logged() -> Generator[Log]:
    """Takes standard output, where `logs.configure` sends what is logged, and puts the logging of the tests back afterwards."""
    log = Log()
    root, ours = logging.getLogger(), logging.getLogger("metacortex")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    try:
        with redirect_stdout(log.out):
            yield log
    finally:
        root.handlers[:] = handlers
        root.setLevel(levels[0])
        ours.setLevel(levels[1])
