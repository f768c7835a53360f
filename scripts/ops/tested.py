"""Which commit the tests passed for: ./scripts/test keeps it, `metacortex preflight` asks for it."""

import json
import subprocess
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from ops.processes import OpsError

RECORD = Path(".metacortex/tests-passed.json")


@dataclass(frozen=True)
class Passed:
    """One run of ./scripts/test in which everything passed, on a tree that was exactly a commit."""

    commit: str
    amount: str
    """What ran: `tests`, or `hosts` where the real hosts and clients ran too."""
    at: str
    """When it ended, as ISO 8601 in UTC."""


def changes(root: Path) -> list[str]:
    """The files, by their paths, in which a checkout differs from its commit, new ones included. Raises OpsError."""
    listed = _git(root, "status", "--porcelain", "--untracked-files=normal", "-z")
    entries = iter(listed.split("\0")[:-1])
    changed: list[str] = []
    for entry in entries:
        changed.append(entry[3:])
        # A renamed or copied file is followed by its old name.
        if entry[0] in "RC":
            next(entries)
    return changed


def commit(root: Path) -> str:
    """The commit a checkout is at. Raises OpsError where there is none."""
    return _git(root, "rev-parse", "--verify", "HEAD").strip()


def clean_commit(root: Path) -> str | None:
    """The commit that a checkout is exactly; None where it has changes or is under no version control."""
    try:
        return None if changes(root) else commit(root)
    except OpsError:
        return None


def record(root: Path, passed_commit: str, amount: str) -> None:
    """Keep that everything passed now for a commit."""
    passed = Passed(passed_commit, amount, datetime.now(UTC).isoformat(timespec="seconds"))
    file = root / RECORD
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(asdict(passed)) + "\n")


def recorded(root: Path) -> Passed | None:
    """What passed last; None where nothing did, or where what was kept cannot be understood."""
    try:
        return Passed(**json.loads((root / RECORD).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", root, *arguments], check=False, capture_output=True, text=True, errors="replace"
        )
    except FileNotFoundError:
        raise OpsError("git is not installed, or not on PATH; install it and run this again.") from None
    if done.returncode:
        raise OpsError("git knows no commit of this checkout; deploy from a clone of the repository.")
    return done.stdout
