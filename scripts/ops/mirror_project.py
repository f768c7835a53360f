"""Whose database a mirror is made of, or restored into."""

import os
import re

import typer

from ops.endpoints import PROJECT

EMULATOR = "FIRESTORE_EMULATOR_HOST"
# Some old projects belong to a domain, which stands before their name.
_ID = re.compile(r"([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")


def read_project(given: str | None, option: str) -> str:
    """The project that an option names, or that of ./scripts/dev where an emulator stands in for all."""
    if given is None and os.environ.get(EMULATOR):
        return PROJECT
    if given is None:
        raise typer.BadParameter(
            f"is needed: the Google Cloud project that holds the database. For the emulator, set {EMULATOR}.",
            param_hint=option,
        )
    if not _ID.fullmatch(given):
        raise typer.BadParameter(
            f"{given!r} is no project's id: 6 to 30 lower-case letters, digits or -, with a letter first.",
            param_hint=option,
        )
    return given


def place(project: str) -> str:
    """The database, as a person checks that it is the right one."""
    emulator = os.environ.get(EMULATOR)
    return f"{project} in the emulator at {emulator}" if emulator else project
