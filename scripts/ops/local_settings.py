"""The settings of this checkout: functions/.env, functions/.secret.local, and the environment, which wins over both."""

import fcntl
import io
import json
import os
import secrets
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dotenv.parser import parse_stream

from ops.checkout import ENV_FILE, ROOT, SECRETS_FILE
from ops.processes import OpsError

STANDARD_INPUT = Path("-")


class Faulty(OpsError):
    """What stands in a place has faults, each a sentence that names where and holds no secret."""

    def __init__(self, place: str, faults: list[str]) -> None:
        count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        super().__init__("\n".join([f"{count} in {place}:", *(f"  {fault}" for fault in faults)]))


def _agent_profile() -> str:
    profile = {
        "id": "agent",
        "token": secrets.token_urlsafe(32),
        "allowedTools": ["save_context", "search_context", "fetch_context"],
    }
    return json.dumps([profile])


GENERATED: Mapping[str, Callable[[], str]] = {
    "MCP_ADMIN_TOKEN": lambda: secrets.token_urlsafe(32),
    "MCP_CLIENT_PROFILES_JSON": _agent_profile,
}
"""Settings nobody has to make up: each is generated where it is missing."""


def read_settings(
    environment: Mapping[str, str],
    *,
    env_file: Path = ENV_FILE,
    project_file: Path | None = None,
    secrets_file: Path = SECRETS_FILE,
) -> dict[str, str]:
    """Everything set, each from the strongest place: environment, secrets file, a project's file, .env file. Generates nothing.

    Raises OpsError where a file cannot be understood, as `read_file` does.
    """
    stored = read_file(secrets_file)
    of_project = read_file(project_file) if project_file else {}
    settings = {**read_file(env_file), **of_project, **stored, **environment}
    # An empty token in the environment is none, rather than an order to make another.
    return settings | {
        name: stored[name] for name in GENERATED if not settings.get(name, "").strip() and stored.get(name)
    }


def generate_missing(settings: Mapping[str, str], *, secrets_file: Path | None = SECRETS_FILE) -> dict[str, str]:
    """The settings with every missing token generated, and kept in `secrets_file` unless that is None."""
    missing = [name for name in GENERATED if not settings.get(name, "").strip()]
    if not missing:
        return dict(settings)
    if secrets_file is None:
        return {**settings, **{name: GENERATED[name]() for name in missing}}
    with locked(secrets_file):
        stored = read_file(secrets_file)
        generated = {name: stored.get(name) or GENERATED[name]() for name in missing}
        write(secrets_file, generated)
    return {**settings, **generated}


def read_file(path: Path) -> dict[str, str]:
    """The values a .env file sets; a file that is not there sets none. Raises OpsError naming file and line."""
    return values_in(text_of(path), shown(path))


def text_of(file: Path) -> str:
    """The text of a file, or of standard input; raises OpsError where it is none."""
    place = shown(file)
    try:
        return sys.stdin.read() if file == STANDARD_INPUT else file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise OpsError(f"{place} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise OpsError(f"{place} is not UTF-8 text; save it as that.") from None


def values_in(text: str, place: str) -> dict[str, str]:
    """The values that lines of NAME=value set. Nothing in them is expanded: a token may hold a dollar sign.

    Raises Faulty where a line is something else, rather than pass over a setting that somebody relies on.
    """
    bindings = list(parse_stream(io.StringIO(text)))
    faults = [
        f"Line {binding.original.line} is not NAME=value; look for a missing quote."
        for binding in bindings
        if binding.error
    ]
    if faults:
        raise Faulty(place, faults)
    return {binding.key: binding.value for binding in bindings if binding.key and binding.value is not None}


def shown(file: Path) -> str:
    """A file as a person calls it."""
    if file == STANDARD_INPUT:
        return "standard input"
    return str(file.relative_to(ROOT)) if file.is_relative_to(ROOT) else str(file)


def write(path: Path, values: Mapping[str, str]) -> None:
    """Set values in a .env file, readable by the owner only; every other line of it stays as it is."""
    path = path.resolve()
    kept = "".join(_other_lines(path, values))
    if kept and not kept.endswith("\n"):
        kept += "\n"
    text = kept + "".join(f"{name}={_quoted(value)}\n" for name, value in values.items())
    # mkstemp makes the file readable by the owner only, and the replacement is all or nothing.
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _other_lines(path: Path, values: Mapping[str, str]) -> Iterator[str]:
    if not path.exists():
        return
    with path.open(encoding="utf-8-sig") as file:
        for binding in parse_stream(file):
            if binding.key not in values:
                yield binding.original.string


def _quoted(value: str) -> str:
    if value.replace("-", "").replace("_", "").isalnum():
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


@contextmanager
def locked(secrets_file: Path) -> Generator[None]:
    """Hold the folder of the secrets file: two commands that add to it at once both leave what they added."""
    descriptor = os.open(secrets_file.resolve().parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
