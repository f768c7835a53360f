"""The steps of a smoke run: told one by one as they end, and kept."""

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from rich.console import Console
from rich.text import Text

from ops.smoke_faults import Failed, told
from ops.smoke_plan import Plan

LONGEST_SENTENCE = 600
SHORTEST_SECRET = 8


class Status(StrEnum):
    OK = "ok"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Step:
    """One step and how it ended."""

    name: str
    status: Status
    latency_ms: float
    detail: str


@dataclass(frozen=True)
class _Begun:
    name: str
    at: float


class Report:
    """What a run did. `tell` is called with each step as it ends."""

    def __init__(self, plan: Plan, tell: Callable[[Step], None]) -> None:
        self.plan = plan
        self.steps: list[Step] = []
        self.saved_id: str | None = None
        self.saved_state: str | None = None
        self.retired = False
        self._tell = tell
        self._begun: _Begun | None = None

    @property
    def error(self) -> str | None:
        """The sentence of the first step that failed."""
        return next((step.detail for step in self.steps if step.status is Status.FAILED), None)

    @contextmanager
    def step(self, name: str) -> Generator[Callable[[str], None]]:
        """One step, timed. The block calls what it gets with what there is to say; raises Failed where the block fails.

        A block that is cancelled, as the end of its connection does, leaves its step open for `fail`.
        """
        self._begun = _Begun(name, time.perf_counter())
        said: list[str] = []
        try:
            yield said.append
        except Exception as error:
            sentence = told(error, self.plan)
            if sentence is None:
                raise
            self.fail(sentence)
            raise Failed(sentence) from error
        self._end(Status.OK, " ".join(said))

    def fail(self, sentence: str) -> None:
        """The open step failed. Without one, the run did after its last step, unless that is told already."""
        if self._begun is None and self.error is None:
            self._begun = _Begun("close", time.perf_counter())
        if self._begun is not None:
            self._end(Status.FAILED, sentence)

    def skip(self, name: str, sentence: str) -> None:
        self._add(Step(name, Status.SKIPPED, 0, self._cleaned(sentence)))

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": self.error is None,
            "mode": self.plan.mode,
            "endpoint": self.plan.endpoint.url,
            "topic": self.plan.topic,
            "saved_id": self.saved_id,
            "saved_state": self.saved_state,
            "retired": self.retired,
            "error": self.error,
            "steps": [asdict(step) for step in self.steps],
        }

    def _end(self, status: Status, sentence: str) -> None:
        begun, self._begun = self._begun, None
        assert begun is not None
        latency_ms = round((time.perf_counter() - begun.at) * 1000, 1)
        self._add(Step(begun.name, status, latency_ms, self._cleaned(sentence)))

    def _add(self, step: Step) -> None:
        self.steps.append(step)
        self._tell(step)

    def _cleaned(self, sentence: str) -> str:
        """On one line and without the token: parts of it may come from a server that is not ours."""
        line = " ".join("".join(letter if letter.isprintable() else " " for letter in sentence).split())
        if len(self.plan.token) >= SHORTEST_SECRET:
            line = line.replace(self.plan.token, "(the token)")
        return line if len(line) <= LONGEST_SENTENCE else line[: LONGEST_SENTENCE - 3] + "..."


def to_terminal() -> Callable[[Step], None]:
    """Tells steps on standard output: in colour at a terminal, plain elsewhere."""
    console = Console(highlight=False, soft_wrap=True)
    plain = "utf" not in (sys.stdout.encoding or "utf-8").lower()
    marks = {
        Status.OK: ("ok " if plain else "✓", "green"),
        Status.FAILED: ("no " if plain else "✗", "bold red"),
        Status.SKIPPED: ("-- " if plain else "–", "yellow"),
    }

    def tell(step: Step) -> None:
        took = "" if step.status is Status.SKIPPED else f"{step.latency_ms:.0f} ms"
        console.print(Text.assemble(marks[step.status], f" {step.name:<9} {took:>8}  {step.detail}"))

    return tell
