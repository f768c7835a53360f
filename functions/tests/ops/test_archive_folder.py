"""The folder of an archive: what `metacortex archive verify` finds in it, and that it is whole at any moment."""

import fcntl
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from archives import invoke, memory, said, surroundings, write_archive
from ops.checkout import FUNCTIONS
from ops.processes import OpsError

MEMORIES = dict(map(memory, range(10)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A whole archive of ten memories."""
    folder = tmp_path / "archive"
    write_archive(folder, MEMORIES)
    return folder


def lines(folder: Path) -> list[str]:
    return (folder / "memories.jsonl").read_text().splitlines(keepends=True)


def put(folder: Path, some: list[str]) -> None:
    (folder / "memories.jsonl").write_text("".join(some))


def change_manifest(folder: Path, **changes: Any) -> None:
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **changes}))


# --- What verify finds ---


def test_a_whole_archive_is_told_with_what_it_holds(folder: Path) -> None:
    told = invoke("verify", str(folder)).stdout
    assert "memory_vectors of demo-source, 2026-11-30 12:00 UTC" in told
    assert "10: 10 active" in told
    assert told.endswith("The archive is whole.\n")


def test_verify_tells_one_json_object(folder: Path) -> None:
    result = invoke("verify", str(folder), "--json")
    answer = json.loads(result.stdout)
    assert (answer["ok"], answer["error"], result.stderr) == (True, None, "")
    assert answer["manifest"] == json.loads((folder / "manifest.json").read_text())
    put(folder, lines(folder)[1:])
    answer = json.loads(invoke("verify", str(folder), "--json", status=1).stdout)
    assert (answer["ok"], "9 active" in answer["error"]) == (False, True)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "one letter": (
        lambda folder: put(folder, [line.replace("Owl 4", "Owl 5") for line in lines(folder)]),
        "its SHA-256 is another",
    ),
    "a line that is cut": (
        lambda folder: put(folder, [*lines(folder)[:-1], lines(folder)[-1][:40]]),
        "Line 10 of memories.jsonl does not hold a memory",
    ),
    "the last line feed": (
        lambda folder: put(folder, [*lines(folder)[:-1], lines(folder)[-1].rstrip()]),
        "Line 10 of memories.jsonl is not as this command writes that memory",
    ),
    "a line too few": (
        lambda folder: put(folder, lines(folder)[1:]),
        "holds 9 active memories, and manifest.json says 10",
    ),
    "a line twice": (
        lambda folder: put(folder, [*lines(folder), lines(folder)[-1]]),
        "Line 11 of memories.jsonl is out of order",
    ),
    "two lines in each other's place": (
        lambda folder: put(folder, [*lines(folder)[1::-1], *lines(folder)[2:]]),
        "Line 2 of memories.jsonl is out of order",
    ),
    "a line without an end": (
        lambda folder: put(folder, [*lines(folder), "x" * 9_000_000]),
        "Line 11 of memories.jsonl does not hold a memory",
    ),
    "bytes that are no text": (
        lambda folder: (folder / "memories.jsonl").write_bytes(b"\xff\n"),
        "Line 1 of memories.jsonl does not hold a memory",
    ),
    "other counts": (
        lambda folder: change_manifest(folder, memories={"active": 9, "wip": 1}),
        "holds 0 wip memories, and manifest.json says 1",
    ),
    "no memories": (lambda folder: (folder / "memories.jsonl").unlink(), "memories.jsonl cannot be read: No such file"),
    "no manifest": (lambda folder: (folder / "manifest.json").unlink(), "holds no archive: manifest.json is missing"),
    "half a manifest": (
        lambda folder: (folder / "manifest.json").write_text((folder / "manifest.json").read_text()[:100]),
        "manifest.json is not the manifest of an archive, or is damaged",
    ),
    "another schema": (
        lambda folder: change_manifest(folder, schema_version=2),
        "manifest.json is none that this command reads: schema_version: Input should be 1",
    ),
    "a field too few": (
        lambda folder: (folder / "manifest.json").write_text('{"format": "metacortex-archive"}'),
        "manifest.json is none that this command reads: created_at: Field required",
    ),
    "another file": (
        lambda folder: (folder / "manifest.json").write_text('{"created_at": "2026-11-30T12:00:00Z"}'),
        "manifest.json is not the manifest of an archive, or is damaged",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_wrong_is_named(folder: Path, damage: str) -> None:
    do, sentence = DAMAGES[damage]
    do(folder)
    assert sentence in said(invoke("verify", str(folder), status=1))


def test_of_many_faults_the_first_are_told(folder: Path) -> None:
    put(folder, ["{}\n"] * 1_000)
    told = invoke("verify", str(folder), status=1).stderr.splitlines()
    assert told[1] == "Line 1 of memories.jsonl does not hold a memory."
    assert (len(told), told[-1]) == (12, "There is more.")


def test_a_folder_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    assert "does not exist" in said(invoke("verify", str(tmp_path / "none"), status=2))
    (tmp_path / "file").touch()
    assert "is a file" in said(invoke("verify", str(tmp_path / "file"), status=2))


# --- That it is whole at any moment ---


def test_only_the_owner_reads_it(folder: Path) -> None:
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_what_ends_a_writing_leaves_the_archive_before(folder: Path) -> None:
    before = (folder / "memories.jsonl").read_bytes()
    spoilt = {"a": {"content": "x"}, "b": {"content": 1j}}
    with pytest.raises(TypeError):
        write_archive(folder, spoilt)
    assert (folder / "memories.jsonl").read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "memories.jsonl"]
    invoke("verify", str(folder))


def test_an_archive_whose_manifest_is_not_renamed_yet_is_whole_and_is_completed(folder: Path, tmp_path: Path) -> None:
    later = tmp_path / "later"
    write_archive(later, dict(map(memory, range(20))))
    (folder / ".unfinished").mkdir()
    (later / "memories.jsonl").replace(folder / "memories.jsonl")
    (later / "manifest.json").replace(folder / ".unfinished/manifest.json")
    assert "20: 20 active" in invoke("verify", str(folder)).stdout
    # The next writing completes it first, so that this is what it is compared with.
    with pytest.raises(OpsError, match=r"would have 10 memories .* has 20"):
        write_archive(folder, MEMORIES)
    assert json.loads((folder / "manifest.json").read_text())["memories"]["active"] == 20


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_the_archive_before_or_the_one_after(folder: Path, tmp_path: Path) -> None:
    five = tmp_path / "five"
    write_archive(five, dict(map(memory, range(5))))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    env = {**surroundings("127.0.0.1:1")}
    env["PYTHONPATH"] += f"{os.pathsep}{FUNCTIONS / 'tests'}"
    main = FUNCTIONS / "tests/mains/killed_export.py"
    run = subprocess.run(
        [sys.executable, "-P", main, five, scratch], env=env, check=False, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    found = [int(line) for line in run.stdout.split()]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (5, 10)
    # Making the folder and both files, renaming both, and clearing away.
    assert len(found) > 6


def test_much_smaller_is_refused_unless_it_is_forced(folder: Path) -> None:
    write_archive(folder, dict(list(MEMORIES.items())[:9]))
    with pytest.raises(OpsError, match=r"would have 8 memories .* has 9 .* more than 10 % are gone"):
        write_archive(folder, dict(list(MEMORIES.items())[:8]))
    emptied = {name: {**fields, "content": ""} for name, fields in MEMORIES.items()}
    write_archive(folder, MEMORIES)
    long = {**MEMORIES, "z": {"content": "x" * 3_000}}
    write_archive(folder, long)
    with pytest.raises(OpsError, match="more than 10 % are gone"):
        write_archive(folder, {**emptied, "z": {"content": ""}})
    write_archive(folder, emptied, force=True)
    assert "10: 10 active" in invoke("verify", str(folder)).stdout


def test_two_commands_in_one_folder_do_not_meet(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        with pytest.raises(OpsError, match="Another command is at work"):
            write_archive(folder, MEMORIES)
        assert "Another command is at work" in said(invoke("verify", str(folder), status=1))
    finally:
        os.close(descriptor)
    invoke("verify", str(folder))


@pytest.mark.slow
def test_a_full_disk_is_told_and_leaves_the_archive_before(folder: Path, tmp_path: Path) -> None:
    # The limit of a file's size ends a writing as a full disk does, with another word.
    writing = "from pathlib import Path; import sys; from archives import memory, write_archive;"
    writing += "write_archive(Path(sys.argv[1]), dict(map(memory, range(5000))))"
    env = {**surroundings("127.0.0.1:1")}
    env["PYTHONPATH"] += f"{os.pathsep}{FUNCTIONS / 'tests'}"
    limited = ["/bin/sh", "-c", 'ulimit -f 100; exec "$@"', "sh", sys.executable, "-B", "-P", "-c", writing, folder]
    run = subprocess.run(limited, env=env, check=False, capture_output=True, text=True)
    assert run.returncode == 1
    assert "OpsError" in run.stderr
    assert "cannot be written: File too large." in run.stderr
    assert "10: 10 active" in invoke("verify", str(folder)).stdout
    assert not (folder / ".unfinished").exists()
    shutil.rmtree(folder)
