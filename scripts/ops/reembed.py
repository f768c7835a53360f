"""`metacortex reembed`: moves a collection of memories to another embedding space."""

import asyncio
import json
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from metacortex import bootstrap
from metacortex.errors import MetaCortexError
from metacortex.settings import ModelProvider, Settings
from metacortex.spaces import Space
from ops.model_settings import model_settings, read_checkout
from ops.place import CollectionOption, Place, ProjectOption, place_of
from ops.processes import OpsError
from ops.reembed_report import Action, Plan, Report
from ops.terminal import say, show

if TYPE_CHECKING:
    from metacortex.ports import Embedder

MODEL, DIMENSIONS = "GEMINI_EMBEDDING_MODEL", "GEMINI_EMBEDDING_DIMENSIONS"
# How long a service goes on with the spaces that it knows, and how long the platform lets a call run (functions/main.py).
SETTLE = 30 + 300
GO_ON = "Whatever was written is whole: run the same command again, and it goes on."


def reembed(  # noqa: PLR0913 - the options of a command
    action: Annotated[Action, typer.Argument(help="The step to take.", show_default=True)] = Action.FILL,
    *,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL@DIMENSIONS[/FORMAT]",
            help="fill: the space to move to. Default: the model and size that this checkout configures for the project.",
        ),
    ] = None,
    project: ProjectOption = None,
    collection: CollectionOption = Settings.memory_collection,
    write: Annotated[bool, typer.Option("--write", help="Write. Without this, only tell what would be written.")] = (
        False
    ),
    per_minute: Annotated[
        int | None, typer.Option(min=1, metavar="TEXTS", help="Give the model at most so many texts a minute.")
    ] = None,
    price: Annotated[
        float | None,
        typer.Option(min=0, metavar="DOLLARS", help="What a million tokens cost, where it is not known here."),
    ] = None,
    settle: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="finish, abandon: how long a call that began before may still run; 0 where no service runs.",
        ),
    ] = SETTLE,
    incomplete: Annotated[
        bool,
        typer.Option(
            "--incomplete", help="Go on without memories whose texts or vectors the model or the store refuses."
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object at the end, and nothing else.")
    ] = False,
) -> None:
    """Move the memories to another embedding model, size or text format, while the service goes on. Without --write this
    is a dry run that counts, and tells what the model would cost.

    fill gives every memory and the parts of long ones a second vector, beside the first. The service goes on in the old
    space, and saves go there alone. switch then lets the collection name both spaces, once nearly every memory has its
    second vector and the indexes are there; now a service works that is configured for either. Deploy yours with the new
    model, and finish: that catches up with what was saved meanwhile, ends the old space and deletes its vectors. A
    service that is still configured for the old one is refused from then on. abandon undoes it all at any time before
    finish --write, and catches up with what was saved in the new space alone.

    Between switch and the end a save goes into the space of the service that makes it, and a search finds what has a
    vector in its own. Vectors of two spaces are never compared.

    The models are reached as this checkout configures them for the project: in functions/.env, the file of the project
    beside it, functions/.secret.local and the environment. The command can be stopped at any time and repeated. The exit
    status is 0 if it did its work or there is none, 1 if it was refused or failed, and 2 if the command or a setting is
    wrong.

    Example, in production, with your own identity:

    \b
    gcloud auth application-default login
    ./scripts/metacortex reembed --to gemini-embedding-2@1536 --project PROJECT
    ./scripts/metacortex reembed --to gemini-embedding-2@1536 --project PROJECT --write
    ./scripts/metacortex reembed switch --project PROJECT --write
    ./scripts/metacortex reembed finish --project PROJECT --write
    """
    where = place_of(project, collection)
    _require_meant(action, to)
    try:
        embedder = _configured(to, where).embedder if action is Action.FILL else None
    except OpsError as error:
        _refuse(str(error))
    plan = Plan(
        place=where,
        action=action,
        write=write,
        to=_space(to, embedder) if embedder else None,
        per_minute=per_minute,
        settle=settle,
        incomplete=incomplete,
        price=price,
    )
    report = Report(plan)
    _run(report, quiet=as_json)
    if as_json:
        show([json.dumps(report.as_json(), ensure_ascii=False)])
    elif report.error:
        say(report.error)
    else:
        show(report.lines())
    raise typer.Exit(0 if report.ok else 1)


def _require_meant(action: Action, to: str | None) -> None:
    if to is not None and action is not Action.FILL:
        raise typer.BadParameter(
            f"is for fill alone; {action} goes on with the move that is under way.", param_hint="--to"
        )


def _configured(to: str | None, where: Place) -> bootstrap.Models:
    """The models of --to, or else those that this checkout configures. Raises OpsError where there are none."""
    if to is None:
        return _models(None, where)
    space = Space.parse(to if "/" in to else f"{to}/any")
    if space is None:
        raise typer.BadParameter(
            f"{to!r} is not MODEL@DIMENSIONS or MODEL@DIMENSIONS/FORMAT, such as gemini-embedding-2@1536.",
            param_hint="--to",
        )
    return _models(space, where)


def _space(to: str | None, embedder: "Embedder") -> Space:
    """The space to move to: in the format that --to names, else in the model's best."""
    best = embedder.space
    text_format = to.partition("/")[2] if to else ""
    if text_format and text_format not in embedder.known_formats:
        raise typer.BadParameter(
            f"names the format {text_format}, and {best.model} has {', '.join(embedder.known_formats)}.",
            param_hint="--to",
        )
    return Space(best.model, best.dimensions, text_format or best.text_format)


def _models(space: Space | None, where: Place) -> bootstrap.Models:
    """The models of a space, by the route that this checkout configures; raises OpsError where that does not have it."""
    # Its module is light; the weights load with the first text.
    from metacortex.adapters.local_models import LocalEmbedder  # noqa: PLC0415

    ours: dict[str, str] = {}
    if space and space.model == LocalEmbedder.space.model:
        ours = {"MODEL_PROVIDER": ModelProvider.LOCAL}
    elif space:
        ours = {MODEL: space.model, DIMENSIONS: str(space.dimensions)}
    settings = model_settings(read_checkout(where.project), **ours)
    chosen = bootstrap.models(settings, where.project)
    found = chosen.embedder.space
    if space and (found.model, found.dimensions) != (space.model, space.dimensions):
        raise OpsError(
            f"MODEL_PROVIDER is {settings.provider}, whose model is {found.model}@{found.dimensions}; configure the route that"
            f" has {space.model}@{space.dimensions}."
        )
    return chosen


def _refuse(sentence: str) -> NoReturn:
    say(sentence)
    raise typer.Exit(2)


def _run(report: Report, *, quiet: bool) -> None:
    # Firestore's client takes a second to import: not for the other commands, nor for a usage error.
    from ops.progress import progress  # noqa: PLC0415
    from ops.reembed_run import run  # noqa: PLC0415
    from ops.store_faults import told  # noqa: PLC0415

    where = report.plan.place
    try:
        with progress(quiet=quiet) as tell:
            asyncio.run(run(report, lambda space: _models(space, where), tell))
    except OpsError as error:
        report.error = str(error)
    except MetaCortexError as error:
        report.error = f"{told(error, where.project)} {GO_ON}"
    except KeyboardInterrupt:
        report.error = f"Stopped. {GO_ON}"
