"""The folder of a mirror: one folder of files with documents, and the manifest that names them.

A backup writes its files into a new folder beside the former ones, and its manifest takes the place of the former one in one
step. So at any moment the folder holds a whole mirror, or none yet.
"""

import asyncio
import base64
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from datetime import datetime
from io import BufferedWriter
from pathlib import Path

from ops.mirror_documents import Record
from ops.mirror_manifest import File, Manifest, is_of_sign_in, sealed, unsealed
from ops.mirror_report import collection_of, counted
from ops.place import database_of
from ops.processes import OpsError
from ops.progress import Tell

MANIFEST = "manifest.json"
UNFINISHED = ".unfinished"
SMALLER = 0.9
FILE_BYTES = 32 * 1024 * 1024
"""A file ends with the document that takes it to this size."""
_DATA = re.compile(r"data-\d{8}T\d{12}Z")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class MirrorFolder:
    """A folder that holds a mirror, or is to hold one. Every method raises OpsError where it cannot be used as asked."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @asynccontextmanager
    async def reading(self, tell: Tell, *, sign_in: bool) -> AsyncGenerator[Manifest]:
        """Hold the folder while it is read, so that no backup replaces it; every file is as it was written.

        With `sign_in` it must hold what signing in keeps.
        """
        with self._locked(fcntl.LOCK_SH, f"A backup into {self.path} is running; run this again when it is done."):
            manifest = self._held()
            if manifest is None:
                raise OpsError(f"{self.path} holds no mirror; name a folder that `metacortex mirror backup` finished.")
            if sign_in and not manifest.sign_in:
                raise OpsError(
                    f"{self.path} was made without --with-sign-in and holds nothing of signing in; leave that option out."
                )
            for number, file in enumerate(manifest.files, start=1):
                await asyncio.to_thread(self._verify, file)
                tell("Checking files", number, len(manifest.files))
            yield manifest

    def records(self, manifest: Manifest, *, sign_in: bool) -> Iterator[Record]:
        """Every document, those of signing in only where asked for, while the folder is held for reading."""
        for file in manifest.files:
            with self._readable(self.path / file.name), (self.path / file.name).open("rb") as lines:
                for line in lines:
                    entry = json.loads(line)
                    if sign_in or not is_of_sign_in(entry["path"]):
                        yield Record(entry["path"], base64.b64decode(entry["document"]), entry["update_time"])

    def require_room_for(self, project: str, emulator: str | None) -> None:
        """That a backup of this project, or of an emulator in its place, may be written here. Changes nothing."""
        held = self._held()
        # Emulators take other ports each time.
        if held and (held.project, bool(held.emulator)) != (project, bool(emulator)):
            raise OpsError(f"{self.path} holds {held.origin()}; name another folder for {database_of(project)}.")
        if held:
            return
        others = sorted(path.name for path in self._entries() if not _is_of_backups(path))
        if others:
            raise OpsError(
                f"{self.path} holds other things, such as {others[0]}; name an empty folder, or one that is not there yet."
            )

    @contextmanager
    def replacing(self, project: str, emulator: str | None, moment: datetime, *, force: bool) -> Generator["Writer"]:
        """Hold the folder, made where it is missing, for one backup. What that leaves unfinished is removed at its end.

        With `force` a mirror that is there may lose as much as it will.
        """
        with _replacing(self.path):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._locked(fcntl.LOCK_EX, f"Another command uses {self.path}; run this again when it is done."):
            self.require_room_for(project, emulator)
            self._tidy()
            writer = Writer(self.path, moment, None if force else self._held())
            try:
                yield writer
            finally:
                writer.close()
                self._tidy()

    def _held(self) -> Manifest | None:
        file = self.path / MANIFEST
        with self._readable(file):
            try:
                text = file.read_bytes()
            except FileNotFoundError:
                return None
        return unsealed(str(file), text)

    def _verify(self, file: File) -> None:
        path = self.path / file.name
        with self._readable(path), path.open("rb") as opened:
            found = hashlib.file_digest(opened, "sha256").hexdigest()
        if found != file.sha256:
            raise OpsError(f"{path} is not as it was written, so this mirror cannot be used.")

    def _tidy(self) -> None:
        """Remove what backups left here that did not finish, or that another one replaced."""
        held = self._held()
        current = {Path(file.name).parent.name for file in held.files} if held else set[str]()
        for path in self._entries():
            if _DATA.fullmatch(path.name) and path.name not in current:
                shutil.rmtree(path, ignore_errors=True)

    def _entries(self) -> list[Path]:
        with self._readable(self.path):
            return list(self.path.iterdir()) if self.path.exists() else []

    @contextmanager
    def _locked(self, kind: int, refusal: str) -> Generator[None]:
        with self._readable(self.path):
            descriptor = os.open(self.path, os.O_RDONLY)
        try:
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OpsError(refusal) from None
            yield
        finally:
            # The system lets go of the lock with it.
            os.close(descriptor)

    @contextmanager
    def _readable(self, path: Path) -> Generator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise OpsError(f"{path} is missing, so this mirror cannot be used.") from error
        except NotADirectoryError as error:
            raise OpsError(f"{self.path} is no folder; name another place.") from error
        except OSError as error:
            raise OpsError(f"{path} cannot be read: {error.strerror}.") from error


class Writer:
    """The files of one backup, and at its end their manifest. Nothing of it counts before that."""

    def __init__(self, folder: Path, moment: datetime, kept: Manifest | None) -> None:
        self._folder = folder
        self._moment = moment
        # The mirror of which this one may not have lost much.
        self._kept = kept
        self._data = f"data-{moment:%Y%m%dT%H%M%S%f}Z"
        self._file: _OpenFile | None = None
        self._files: list[File] = []
        self._collections: Counter[str] = Counter()

    def add(self, record: Record) -> None:
        """Write one document."""
        entry = {
            "path": record.path,
            "update_time": record.updated_at,
            "document": base64.b64encode(record.content).decode(),
        }
        with _replacing(self._folder):
            file = self._file = self._file or self._next_file()
            file.write(json.dumps(entry).encode() + b"\n")
            if file.bytes >= FILE_BYTES:
                self._end_file()
        self._collections[collection_of(record.path)] += 1

    def finish(self, project: str, emulator: str | None, *, sign_in: bool) -> Manifest:
        """Make all that was written the mirror that the folder holds. Raises OpsError where too much would be lost."""
        with _replacing(self._folder):
            self._end_file()
            manifest = Manifest(
                project=project,
                emulator=emulator,
                read_time=self._moment,
                sign_in=sign_in,
                collections=dict(sorted(self._collections.items())),
                files=tuple(self._files),
            )
            self._require_no_loss(manifest)
            if self._files:
                _flush(self._folder / self._data)
            replace_file(self._folder / MANIFEST, sealed(manifest))
        return manifest

    def _require_no_loss(self, new: Manifest) -> None:
        if self._kept and new.lasting < SMALLER * self._kept.lasting:
            raise OpsError(
                f"The new mirror would have {counted(new.lasting)} that neither expire nor are parts, and the one in"
                f" {self._folder} has {self._kept.lasting:,}: more than 10 % are gone. That one was kept; if the loss is"
                " meant, add --force."
            )

    def close(self) -> None:
        """Let go of a file that was not finished."""
        if self._file:
            self._file.close()

    def _next_file(self) -> "_OpenFile":
        (self._folder / self._data).mkdir(mode=0o700, exist_ok=True)
        return _OpenFile(self._folder, f"{self._data}/documents-{len(self._files) + 1:05}.jsonl")

    def _end_file(self) -> None:
        if self._file:
            self._files.append(self._file.end())
            self._file = None


class _OpenFile:
    def __init__(self, folder: Path, name: str) -> None:
        self._name = name
        self._file = _create(folder / name)
        self._hash = hashlib.sha256()
        self._documents = 0
        self.bytes = 0

    def write(self, line: bytes) -> None:
        self._file.write(line)
        self._hash.update(line)
        self._documents += 1
        self.bytes += len(line)

    def end(self) -> File:
        """Put it on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return File(name=self._name, documents=self._documents, bytes=self.bytes, sha256=self._hash.hexdigest())

    def close(self) -> None:
        # A full disk takes nothing of what is still to be written.
        with suppress(OSError):
            self._file.close()


def replace_file(path: Path, content: bytes) -> None:
    """Write a file beside the former one, and put it in its place: readable by its owner only, and all or nothing."""
    beside = path.with_name(f"{path.name}{UNFINISHED}")
    beside.unlink(missing_ok=True)
    try:
        with _create(beside) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    _flush(path.parent)


def _is_of_backups(path: Path) -> bool:
    return path.name in (MANIFEST, f"{MANIFEST}{UNFINISHED}") or bool(_DATA.fullmatch(path.name))


def _create(path: Path) -> BufferedWriter:
    """A new file, readable by its owner only."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _flush(folder: Path) -> None:
    """Put the names in a folder on the disk: a power cut would lose them."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replacing(folder: Path) -> AbstractContextManager[None]:
    return writable(folder, "A mirror that was there still is.")


@contextmanager
def writable(path: Path, afterwards: str) -> Generator[None]:
    """Around whatever writes to a path: raises OpsError where the system does not let us.

    `afterwards` says how things stand when the disk is full, as a sentence.
    """
    try:
        yield
    except NotADirectoryError as error:
        raise OpsError(f"{path} is no folder; name another place.") from error
    except FileExistsError as error:
        raise OpsError(f"{path} is no folder; name another place.") from error
    except OSError as error:
        if error.errno in _FULL:
            raise OpsError(
                f"The disk has no room for {path}; make some, or name another place. {afterwards}"
            ) from error
        raise OpsError(f"{path} cannot be written: {error.strerror}.") from error
