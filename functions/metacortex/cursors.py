"""Cursors of listings: where a page ended, and a hash of the filters it was made with. Opaque to clients, but no secret."""

import base64
import binascii
import hashlib
import json

from metacortex.errors import InvalidArgument
from metacortex.ports import ListFilters, Position
from metacortex.rules import is_document_id

_VERSION = 1
LONGEST = 16_000


def encode(position: Position, filters: ListFilters) -> str:
    """The cursor of the page that begins behind a position."""
    fields = [_VERSION, position.created_at, position.memory_id, _hash(filters)]
    return base64.urlsafe_b64encode(json.dumps(fields, separators=(",", ":")).encode()).decode().rstrip("=")


def decode(cursor: str, filters: ListFilters) -> Position:
    """The position a cursor holds. Raises InvalidArgument where it is none, or was made with other filters."""
    match _fields(cursor):
        case [int(version), int() | float() as created_at, str(memory_id), str(filters_hash)] if version == _VERSION:
            if filters_hash != _hash(filters):
                raise InvalidArgument("cursor was made with other filters; repeat these filters, or leave it out.")
            if is_document_id(memory_id) and -(2**63) <= created_at < 2**63:
                return Position(created_at=created_at, memory_id=memory_id)
        case _:
            pass
    raise InvalidArgument("cursor is not one that a listing returned; send next_cursor unchanged, or leave it out.")


def _fields(cursor: str) -> object:
    if len(cursor) > LONGEST:
        return None
    try:
        return json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        return None


def _hash(filters: ListFilters) -> str:
    parts = (
        filters.branch_state,
        filters.topic,
        filters.origin,
        filters.created_after,
        filters.created_before,
    )
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
