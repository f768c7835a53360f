"""What this checkout configures for the service of a project, as far as an owner's command needs it.

That is what a deployment to the project would be given: functions/.env, over it the file of the project (functions/.env.ALIAS,
or functions/.env.PROJECT), and over both functions/.secret.local and the environment.
"""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from metacortex.errors import ConfigurationError
from metacortex.settings import Settings, load
from ops.checkout import ROOT
from ops.local_settings import Faulty, read_settings, shown
from ops.place import EMULATOR
from ops.preflight_dotenv import NEVER_DEPLOYED, aliases
from ops.processes import OpsError

PLACES = "functions/.env, the file of the project beside it, functions/.secret.local or the environment"
_OF_MODELS = ("MODEL_PROVIDER", "MEMORY_COLLECTION", "FUNCTIONS_EMULATOR", EMULATOR)


def read_checkout(project: str | None) -> dict[str, str]:
    """Everything set for the service of a project; without a project, for this machine.

    Raises OpsError where a file cannot be understood, or two are the project's.
    """
    functions = ROOT / "functions"
    return read_settings(
        os.environ,
        env_file=functions / ".env",
        project_file=_project_file(functions, project) if project else None,
        secrets_file=functions / ".secret.local",
    )


def model_settings(stored: Mapping[str, str], **ours: str) -> Settings:
    """What the service makes of the settings of models, with some of ours in their place.

    The others, the admin token too, need not be there or be valid. Raises OpsError where those of models have faults.
    """
    known = {name: value for name, value in stored.items() if name.startswith("GEMINI_") or name in _OF_MODELS}
    return without_clients({**known, **ours})


def without_clients(values: Mapping[str, str]) -> Settings:
    """What the service makes of settings that name no client. Raises OpsError where they have faults."""
    try:
        return load({**values, "MCP_ADMIN_TOKEN": secrets.token_urlsafe(32)})
    except ConfigurationError as error:
        raise Faulty(PLACES, list(error.faults)) from None


def _project_file(functions: Path, project: str) -> Path | None:
    names = {project, *(alias for alias, named in aliases(functions.parent).items() if named == project)}
    files = [functions / name for name in sorted({f".env.{name}" for name in names} - {*NEVER_DEPLOYED})]
    there = [file for file in files if file.is_file()]
    if len(there) > 1:
        raise OpsError(f"{' and '.join(map(shown, there))} are both of {project}; keep one of them.")
    return there[0] if there else None
