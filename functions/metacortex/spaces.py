"""Embedding spaces: which vectors may be compared with which.

A collection names its spaces in `<collection>_meta/space`. A space id is MODEL@DIMENSIONS/FORMAT, where FORMAT names how
text is prepared for the model; vectors of different spaces are never compared.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from metacortex.errors import EmbeddingSpaceMismatch

FIRST_VECTOR_FIELD = "embedding"
_SPACE_ID = re.compile(r"(?P<model>[^@/]+)@(?P<dimensions>[1-9][0-9]{0,3})/(?P<format>[a-z0-9-]+)")


@dataclass(frozen=True, slots=True)
class Space:
    model: str
    dimensions: int
    text_format: str

    @classmethod
    def parse(cls, space_id: str) -> Self | None:
        """The space an id names, or None where the id has another form."""
        found = _SPACE_ID.fullmatch(space_id)
        return cls(found["model"], int(found["dimensions"]), found["format"]) if found else None

    @property
    def id(self) -> str:
        return f"{self.model}@{self.dimensions}/{self.text_format}"


@dataclass(frozen=True, slots=True)
class CollectionSpaces:
    """The spaces a collection names: `fields` maps each space id to the vector field of its documents."""

    current: str
    fields: Mapping[str, str]

    @classmethod
    def only(cls, space: Space) -> Self:
        """What a new collection names: one space, in the first vector field."""
        return cls(space.id, {space.id: FIRST_VECTOR_FIELD})


@dataclass(frozen=True, slots=True)
class WorkingSpace:
    """The space a service reads and writes in, and the document field that holds its vectors."""

    space: Space
    vector_field: str


def working_space(listed: CollectionSpaces, configured: Space, known_formats: tuple[str, ...]) -> WorkingSpace:
    """The listed space of the configured model and dimensions; the listing decides the format, by its current space first.

    Raises EmbeddingSpaceMismatch where none is listed, or where its format is not one this service can write.
    """
    for space_id, vector_field in sorted(listed.fields.items(), key=lambda item: item[0] != listed.current):
        space = Space.parse(space_id)
        if space is None or (space.model, space.dimensions) != (configured.model, configured.dimensions):
            continue
        if space.text_format in known_formats:
            return WorkingSpace(space, vector_field)
    raise EmbeddingSpaceMismatch(
        f"This collection's vectors are in the space {listed.current}, but the service is configured for {configured.id}; "
        "configure the collection's model and dimensions again, move the memories with `metacortex reembed`, or use another "
        "MEMORY_COLLECTION."
    )


def unnamed_space(configured: Space) -> EmbeddingSpaceMismatch:
    """The refusal for a collection that holds memories but names no space, as MetaCortex 0.3 left it."""
    return EmbeddingSpaceMismatch(
        f"This collection holds memories of an unnamed embedding space, but the service is configured for {configured.id}; "
        "name the space they were written in with `metacortex upgrade --space MODEL@DIMENSIONS/plain`."
    )
