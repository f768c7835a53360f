"""Which documents two sides hold, on the disk rather than in memory, and whatever the order in which they come."""

import sqlite3
from collections.abc import Generator, Iterator
from contextlib import contextmanager

from ops.mirror_report import Row, Side
from ops.processes import OpsError


class Ledger:
    """The paths and digests of documents, in a temporary file that is gone with this process."""

    def __init__(self, file: sqlite3.Connection) -> None:
        self._file = file
        self._file.execute("CREATE TABLE held (path TEXT PRIMARY KEY, source BLOB, target BLOB) WITHOUT ROWID")

    def note(self, side: Side, path: str, digest: bytes) -> None:
        insert = f"INSERT INTO held (path, {side}) VALUES (?, ?)"  # noqa: S608 - one of two words
        self._file.execute(f"{insert} ON CONFLICT DO UPDATE SET {side} = excluded.{side}", (path, digest))

    def holds(self, path: str) -> bool:
        return self._file.execute("SELECT 1 FROM held WHERE path = ?", (path,)).fetchone() is not None

    def rows(self) -> Iterator[Row]:
        """Every document of either side, in the order of the bytes of their paths."""
        yield from self._file.execute("SELECT path, source, target FROM held ORDER BY path")


@contextmanager
def open_ledger() -> Generator[Ledger]:
    """An empty ledger. Raises OpsError where the disk of temporary files is full."""
    # An empty name makes SQLite keep it in a file that has no name any more.
    file = sqlite3.connect("")
    try:
        yield Ledger(file)
    except sqlite3.OperationalError as error:
        raise OpsError(
            f"The temporary file of this comparison cannot be written ({error}); make room, or set TMPDIR."
        ) from error
    finally:
        file.close()
