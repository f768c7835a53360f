"""Makes functions/venv and installs the lock into it. Run by setup.sh, by a bare Python: standard library only.

`functions/venv/.installed` is a copy of the lock, written only after everything in it was installed: while it equals
requirements-dev.txt there is nothing to do.
"""

import fcntl
import filecmp
import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

SUPPORTED = "import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))"


def say(sentence: str) -> None:
    """Tell the person at the terminal, without disturbing what the command itself prints."""
    print(sentence, file=sys.stderr, flush=True)


def runs(*command: str | Path) -> bool:
    """Whether a command exists and succeeds."""
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except OSError:
        return False


@contextmanager
def alone(lock: Path) -> Generator[None]:
    """Hold the lock file, so that two set-ups at once become one after the other; the kernel lets go if we die."""
    with lock.open("rb") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another set-up of this checkout is running; waiting for it ...")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def installed(lock: Path, venv: Path) -> bool:
    """Whether the environment runs and holds what the lock names."""
    stamp = venv / ".installed"
    return (
        stamp.is_file() and filecmp.cmp(lock, stamp, shallow=False) and runs(venv / "bin/python", "-I", "-c", SUPPORTED)
    )


def make_environment(venv: Path) -> None:
    """Make the virtual environment, unless a sound one is there."""
    python = venv / "bin/python"
    if runs(python, "-I", "-c", SUPPORTED) and runs(python, "-I", "-m", "pip", "--version"):
        return
    if Path(sys.prefix).resolve() == venv.resolve():
        do(sys.executable, "-I", "-m", "ensurepip")
        return
    say(f"Making functions/venv with Python {sys.version_info.major}.{sys.version_info.minor} ...")
    do(sys.executable, "-I", "-m", "venv", "--clear", venv)


def install(lock: Path, venv: Path) -> None:
    """Install the lock, every file checked against its hash."""
    stamp, pending = venv / ".installed", venv / ".installing"
    stamp.unlink(missing_ok=True)
    shutil.copyfile(lock, pending)
    say("Installing the locked packages into functions/venv (about a minute, only when the lock changes) ...")
    pip = [venv / "bin/python", "-I", "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    do(*pip, "--require-hashes", "-r", pending)
    pending.replace(stamp)


def do(*command: str | Path) -> None:
    """Run a command; if it fails, show what it said and raise CalledProcessError."""
    environment = {**os.environ, "PIP_USER": "0"}
    done = subprocess.run(
        command, check=False, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        say(done.stdout.rstrip())
        done.check_returncode()


def main(root: Path) -> int:
    """Bring the environment of this checkout up to its lock."""
    lock, venv = root / "requirements-dev.txt", root / "functions/venv"
    with alone(lock):
        if installed(lock, venv):
            return 0
        try:
            make_environment(venv)
            install(lock, venv)
        except (subprocess.CalledProcessError, OSError) as error:
            if isinstance(error, OSError):
                say(str(error))
            say(
                "Setting up functions/venv failed; the lines above say why. The usual reasons are no network or no room"
                " on the disk. Mend it and run this again: it goes on where it stopped."
            )
            return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1])))
    except KeyboardInterrupt:
        sys.exit(130)
