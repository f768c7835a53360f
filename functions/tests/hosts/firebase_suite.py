"""The Firebase emulator suite on free ports, with a copy of what is deployed: nothing of the checkout is written to."""

import json
import os
import shutil
import signal
import sys
import zipfile
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.checkout import FUNCTIONS, ROOT
from ops.emulator import MAIN_CLASS, find_jar
from ops.endpoints import PREFIX, PROJECT
from ops.hosts import HostTools, alone
from ops.processes import (
    OpsError,
    Process,
    ending,
    free_port,
    scratch_folder,
    start,
    tell_guardian,
)
from running import descendants, eventually

SECRETS = ("MCP_ADMIN_TOKEN", "MCP_CLIENT_PROFILES_JSON", "GEMINI_API_KEY")
# firebase-tools stops one emulator after the other.
GRACE = 30


@dataclass(frozen=True)
class Suite:
    """A running suite."""

    port: int
    """Of the functions emulator."""
    process: Process

    @property
    def url(self) -> str:
        """The function's base URL, with the prefix that the platform takes away."""
        return f"http://127.0.0.1:{self.port}{PREFIX}"


@contextmanager
def running_suite(tools: HostTools, settings: Mapping[str, str]) -> Generator[Suite]:
    """Run the functions and Firestore emulators until the block ends."""
    with scratch_folder() as folder:
        port = _prepare(folder, settings)
        home = folder / "home"
        home.mkdir()
        environment = tools.environment(home, FIRESTORE_EMULATOR_BINARY_PATH=str(_jar_with_main_class(folder)))
        firebase = tools.command("firebase-tools", "firebase")
        with ExitStack() as stack:
            with discovering(tools):
                process = start(
                    "The Firebase emulator suite",
                    [*firebase, "emulators:start", "--only", "functions,firestore", "--project", PROJECT],
                    log=folder / "suite.log",
                    env=environment,
                    cwd=folder,
                )
                emulators = stack.enter_context(_stopping(process))
                _wait_for_java(process, emulators)
                _wait_until_ready(process)
            yield Suite(port, process)


def discovering(tools: HostTools) -> AbstractContextManager[None]:
    """One after the other: firebase-tools looks for the functions on a port that was free a moment before."""
    return alone(tools.folder / ".discovering")


@contextmanager
def _stopping(process: Process) -> Generator[list[int]]:
    """Stops the suite; and the groups in the list, if it was killed before it could."""
    emulators: list[int] = []
    try:
        yield emulators
    finally:
        process.stop(grace=GRACE)
        for pid in emulators:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            tell_guardian(f"end {pid}")


def _wait_for_java(process: Process, emulators: list[int]) -> None:
    """firebase-tools starts Java in a session of its own, which would outlive us: the guardian ends it with the rest."""
    eventually(lambda: _java_below(process) or process.exit_code() is not None, seconds=60)
    for pid in _java_below(process):
        tell_guardian(f"start {pid}")
        emulators.append(pid)


def _java_below(process: Process) -> list[int]:
    commands = descendants(process.pid).items()
    return [pid for pid, command in commands if Path(command.split()[0]).name == "java" and "-jar" in command]


def _wait_until_ready(process: Process) -> None:
    eventually(lambda: "All emulators ready" in process.tail(50) or process.exit_code() is not None, seconds=120)
    if process.exit_code() is not None:
        raise OpsError(
            f"{process.name} {ending(process.exit_code())} while starting. Its last words:\n{process.tail()}"
        )
    if "Loaded functions definitions" not in process.log.read_text():
        raise OpsError(f"{process.name} found no function. Its last words:\n{process.tail()}")


def _prepare(folder: Path, settings: Mapping[str, str]) -> int:
    """Lay out what `firebase deploy` reads, with settings of its own; returns the port to come."""
    functions = folder / "functions"
    shutil.copytree(FUNCTIONS / "metacortex", functions / "metacortex", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("main.py", "requirements.txt"):
        shutil.copy(FUNCTIONS / name, functions / name)
    (functions / "venv").symlink_to(sys.prefix)
    for name in ("firestore.rules", "firestore.indexes.json"):
        shutil.copy(ROOT / name, folder / name)
    _write_dotenv(functions / ".secret.local", {name: settings[name] for name in SECRETS if name in settings})
    _write_dotenv(functions / ".env", {name: value for name, value in settings.items() if name not in SECRETS})
    config = own_runtime(json.loads((ROOT / "firebase.json").read_text()))
    config["emulators"] |= {
        name: {"host": "127.0.0.1", "port": free_port()} for name in ("functions", "hub", "logging")
    }
    config["emulators"]["firestore"] = {"host": "127.0.0.1", "port": free_port(), "websocketPort": free_port()}
    (folder / "firebase.json").write_text(json.dumps(config))
    return config["emulators"]["functions"]["port"]


def own_runtime(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration with the Python that runs here: firebase-tools wants the one it names, and a person may have a newer."""
    config["functions"][0]["runtime"] = f"python{sys.version_info.major}{sys.version_info.minor}"
    return config


def _write_dotenv(file: Path, settings: Mapping[str, str]) -> None:
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))


def _jar_with_main_class(folder: Path) -> Path:
    """A jar that `java -jar` starts: the Cloud SDK's names no main class, so an empty one names it and leads there."""
    jar = find_jar().resolve()
    if "Main-Class" in _manifest(jar):
        return jar
    led = folder / "firestore.jar"
    lines = ("Manifest-Version: 1.0", f"Main-Class: {MAIN_CLASS}", f"Class-Path: {jar.as_uri()}")
    with zipfile.ZipFile(led, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "".join(f"{_folded(line)}\r\n" for line in lines))
    return led


def _manifest(jar: Path) -> str:
    with zipfile.ZipFile(jar) as archive:
        return archive.read("META-INF/MANIFEST.MF").decode()


def _folded(line: str) -> str:
    """A line of a manifest in pieces of at most 72 bytes; what goes on begins with a space."""
    pieces = [line[:70], *(f" {line[start : start + 69]}" for start in range(70, len(line), 69))]
    return "\r\n".join(pieces)
