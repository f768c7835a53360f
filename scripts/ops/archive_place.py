"""The collection that an archive is made of or restored into: always named, and told before anything else."""

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from metacortex.settings import TABLE
from ops.endpoints import PROJECT
from ops.processes import OpsError

if TYPE_CHECKING:
    from google.cloud.firestore_v1.async_client import AsyncClient

EMULATOR = "FIRESTORE_EMULATOR_HOST"
_PROJECT = re.compile(r"[a-z][a-z0-9-]{4,28}[a-z0-9]")


@dataclass(frozen=True, kw_only=True)
class Place:
    project: str
    emulator: str | None
    """The host and port of the emulator that stands in for the project's database."""
    collection: str

    def __str__(self) -> str:
        """As a person checks that it is the right one."""
        emulated = f" in the emulator at {self.emulator}" if self.emulator else ""
        return f"{self.collection} of {self.project}{emulated}"


def place_of(project: str | None, collection: str, *, option: str) -> Place:
    """What the options of a command name; `option` is the one for the collection. What cannot be meant is a usage error."""
    emulator = os.environ.get(EMULATOR) or None
    if project is None and emulator is None:
        raise typer.BadParameter(
            f"is needed: the Google Cloud project that holds the database. For the emulator, set {EMULATOR}.",
            param_hint="--project",
        )
    if project is not None and not _PROJECT.fullmatch(project):
        raise typer.BadParameter(
            "must be a project's id: 6 to 30 lower-case letters, digits or -, with a letter first.",
            param_hint="--project",
        )
    parse = next(setting.parse for setting in TABLE if setting.field == "memory_collection")
    try:
        return Place(project=project or PROJECT, emulator=emulator, collection=parse(collection))
    except ValueError as error:
        raise typer.BadParameter(f"{error}.", param_hint=option) from None


def connect(place: Place) -> "AsyncClient":
    """A client of the database. Raises OpsError where this machine has no credentials."""
    # Firestore's client takes a second to import: not for a usage error.
    from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415

    from metacortex.adapters.firestore_client import create_client  # noqa: PLC0415

    try:
        return create_client(place.project)
    except GoogleAuthError as error:
        raise OpsError(
            "There are no Google credentials on this machine; run `gcloud auth application-default login` as somebody who"
            " may use the database of this project."
        ) from error
