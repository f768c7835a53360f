"""What the commands of mirrors are to do, and what they found and did: for a person, and as JSON."""

import hashlib
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from ops.mirror_manifest import Manifest, shown
from ops.place import database_of

NAMED = 100
"""Of the documents of each kind of difference, so many are named."""
SHOWN = 3
Side = Literal["source", "target"]
Row = tuple[str, bytes | None, bytes | None]
"""The path of a document, and its digest in the source and in the target; None where it is not there."""
Holder = Path | str
"""What holds documents: the folder of a mirror, or the database of a project by its id."""


class Report(ABC):
    """One run of a command, as far as it came."""

    error: str | None

    @property
    def ok(self) -> bool:
        """Whether it did what it was asked to."""
        return self.error is None

    @abstractmethod
    def begin(self) -> str:
        """What is about to be done, and to which database."""

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """All of it."""

    @abstractmethod
    def lines(self) -> Iterator[str]:
        """What there is to tell of a run that did not fail."""


# --- Backup ---


@dataclass
class Backup(Report):
    """A mirror that is made."""

    project: str
    folder: Path
    force: bool
    """Whether it may hold much less than the one in the folder."""
    sign_in: bool
    """Whether it is to hold what signing in keeps."""
    manifest: Manifest | None = None
    error: str | None = None

    def begin(self) -> str:
        return f"Backing up {database_of(self.project)} into {self.folder}"

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "project": self.project,
            "folder": str(self.folder),
            "mirror": _about(self.manifest),
            "error": self.error,
        }

    def lines(self) -> Iterator[str]:
        assert self.manifest is not None
        for name, documents in self.manifest.collections.items():
            yield _line(name, f"{documents:,}")
        left_out = "" if self.manifest.sign_in else ", without what signing in keeps"
        yield (
            f"The mirror is complete: {counted(self.manifest.documents)} in {self.manifest.bytes:,} bytes, as of"
            f" {shown(self.manifest.read_time)}{left_out}."
        )


def _about(manifest: Manifest | None) -> dict[str, Any] | None:
    if manifest is None:
        return None
    return {
        "project": manifest.project,
        "emulator": manifest.emulator,
        "read_time": shown(manifest.read_time),
        "sign_in": manifest.sign_in,
        "documents": manifest.documents,
        "bytes": manifest.bytes,
        "collections": manifest.collections,
    }


# --- Restore ---


@dataclass
class Tally:
    """Of the documents of one collection, how many were equal, lacked in the target, differed, or were there besides."""

    equal: int = 0
    missing: int = 0
    different: int = 0
    extra: int = 0


@dataclass
class Restore(Report):
    """A mirror that is restored."""

    folder: Path
    project: str
    write: bool
    prune: bool
    """Whether documents that the mirror does not hold are deleted."""
    allow_source: bool
    """Whether the target may be the project that the mirror is of."""
    sign_in: bool
    """Whether what signing in keeps is restored, and pruned, too; otherwise the target's stays untouched."""
    manifest: Manifest | None = None
    collections: defaultdict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    error: str | None = None

    def begin(self) -> str:
        if self.write:
            return f"Restoring {self.folder} into {database_of(self.project)}"
        return f"Comparing {self.folder} with {database_of(self.project)}"

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "project": self.project,
            "folder": str(self.folder),
            "mirror": _about(self.manifest),
            "write": self.write,
            "prune": self.prune,
            "sign_in": self.sign_in,
            "collections": {name: asdict(tally) for name, tally in sorted(self.collections.items())},
            "error": self.error,
        }

    def lines(self) -> Iterator[str]:
        assert self.manifest is not None
        yield _line("mirror", self.manifest.origin())
        for name, tally in sorted(self.collections.items()):
            yield _line(name, self._tallied(tally))
        yield self._end()

    def _tallied(self, tally: Tally) -> str:
        found = (
            (tally.equal, "equal"),
            (tally.missing, "missing, now made" if self.write else "missing"),
            (tally.different, "different, now replaced" if self.write else "different"),
            (tally.extra, "besides, now deleted" if self.write and self.prune else "besides"),
        )
        return "; ".join(f"{count:,} {what}" for count, what in found if count)

    def _end(self) -> str:
        tallies = self.collections.values()
        besides = sum(tally.extra for tally in tallies)
        to_do = any(tally.missing or tally.different for tally in tallies) or (besides and self.prune)
        kept = f" {counted(besides)} besides stay unless you add --prune." if besides and not self.prune else ""
        if not to_do:
            return f"Nothing to do: the database holds all that the mirror holds.{kept}"
        if self.write:
            return f"The restore is complete.{kept}"
        return f"Nothing was written. To do it, run the same command with --write.{kept}"


# --- Gate ---


@dataclass
class Part:
    """One collection on one side."""

    documents: int = 0
    hash: Any = field(default_factory=hashlib.sha256)
    """Over the path and the digest of each document, in the order of paths."""

    def add(self, path: str, digest: bytes) -> None:
        self.documents += 1
        self.hash.update(path.encode() + b"\n" + digest)


@dataclass
class Difference:
    """Documents that are not the same on both sides: how many, and the paths of the first of them."""

    documents: int = 0
    named: list[str] = field(default_factory=list[str])

    def add(self, path: str) -> None:
        self.documents += 1
        if len(self.named) < NAMED:
            self.named.append(path)


@dataclass
class Gate(Report):
    """Two sides that are compared."""

    source: Holder
    target: Holder
    sign_in: bool
    """Whether what signing in keeps is compared, too."""
    seen: dict[Side, str] = field(default_factory=dict[Side, str])
    """What each side was, and of when."""
    collections: defaultdict[str, dict[Side, Part]] = field(
        default_factory=lambda: defaultdict(lambda: {"source": Part(), "target": Part()})
    )
    missing: Difference = field(default_factory=Difference)
    """What only the source holds."""
    extra: Difference = field(default_factory=Difference)
    """What only the target holds."""
    different: Difference = field(default_factory=Difference)
    error: str | None = None

    @property
    def ok(self) -> bool:
        return self.error is None and not (self.missing.named or self.extra.named or self.different.named)

    def begin(self) -> str:
        return f"Comparing {_called(self.source)} with {_called(self.target)}"

    def look_at(self, rows: Iterable[Row]) -> None:
        """Compare what the sides hold, path by path."""
        for path, source, target in rows:
            sides = self.collections[collection_of(path)]
            if source is not None:
                sides["source"].add(path, source)
            if target is not None:
                sides["target"].add(path, target)
            if target is None:
                self.missing.add(path)
            elif source is None:
                self.extra.add(path)
            elif source != target:
                self.different.add(path)

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "source": self.seen.get("source"),
            "target": self.seen.get("target"),
            "sign_in": self.sign_in,
            "collections": {
                name: {
                    side: {"documents": part.documents, "sha256": part.hash.hexdigest()} for side, part in sides.items()
                }
                for name, sides in sorted(self.collections.items())
            },
            "missing": asdict(self.missing),
            "extra": asdict(self.extra),
            "different": asdict(self.different),
            "error": self.error,
        }

    def lines(self) -> Iterator[str]:
        for side, what in self.seen.items():
            yield _line(side, what)
        for name, sides in sorted(self.collections.items()):
            source, target = sides["source"], sides["target"]
            equal = "equal" if source.hash.digest() == target.hash.digest() else "not equal"
            yield _line(name, f"{source.documents:,} and {target.documents:,}, {equal}")
        yield from _named("missing in the target", self.missing)
        yield from _named("only in the target", self.extra)
        yield from _named("different", self.different)
        documents = sum(sides["source"].documents for sides in self.collections.values())
        yield f"Equal in every byte: {counted(documents)}." if self.ok else "Not equal."


def collection_of(path: str) -> str:
    """The collection of a document, with * for the ids of the documents above it: `users/*/notes`."""
    return "/*/".join(path.split("/")[::2])


def _called(holder: Holder) -> str:
    return f"the mirror in {holder}" if isinstance(holder, Path) else database_of(holder)


def _named(what: str, difference: Difference) -> Iterator[str]:
    if difference.documents:
        more = ", …" if difference.documents > SHOWN else ""
        yield _line(what, f"{difference.documents:,}: {', '.join(difference.named[:SHOWN])}{more}")


def counted(documents: int) -> str:
    """A number of documents, as a sentence has it."""
    return "1 document" if documents == 1 else f"{documents:,} documents"


def _line(name: str, text: str) -> str:
    return f"  {name:<34}  {text}"
