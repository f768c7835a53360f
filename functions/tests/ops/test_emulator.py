"""Finding, fetching and running the Firestore emulator."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud.firestore import Client
from google.cloud.firestore_v1.vector import Vector

from ops import emulator
from ops.checkout import ROOT
from ops.emulator import EmulatorUnavailable, ImportFailed, clear, find_jar, find_java, running_emulator
from ops.processes import OpsError
from running import alive, eventually, executable

PROJECT = "demo-emulator"


@pytest.fixture
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java, jar or tools: a folder that is its whole PATH, and its home."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for name in ("JAVA_HOME", "CLOUDSDK_ROOT_DIR", "FIRESTORE_EMULATOR_JAR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(binaries))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(emulator, "ROOT_FOLDER", tmp_path / "root")
    return binaries


def java(path: Path, version: str) -> Path:
    return executable(path, f"""echo 'openjdk version "{version}" 2026-01-01' >&2""")


def touched(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


# --- Java ---


def test_java_home_comes_first(empty_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java(empty_machine / "java", "21.0.1")
    home = java(empty_machine / "jdk/bin/java", "17.0.2")
    monkeypatch.setenv("JAVA_HOME", str(empty_machine / "jdk"))
    assert find_java() == home


def test_a_java_that_is_old_or_does_not_run_is_passed_over(
    empty_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java(empty_machine / "jdk/bin/java", "1.8.0_292")
    monkeypatch.setenv("JAVA_HOME", str(empty_machine / "jdk"))
    executable(empty_machine / "java", "echo 'No Java runtime present, requesting install.' >&2; exit 1")
    found = java(empty_machine.parent / "root/usr/lib/jvm/some-jdk/bin/java", "25")
    assert find_java() == found


@pytest.mark.usefixtures("empty_machine")
def test_no_java_is_a_sentence_with_every_way_to_get_one() -> None:
    with pytest.raises(
        EmulatorUnavailable, match=r"needs Java 17 or newer, and none was found\. Install one .*JAVA_HOME\."
    ):
        find_java()


def test_an_old_java_is_named(empty_machine: Path) -> None:
    java(empty_machine / "java", "11.0.20")
    with pytest.raises(EmulatorUnavailable, match="the newest found is Java 11"):
        find_java()


# --- The jar ---


def places(machine: Path) -> Iterator[Path]:
    """Where a jar may be, the preferred place first."""
    in_sdk = "platform/cloud-firestore-emulator/cloud-firestore-emulator.jar"
    yield machine / "sdk-of-gcloud" / in_sdk
    yield machine.parent / "root/usr/lib/google-cloud-sdk" / in_sdk
    yield machine.parent / "google-cloud-sdk" / in_sdk
    yield machine.parent / "root/opt/homebrew/share/google-cloud-sdk" / in_sdk
    yield machine.parent / ".cache/firebase/emulators/cloud-firestore-emulator-v1.19.10.jar"
    yield machine.parent / ".cache/firebase/emulators/cloud-firestore-emulator-v1.19.9.jar"


def test_the_jar_is_looked_for_in_order(empty_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (empty_machine / "gcloud").symlink_to(executable(empty_machine / "sdk-of-gcloud/bin/gcloud", "exit 0"))
    for jar in reversed(list(places(empty_machine))):
        touched(jar)
        assert find_jar() == jar
    named = touched(empty_machine / "named.jar")
    monkeypatch.setenv("FIRESTORE_EMULATOR_JAR", str(named))
    assert find_jar() == named


@pytest.mark.usefixtures("empty_machine")
def test_a_named_jar_that_is_missing_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRESTORE_EMULATOR_JAR", "/nowhere.jar")
    with pytest.raises(EmulatorUnavailable, match=r"names /nowhere\.jar, which is no file"):
        find_jar()


@pytest.mark.usefixtures("empty_machine")
def test_no_jar_and_no_tool_is_a_sentence_with_every_way_to_get_it() -> None:
    with pytest.raises(EmulatorUnavailable) as raised:
        find_jar()
    for way in (
        "nodejs.org",
        "firebase setup:emulators:firestore",
        "gcloud components install",
        "FIRESTORE_EMULATOR_JAR",
    ):
        assert way in str(raised.value)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("firebase", "setup:emulators:firestore"), ("npx", "--yes firebase-tools@15.34.2 setup:emulators:firestore")],
)
def test_a_missing_jar_is_fetched(
    empty_machine: Path, capsys: pytest.CaptureFixture[str], tool: str, arguments: str
) -> None:
    cache = empty_machine.parent / ".cache/firebase/emulators"
    script = f'test "$*" = "{arguments}" && /bin/mkdir -p {cache} && : > {cache}/cloud-firestore-emulator-v1.20.jar'
    executable(empty_machine / tool, script)
    assert find_jar() == cache / "cloud-firestore-emulator-v1.20.jar"
    assert capsys.readouterr().err.startswith("Fetching the Firestore emulator with firebase-tools")


def test_a_fetch_that_fails_shows_why(empty_machine: Path) -> None:
    executable(empty_machine / "npx", "echo no network at all; exit 1")
    with pytest.raises(EmulatorUnavailable, match=r"did not fetch the Firestore emulator\.[^$]*no network at all"):
        find_jar()


# --- The emulator itself ---


def client(host: str, project: str = PROJECT) -> Client:
    os.environ["FIRESTORE_EMULATOR_HOST"] = host
    return Client(project=project, credentials=AnonymousCredentials())


@pytest.mark.slow
@pytest.mark.usefixtures("emulator_host")
def test_data_and_vectors_pass_through_an_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", "")
    with running_emulator() as first:
        document = client(first.host).collection("memories").document("one")
        document.set({"content": "ü", "embedding": Vector([0.5, 0.25])})
        first.export(PROJECT, tmp_path / "export")
        clear(first.host, PROJECT)
        assert not document.get().exists
    assert not alive(first.process.pid)
    (tmp_path / "export").rename(tmp_path / "renamed")
    with running_emulator(import_from=tmp_path / "renamed") as second:
        assert client(second.host).collection("memories").document("one").get().to_dict() == {
            "content": "ü",
            "embedding": Vector([0.5, 0.25]),
        }


@pytest.mark.slow
@pytest.mark.usefixtures("emulator_host")
def test_what_is_imported_stands_in_every_project_and_is_cleared_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", "")
    with running_emulator() as first:
        client(first.host).collection("memory_vectors").document("one").set({"content": "ü"})
        first.export(PROJECT, tmp_path / "export")
    with running_emulator(import_from=tmp_path / "export") as second:

        def holds(project: str) -> bool:
            return client(second.host, project).collection("memory_vectors").document("one").get().exists

        assert holds(PROJECT)
        assert holds("demo-never-seen")
        clear(second.host, "demo-never-seen")
        assert [holds("demo-never-seen"), holds(PROJECT), holds("demo-another")] == [False, True, True]

        tests = [str(ROOT / "functions/tests/contracts"), "-k", "empty_until and firestore", "-p", "no:xdist", "-q"]
        env = {**os.environ, "FIRESTORE_EMULATOR_HOST": second.host}
        run = subprocess.run(
            [sys.executable, "-m", "pytest", *tests], cwd=ROOT, env=env, capture_output=True, text=True, check=False
        )
        assert "1 passed" in run.stdout, run.stdout
        assert holds(PROJECT)


@pytest.mark.slow
@pytest.mark.usefixtures("emulator_host")
def test_what_is_no_export_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(ImportFailed, match=str(tmp_path)), running_emulator(import_from=tmp_path):
        pass
    (tmp_path / "x.overall_export_metadata").write_bytes(b"\xff\x01nothing")
    log = tmp_path / "emulator.log"
    with pytest.raises(ImportFailed, match=str(tmp_path)), running_emulator(import_from=tmp_path, log=log):
        pass
    assert "Invalid record" in log.read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("emulator_host")
def test_a_taken_port_is_told_with_the_last_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(OpsError, match="already in use"), running_emulator(port=port):
            pass


@pytest.mark.slow
@pytest.mark.usefixtures("emulator_host")
def test_two_run_at_once_and_one_that_dies_says_so() -> None:
    with running_emulator() as one, running_emulator() as two:
        assert one.host != two.host
        os.kill(one.process.pid, 9)
        eventually(lambda: one.process.exit_code() is not None)
        with pytest.raises(OpsError, match="does not answer"):
            clear(one.host, PROJECT)
        clear(two.host, PROJECT)
