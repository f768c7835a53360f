"""Telling the person at the terminal; that the terminal may be gone stops nothing."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO


def say(sentence: str) -> None:
    """What a command is doing, or what went wrong: on standard error, beside what the command prints."""
    write(f"{sentence}\n", sys.stderr)


def show(lines: Iterable[str]) -> None:
    """A command's own output."""
    write("".join(f"{line}\n" for line in lines), sys.stdout)


def heading(text: str) -> str:
    """Bold where that can be seen."""
    return f"\033[1m{text}\033[0m" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text


def write(text: str, stream: TextIO) -> None:
    """Write at once. If nobody reads any more, this and everything later goes nowhere."""
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


class LogFollower:
    """Reads on in a log file that another process writes."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._position = log.stat().st_size

    def news(self) -> str:
        """The whole lines written since the last time."""
        with self._log.open("rb") as file:
            file.seek(self._position)
            written = file.read()
        whole = written[: written.rfind(b"\n") + 1]
        self._position += len(whole)
        return whole.decode(errors="replace")
