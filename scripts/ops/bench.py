"""`metacortex bench`: how fast the service is, beside the floor of everything it stands on, all in one run."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metacortex.events import now_ms
from ops.bench_plan import DEFAULT_CALLS, DEFAULT_SIZES, DEFAULT_STARTS, Part, Plan, read_parts, read_sizes
from ops.processes import OpsError
from ops.progress import progress
from ops.terminal import say, show

if TYPE_CHECKING:
    from ops.bench_report import Report


def bench(  # noqa: PLR0913 - the options of a command
    *,
    only: Annotated[
        list[Part] | None, typer.Option("--only", help="Measure this part alone; may be repeated. Default: all.")
    ] = None,
    calls: Annotated[
        int,
        typer.Option(
            "--calls",
            metavar="N",
            min=20,
            max=1_000_000,
            help="Over how many calls memory is watched; each figure of the load is made of a tenth of them, or more.",
        ),
    ] = DEFAULT_CALLS,
    starts: Annotated[
        int, typer.Option("--starts", metavar="N", min=1, max=100, help="How many cold starts count, of each server.")
    ] = DEFAULT_STARTS,
    delay: Annotated[
        int,
        typer.Option(
            "--delay", metavar="MS", min=0, max=5_000, help="What the model takes; not in the burst of saves."
        ),
    ] = 0,
    memories: Annotated[
        str,
        typer.Option("--memories", metavar="LIST", help="Over how many memories the growth of a search is measured."),
    ] = DEFAULT_SIZES,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else.")] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", dir_okay=False, help="Write a page with charts.")
    ] = None,
) -> None:
    """Measure the service on this machine, with an emulator, a stand-in for the model and a function of its own.

    cold: from the start of the process to the first answers. load: each call by 1, 8 and 32 callers, beside the bare calls of
    Firestore and of the model. burst: 40 saves at once against a slow model. trips: what each call sends. memory: what the
    process holds over many calls. growth: a search over more and more memories.

    All of it takes about five minutes. The exit status is 0 if every target is met, 1 if one is missed or the run failed,
    and 2 if the command is wrong.

    Example:

    \b
    ./scripts/metacortex bench
    ./scripts/metacortex bench --only cold --starts 20
    ./scripts/metacortex bench --only memory --calls 20000 --json
    """
    plan = Plan(parts=read_parts(only), calls=calls, starts=starts, delay_ms=delay, sizes=read_sizes(memories))
    try:
        if html:
            _require_folder_of(html)
        report = _measure(plan, quiet=as_json)
        if html:
            _write(html, report)
    except OpsError as error:
        say(str(error))
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        say("Stopped; what was measured is dropped, and every server is gone.")
        raise typer.Exit(1) from None
    _tell(report, as_json=as_json)


def _measure(plan: Plan, *, quiet: bool) -> "Report":
    # Google's clients take two seconds to import: not for the other commands, nor for a usage error.
    from ops.bench_machine import machine  # noqa: PLC0415
    from ops.bench_report import Report  # noqa: PLC0415
    from ops.bench_run import run  # noqa: PLC0415

    began_at = now_ms()
    with progress(quiet=quiet) as tell:
        return Report(plan=plan, machine=machine(), began_at=began_at, results=run(plan, tell))


def _require_folder_of(path: Path) -> None:
    """Before minutes of work are spent on what then has no place."""
    if not path.parent.is_dir():
        raise OpsError(f"{path} cannot be written: there is no folder {path.parent}.")


def _write(path: Path, report: "Report") -> None:
    from ops.bench_html import to_html  # noqa: PLC0415 - as in _measure

    try:
        path.write_text(to_html(report), encoding="utf-8")
    except OSError as error:
        raise OpsError(f"{path} cannot be written: {error.strerror}.") from None


def _tell(report: "Report", *, as_json: bool) -> None:
    """Show the report, and end with the status it means."""
    from ops.bench_report import to_text  # noqa: PLC0415 - as in _measure

    show([json.dumps(report.as_json(), ensure_ascii=False)] if as_json else to_text(report))
    raise typer.Exit(0 if report.is_well else 1)
