"""The emulator's data between runs: exports in a folder, of which the newest two are kept."""

import fcntl
import os
import re
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ops.processes import OpsError

KEPT = 2


@dataclass(frozen=True)
class Exports:
    """A folder of numbered exports, `export-000001` and on. A folder with such a name is always complete."""

    folder: Path

    def stored(self) -> list[Path]:
        """Every export, the newest first."""
        return sorted(filter(_number, self.folder.glob("export-*")), key=_number, reverse=True)

    def add(self, write: Callable[[Path], None]) -> Path:
        """Let `write` fill a new folder, and only then make it the newest export and drop the oldest."""
        unfinished = self.folder / "unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        name = f"export-{max(map(_number, self.folder.iterdir())) + 1:06}"
        write(unfinished / name)
        _flush(unfinished / name)
        (unfinished / name).rename(self.folder / name)
        unfinished.rmdir()
        for old in self.stored()[KEPT:]:
            shutil.rmtree(old, ignore_errors=True)
        return self.folder / name

    def set_aside(self, export: Path) -> Path:
        """Rename an export that cannot be imported, so that it is neither tried again nor dropped."""
        return export.rename(export.with_name(f"unreadable-{export.name}"))

    @contextmanager
    def locked(self, refusal: str) -> Generator[None]:
        """Hold the folder for one command, or raise OpsError(refusal). The system lets go of it when we end."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OpsError(refusal) from None
        else:
            yield
        finally:
            os.close(descriptor)


def _flush(export: Path) -> None:
    """Put every file on the disk: after a power cut the emulator would take a file of zeros for an empty one."""
    for path in (*export.rglob("*"), export):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _number(path: Path) -> int:
    """The number of an export, and 0 of anything else: an owner may keep copies beside them under other names."""
    named = re.fullmatch(r"(?:unreadable-)?export-([0-9]{6,})", path.name)
    return int(named[1]) if named else 0
