"""What a preflight looks at: which checkout is to be deployed, to which project, under which alias.

Nothing has a default, and nothing is taken from the settings of gcloud or the Firebase CLI. What is wrong is a usage error.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NoReturn

import typer

from ops.endpoints import PROJECT

_PROJECT = re.compile(r"[a-z][a-z0-9-]{4,28}[a-z0-9]")
_ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
# functions/.env.local is the emulator's, functions/.env.example is this repository's: neither is ever deployed.
_NO_ALIASES = ("local", "example")
# The Firebase CLI keeps such names for projects that exist in emulators only.
_DEMO = "demo-"


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """One deployment that is about to be made."""

    root: Path
    """The checkout."""
    project: str
    alias: str
    """How .firebaserc calls the project; the project's own id where it does not."""
    archive: Path | None
    """The folder of an archive of the live collection."""
    now: datetime
    seconds: float
    """How long one answer of gcloud may take."""

    @property
    def functions(self) -> Path:
        return self.root / "functions"


def read_project(given: str, environment: Mapping[str, str]) -> str:
    """A project id as Google Cloud forms it, of a project that the rest of the environment does not contradict."""
    if not _PROJECT.fullmatch(given):
        _misused("--project", "must be a project's id: 6 to 30 lower-case letters, digits or -, with a letter first.")
    if given == PROJECT:
        _misused("--project", f"must be a real project; {PROJECT} is that of ./scripts/dev, which is never deployed.")
    emulated = bool(environment.get("FIRESTORE_EMULATOR_HOST"))
    if given.startswith(_DEMO) and not emulated:
        _misused("--project", f"must be a real project; names that begin with {_DEMO} exist in emulators only.")
    if emulated and not given.startswith(_DEMO):
        _misused(
            "--project", "could not be looked into while FIRESTORE_EMULATOR_HOST names an emulator; unset that first."
        )
    return given


def read_alias(given: str) -> str:
    """An alias that a dotenv file can be named for."""
    if not _ALIAS.fullmatch(given) or given in _NO_ALIASES:
        _misused(
            "--alias",
            "must be an alias such as prod, of letters, digits, - or _, and neither local nor example:"
            " files with those endings are never deployed.",
        )
    return given


def _misused(option: str, says: str) -> NoReturn:
    raise typer.BadParameter(says, param_hint=option)
