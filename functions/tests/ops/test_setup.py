"""The set-up before every front door: finding Python, making functions/venv, installing the lock."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ops.checkout import ROOT

pytestmark = pytest.mark.slow

SETUP = ROOT / "scripts/ops/setup.sh"
UNOBTAINABLE = f"no-such-package==1.0 --hash=sha256:{'0' * 64}\n"

SetUp = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout whose lock names nothing."""
    (tmp_path / "functions").mkdir()
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "requirements-dev.txt").write_text("# nothing yet\n")
    return tmp_path


@pytest.fixture
def set_up(root: Path) -> SetUp:
    """Starts a set-up like a front door does, off line; prints the interpreter it leaves behind."""
    script = f"set -eu; root={root}; . $root/scripts/ops/setup.sh; echo $python"
    env = {"PATH": os.environ["PATH"], "HOME": str(root), "PYTHON": sys.executable, "PIP_NO_INDEX": "1"}

    def start() -> "subprocess.Popen[str]":
        return subprocess.Popen(
            ["sh", "-c", script], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    return start


def outcome(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out.strip(), err


def test_it_sets_up_what_is_missing_says_so_and_is_silent_when_nothing_is(root: Path, set_up: SetUp) -> None:
    python = root / "functions/venv/bin/python"
    lock = root / "requirements-dev.txt"
    making = f"Making functions/venv with Python {sys.version_info.major}.{sys.version_info.minor} ...\n"
    installing = "Installing the locked packages into functions/venv (about a minute, only when the lock changes) ...\n"
    assert outcome(set_up()) == (0, str(python), making + installing)
    assert outcome(set_up()) == (0, str(python), "")

    lock.write_text("# another nothing\n")
    assert outcome(set_up()) == (0, str(python), installing)

    lock.write_text(UNOBTAINABLE)
    for _ in range(2):
        status, _, said = outcome(set_up())
        assert status == 1
        assert "no-such-package" in said
        assert "Setting up functions/venv failed; the lines above say why." in said

    lock.write_text("# nothing again\n")
    both = [set_up(), set_up()]
    outcomes = [outcome(process) for process in both]
    assert [status for status, _, _ in outcomes] == [0, 0]
    assert sum(installing in said for _, _, said in outcomes) == 1

    python.unlink()
    python.symlink_to("/nowhere/python")
    assert outcome(set_up()) == (0, str(python), making + installing)


def functions_of_setup(candidates: str) -> str:
    """The functions of setup.sh without what it does with them, and other places to look for Python."""
    functions = SETUP.read_text().partition("\nif ! cmp")[0]
    return f"root=/nowhere\n{functions}\npython_candidates() {{ printf '%s\\n' {candidates}; }}\nfind_python"


def find_python(*candidates: Path | str) -> tuple[int, str, str]:
    script = functions_of_setup(" ".join(f"'{candidate}'" for candidate in candidates))
    return outcome(subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_python_that_does_not_run_or_is_too_old_is_passed_over(tmp_path: Path) -> None:
    shim = script(tmp_path / "shim", "echo 'command not found' >&2; exit 127")
    old = script(tmp_path / "old", f'exec {sys.executable} -c "import sys; sys.exit(1)"')
    assert find_python("", "/nowhere/python", shim, old, sys.executable) == (0, sys.executable, "")


def test_no_python_is_a_sentence(tmp_path: Path) -> None:
    status, found, said = find_python(script(tmp_path / "shim", "exit 127"))
    assert (status, found) == (1, "")
    assert said.startswith("MetaCortex needs Python 3.11, 3.12 or 3.13, and none was found. Install one")


def test_a_python_without_its_venv_module_is_a_sentence(tmp_path: Path) -> None:
    incomplete = script(tmp_path / "python", f'case "$*" in *ensurepip*) exit 1;; *) exec {sys.executable} "$@";; esac')
    status, _, said = find_python(incomplete)
    assert status == 1
    assert f"sudo apt install python{sys.version_info.major}.{sys.version_info.minor}-venv" in said


@pytest.mark.skipif(
    not (ROOT / "functions/venv/.installed").exists(),
    reason="functions/venv was set up by hand, and a front door would mend it",
)
def test_every_front_door_can_be_called_from_anywhere(tmp_path: Path) -> None:
    for door in ("dev", "test", "metacortex"):
        answer = subprocess.run(
            [ROOT / "scripts" / door, "--help"], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert door in answer.stdout
