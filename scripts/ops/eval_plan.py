"""What an evaluation is to work on: whose database, which settings, which models."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from metacortex.settings import TABLE, ModelProvider, RetrievalMode, Settings
from ops.model_settings import read_checkout, without_clients
from ops.place import EMULATOR

if TYPE_CHECKING:
    from metacortex.bootstrap import Models

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


def read_plan(project: str, model: Model, retrieval: RetrievalMode | None) -> Plan:
    """The settings of this checkout for evaluation in a project. Raises OpsError where they have faults."""
    settings = _settings(project)
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


def _settings(project: str) -> Settings:
    known = {name: value for name, value in read_checkout(project).items() if name in SETTINGS}
    # Firestore's client heeds the environment alone, so the files must not say where the database is.
    return without_clients({**known, EMULATOR: os.environ.get(EMULATOR, "")})


def _models(model: Model, settings: Settings, project: str) -> "Models":
    from metacortex.bootstrap import models  # noqa: PLC0415 - a second of imports: not for a usage error

    if model is Model.CONFIGURED:
        return models(settings, project)
    local = models(replace(settings, model_provider=ModelProvider.LOCAL), project)
    if model is Model.LOCAL:
        return local
    from ops.minilm import MiniLmEmbedder  # noqa: PLC0415 - numpy and what it needs, for this model only

    return replace(local, embedder=MiniLmEmbedder())
