"""`metacortex upgrade`: brings the documents of MetaCortex 0.3 to today's schema."""

import asyncio
import json
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from metacortex import bootstrap
from metacortex.errors import MetaCortexError
from metacortex.settings import Settings
from metacortex.spaces import Space
from ops.model_settings import model_settings, read_checkout
from ops.place import CollectionOption, ProjectOption, place_of
from ops.processes import OpsError
from ops.terminal import say, show
from ops.upgrade_report import Plan, Report

if TYPE_CHECKING:
    from metacortex.ports import Embedder

PLAIN = "plain"
GO_ON = "Whatever was written is whole: run the same command again, and it goes on."


def upgrade(  # noqa: PLR0913 - the options of a command
    *,
    space: Annotated[
        str,
        typer.Option(
            metavar="MODEL@DIMENSIONS/plain", help="The embedding model and the size that 0.3 was configured for."
        ),
    ],
    project: ProjectOption = None,
    collection: CollectionOption = Settings.memory_collection,
    write: Annotated[bool, typer.Option("--write", help="Write. Without this, only tell what would be written.")] = (
        False
    ),
    verify: Annotated[
        bool, typer.Option("--verify", help="Also embed a few short memories again, and compare with what is stored.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object at the end, and nothing else.")
    ] = False,
) -> None:
    """Bring what MetaCortex 0.3 stored to today's schema. Without --write this is a dry run.

    0.3 did not store which model made its vectors, so you say it: the command looks at a sample of them, refuses any
    other size, and names the space for the collection. From then on the service saves and searches in it. The name of
    the model is taken from you; --verify compares, by the route to models that this checkout configures for the
    project.

    Every memory gets what it lacks: embedding_space, summary, the origin legacy_import, the modality mixed for
    text_image; and, where they are missing, the topic general, the state active and the time at which it was stored.
    Fingerprints and events get the Timestamp by which Firestore deletes them, events 90 days after they happened.
    Everything else in a document stays.

    The service may run meanwhile: a document that it changes is read again, never overwritten. The command can be
    stopped at any time and repeated. The exit status is 0 if it did its work or there is none, 1 if it was refused or
    failed, and 2 if the command or a setting is wrong.

    Example, in production, with your own identity:

    \b
    gcloud auth application-default login
    ./scripts/metacortex upgrade --space gemini-embedding-001@768/plain --project PROJECT
    ./scripts/metacortex upgrade --space gemini-embedding-001@768/plain --project PROJECT --write
    """
    plan = Plan(where=place_of(project, collection), space=_space(space), write=write)
    embedder = _embedder(plan) if verify else None
    report = Report(plan)
    _run(report, embedder, quiet=as_json)
    if as_json:
        show([json.dumps(report.as_json(), ensure_ascii=False)])
    elif report.error:
        say(report.error)
    else:
        show(report.lines())
    raise typer.Exit(0 if report.ok else 1)


def _space(space_id: str) -> Space:
    space = Space.parse(space_id)
    if space is None:
        raise typer.BadParameter(
            f"{space_id!r} is not MODEL@DIMENSIONS/{PLAIN}, such as gemini-embedding-001@768/{PLAIN}.",
            param_hint="--space",
        )
    if space.text_format != PLAIN:
        raise typer.BadParameter(
            f"MetaCortex 0.3 gave its models bare text, so that its spaces end in /{PLAIN}, not in /{space.text_format}.",
            param_hint="--space",
        )
    return space


def _embedder(plan: Plan) -> "Embedder":
    """The space's own model, by the configured route."""
    try:
        settings = model_settings(
            read_checkout(plan.where.project),
            GEMINI_EMBEDDING_MODEL=plan.space.model,
            GEMINI_EMBEDDING_DIMENSIONS=str(plan.space.dimensions),
        )
    except OpsError as error:
        _refuse(str(error))
    embedder = bootstrap.models(settings, plan.where.project).embedder
    if (embedder.space.model, embedder.space.dimensions) != (plan.space.model, plan.space.dimensions):
        _refuse(
            f"MODEL_PROVIDER is {settings.provider}, and its model {embedder.space.model} is not that of --space;"
            " configure the route that has it, or leave out --verify."
        )
    return embedder


def _refuse(sentence: str) -> NoReturn:
    say(sentence)
    raise typer.Exit(2)


def _run(report: Report, embedder: "Embedder | None", *, quiet: bool) -> None:
    # Firestore's client takes a second to import: not for the other commands, nor for a usage error.
    from ops.progress import progress  # noqa: PLC0415
    from ops.store_faults import told  # noqa: PLC0415
    from ops.upgrade_run import run  # noqa: PLC0415

    try:
        with progress(quiet=quiet) as tell:
            asyncio.run(run(report, embedder, tell))
    except OpsError as error:
        report.error = str(error)
    except MetaCortexError as error:
        report.error = f"{told(error, report.plan.where.project)} {GO_ON}"
    except KeyboardInterrupt:
        report.error = f"Stopped. {GO_ON}"
