"""What the service needs from the outside world. Adapters fill these; tests fill them with fakes held to the same contract."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from metacortex.events import Event
from metacortex.fusion import Candidate
from metacortex.memory import BranchState, Entry, Image, Memory, Metadata, NewMemory, Origin
from metacortex.spaces import CollectionSpaces, Space

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """The last write with a given fingerprint. `revision` is what a commit checks it against: None for «there is none»."""

    id: str
    memory_id: str | None = None
    dedupe_expires_at: int = 0
    revision: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFilters:
    """Which memories a search may find at all."""

    branch_state: BranchState
    topic: str | None = None
    origin: Origin | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What every query of one search asks: the vector to compare with, the words to look for, and the filters.

    Filters apply before anything is chosen.
    """

    vector: tuple[float, ...] = field(repr=False)
    vector_field: str
    filters: SearchFilters
    terms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFilters(SearchFilters):
    """What a listing shows. Times are epoch milliseconds; `created_after` is inclusive, `created_before` exclusive."""

    created_after: int | None = None
    created_before: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A place in a listing: that of one memory, which need not exist any more."""

    created_at: float
    memory_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A memory as it was read. `revision` is what a commit checks it against."""

    memory: Memory
    retrieval_text: str | None = None
    revision: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The metadata of a memory before and after. In a merge, `revision` says as which version the memory was read."""

    memory_id: str
    before: Metadata
    after: Metadata
    revision: Any = None


ReadMetadata = Callable[[str], Awaitable[Metadata | None]]


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

    async def count_terms(self, filters: SearchFilters, terms: Sequence[str]) -> dict[str, int]:
        """How many memories hold each of these words."""
        ...

    async def nearest(self, question: Question, limit: int) -> list[Candidate]:
        """The nearest memories, nearest first."""
        ...

    async def nearest_parts(self, question: Question, limit: int) -> list[Candidate]:
        """The nearest parts of long memories, nearest first, each under the id of its memory; its words are not seen."""
        ...

    async def holding(self, question: Question, term: str, limit: int) -> list[Candidate]:
        """Memories that hold a word, in no particular order."""
        ...

    async def held(self, question: Question, memory_ids: Sequence[str]) -> dict[str, Mapping[str, int]]:
        """How often each of these memories holds each of the question's words; of an unknown one nothing is held."""
        ...

    async def save(self, new: NewMemory, fingerprint: Fingerprint, event: Event) -> bool:
        """Stores memory, fingerprint and event in one commit; False, and nothing stored, if the fingerprint has changed."""
        ...

    async def newest(self, filters: ListFilters, after: Position | None, limit: int) -> list[Entry]:
        """The memories that pass the filters, newest first and ties by id, from behind a position on."""
        ...

    async def transact(
        self, work: Callable[[ReadMetadata], Awaitable[tuple[R, Change | None]]], event: Callable[[R], Event]
    ) -> R:
        """Runs `work`, and stores its change and the event of its result only if nothing that it read has changed meanwhile.

        Else it runs again. Where it changes nothing, no event is stored.
        """
        ...

    async def versions(self, memory_ids: Sequence[str]) -> list[Version | None]:
        """The memories with these ids, in their order; None for an unknown one."""
        ...

    async def oldest_drafts(self, topic: str, limit: int) -> tuple[list[Version], int]:
        """The oldest wip memories of a topic, oldest first, and how many the topic has in all."""
        ...

    async def consolidate(self, new: NewMemory, sources: Sequence[Change], event: Event) -> bool:
        """Stores the merged memory, its sources' changes and the event in one commit; False, and nothing stored, if one
        of the sources has changed since it was read."""
        ...


class EventLog(Protocol):
    async def append(self, events: Sequence[Event]) -> None:
        """Stores events, each under its own id; one with the id of an earlier one replaces it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A text to embed, and what belongs to it. `date` is epoch milliseconds: when what it says came to hold or was saved."""

    text: str
    topic: str
    date: int | None = None


class Embedder(Protocol):
    """Turns text into unit vectors of one model and size."""

    @property
    def space(self) -> Space:
        """The configured space; its format is the one a new collection gets."""
        ...

    @property
    def known_formats(self) -> tuple[str, ...]: ...

    @property
    def part_characters(self) -> int:
        """How long a text may be to have one vector; a longer one is taken in parts of this size."""
        ...

    @property
    def near_duplicate(self) -> float:
        """The cosine similarity from which on two texts say nearly the same in this model's eyes."""
        ...

    async def ready(self) -> None:
        """Loads what the first text would have to wait for, where that takes time; it may do so beside other work."""
        ...

    async def embed_documents(self, documents: Sequence[Document], *, text_format: str) -> list[tuple[float, ...]]:
        """The vector of each document, in their order."""
        ...

    async def embed_query(self, text: str, *, text_format: str) -> tuple[float, ...]: ...


class ImageDescriber(Protocol):
    async def describe(self, image: Image, caption: str) -> str | None:
        """What the image shows, for retrieval; None where this route cannot see but the caption says enough.

        Raises InvalidArgument where there is neither sight nor caption.
        """
        ...


class Merger(Protocol):
    async def merge(self, sources: Sequence[Memory], *, topic: str) -> str:
        """One text that keeps what several memories say, the newest statement where they differ. Never empty.

        Raises TooLarge where they are more than the model takes at once.
        """
        ...


class Models(Protocol):
    """The models of one route."""

    @property
    def embedder(self) -> Embedder: ...

    @property
    def describer(self) -> ImageDescriber: ...

    @property
    def merger(self) -> Merger: ...
