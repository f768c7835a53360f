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
        return f"{self.collection} of {_in_words(self.project, self.emulator)}"


def place_of(project: str | None, collection: str, *, option: str = "--collection") -> Place:
    """The place that options name, `option` its collection; raises typer.BadParameter where they name none."""
    return Place(project=read_project(project), emulator=_emulator(), collection=read_collection(collection, option))


def read_project(project: str | None, option: str = "--project") -> str:
    """The project that an option names, or that of ./scripts/dev where an emulator stands in for all."""
    if project is None and _emulator():
        return PROJECT
    if project is None:
        raise typer.BadParameter(
            f"is needed: the Google Cloud project that holds the database. For the emulator, set {EMULATOR}.",
            param_hint=option,
        )
    # What follows the option is taken for its value, even if it is another option.
    if not _PROJECT.fullmatch(project):
        raise typer.BadParameter(
            f"{project!r} is not a project's id: 6 to 30 lower-case letters, digits or -, with a letter first.",
            param_hint=option,
        )
    return project


def read_collection(name: str, option: str = "--collection") -> str:
    """The collection that an option names, by the rule of MEMORY_COLLECTION."""
    parse = next(setting.parse for setting in TABLE if setting.field == "memory_collection")
    try:
        return parse(name)
    except ValueError as error:
        raise typer.BadParameter(f"{error}.", param_hint=option) from None


def database_of(project: str) -> str:
    """A project's database, as a person checks that it is the right one."""
    return _in_words(project, _emulator())


def _emulator() -> str | None:
    return os.environ.get(EMULATOR) or None


def _in_words(project: str, emulator: str | None) -> str:
    return f"{project} in the emulator at {emulator}" if emulator else project


def connect(project: str) -> "AsyncClient":
    """A client of a project's database. Raises OpsError where this machine has no credentials."""
    # Firestore's client takes a second to import: not for the other commands, nor for a usage error.
    from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415

    from metacortex.adapters.firestore_client import create_client  # noqa: PLC0415

    try:
        return create_client(project)
    except GoogleAuthError as error:
        raise OpsError(
            "There are no Google credentials on this machine; run `gcloud auth application-default login` as somebody who"
            " may use the database of this project."
        ) from error
