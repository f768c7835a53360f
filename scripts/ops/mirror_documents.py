"""Documents as mirrors hold them: every value as Firestore sent it, and nothing that names the project."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from google.cloud.firestore_v1.types import Document

DOCUMENTS = "documents/"
Message: type[Any] = Document.pb()
"""google.firestore.v1.Document itself: the client library's own classes for values do not keep all of them apart."""


@dataclass(frozen=True)
class Record:
    """One document, the same whatever database it came from if it says the same."""

    path: str
    """Below the root of the database, such as `memory_vectors/ID`."""
    content: bytes
    """A serialized google.firestore.v1.Document with nothing but fields. A reference within the database begins with
    `documents/`; the name of the database is left out."""
    updated_at: str = ""
    """When Firestore last changed it, as RFC 3339; "" where that is not known. No part of what is compared."""

    def digest(self) -> bytes:
        return sha256(self.content).digest()

    def size(self) -> int:
        """Its bytes in a request, nearly."""
        return len(self.path) + len(self.content)


def record_of(document: Any, database: str) -> Record:
    """What a document of `database` (`projects/P/databases/D`) says. The message is used up."""
    path = document.name.removeprefix(f"{database}/{DOCUMENTS}")
    updated_at = document.update_time.ToJsonString()
    for field in ("name", "create_time", "update_time"):
        document.ClearField(field)
    prefix = f"{database}/"
    if prefix.encode() in _serialized(document):
        for value in _references(document):
            if value.reference_value.startswith(prefix + DOCUMENTS):
                value.reference_value = value.reference_value.removeprefix(prefix)
    return Record(path, _serialized(document), updated_at)


def document_of(record: Record, database: str) -> Any:
    """The document that says in `database` what the record says."""
    document = Message.FromString(record.content)
    document.name = f"{database}/{DOCUMENTS}{record.path}"
    if DOCUMENTS.encode() in record.content:
        for value in _references(document):
            if value.reference_value.startswith(DOCUMENTS):
                value.reference_value = f"{database}/{value.reference_value}"
    return document


def _serialized(document: Any) -> bytes:
    # Deterministic: the keys of maps in order, so that equal documents are equal bytes.
    return document.SerializeToString(deterministic=True)


def _references(document: Any) -> Iterator[Any]:
    values = list(document.fields.values())
    while values:
        value = values.pop()
        match value.WhichOneof("value_type"):
            case "map_value":
                values.extend(value.map_value.fields.values())
            case "array_value":
                values.extend(value.array_value.values)
            case "reference_value":
                yield value
            case _:
                pass
