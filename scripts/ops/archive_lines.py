"""One memory as one line of an archive: its id, and every field of its document that is not made from the others."""

import json
import re
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from google.cloud.firestore_v1.vector import Vector

from metacortex.adapters.firestore_documents import PARTS, SUMMARY, TERMS, decode_metadata
from metacortex.memory import BranchState
from metacortex.rules import is_document_id
from ops.archive_values import MakeReference, from_json, to_json
from ops.processes import OpsError

SPACE = "embedding_space"
_MADE = frozenset({SUMMARY, TERMS, PARTS, SPACE})
_VECTOR_FIELD = re.compile(r"embedding(_[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Archived:
    """A memory of an archive. `line` is how it stands there, the line feed included."""

    id: str
    fields: Mapping[str, Any]
    """Values as Firestore's client has them."""
    line: bytes

    @property
    def state(self) -> BranchState:
        return decode_metadata(self.fields).branch_state


def archived(memory_id: str, document: Mapping[str, Any], vector_fields: Collection[str]) -> Archived:
    """A stored document as a memory of an archive. Raises TypeError where it holds what an archive cannot."""
    fields = {name: value for name, value in document.items() if not _is_made(name, value, vector_fields)}
    return Archived(memory_id, fields, _line(memory_id, to_json(fields)))


def _is_made(name: str, value: object, vector_fields: Collection[str]) -> bool:
    if name in _MADE or name in vector_fields or _VECTOR_FIELD.fullmatch(name):
        return True
    return name.startswith("embedding") and isinstance(value, Vector)


@contextmanager
def keepable(collection: str) -> Generator[None]:
    """Around reading documents: says in a sentence that one holds a value of no known kind, or a reference elsewhere."""
    try:
        yield
    except (TypeError, ValueError) as error:
        said = str(error).rstrip(".")
        raise OpsError(f"A memory of {collection} holds what no archive can keep: {said}.") from error


def read_line(line: bytes, reference: MakeReference) -> Archived:
    """The memory of a line. Raises ValueError where the line is not, byte for byte, as `archived` writes that memory."""
    try:
        told = json.loads(line)
        memory_id, fields = told["id"], from_json(told["fields"], reference)
        written = _line(memory_id, to_json(fields))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise ValueError("does not hold a memory") from None
    if not isinstance(memory_id, str) or not is_document_id(memory_id) or not isinstance(fields, dict):
        raise ValueError("does not hold a memory")
    if written != line:
        raise ValueError("is not as this command writes that memory")
    return Archived(memory_id, fields, line)


def _line(memory_id: str, fields: Any) -> bytes:
    told = {"id": memory_id, "fields": fields}
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode() + b"\n"
