"""`metacortex mirror`: the whole database in a folder, back from there, and the proof that two copies are equal."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from ops.endpoints import PROJECT
from ops.mirror_report import Backup, Gate, Holder, Report, Restore
from ops.place import EMULATOR, read_project
from ops.processes import OpsError
from ops.progress import Tell, progress
from ops.terminal import say, show

# Firestore's client takes a second to import: the work of a command does it, so that a usage error need not.

app = typer.Typer(
    name="mirror",
    help="Copy a whole Firestore database into a folder, restore it, and prove that two copies are equal.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Work = Callable[[Tell], Coroutine[Any, Any, None]]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the mirror.")]
Project = Annotated[
    str | None,
    typer.Option(
        metavar="ID", help=f"The project that holds the database. Needed, unless {EMULATOR} is set: then {PROJECT}."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object at the end, and nothing else.")]


@app.command()
def backup(
    folder: Folder,
    *,
    project: Project = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a mirror that holds over 10 % more documents, too.")
    ] = False,
    with_sign_in: Annotated[
        bool,
        typer.Option(
            "--with-sign-in", help="Copy what signing in keeps, too: grants, sessions, and digests of tokens."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Copy the default database of a project into a folder.

    Every document of every collection and subcollection is copied with every value as Firestore keeps it, all as of one
    moment. Firestore keeps a moment for an hour: a backup that takes longer ends and says so. A mirror of the same
    project that the folder holds is replaced at the very end; whatever stops this command before leaves it as it was. It
    is not replaced by one with over 10 % fewer documents, apart from events, fingerprints and parts of memories.

    What signing in keeps, which is who was allowed in and digests of what they show, is left out unless you add
    --with-sign-in. The manifest says which it is.

    The times at which documents were made and last changed are Firestore's own and cannot be restored; the mirror notes
    the latter for information.

    It reads with your own identity, and every document costs one read. The exit status is 0 if the mirror is complete,
    1 if the backup failed or was refused, and 2 if the command is wrong.

    Example:

    \b
    gcloud auth application-default login
    ./scripts/metacortex mirror backup DIR --project PROJECT
    """
    report = Backup(read_project(project, "--project"), folder, force, with_sign_in)

    async def work(tell: Tell) -> None:
        from ops.mirror_backup import back_up  # noqa: PLC0415

        await back_up(report, tell)

    _run(report, work, f"A mirror that was in {folder} still is.", as_json=as_json)


@app.command()
def restore(  # noqa: PLR0913 - the options of a command
    folder: Folder,
    *,
    project: Project = None,
    write: Annotated[bool, typer.Option("--write", help="Write. Without this, only tell what would be written.")] = (
        False
    ),
    prune: Annotated[
        bool, typer.Option("--prune", help="Also delete every document that the mirror does not hold.")
    ] = False,
    allow_source: Annotated[
        bool, typer.Option("--allow-source", help="Allow the project that the mirror is of as the target.")
    ] = False,
    with_sign_in: Annotated[
        bool,
        typer.Option("--with-sign-in", help="Restore what signing in keeps, too, from a mirror that was made so."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Make the default database of a project hold what a mirror holds. Without --write this is a dry run.

    Every file of the mirror is compared with its hash, and the database is asked whether it is there, before anything is
    written. Then what the database lacks or has otherwise is written, whole documents at a time; what is equal already is
    left alone. Documents that the mirror does not hold stay, unless --prune deletes them at the end. A reference to a
    document of the mirrored database becomes one to that document in the target.

    What signing in keeps in the target is neither replaced nor deleted, unless you add --with-sign-in: then grants and
    sessions that have ended since the backup come back.

    Stop the service and other writers first. The command can be stopped at any time and repeated, and then goes on. The
    exit status is 0 if it did its work or there is none, 1 if it failed or was refused, and 2 if the command is wrong.

    Example:

    \b
    gcloud auth application-default login
    ./scripts/metacortex mirror restore DIR --project PROJECT
    ./scripts/metacortex mirror restore DIR --project PROJECT --write
    ./scripts/metacortex mirror gate --source DIR --target PROJECT
    """
    target = read_project(project, "--project")
    report = Restore(folder, target, write=write, prune=prune, allow_source=allow_source, sign_in=with_sign_in)

    async def work(tell: Tell) -> None:
        from ops.mirror_restore import restore  # noqa: PLC0415

        await restore(report, tell)

    goes_on = "Whatever was written is whole: run the same command again, and it goes on."
    _run(report, work, goes_on if write else "Nothing was written.", as_json=as_json)


@app.command()
def gate(
    *,
    source: Annotated[str, typer.Option(metavar="PROJECT|DIR", help="What the target should be equal to.")],
    target: Annotated[str, typer.Option(metavar="PROJECT|DIR", help="What should be equal to the source.")],
    report_file: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", help="Also write the JSON object into a file, equal or not."),
    ] = None,
    with_sign_in: Annotated[bool, typer.Option("--with-sign-in", help="Compare what signing in keeps, too.")] = False,
    as_json: Json = False,
) -> None:
    """Prove that two databases, or a mirror and a database, hold the same documents. Changes neither.

    Each side is a project's id or the folder of a mirror; what exists as a folder, or has a slash, is taken for one.
    Documents are compared in every byte, except that a reference to a document of its own database counts as equal to
    the like one of the other. The report has counts and content hashes by collection, and names the first 100 documents
    of each kind: missing in the target, extra in it, and different. What signing in keeps is left out on both sides
    unless you add --with-sign-in.

    A project is read as of one moment, within an hour; every document costs one read. The exit status is 0 only if both
    sides are equal, 1 if they are not or one could not be read, and 2 if the command is wrong.

    Example:

    \b
    ./scripts/metacortex mirror gate --source DIR --target PROJECT --report FILE
    """
    if source == target:
        raise typer.BadParameter("names the same as --source; there is nothing to compare.", param_hint="--target")
    if report_file and not report_file.absolute().parent.is_dir():
        raise typer.BadParameter(f"cannot be written: there is no folder {report_file.parent}.", param_hint="--report")
    report = Gate(_holder(source, "--source"), _holder(target, "--target"), with_sign_in)

    async def work(tell: Tell) -> None:
        from ops.mirror_folder import replace_file, writable  # noqa: PLC0415
        from ops.mirror_gate import compare  # noqa: PLC0415

        await compare(report, tell)
        if report_file:
            with writable(report_file, "The comparison itself came to its end: add --json to see it."):
                replace_file(report_file, _json(report).encode())

    _run(report, work, "Nothing is known about whether the sides are equal.", as_json=as_json)


def _holder(given: str, option: str) -> Holder:
    if "/" in given or Path(given).is_dir():
        return Path(given)
    return read_project(given, option)


def _run(report: Report, work: Work, if_stopped: str, *, as_json: bool) -> NoReturn:
    if not as_json:
        show([report.begin()])
    try:
        with progress(quiet=as_json) as tell:
            asyncio.run(work(tell))
    except OpsError as error:
        report.error = str(error)
    except KeyboardInterrupt:
        report.error = f"Stopped before the end. {if_stopped}"
    if as_json:
        show([_json(report)])
    elif report.error:
        say(report.error)
    else:
        show(report.lines())
    raise typer.Exit(0 if report.ok else 1)


def _json(report: Report) -> str:
    return json.dumps(report.as_json(), ensure_ascii=False)
