"""`metacortex archive`: memories as plain files, and back."""

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from metacortex import bootstrap
from metacortex.settings import Settings
from ops.model_settings import model_settings, read_checkout
from ops.place import CollectionOption, Place, ProjectOption, place_of
from ops.processes import OpsError
from ops.terminal import say

if TYPE_CHECKING:
    from ops.archive_folder import Manifest
    from ops.archive_report import Report
    from ops.archive_restore import Restored
    from ops.progress import Tell

# Firestore's client, pydantic and the bars of progress take a second to import: not for the other commands, nor for a usage
# error. So what works with them is imported where it is used.
# ruff: noqa: PLC0415

SHOWN_IDS = 10

app = typer.Typer(no_args_is_help=True, help="Memories as plain files: write an archive, check it, restore it.")

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object at the end, and nothing else.")]
ExistingFolder = Annotated[
    Path, typer.Argument(metavar="DIR", exists=True, file_okay=False, help="The folder of the archive.")
]


# --- Export ---


@app.command()
def export(  # noqa: PLR0913 - the options of a command
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", file_okay=False, help="The folder to write to; it is made if need be.")
    ],
    *,
    project: ProjectOption = None,
    collection: CollectionOption = Settings.memory_collection,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a larger archive too, and one of another place.")
    ] = False,
    commit: Annotated[
        bool, typer.Option("--commit", help="Then commit the archive in the git repository that DIR lies in.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write every memory of a collection, as it is at this moment, to DIR.

    DIR gets memories.jsonl, one memory a line, and manifest.json, which says what that is. Vectors and all else that is
    made from a memory's text are left out: a restoring makes them anew. The same memories give the same memories.jsonl,
    byte for byte. Both files are readable by you only.

    An archive that is there is replaced when the new one is whole, and not by one that is more than 10 % smaller. The exit
    status is 0 if the archive is written, 1 if that was refused or failed, and 2 if the command is wrong.

    Example, in production, with your own identity:

    \b
    gcloud auth application-default login
    ./scripts/metacortex archive export DIR --project PROJECT
    """
    from ops.archive_report import Report, run

    place = place_of(project, collection, option="--collection")
    facts = _facts_of(place) | {"folder": str(folder), "commit": None}
    report = Report(heading=str(place), afterwards=f"{folder} is as it was.", facts=facts)
    run(report, lambda tell: _export(report, place, folder, tell, force=force, commit=commit), as_json=as_json)


def _export(  # noqa: PLR0913 - what the command was given
    report: "Report", place: Place, folder: Path, tell: "Tell", *, force: bool, commit: bool
) -> None:
    from ops import archive_git
    from ops.archive_export import Export
    from ops.archive_export import export as write
    from ops.archive_folder import Folder

    if commit:
        archive_git.require_repository(folder)
    manifest = asyncio.run(write(Export(place=place, folder=Folder(folder), force=force), tell))
    report.afterwards = "The archive is written."
    _tell_archive(report, manifest)
    report.add("written", str(folder))
    if commit:
        made = archive_git.commit(folder, f"Archive {manifest.count:,} memories of {place.collection}")
        report.facts["commit"] = made
        report.add("commit", made)


# --- Verify ---


@app.command()
def verify(folder: ExistingFolder, *, as_json: AsJson = False) -> None:
    """Check that an archive is whole: its hash, its counts, its order, and every memory in it.

    It needs neither network nor credentials. The exit status is 0 if the archive is whole, 1 if it is not, with what is
    wrong, and 2 if the command is wrong.

    Example:

    \b
    ./scripts/metacortex archive verify DIR
    """
    from ops.archive_report import Report, run

    report = Report(heading=str(folder), afterwards="Nothing was changed.", facts={"folder": str(folder)})
    run(report, lambda tell: _verify(report, folder, tell), as_json=as_json)


def _verify(report: "Report", folder: Path, tell: "Tell") -> None:
    from ops.archive_folder import Folder

    with Folder(folder).opened() as archive:
        _tell_archive(report, archive.manifest)
        archive.require_whole(tell)
    report.lines.append("The archive is whole.")


# --- Restore ---


@app.command()
def restore(  # noqa: PLR0913 - the options of a command
    folder: ExistingFolder,
    *,
    into: Annotated[str, typer.Option(metavar="NAME", help="The collection to restore the memories into.")],
    project: ProjectOption = None,
    write: Annotated[bool, typer.Option("--write", help="Write. Without this, only tell what would be written.")] = (
        False
    ),
    live: Annotated[
        bool, typer.Option("--live", help="Also into the MEMORY_COLLECTION that holds memories already.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Bring the memories of an archive into a collection. Without --write this is a dry run.

    Every memory gets the id, the times, the state and all else that it had. Vectors, parts and words are made anew, by the
    models that this checkout configures for the project, in the space that the collection names; a new collection gets the
    one that its first save would name.

    What is there is left as it is: the same memory is passed over, and costs no call of a model; another one under the same
    id is named, and stays. So the command can be stopped at any time and repeated, and the service may run meanwhile. The
    exit status is 0 if the whole archive is there or, in a dry run, can be; 1 if it is not; and 2 if the command or a
    setting is wrong.

    Example, in production, with your own identity:

    \b
    gcloud auth application-default login
    ./scripts/metacortex archive restore DIR --into NAME --project PROJECT
    ./scripts/metacortex archive restore DIR --into NAME --project PROJECT --write
    """
    from ops.archive_report import Report, run

    place = place_of(project, into, option="--into")
    settings = _settings(place)
    again = "the command again, with --live," if into == settings.memory_collection else "the same command again"
    afterwards = f"Whatever was written is whole: run {again} and it goes on."
    facts = _facts_of(place) | {"folder": str(folder), "write": write}
    report = Report(heading=str(place), afterwards=afterwards if write else "Nothing was written.", facts=facts)
    run(report, lambda tell: _restore(report, place, folder, settings, tell, write=write, live=live), as_json=as_json)


def _restore(  # noqa: PLR0913 - what the command was given
    report: "Report", place: Place, folder: Path, settings: Settings, tell: "Tell", *, write: bool, live: bool
) -> None:
    from ops.archive_folder import Folder
    from ops.archive_restore import Restore, Restored
    from ops.archive_restore import restore as bring

    async def work(plan: Restore) -> None:
        models = bootstrap.models(settings, place.project)
        try:
            await bring(plan, restored, models.embedder, tell)
        finally:
            await models.close()

    restored = Restored()
    with Folder(folder).opened() as archive:
        _tell_archive(report, archive.manifest)
        archive.require_whole(tell)
        configured = settings.memory_collection
        plan = Restore(place=place, archive=archive, live=configured, into_live=live, write=write)
        try:
            asyncio.run(work(plan))
        finally:
            _tell_restored(report, restored, write=write)
    if restored.differing or restored.refused:
        raise OpsError("Not everything in the archive is there, as it says above.")
    report.lines.append(_end_of(restored, write=write))


def _tell_restored(report: "Report", restored: "Restored", *, write: bool) -> None:
    report.facts["restored"] = asdict(restored)
    if restored.space is None:
        return
    report.add("space", f"{restored.space}, which the collection {_named(restored)}")
    report.add("there", f"{restored.there:,} as they are in the archive")
    report.add("missing", f"{restored.missing:,}{f', of which {restored.restored:,} are restored' if write else ''}")
    if restored.differing:
        report.add("differing", f"{len(restored.differing):,} are others there, and stay: {_some(restored.differing)}")
    for memory_id, reason in list(restored.refused.items())[:SHOWN_IDS]:
        report.add("refused", f"{memory_id}: {reason}")


def _named(restored: "Restored") -> str:
    if restored.named_before:
        return "names already"
    return "now names" if restored.restored else "does not name yet"


def _some(ids: list[str]) -> str:
    more = f" and {len(ids) - SHOWN_IDS:,} more, which --json names" if len(ids) > SHOWN_IDS else ""
    return f"{', '.join(ids[:SHOWN_IDS])}{more}"


def _end_of(restored: "Restored", *, write: bool) -> str:
    if not restored.missing:
        return "Nothing to do: the whole archive is there."
    if write:
        return "The archive is restored."
    also = " --live" if restored.needs_live else ""
    return f"Nothing was written. To do it, run the same command with --write{also}."


def _settings(place: Place) -> Settings:
    try:
        return model_settings(read_checkout(place.project))
    except OpsError as error:
        _refuse(error)


def _refuse(error: OpsError) -> NoReturn:
    say(str(error))
    raise typer.Exit(2)


# --- What all of them tell ---


def _facts_of(place: Place) -> dict[str, Any]:
    return {"project": place.project, "emulator": place.emulator, "collection": place.collection}


def _tell_archive(report: "Report", manifest: "Manifest") -> None:
    report.facts["manifest"] = manifest.model_dump(mode="json")
    states = ", ".join(f"{count:,} {state}" for state, count in manifest.memories.items() if count)
    space = manifest.embedding_space.current if manifest.embedding_space else "an unnamed space"
    report.add("archive", f"{manifest.name()}, from {space}")
    report.add("memories", f"{manifest.count:,}: {states}")
