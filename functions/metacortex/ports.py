"""What the service needs from the outside world. Adapters fill these; tests fill them with fakes held to the same contract."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from metacortex.events import Event
from metacortex.memory import BranchState, Image, Match, Memory, NewMemory, Origin
from metacortex.spaces import CollectionSpaces, Space


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """The last write with a given fingerprint. `revision` is what a commit checks it against: None for «there is none»."""

    id: str
    memory_id: str | None = None
    dedupe_expires_at: int = 0
    revision: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """One nearest-neighbour question. Filters apply before the neighbours are chosen."""

    vector: tuple[float, ...] = field(repr=False)
    vector_field: str
    branch_state: BranchState
    topic: str | None
    origin: Origin | None
    limit: int


class MemoryStore(Protocol):
    """Keeps memories. Every method raises Unavailable, TimedOut or RateLimited when the store does not answer."""

    async def spaces(self) -> CollectionSpaces | None:
        """The spaces this collection names, at most 30 s old; None where it names none."""
        ...

    async def is_empty(self) -> bool:
        """Whether the collection holds no memory at all."""
        ...

    async def name_space(self, spaces: CollectionSpaces) -> CollectionSpaces:
        """Names a new collection's space; if another caller was first, answers what that one wrote."""
        ...

    async def fingerprint(self, fingerprint_id: str) -> tuple[Fingerprint, CollectionSpaces | None]:
        """The fingerprint as it stands, and the collection's spaces, in one read."""
        ...

    async def get(self, memory_id: str) -> Memory | None: ...

    async def nearest(self, question: Nearest) -> list[Match]:
        """The nearest memories, nearest first."""
        ...

    async def save(self, new: NewMemory, fingerprint: Fingerprint, event: Event) -> bool:
        """Stores memory, fingerprint and event in one commit; False, and nothing stored, if the fingerprint has changed."""
        ...


class EventLog(Protocol):
    async def append(self, events: Sequence[Event]) -> None:
        """Stores events, each under its own id; one with the id of an earlier one replaces it."""
        ...


class Embedder(Protocol):
    """Turns text into unit vectors of one model and size."""

    @property
    def space(self) -> Space:
        """The configured space; its format is the one a new collection gets."""
        ...

    @property
    def known_formats(self) -> tuple[str, ...]: ...

    async def embed_document(self, text: str, *, topic: str, text_format: str) -> tuple[float, ...]: ...

    async def embed_query(self, text: str, *, text_format: str) -> tuple[float, ...]: ...


class ImageDescriber(Protocol):
    async def describe(self, image: Image, caption: str) -> str | None:
        """What the image shows, for retrieval; None where this route cannot see but the caption says enough.

        Raises InvalidArgument where there is neither sight nor caption.
        """
        ...
