"""What an evaluation is to work on: whose database, which settings, which models."""

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

import typer

from metacortex.errors import ConfigurationError
from metacortex.settings import TABLE, ModelProvider, RetrievalMode, Settings, load
from ops.endpoints import PROJECT
from ops.local_settings import Faulty, read_settings

if TYPE_CHECKING:
    from metacortex.bootstrap import Models

EMULATOR = "FIRESTORE_EMULATOR_HOST"
PLACES = "functions/.env, functions/.secret.local or the environment"
# The settings of clients need not be there or be valid.
SETTINGS = tuple(setting.name for setting in TABLE if not setting.name.startswith("MCP_"))


C = TypeVar("C")


class Partition(StrEnum):
    """Whose memories cases are about: those of the isolated corpus, or the live ones."""

    ISOLATED = "isolated"
    PRODUCTION = "production"


class Half(StrEnum):
    """Which cases to ask: one half is for tuning, and the other tells what the tuning is worth."""

    ALL = "all"
    EVEN = "even"
    ODD = "odd"

    def of(self, cases: Sequence[C]) -> Sequence[C]:
        """The cases of this half by their places from 0."""
        return {Half.ALL: cases, Half.EVEN: cases[::2], Half.ODD: cases[1::2]}[self]


class Model(StrEnum):
    CONFIGURED = "configured"
    LOCAL = "local"
    MINILM = "minilm"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything a command needs to know of its surroundings."""

    project: str
    settings: Settings = field(repr=False)
    """Those of the service, but for the collection, which is the isolated one."""
    live_collection: str
    models: "Models" = field(repr=False)


def read_project(project: str | None) -> str:
    """The project whose database to use: never a real one that was not named."""
    if project:
        return project
    if os.environ.get(EMULATOR):
        return PROJECT
    raise typer.BadParameter(
        f"is needed: the Google Cloud project whose database to use. For the emulator, set {EMULATOR}.",
        param_hint="--project",
    )


def read_plan(project: str, model: Model, retrieval: RetrievalMode | None) -> Plan:
    """The settings of this checkout for evaluation. Raises OpsError where they have faults."""
    settings = _settings()
    isolated = replace(
        settings,
        memory_collection=settings.retrieval_eval_memory_collection,
        retrieval_mode=retrieval or settings.retrieval_mode,
    )
    return Plan(
        project=project,
        settings=isolated,
        live_collection=settings.memory_collection,
        models=_models(model, settings, project),
    )


def _settings() -> Settings:
    stored: Mapping[str, str] = read_settings(os.environ)
    # Firestore's client heeds the environment alone, so the files must not say where the database is.
    surroundings = {EMULATOR: os.environ.get(EMULATOR, ""), "MCP_ADMIN_TOKEN": secrets.token_urlsafe(32)}
    known = {name: value for name, value in stored.items() if name in SETTINGS}
    try:
        return load({**known, **surroundings})
    except ConfigurationError as error:
        raise Faulty(PLACES, list(error.faults)) from None


def _models(model: Model, settings: Settings, project: str) -> "Models":
    from metacortex.bootstrap import models  # noqa: PLC0415 - a second of imports: not for a usage error

    if model is Model.CONFIGURED:
        return models(settings, project)
    local = models(replace(settings, model_provider=ModelProvider.LOCAL), project)
    if model is Model.LOCAL:
        return local
    from ops.minilm import MiniLmEmbedder  # noqa: PLC0415 - numpy and what it needs, for this model only

    return replace(local, embedder=MiniLmEmbedder())
