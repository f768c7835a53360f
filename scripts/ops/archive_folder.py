"""The folder of an archive: memories.jsonl, and manifest.json, which says what that must be.

Both are written in `.unfinished` and then renamed, the manifest last. Whatever interrupts that, the folder holds the archive
before or the archive after.
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, Literal

from pydantic import AwareDatetime, BaseModel, NonNegativeInt, ValidationError

from metacortex.memory import BranchState
from ops.archive_lines import Archived, read_line
from ops.archive_values import MakeReference, Reference
from ops.place import Place
from ops.processes import OpsError
from ops.progress import Tell

MANIFEST, MEMORIES = "manifest.json", "memories.jsonl"
FILES = (MANIFEST, MEMORIES)
UNFINISHED = ".unfinished"
FORMAT: Final = "metacortex-archive"
# A document has 1 MiB at most, of which a control character takes six bytes in JSON.
LONGEST_LINE = 8 * 2**20
SMALLER = 0.9
SHOWN_FAULTS = 10
TOLD_EVERY = 500


class File(BaseModel, frozen=True):
    bytes: NonNegativeInt
    sha256: str


class Spaces(BaseModel, frozen=True):
    """As the collection named them; each space with its vector field."""

    current: str
    spaces: Mapping[str, str]


class Source(BaseModel, frozen=True):
    """What an archive is of."""

    format: Literal["metacortex-archive"] = FORMAT
    schema_version: Literal[1] = 1
    created_at: AwareDatetime
    """The moment whose memories these are."""
    project: str
    emulator: str | None = None
    """The host and port of the emulator that stood in for the project's database."""
    collection: str
    embedding_space: Spaces | None

    @property
    def place(self) -> Place:
        return Place(project=self.project, emulator=self.emulator, collection=self.collection)

    def is_of(self, place: Place) -> bool:
        """Whether this is where it was made, in whichever emulator: they take other ports each time."""
        there = (place.project, bool(place.emulator), place.collection)
        return (self.project, bool(self.emulator), self.collection) == there


class Manifest(Source, frozen=True):
    """What manifest.json says."""

    memories: Mapping[BranchState, NonNegativeInt]
    """How many there are of each state."""
    files: Mapping[Literal["memories.jsonl"], File]

    @property
    def count(self) -> int:
        return sum(self.memories.values())

    @property
    def file(self) -> File:
        return self.files[MEMORIES]

    def name(self) -> str:
        """What it is of, for a person."""
        return f"{self.place}, {self.created_at:%Y-%m-%d %H:%M} UTC"


@dataclass
class _Counted:
    """What passes through a file of memories."""

    size: int = 0
    states: Counter[BranchState] = field(default_factory=Counter[BranchState])

    def __post_init__(self) -> None:
        self._hash = hashlib.sha256()

    def bytes(self, line: bytes) -> None:
        self._hash.update(line)
        self.size += len(line)

    def file(self) -> File:
        return File(bytes=self.size, sha256=self._hash.hexdigest())

    def memories(self) -> dict[BranchState, int]:
        return {state: self.states[state] for state in BranchState}


class NewArchive(_Counted):
    """An archive that is being written, one memory after the other, by id."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file

    def add(self, memory: Archived) -> None:
        self._file.write(memory.line)
        self.bytes(memory.line)
        self.states[memory.state] += 1

    def manifest(self, source: Source) -> Manifest:
        return Manifest(**source.model_dump(), memories=self.memories(), files={MEMORIES: self.file()})


@dataclass(frozen=True)
class Archive:
    """An archive that is open for reading."""

    folder: "Folder"
    manifest: Manifest
    file: BinaryIO

    def memories(self, reference: MakeReference) -> Iterator[Archived]:
        """Every memory, by id. Raises ValueError in a file that `faults` finds at fault."""
        self.file.seek(0)
        while line := self.file.readline(LONGEST_LINE):
            yield read_line(line, reference)

    def faults(self, tell: Tell) -> Iterator[str]:
        """Everything wrong with it, each as a sentence."""
        found = _Counted()
        before = ""
        self.file.seek(0)
        number = 0
        while line := self.file.readline(LONGEST_LINE):
            number += 1
            found.bytes(line)
            try:
                memory = read_line(line, Reference)
            except ValueError as error:
                yield f"Line {number:,} of {MEMORIES} {error}."
                continue
            if memory.id <= before:
                yield f"Line {number:,} of {MEMORIES} is out of order: the ids must rise."
            before = memory.id
            found.states[memory.state] += 1
            if number % TOLD_EVERY == 0:
                tell("Checking memories", number, self.manifest.count)
        yield from self._differences(found)

    def _differences(self, found: _Counted) -> Iterator[str]:
        said = self.manifest
        if found.size != said.file.bytes:
            yield f"{MEMORIES} has {found.size:,} bytes, and {MANIFEST} says {said.file.bytes:,}."
        elif found.file() != said.file:
            yield f"{MEMORIES} is not the file that {MANIFEST} describes: its SHA-256 is another."
        for state, count in found.memories().items():
            if count != (told := said.memories.get(state, 0)):
                yield f"{MEMORIES} holds {count:,} {state} memories, and {MANIFEST} says {told:,}."

    def require_whole(self, tell: Tell) -> None:
        """Raises OpsError where anything is wrong with it."""
        faults = list(islice(self.faults(tell), SHOWN_FAULTS + 1))
        if faults:
            more = ["There is more."] if len(faults) > SHOWN_FAULTS else []
            raise OpsError("\n".join([f"{self.folder} is no whole archive.", *faults[:SHOWN_FAULTS], *more]))


@dataclass(frozen=True)
class Folder:
    path: Path

    def __str__(self) -> str:
        return str(self.path)

    @contextmanager
    def opened(self) -> Generator[Archive]:
        """Its archive, which nobody replaces meanwhile. Raises OpsError where there is none."""
        with self._troubles("read"), self._locked(fcntl.LOCK_SH):
            manifest = self.manifest()
            if manifest is None:
                raise OpsError(f"{self} holds no archive: {MANIFEST} is missing.")
            with self._memories.open("rb") as file:
                yield Archive(self, manifest, file)

    def manifest(self) -> Manifest | None:
        """What its archive is; None where it has none. Raises OpsError where it cannot be known."""
        try:
            told = self._manifest.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not _is_of_an_archive(told):
            raise OpsError(f"{self.path / MANIFEST} is not the manifest of an archive, or is damaged.")
        try:
            return Manifest.model_validate_json(told)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"])) or "it"
            raise OpsError(
                f"{self.path / MANIFEST} is none that this command reads: {place}: {first['msg']}."
            ) from None

    @contextmanager
    def replaced(self, source: Source, *, force: bool) -> Generator[NewArchive]:
        """Lets an archive be written, which then takes the place of the one that is there.

        Raises OpsError where that is much smaller, unless `force`; then, and whatever else fails, the old one stays.
        """
        with self._troubles("written"):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._locked(fcntl.LOCK_EX):
                self._finish()
                try:
                    self._unfinished.mkdir(mode=0o700)
                    with _create(self._unfinished / MEMORIES) as file:
                        new = NewArchive(file)
                        yield new
                        _flush(file)
                    manifest = new.manifest(source)
                    if not force:
                        self._require_no_loss(manifest)
                    with _create(self._unfinished / MANIFEST) as file:
                        file.write(manifest.model_dump_json(indent=2).encode() + b"\n")
                        _flush(file)
                    _sync(self._unfinished)
                    (self._unfinished / MEMORIES).replace(self._memories)
                finally:
                    self._finish()

    def require_replaceable(self, place: Place, *, force: bool) -> None:
        """Raises OpsError where the folder is something else, or holds another archive than one of this place.

        With `force` that may be any archive, also one that this command cannot read.
        """
        with self._troubles("read"):
            if not self._manifest.exists():
                if self.path.exists() and any(not entry.name.startswith(".") for entry in self.path.iterdir()):
                    raise OpsError(f"{self} holds other files and no archive; name a folder of its own.")
                return
            is_archive = _is_of_an_archive(self._manifest.read_bytes())
        if not is_archive:
            raise OpsError(
                f"{self.path / MANIFEST} is not the manifest of an archive, or is damaged; name another folder, or remove"
                " that file if it was one."
            )
        if not force:
            self._require_same(place)

    def _require_same(self, place: Place) -> None:
        try:
            there = self.manifest()
        except OpsError as error:
            raise OpsError(f"{error} To write another archive in its place, add --force.") from None
        if there and not there.is_of(place):
            raise OpsError(
                f"{self} holds an archive of {there.place}; name another folder, or add --force to write this one in its"
                " place."
            )

    def _require_no_loss(self, new: Manifest) -> None:
        old = self.manifest()
        if old and (new.count < SMALLER * old.count or new.file.bytes < SMALLER * old.file.bytes):
            raise OpsError(
                f"The new archive would have {new.count:,} memories in {new.file.bytes:,} bytes, and the one in {self} has"
                f" {old.count:,} in {old.file.bytes:,}: more than 10 % are gone. That one was kept; if the loss is meant, add"
                " --force."
            )

    def _finish(self) -> None:
        """Completes the archive of which only the manifest was not renamed yet, and drops any other beginning."""
        if self._manifest.parent == self._unfinished:
            _sync(self.path)
            self._manifest.replace(self.path / MANIFEST)
            _sync(self.path)
        # The manifest first: alone, it would pass for one that waits to be renamed.
        (self._unfinished / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(self._unfinished, ignore_errors=True)

    @property
    def _manifest(self) -> Path:
        """The manifest of memories.jsonl. Between the two renames it is still where it was written."""
        waiting = self._unfinished / MANIFEST
        is_waiting = waiting.exists() and not (self._unfinished / MEMORIES).exists()
        return waiting if is_waiting else self.path / MANIFEST

    @property
    def _memories(self) -> Path:
        return self.path / MEMORIES

    @property
    def _unfinished(self) -> Path:
        return self.path / UNFINISHED

    @contextmanager
    def _locked(self, kind: int) -> Generator[None]:
        """Holds the folder for one command; the system lets go of it when we end."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OpsError(f"Another command is at work in {self}; wait until it has ended.") from None
        else:
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def _troubles(self, done: str) -> Generator[None]:
        try:
            yield
        except OSError as error:
            raise OpsError(f"{error.filename or self} cannot be {done}: {error.strerror or error}.") from error


def _is_of_an_archive(manifest: bytes) -> bool:
    try:
        told = json.loads(manifest)
    except (ValueError, RecursionError):
        return False
    return isinstance(told, dict) and told.get("format") == FORMAT


@contextmanager
def _create(path: Path) -> Generator[BinaryIO]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        yield file


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Puts what was renamed in a folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
