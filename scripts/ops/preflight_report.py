"""The findings of a preflight: told one by one as they come."""

import functools
import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ParamSpec

from rich.console import Console
from rich.text import Text

from metacortex.errors import MetaCortexError
from ops.processes import OpsError

_P = ParamSpec("_P")


class Status(StrEnum):
    OK = "ok"
    FAILED = "failed"


@dataclass(frozen=True)
class Finding:
    """What one check found, in a sentence or several; of a failure also what to do about it."""

    name: str
    status: Status
    detail: str


def check(
    name: str,
) -> Callable[[Callable[_P, Awaitable[str]]], Callable[_P, Coroutine[Any, Any, Finding]]]:
    """Makes a check of a function that returns what is well, and raises OpsError, OSError or MetaCortexError for what is not."""

    def checked(look: Callable[_P, Awaitable[str]]) -> Callable[_P, Coroutine[Any, Any, Finding]]:
        @functools.wraps(look)
        async def finding(*args: _P.args, **kwargs: _P.kwargs) -> Finding:
            try:
                return Finding(name, Status.OK, _line(await look(*args, **kwargs)))
            except (OpsError, MetaCortexError) as error:
                sentence = str(error)
            except OSError as error:
                sentence = f"{error.filename} cannot be read: {error.strerror}."
            except Exception as error:  # noqa: BLE001 - one check that breaks must not keep the others from being told
                sentence = (
                    f"This check broke ({type(error).__name__}), which is a fault of MetaCortex; please report it."
                )
            return Finding(name, Status.FAILED, _line(sentence))

        return finding

    return checked


def faulty(faults: list[str]) -> None:
    """Raises all that is wrong at once, if anything is."""
    if faults:
        raise OpsError(" ".join(faults))


def to_terminal() -> Callable[[Finding], None]:
    """Tells findings on standard output: in colour at a terminal, plain elsewhere."""
    console = Console(highlight=False, soft_wrap=True)
    plain = "utf" not in (sys.stdout.encoding or "utf-8").lower()
    marks = {
        Status.OK: ("ok " if plain else "✓", "green"),
        Status.FAILED: ("no " if plain else "✗", "bold red"),
    }

    def tell(finding: Finding) -> None:
        console.print(Text.assemble(marks[finding.status], f" {finding.name:<13}  {finding.detail}"))

    return tell


def _line(sentences: str) -> str:
    """On one line: parts of it may come from a program or a file that is not ours."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in sentences).split())
