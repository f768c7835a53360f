"""What a benchmark is to measure."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import typer

DEFAULT_CALLS = 2_000
DEFAULT_STARTS = 9
DEFAULT_SIZES = "100,1000,10000"
LARGEST = 100_000
CALLERS = (1, 8, 32)


class Part(StrEnum):
    COLD = "cold"
    LOAD = "load"
    BURST = "burst"
    TRIPS = "trips"
    MEMORY = "memory"
    GROWTH = "growth"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """`delay_ms` is what the model takes; `sizes` are the memories that searches are measured over, ascending."""

    parts: tuple[Part, ...]
    calls: int
    starts: int
    delay_ms: int
    sizes: tuple[int, ...]

    def calls_a_round(self, callers: int) -> int:
        """How many calls one round of the load makes: at least two by every caller, unless a short run was asked for."""
        return max(self.calls // 40, callers * min(2, max(1, self.calls // 500)))


def read_parts(only: Sequence[Part] | None) -> tuple[Part, ...]:
    """The named parts in their order; all where none is named."""
    return tuple(part for part in Part if not only or part in only)


def read_sizes(text: str) -> tuple[int, ...]:
    """The sizes that --memories lists; raises typer.BadParameter."""
    parts = [part.strip().replace("_", "") for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and 1 <= int(part) <= LARGEST for part in parts):
        raise typer.BadParameter(f"must be numbers from 1 to {LARGEST}, separated by commas.", param_hint="--memories")
    return tuple(sorted({int(part) for part in parts}))
