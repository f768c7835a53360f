"""`metacortex eval`: whether the right memories come back, as figures that anyone can repeat."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, TypeVar

import typer

from metacortex.errors import MetaCortexError
from metacortex.events import now_ms
from metacortex.rules import SEARCH_RESULTS
from metacortex.settings import RetrievalMode
from ops.emulator import running_emulator
from ops.eval_plan import Half, Model, Partition, Plan, read_plan
from ops.place import EMULATOR, ProjectOption, connect, read_project
from ops.processes import OpsError
from ops.progress import Tell, progress
from ops.smoke_plan import Mode as EndpointMode
from ops.smoke_plan import Plan as Connection
from ops.smoke_plan import read_endpoint, read_token
from ops.terminal import say, show

if TYPE_CHECKING:
    from google.cloud.firestore_v1.async_client import AsyncClient

    from ops.eval_baseline import Baseline
    from ops.eval_pack import Pack
    from ops.eval_report import Report
    from ops.eval_run import Result

# Firestore's client takes a second to import, pydantic and the MCP SDK as long: not for the other commands, nor for a usage
# error. So what works with them is imported where it is used.
# ruff: noqa: PLC0415

R = TypeVar("R")

DEFAULT_SEED = 1
HOUR_MS = 60 * 60 * 1000

app = typer.Typer(no_args_is_help=True, help="Measure whether searches find the right memories.")
pack_app = typer.Typer(no_args_is_help=True, help="Make packs: memories and questions in one file.")
app.add_typer(pack_app, name="pack")

UseModel = Annotated[
    Model, typer.Option("--model", help="Which model embeds: that of the settings, or one on this machine.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="The same seed makes the same corpus.")]
Out = Annotated[Path, typer.Option("--out", metavar="PACK.json", dir_okay=False, help="The file to write.")]
PackFile = Annotated[Path, typer.Argument(metavar="PACK.json", exists=True, dir_okay=False, help="The pack to load.")]


@app.command()
def generate(*, seed: Seed = DEFAULT_SEED, model: UseModel = Model.CONFIGURED, project: ProjectOption = None) -> None:
    """Fill the isolated collection with a synthetic corpus, and make its questions the isolated cases.

    The collection is RETRIEVAL_EVAL_MEMORY_COLLECTION. It is emptied first; one that holds memories which no evaluation
    wrote is refused. The exit status is 0 if it is filled, 1 if that was refused or failed, and 2 if the command is wrong.

    Example:

    \b
    ./scripts/metacortex eval generate --project PROJECT
    """
    from ops.eval_generate import synthetic

    _load(synthetic(seed), read_project(project), model)


@app.command()
def load(pack: PackFile, *, model: UseModel = Model.CONFIGURED, project: ProjectOption = None) -> None:
    """Fill the isolated collection with the memories of a pack, and make its questions the isolated cases.

    What is refused, and the exit status, are those of `eval generate`. docs/EVALUATION.md shows what a pack looks like.

    Example:

    \b
    ./scripts/metacortex eval load PACK.json --project PROJECT
    """
    with _refusals():
        loaded = _read_pack(pack)
    _load(loaded, read_project(project), model)


@pack_app.command("synthetic")
def pack_synthetic(*, out: Out, seed: Seed = DEFAULT_SEED) -> None:
    """Write the corpus of `eval generate` as a pack.

    Example:

    \b
    ./scripts/metacortex eval pack synthetic --out synthetic.json
    """
    from ops.eval_generate import synthetic

    _write_pack(synthetic(seed), out)


@pack_app.command("locomo")
def pack_locomo(
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="LoCoMo's locomo10.json.")],
    *,
    out: Out,
    conversations: Annotated[
        int | None,
        typer.Option("--conversations", metavar="N", min=1, help="Only the first N conversations. Default: all."),
    ] = None,
) -> None:
    """Make a pack of LoCoMo, long conversations and questions about them.

    FILE is data/locomo10.json of https://github.com/snap-research/locomo. Its licence, CC BY-NC 4.0, allows measuring, but
    not every other use. Every turn becomes a memory, every question that has an answer becomes a case.

    Example:

    \b
    ./scripts/metacortex eval pack locomo locomo10.json --conversations 3 --out locomo-3.json
    """
    from ops.eval_locomo import read_locomo

    with _refusals():
        made = read_locomo(file, conversations)
    _write_pack(made, out)


@app.command("import")
def import_cases(
    *,
    lookback_hours: Annotated[
        float, typer.Option("--lookback-hours", metavar="N", min=0.1, help="How far to look back.")
    ],
    anew: Annotated[bool, typer.Option("--anew", help="Drop the production cases there are.")] = False,
    project: ProjectOption = None,
) -> None:
    """Make production cases of what clients searched for and then fetched.

    The service records that while RETRIEVAL_EVENT_LOGGING_ENABLED is true. Each fetch belongs to the most recent search of
    the same client, at most 30 minutes before, that found what was fetched; that memory is then right for that search, with
    its filters. New cases join those there are; repeating an import changes nothing. The exit status is 0 if it is done,
    1 if it was refused or failed, and 2 if the command is wrong.

    Example:

    \b
    ./scripts/metacortex eval import --lookback-hours 168 --project PROJECT
    """
    from ops.eval_import import Window
    from ops.eval_import import import_cases as read_events

    project = read_project(project)
    now = now_ms()
    with _refusals():
        collection = read_plan(project, Model.LOCAL, None).live_collection
        window = Window(collection=collection, since=now - round(lookback_hours * HOUR_MS), now=now)
        found = _database(project, lambda client, tell: read_events(client, window, tell, anew=anew))
    show(
        [
            f"{found.events:,} events hold {found.fetches:,} fetches that a search led to.",
            f"There are {found.cases:,} production cases now, {found.fresh:,} of them new.",
        ]
    )


@app.command()
def run(  # noqa: PLR0913 - the options of a command
    *,
    mode: Annotated[Partition, typer.Option("--mode", help="Whose cases to ask, and where.")] = Partition.ISOLATED,
    pack: Annotated[
        Path | None,
        typer.Option("--pack", metavar="PACK.json", exists=True, dir_okay=False, help="Load this pack first."),
    ] = None,
    model: UseModel = Model.CONFIGURED,
    retrieval: Annotated[
        RetrievalMode | None, typer.Option("--retrieval", help="How to search, in place of RETRIEVAL_MODE.")
    ] = None,
    cutoffs: Annotated[str, typer.Option("--cutoffs", metavar="LIST", help="The k of hit@k and recall@k.")] = "1,5,10",
    half: Annotated[Half, typer.Option("--half", help="Which cases: tune on one half, judge by the other.")] = Half.ALL,
    url: Annotated[
        str | None,
        typer.Option(
            envvar="MCP_BASE_URL",
            metavar="URL",
            help="In production: the function's base URL, or the full URL of one endpoint, ending in /mcp.",
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(metavar="TOKEN", help="The endpoint's token. Better in the environment, as MCP_ADMIN_TOKEN."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="In production: how long one answer may take.")
    ] = 30.0,
    project: ProjectOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else.")] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", dir_okay=False, help="Write a page with charts.")
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option("--baseline", metavar="FILE", exists=True, dir_okay=False, help="What --json printed before."),
    ] = None,
) -> None:
    """Ask every case, and tell how often and where the right memories were among the results.

    Isolated cases are asked of the service in this process, over the isolated collection; with --pack and neither
    --project nor an emulator, an emulator is started for this run. Production cases are read from the project, and asked of
    the running service at --url, as its clients ask.

    The exit status is 0 if every case was answered and none is worse than in the baseline, 1 if the run was refused or a
    case failed, and 2 if the command is wrong or a case is worse.

    Example, on this machine, without an account:

    \b
    ./scripts/metacortex eval pack synthetic --out synthetic.json
    ./scripts/metacortex eval run --pack synthetic.json --model local --json > before.json
    ./scripts/metacortex eval run --pack synthetic.json --model local --baseline before.json

    Example, in production:

    \b
    export MCP_ADMIN_TOKEN=...
    ./scripts/metacortex eval run --mode production --project PROJECT \\
        --url https://us-central1-PROJECT.cloudfunctions.net/metaCortexMcp
    """
    wanted = _cutoffs(cutoffs)
    began_at = now_ms()
    with _refusals(as_json=as_json), ExitStack() as stack:
        earlier = _read_baseline(baseline)
        if mode is Partition.PRODUCTION:
            _require_unset(mode, pack=pack, retrieval=retrieval)
            connection = _connection(url, token, timeout)
            searched = {"service": connection.endpoint.url}
            result = _ask_service(read_project(project), connection, half, max(wanted), quiet=as_json)
        else:
            loaded = _read_pack(pack) if pack else None
            if loaded and not project and not os.environ.get(EMULATOR):
                stack.enter_context(_own_emulator())
            plan = read_plan(read_project(project), model, retrieval)
            searched = {"retrieval": plan.settings.retrieval_mode, "model": plan.models.embedder.space.id}
            result = _ask_in_process(plan, loaded, half, max(wanted), quiet=as_json)
        report = _report(mode, half, wanted, began_at, searched, result, earlier)
    _tell(report, as_json=as_json, html=html)


def _tell(report: "Report", *, as_json: bool, html: Path | None) -> NoReturn:
    """Show the report, and end with the status it means."""
    from ops.eval_html import to_html
    from ops.eval_report import show_report

    if html:
        with _refusals(as_json=as_json):
            _write(html, to_html(report))
    if as_json:
        show([json.dumps(report.as_json(), ensure_ascii=False)])
    else:
        show_report(report)
    if report.is_worse:
        raise typer.Exit(2)
    raise typer.Exit(0 if report.is_well else 1)


def _report(  # noqa: PLR0913, PLR0917 - everything that the figures depend on
    mode: Partition,
    half: Half,
    cutoffs: tuple[int, ...],
    began_at: int,
    searched: dict[str, str],
    result: "Result",
    baseline: "Baseline | None",
) -> "Report":
    from ops.eval_baseline import compare
    from ops.eval_report import Report

    return Report(
        mode=mode,
        half=half,
        cutoffs=cutoffs,
        began_at=began_at,
        searched=searched,
        result=result,
        comparison=compare(result.asked, max(cutoffs), baseline) if baseline else None,
    )


# --- What the options say ---


def _cutoffs(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and 1 <= int(part) <= SEARCH_RESULTS for part in parts):
        raise typer.BadParameter(
            f"must be numbers from 1 to {SEARCH_RESULTS}, separated by commas.", param_hint="--cutoffs"
        )
    return tuple(sorted({int(part) for part in parts}))


def _require_unset(mode: Partition, **options: object) -> None:
    for name, value in options.items():
        if value is not None:
            raise typer.BadParameter(f"has no place in --mode {mode}; leave it out.", param_hint=f"--{name}")


def _connection(url: str | None, token: str | None, timeout: float) -> Connection:
    if url is None:
        raise typer.BadParameter("is needed, or MCP_BASE_URL in the environment.", param_hint="--url")
    # The full URL of an endpoint may be a client's own; a base URL means the admin endpoint.
    mode = EndpointMode.SEARCH if url.rstrip("/ ").endswith("/mcp") else EndpointMode.ADMIN
    return Connection(
        mode=mode,
        endpoint=read_endpoint(url, mode, None),
        token=read_token(token, EndpointMode.ADMIN, os.environ),
        topic="",
        origin=None,
        image=None,
        artifact_refs=(),
        timeout=timeout,
    )


def _read_pack(path: Path) -> "Pack":
    from ops.eval_pack import read_pack

    return read_pack(path)


def _read_baseline(path: Path | None) -> "Baseline | None":
    from ops.eval_baseline import read_baseline

    return read_baseline(path) if path else None


def _write_pack(pack: "Pack", out: Path) -> None:
    with _refusals():
        _write(out, f"{pack.to_json()}\n")
    show([f"{out} has {len(pack.memories):,} memories and {len(pack.cases):,} cases."])


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OpsError(f"{path} cannot be written: {error.strerror}.") from None


# --- The work ---


def _load(pack: "Pack", project: str, model: Model) -> None:
    from ops.eval_load import load as fill

    with _refusals():
        plan = read_plan(project, model, None)
        _database(project, lambda client, tell: fill(plan, client, pack, tell))
    place = f"{plan.settings.memory_collection} in {project}"
    show(
        [
            f"{place} holds the {len(pack.memories):,} memories of {pack.name}, and {len(pack.cases):,} cases ask for them."
        ]
    )


def _ask_in_process(plan: Plan, pack: "Pack | None", half: Half, limit: int, *, quiet: bool) -> "Result":
    from ops.eval_load import load as fill
    from ops.eval_run import run_isolated

    async def work(client: "AsyncClient", tell: Tell) -> "Result":
        if pack:
            await fill(plan, client, pack, tell)
        return await run_isolated(plan, client, half, limit, tell)

    return _database(plan.project, work, quiet=quiet)


def _ask_service(project: str, connection: Connection, half: Half, limit: int, *, quiet: bool) -> "Result":
    from ops.eval_run import run_production

    return _database(project, lambda client, tell: run_production(client, connection, half, limit, tell), quiet=quiet)


def _database(project: str, work: "Callable[[AsyncClient, Tell], Awaitable[R]]", *, quiet: bool = False) -> R:
    """What comes of work with a database, its progress told on standard error."""

    from ops.store_faults import told

    async def connected(tell: Tell) -> R:
        try:
            return await work(connect(project), tell)
        except MetaCortexError as error:
            raise OpsError(told(error, project)) from error

    with progress(quiet=quiet) as tell:
        return asyncio.run(connected(tell))


@contextmanager
def _own_emulator() -> Generator[None]:
    """An emulator for this run alone, which Firestore's client finds by the environment."""
    with running_emulator() as emulator:
        os.environ[EMULATOR] = emulator.host
        try:
            yield
        finally:
            del os.environ[EMULATOR]


@contextmanager
def _refusals(*, as_json: bool = False) -> Generator[None]:
    """What stops a command is told as it is, and the exit status is 1."""
    try:
        yield
    except OpsError as error:
        sentence = str(error)
    except MetaCortexError as error:
        sentence = error.message
    except KeyboardInterrupt:
        sentence = "Stopped before the end; run the same command again."
    else:
        return
    if as_json:
        show([json.dumps({"ok": False, "error": sentence}, ensure_ascii=False)])
    else:
        say(sentence)
    raise typer.Exit(1)
