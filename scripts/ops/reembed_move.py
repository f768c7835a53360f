"""A move of a collection from one embedding space to another, and the steps it goes through."""

from dataclasses import dataclass
from enum import StrEnum

from metacortex.spaces import FIRST_VECTOR_FIELD, CollectionSpaces, Space, WorkingSpace
from ops.processes import OpsError

VECTOR_FIELDS = (FIRST_VECTOR_FIELD, "embedding_2")


class Step(StrEnum):
    """What may be done next, and which spaces the collection names."""

    FILL = "fill"
    """Memories get vectors in the new space; the collection names the old one alone."""
    SWITCHED = "switched"
    """It names both, the new one as its current one."""
    FINISH = "finish"
    """It names the new one alone; what is left of the old one is being deleted."""
    ABANDON = "abandon"
    """It names the old one alone; what is left of the new one is being deleted."""


@dataclass(frozen=True)
class Move:
    """A move of a collection from one space to another."""

    old: WorkingSpace
    new: WorkingSpace
    step: Step = Step.FILL

    @property
    def spaces(self) -> CollectionSpaces:
        """What the collection names at this step."""
        old, new = {self.old.space.id: self.old.vector_field}, {self.new.space.id: self.new.vector_field}
        match self.step:
            case Step.FILL | Step.ABANDON:
                return CollectionSpaces(self.old.space.id, old)
            case Step.SWITCHED:
                return CollectionSpaces(self.new.space.id, {**old, **new})
            case Step.FINISH:
                return CollectionSpaces(self.new.space.id, new)


def free_field(spaces: CollectionSpaces) -> str:
    """The vector field that no space of the collection has."""
    return next(name for name in VECTOR_FIELDS if name not in spaces.fields.values())


def working(space: str, field: str) -> WorkingSpace:
    """A space by its id, in a field. Raises OpsError where the id has another form."""
    known = Space.parse(space)
    if known is None:
        raise OpsError(f"The collection names the space {space!r}, which is not MODEL@DIMENSIONS/FORMAT.")
    return WorkingSpace(known, field)
