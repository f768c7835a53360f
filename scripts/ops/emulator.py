"""The Firestore emulator: finding Java and the jar, fetching the jar where there is none, running it."""

import http.client
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ops.processes import OpsError, Process, Server, scratch_folder, serve, start

MAIN_CLASS = "com.google.cloud.datastore.emulator.firestore.CloudFirestore"
OLDEST_JAVA = 17
FIREBASE_TOOLS = "firebase-tools@15.34.2"
JAR_IN_SDK = "platform/cloud-firestore-emulator/cloud-firestore-emulator.jar"
# Where the usual places are looked for.
ROOT_FOLDER = Path("/")
# A limit, not a demand: with 512 MB the export of 10,000 memories fails, with this that of 25,000 does not.
HEAP = "-Xmx2g"

GET_JAVA = (
    "Install one (macOS: brew install --cask temurin; Debian and Ubuntu: sudo apt install default-jre-headless;"
    " elsewhere: https://adoptium.net), or name its folder in JAVA_HOME."
)
GET_JAR = (
    "Get it in one of these ways: install Node.js (https://nodejs.org) and run this again, which fetches it with"
    " firebase-tools; or run `firebase setup:emulators:firestore`; or run"
    " `gcloud components install cloud-firestore-emulator`; or name a jar you have in FIRESTORE_EMULATOR_JAR."
)


class EmulatorUnavailable(OpsError):
    """Java or the emulator's jar is missing, and how to get it."""


class ImportFailed(OpsError):
    """The emulator refused the export it was to start from."""


@dataclass(frozen=True)
class Emulator:
    """A running Firestore emulator.

    Every project id is a database of its own in it: empty at first, or with all that was imported, whatever its project.
    """

    host: str
    process: Process

    def export(self, project: str, directory: Path) -> None:
        """Write everything a project holds into a new folder `directory`; its parent must exist."""
        _request(
            self.host,
            "POST",
            f"/emulator/v1/projects/{project}:export",
            {
                "database": f"projects/{project}/databases/(default)",
                "export_directory": str(directory.parent),
                "export_name": directory.name,
            },
        )


def clear(host: str, project: str) -> None:
    """Delete everything a project holds in the emulator at `host`, what was imported included. Others keep theirs."""
    _request(host, "DELETE", f"/emulator/v1/projects/{project}/databases/(default)/documents")


def _request(host: str, method: str, path: str, body: object = None) -> None:
    connection = http.client.HTTPConnection(host, timeout=60)
    try:
        connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
        status = connection.getresponse().status
    except OSError as error:
        raise OpsError(f"The Firestore emulator does not answer ({error}).") from error
    finally:
        connection.close()
    if status != 200:
        raise OpsError(f"The Firestore emulator answered {status} to {method} {path}; its log says why.")


@contextmanager
def running_emulator(
    *, port: int | None = None, import_from: Path | None = None, log: Path | None = None
) -> Generator[Emulator]:
    """Run an emulator on 127.0.0.1, on a free port unless one is given; stopped on the way out, or if we are killed.

    `import_from` is a folder that `Emulator.export` wrote. Raises EmulatorUnavailable, ImportFailed, or OpsError.
    """
    java, jar = find_java(), find_jar()
    with scratch_folder() as scratch:
        emulator = _start(java, jar, port, import_from, log or scratch / "emulator.log")
        try:
            yield emulator
        finally:
            emulator.process.stop()


def find_java() -> Path:
    """A Java that really runs and is new enough; raises EmulatorUnavailable."""
    newest = 0
    for java in java_candidates(os.environ):
        newest = max(newest, version := java_version(java))
        if version >= OLDEST_JAVA:
            return java
    found = f"the newest found is Java {newest}" if newest else "none was found"
    raise EmulatorUnavailable(f"The Firestore emulator needs Java {OLDEST_JAVA} or newer, and {found}. {GET_JAVA}")


def find_jar() -> Path:
    """The emulator's jar, fetched with firebase-tools if this machine has none; raises EmulatorUnavailable."""
    if named := os.environ.get("FIRESTORE_EMULATOR_JAR"):
        if Path(named).is_file():
            return Path(named)
        raise EmulatorUnavailable(f"FIRESTORE_EMULATOR_JAR names {named}, which is no file. {GET_JAR}")
    return installed_jar() or _fetch_jar()


def installed_jar() -> Path | None:
    """The jar of a Google Cloud SDK, or the newest in firebase-tools' cache."""
    for sdk in _cloud_sdks(os.environ):
        if (jar := sdk / JAR_IN_SDK).is_file():
            return jar
    cached = Path.home().glob(".cache/firebase/emulators/cloud-firestore-emulator-v*.jar")
    return max(cached, key=lambda jar: [int(number) for number in re.findall(r"\d+", jar.name)], default=None)


def _start(java: Path, jar: Path, port: int | None, import_from: Path | None, log: Path) -> Emulator:
    import_arguments = [f"--import-data={_import_metadata(import_from)}"] if import_from else []
    server = Server(
        name="The Firestore emulator",
        command=lambda port: [*_command(java, jar, port), *import_arguments],
        answers_at="/",
        log=log,
        seconds=300 if import_from else 30,
    )
    try:
        chosen, process = serve(server, port=port)
    except OpsError as error:
        words = log.read_text(errors="replace")
        if import_from and "ExportImportUtil" in words:
            raise ImportFailed(f"The Firestore emulator cannot import {import_from}; see {log}.") from error
        if "UnsupportedClassVersionError" in words:
            raise EmulatorUnavailable(f"{jar} needs a newer Java than {java}. {GET_JAVA}") from error
        raise
    return Emulator(f"127.0.0.1:{chosen}", process)


def _command(java: Path, jar: Path, port: int) -> list[str]:
    # The jar of the Cloud SDK names no main class in its manifest; naming it here serves every jar.
    return [str(java), HEAP, "-cp", str(jar), MAIN_CLASS, "start", "--host=127.0.0.1", f"--port={port}"]


def _import_metadata(export: Path) -> Path:
    found = list(export.glob("*.overall_export_metadata"))
    if len(found) != 1:
        raise ImportFailed(f"{export} is no export of the Firestore emulator.")
    return found[0]


def java_candidates(env: Mapping[str, str]) -> Iterator[Path]:
    """Every place where a Java may be, those a person chose first."""
    if home := env.get("JAVA_HOME"):
        yield Path(home, "bin/java")
    # The java that macOS puts on PATH only tells the person to install one: ask for a real home first.
    yield from _java_homes_of_macos()
    if java := shutil.which("java"):
        yield Path(java)
    for pattern in ("opt/homebrew/opt/openjdk*", "usr/local/opt/openjdk*", "usr/lib/jvm/*"):
        yield from sorted((home / "bin/java" for home in ROOT_FOLDER.glob(pattern)), reverse=True)


def _java_homes_of_macos() -> Iterator[Path]:
    tool = ROOT_FOLDER / "usr/libexec/java_home"
    if not tool.exists():
        return
    answer = subprocess.run([tool, "-v", f"{OLDEST_JAVA}+"], check=False, capture_output=True, text=True)
    if answer.returncode == 0:
        yield Path(answer.stdout.strip(), "bin/java")


def java_version(java: Path) -> int:
    """Its major version; 0 for one that does not run."""
    try:
        answer = subprocess.run([java, "-version"], check=False, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    version = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(version[1]) if version and answer.returncode == 0 else 0


def _cloud_sdks(env: Mapping[str, str]) -> Iterable[Path]:
    if root := env.get("CLOUDSDK_ROOT_DIR"):
        yield Path(root)
    if gcloud := shutil.which("gcloud"):
        yield Path(gcloud).resolve().parent.parent
    yield ROOT_FOLDER / "usr/lib/google-cloud-sdk"
    yield Path.home() / "google-cloud-sdk"
    for prefix in ("opt/homebrew", "usr/local"):
        yield ROOT_FOLDER / prefix / "share/google-cloud-sdk"
        yield from (ROOT_FOLDER / prefix / "Caskroom").glob("g*cloud*/*/google-cloud-sdk")


def _fetch_jar() -> Path:
    if firebase := shutil.which("firebase"):
        command = [firebase, "setup:emulators:firestore"]
    elif npx := shutil.which("npx"):
        command = [npx, "--yes", FIREBASE_TOOLS, "setup:emulators:firestore"]
    else:
        raise EmulatorUnavailable(f"The Firestore emulator's jar is not on this machine. {GET_JAR}")
    print("Fetching the Firestore emulator with firebase-tools (once; a few minutes) ...", file=sys.stderr, flush=True)
    with scratch_folder() as scratch:
        fetching = start("firebase-tools", command, log=scratch / "firebase-tools.log")
        try:
            fetching.popen.wait()
        finally:
            fetching.stop()
        if jar := installed_jar():
            return jar
        raise EmulatorUnavailable(
            f"firebase-tools did not fetch the Firestore emulator. {GET_JAR}\n{fetching.tail(10)}"
        )
