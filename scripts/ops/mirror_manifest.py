"""The manifest of a mirror: which files it consists of, how these must look, and what they are a mirror of."""

import hashlib
import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from ops.processes import OpsError

KIND = "metacortex-mirror"
VERSION = 1
SIGN_IN = ("oauth_clients", "oauth_requests", "oauth_grants", "owner_sessions", "owner_attempts")
"""The collections of signing in: who was allowed in, and digests of what they show."""
_PASSING = ("memory_events", "retrieval_query_events", "_write_fingerprints", "_parts", *SIGN_IN)
FORM = "One JSON object a line. Its document is a google.firestore.v1.Document with nothing but fields, in base64."


@dataclass(frozen=True, kw_only=True)
class File:
    """One file of documents."""

    name: str
    """Below the folder of the mirror."""
    documents: int
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a mirror holds."""

    project: str
    emulator: str | None
    """The host and port of the emulator that stood in for the project's database."""
    read_time: datetime
    """The moment, by Firestore's clock, at which the database was as it is here."""
    sign_in: bool
    """Whether it holds what signing in keeps."""
    collections: dict[str, int]
    """How many documents each collection holds, by the names that `collection_of` gives."""
    files: tuple[File, ...]

    @property
    def documents(self) -> int:
        return sum(file.documents for file in self.files)

    @property
    def lasting(self) -> int:
        """How many documents there are beside those that expire, and the parts of memories, of which a move deletes many."""
        return sum(number for name, number in self.collections.items() if not name.endswith(_PASSING))

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def origin(self) -> str:
        """What it is a mirror of."""
        where = f"{self.project} in the emulator at {self.emulator}" if self.emulator else self.project
        return f"{where}, as it was at {shown(self.read_time)}"


def is_of_sign_in(path: str) -> bool:
    """Whether a document is one that signing in keeps, or lies below one."""
    return path.partition("/")[0] in SIGN_IN


def shown(moment: datetime) -> str:
    """A time as people read it: ISO 8601 in UTC."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def sealed(manifest: Manifest) -> bytes:
    """The manifest as a file, with a hash of its own against a slip in an editor."""
    held = {
        "kind": KIND,
        "version": VERSION,
        "form": FORM,
        **asdict(manifest),
        "read_time": shown(manifest.read_time),
    }
    return json.dumps({**held, "sha256": _hash(held)}, indent=2, ensure_ascii=False).encode() + b"\n"


def unsealed(file: str, text: bytes) -> Manifest:
    """The manifest in a file. Raises OpsError where it is that of something else, or not as it was written."""
    damaged = OpsError(f"{file} is not as it was written, so this mirror cannot be used.")
    try:
        held: Any = json.loads(text)
    except ValueError as error:
        raise damaged from error
    if not isinstance(held, dict) or held.get("kind") != KIND:
        raise OpsError(f"{file} is not that of a mirror; name a folder of `metacortex mirror backup`, or an empty one.")
    if held.get("version") != VERSION:
        raise OpsError(f"{file} is of another version of MetaCortex; use that version, or a newer one.")
    if held.pop("sha256", None) != _hash(held):
        raise damaged
    return Manifest(
        project=held["project"],
        emulator=held["emulator"],
        read_time=datetime.fromisoformat(held["read_time"]),
        # A mirror that does not say copied every collection.
        sign_in=held.get("sign_in", True),
        collections=held["collections"],
        files=tuple(File(**entry) for entry in held["files"]),
    )


def _hash(held: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()
