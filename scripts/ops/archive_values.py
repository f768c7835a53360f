"""Firestore's values as JSON and back. What JSON has no word for is an object with one key that begins with a dollar sign.

A number with a point or an exponent is a double, any other an integer of 64 bits. A map that has such a key itself stands
under `$map`.
"""

import base64
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from google.cloud.firestore_v1 import GeoPoint
from google.cloud.firestore_v1.base_document import BaseDocumentReference
from google.cloud.firestore_v1.vector import Vector

DOUBLE, TIMESTAMP, BYTES, GEO = "$double", "$timestamp", "$bytes", "$geo"
REFERENCE, VECTOR, MAP = "$reference", "$vector", "$map"

MakeReference = Callable[[str], Any]
"""Makes the reference to a document of the database from its path, such as `memory_vectors/ID`."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference that is only looked at, without a database. Raises ValueError for what is no path of a document."""

    path: str

    def __post_init__(self) -> None:
        parts = self.path.split("/")
        if len(parts) % 2 or not all(parts):
            raise ValueError("no path of a document")


def to_json(value: Any) -> Any:  # noqa: PLR0911 - one for each kind of value
    """The value in JSON's types, the keys of each map in order. Raises TypeError for a kind that is not known."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {DOUBLE: _word(value)}
        case datetime():
            return {TIMESTAMP: value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"}
        case bytes():
            return {BYTES: base64.b64encode(value).decode()}
        case GeoPoint():
            return {GEO: [float(value.latitude), float(value.longitude)]}
        case BaseDocumentReference() | Reference():
            return {REFERENCE: value.path}
        case Vector():
            return {VECTOR: [to_json(float(number)) for number in value]}
        case list():
            return [to_json(item) for item in value]
        case Mapping():
            fields = {name: to_json(value[name]) for name in sorted(value)}
            return {MAP: fields} if _has_mark(fields) else fields
        case _:
            raise TypeError(f"a value of the kind {type(value).__name__}")


def from_json(value: Any, reference: MakeReference) -> Any:
    """The value that `to_json` made this of. Raises ValueError, TypeError or LookupError where it made none such."""
    match value:
        case list():
            return [from_json(item, reference) for item in value]
        case dict() if _has_mark(value):
            [(mark, told)] = value.items()
            return _READ[mark](told, reference)
        case dict():
            return {name: from_json(item, reference) for name, item in value.items()}
        case int() if not -(2**63) <= value < 2**63:
            raise ValueError("an integer of more than 64 bits")
        case _:
            return value


_READ: Mapping[str, Callable[[Any, MakeReference], Any]] = {
    DOUBLE: lambda told, _: {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}[told],
    TIMESTAMP: lambda told, _: datetime.fromisoformat(told),
    BYTES: lambda told, _: base64.b64decode(told, validate=True),
    GEO: lambda told, _: GeoPoint(*told),
    REFERENCE: lambda told, reference: reference(told),
    VECTOR: lambda told, reference: Vector([from_json(number, reference) for number in told]),
    MAP: lambda told, reference: {name: from_json(item, reference) for name, item in told.items()},
}


def _has_mark(fields: Mapping[str, Any]) -> bool:
    return any(name.startswith("$") for name in fields)


def _word(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
