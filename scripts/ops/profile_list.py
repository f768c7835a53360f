"""The client profiles in a secrets file: read with every fault found, changed under a lock, written all or nothing.

What a profile may hold is metacortex.profiles' to say; here its parser is asked.
"""

import json
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from metacortex.errors import ConfigurationError
from metacortex.memory import BranchState
from metacortex.profiles import ADMIN_ID, Profile, token_fault
from metacortex.settings import load
from ops.local_settings import (
    STANDARD_INPUT,
    Faulty,
    locked,
    read_file,
    read_settings,
    shown,
    text_of,
    values_in,
    write,
)
from ops.processes import OpsError

NAME = "MCP_CLIENT_PROFILES_JSON"

Document = dict[str, Any]
Change = Callable[[list[Document]], list[Document]]


@dataclass(frozen=True)
class ProfileList:
    """The profiles of one place, as JSON, and the settings they are read by."""

    place: str
    text: str
    settings: Mapping[str, str]
    is_settings_file: bool
    """Whether the list stands in a file of NAME=value lines, and can be stored there."""

    def parsed(self) -> list[Profile]:
        """Every profile; raises Faulty, which lists every fault."""
        try:
            profiles = load(
                {NAME: self.text, "MCP_ADMIN_TOKEN": self._admin_token(), "DEFAULT_FILTER_STATE": self._state()}
            ).profiles
        except ConfigurationError as error:
            raise Faulty(self.place, list(error.faults)) from None
        return [profile for profile in profiles.values() if profile.id != ADMIN_ID]

    def documents(self) -> list[Document]:
        """Every profile as it is stored. Raises Faulty where the text is no list of objects."""
        try:
            documents = json.loads(self.text or "[]")
        except (ValueError, RecursionError):
            documents = None
        if isinstance(documents, list) and all(isinstance(document, dict) for document in documents):
            return documents
        self.parsed()
        raise AssertionError("the parser finds the fault")

    def changed(self, change: Change) -> str:
        """The list after a change, as JSON; raises Faulty where the change leaves faults behind."""
        text = json.dumps(change(self.documents()))
        try:
            replace(self, text=text).parsed()
        except Faulty:
            # The positions in the list as it is are those a person can look up.
            self.parsed()
            raise
        return text

    def _admin_token(self) -> str:
        """The admin token, for it must be no profile's. Its own faults are not for the profiles to answer for."""
        token = self.settings.get("MCP_ADMIN_TOKEN", "").strip()
        return secrets.token_urlsafe(32) if token_fault(token) else token

    def _state(self) -> str:
        state = self.settings.get("DEFAULT_FILTER_STATE", "").strip()
        return state if state in set(BranchState) else BranchState.ACTIVE


def read_list(file: Path) -> ProfileList:
    """The profiles in a file of NAME=value lines, or of nothing but the JSON list; `-` is standard input.

    A file that is not there holds none. Raises Faulty or OpsError where it cannot be understood.
    """
    place = shown(file)
    text = text_of(file)
    if text.lstrip().startswith(("[", "{")):
        return ProfileList(place, text.strip(), os.environ, is_settings_file=False)
    values = values_in(text, place)
    if file == STANDARD_INPUT:
        return ProfileList(place, _required(values, place), {**values, **os.environ}, is_settings_file=False)
    beside = file.with_name(".env")
    if NAME not in values and read_file(beside).get(NAME, "").strip():
        raise OpsError(
            f"{NAME} stands in {shown(beside)}; move that line into {place}, where secrets belong,"
            " because a value there would hide it."
        )
    settings = read_settings(os.environ, env_file=beside, secrets_file=file)
    return ProfileList(place, values.get(NAME, "").strip(), settings, is_settings_file=True)


def read_environment() -> ProfileList:
    """The profiles in the environment of this command."""
    place = "the environment"
    return ProfileList(place, _required(os.environ, place), os.environ, is_settings_file=False)


def change_list(file: Path, change: Change) -> None:
    """Change the profiles in a file of settings. Of changes at the same time, none is lost."""
    _require_folder(file)
    with locked(file):
        profiles = read_list(file)
        if not profiles.is_settings_file:
            raise OpsError(f"{profiles.place} holds nothing but a JSON list; add --print-json to see the changed list.")
        _store(file, profiles.changed(change))


def _required(values: Mapping[str, str], place: str) -> str:
    text = values.get(NAME, "").strip()
    if not text:
        raise OpsError(f"{place[0].upper()}{place[1:]} holds no {NAME}, and no JSON list of profiles.")
    return text


def _require_folder(file: Path) -> None:
    if not file.resolve().parent.is_dir():
        raise OpsError(f"The folder of {shown(file)} does not exist; make it, or name another file.")


def _store(file: Path, text: str) -> None:
    try:
        write(file, {NAME: text})
    except OSError as error:
        raise OpsError(f"{shown(file)} cannot be written: {error.strerror}.") from None
