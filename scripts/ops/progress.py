"""How far a long piece of work is, on standard error: a bar at a terminal, elsewhere a line every two seconds."""

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from ops.terminal import say

SECONDS = 2.0

Tell = Callable[[str, int, int | None], None]
"""Told what the work is, how many documents are done, and of how many, where that is known."""


@contextmanager
def progress(*, quiet: bool) -> Generator[Tell]:
    """What to tell of the progress; a quiet one tells nobody."""
    if quiet:
        yield lambda *_: None
    elif sys.stderr.isatty():
        with _bars() as tell:
            yield tell
    else:
        yield lines()


def lines(clock: Callable[[], float] = time.monotonic) -> Tell:
    """Tells a line when two seconds have passed since the last one, or since the begin."""
    told_at = clock()

    def tell(work: str, done: int, total: int | None) -> None:
        nonlocal told_at
        if clock() - told_at < SECONDS:
            return
        told_at = clock()
        say(f"{work}: {done:,}" if total is None else f"{work}: {done:,} of {total:,}")

    return tell


@contextmanager
def _bars() -> Generator[Tell]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def tell(work: str, done: int, total: int | None) -> None:
            if work not in tasks:
                tasks[work] = bars.add_task(work, total=total)
            bars.update(tasks[work], completed=done)

        yield tell
