"""What a command on archives tells: to a person as it goes, or as one JSON object at its end."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import typer

from metacortex.errors import MetaCortexError
from ops.processes import OpsError
from ops.progress import Tell, progress
from ops.store_faults import told
from ops.terminal import say, show


@dataclass
class Report:
    """What is told of one command, which its work fills as it goes."""

    heading: str
    """The first line: what the command is about."""
    afterwards: str
    """How things stand if the work ends early, as a sentence."""
    facts: dict[str, Any]
    lines: list[str] = field(default_factory=list[str])
    error: str | None = None

    def add(self, name: str, text: str) -> None:
        self.lines.append(f"  {name:<9}  {text}")


def run(report: Report, work: Callable[[Tell], None], *, as_json: bool) -> NoReturn:
    """Does the work, tells the report, and ends the command."""
    if not as_json:
        show([report.heading])
    try:
        with progress(quiet=as_json) as tell:
            work(tell)
    except OpsError as error:
        report.error = str(error)
    except MetaCortexError as error:
        report.error = f"{told(error, report.facts['project'])} {report.afterwards}"
    except KeyboardInterrupt:
        report.error = f"Stopped. {report.afterwards}"
    if as_json:
        answer = {"ok": report.error is None, **report.facts, "error": report.error}
        show([json.dumps(answer, ensure_ascii=False)])
    else:
        show(report.lines)
        if report.error:
            say(report.error)
    raise typer.Exit(1 if report.error else 0)
