"""Keeping an archive in the git repository that its folder lies in."""

import subprocess
from pathlib import Path

from ops.archive_folder import FILES
from ops.processes import OpsError


def require_repository(folder: Path) -> None:
    """Raises OpsError where the folder, which need not exist yet, lies in no repository."""
    whole = folder.resolve()
    nearest = next(path for path in (whole, *whole.parents) if path.is_dir())
    answer = _git(nearest, "rev-parse", "--is-inside-work-tree")
    if answer.returncode or answer.stdout.strip() != "true":
        raise OpsError(f"{folder} lies in no git repository; make one with `git init`, or leave out --commit.")


def commit(folder: Path, message: str) -> str:
    """Commit the archive and nothing else; returns the short hash of the commit. Raises OpsError."""
    for arguments in (("add", "--"), ("commit", "--quiet", "--only", "--message", message, "--")):
        answer = _git(folder, *arguments, *FILES)
        if answer.returncode:
            said = " ".join((answer.stderr or answer.stdout).split())
            raise OpsError(f"The archive is written, but git could not commit it: {said}")
    return _git(folder, "rev-parse", "--short", "HEAD").stdout.strip()


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["git", "-C", folder, *arguments], check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
    except FileNotFoundError:
        raise OpsError("git is not installed, and --commit needs it; install it, or leave out --commit.") from None
