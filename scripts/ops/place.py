"""Where a command of an owner works: the project and the collection, named and never guessed."""

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from metacortex.settings import TABLE
from ops.endpoints import PROJECT
from ops.processes import OpsError

if TYPE_CHECKING:
    from google.cloud.firestore_v1.async_client import AsyncClient

EMULATOR = "FIRESTORE_EMULATOR_HOST"
# A project of an organisation may carry its domain before a colon.
_PROJECT = re.compile(r"(?:[a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")

ProjectOption = Annotated[
    str | None,
    typer.Option(
        "--project",
        metavar="ID",
        help=f"The project that holds the database. Needed, unless {EMULATOR} is set: then {PROJECT}.",
    ),
]
CollectionOption = Annotated[
    str, typer.Option("--collection", metavar="NAME", help="The collection of memories, as MEMORY_COLLECTION names it.")
]


@dataclass(frozen=True, kw_only=True)
class Place:
    """One collection of memories in one project."""

    project: str
    emulator: str | None
    """The host and port of the emulator that stands in for the project's database."""
    collection: str

    def __str__(self) -> str:
        """As a person checks that it is the right one."""
        where = f"{self.project} in the emulator at {self.emulator}" if self.emulator else self.project
        return f"{self.collection} of {where}"


def place(project: str | None, collection: str) -> Place:
    """The place that options name; raises typer.BadParameter where they name none."""
    emulator = os.environ.get(EMULATOR) or None
    return Place(project=_project(project, emulator), emulator=emulator, collection=_collection(collection))


def _project(project: str | None, emulator: str | None) -> str:
    if project is None and emulator:
        return PROJECT
    if project is None:
        raise typer.BadParameter(
            f"is needed: the Google Cloud project that holds the database. For the emulator, set {EMULATOR}.",
            param_hint="--project",
        )
    # What follows --project is taken for its value, even if it is another option.
    if not _PROJECT.fullmatch(project):
        raise typer.BadParameter(
            f"{project!r} is not a project's id: 6 to 30 lower-case letters, digits or -, with a letter first.",
            param_hint="--project",
        )
    return project


def _collection(name: str) -> str:
    parse = next(setting.parse for setting in TABLE if setting.field == "memory_collection")
    try:
        return parse(name)
    except ValueError as error:
        raise typer.BadParameter(f"{error}.", param_hint="--collection") from None


def connect(where: Place) -> "AsyncClient":
    """A client of the database. Raises OpsError where this machine has no credentials."""
    # Firestore's client takes a second to import: not for the other commands, nor for a usage error.
    from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415

    from metacortex.adapters.firestore_client import create_client  # noqa: PLC0415

    try:
        return create_client(where.project)
    except GoogleAuthError as error:
        raise OpsError(
            "There are no Google credentials on this machine; run `gcloud auth application-default login` as somebody who"
            " may use the database of this project."
        ) from error
