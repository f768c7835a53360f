"""Stand-ins for the outside world, held to the same contracts as the real adapters (contracts/)."""

import itertools
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from metacortex.events import Event, EventKind
from metacortex.fusion import Candidate
from metacortex.memory import BranchState, Entry, Image, Memory, Metadata, NewMemory
from metacortex.ports import (
    Change,
    Document,
    Fingerprint,
    ListFilters,
    Position,
    Question,
    ReadMetadata,
    SearchFilters,
    Version,
)
from metacortex.rules import DUPLICATE_WINDOW_MS, similarity, summary
from metacortex.spaces import CollectionSpaces, Space

R = TypeVar("R")


class InMemoryEvents:
    """The EventLog port: events by id."""

    def __init__(self) -> None:
        self.stored: dict[tuple[EventKind, str], Event] = {}

    async def append(self, events: Sequence[Event]) -> None:
        self.stored |= {(event.kind, event.id): event for event in events}


@dataclass
class InMemoryMemories:
    """The MemoryStore port over dictionaries."""

    events: InMemoryEvents
    stored: dict[str, NewMemory] = field(default_factory=dict[str, NewMemory])
    named: CollectionSpaces | None = None

    def __post_init__(self) -> None:
        self._fingerprints: dict[str, Fingerprint] = {}
        self._revisions = itertools.count(1)

    async def spaces(self) -> CollectionSpaces | None:
        return self.named

    async def is_empty(self) -> bool:
        return not self.stored

    async def name_space(self, spaces: CollectionSpaces) -> CollectionSpaces:
        self.named = self.named or spaces
        return self.named

    async def fingerprint(self, fingerprint_id: str) -> tuple[Fingerprint, CollectionSpaces | None]:
        return self._fingerprints.get(fingerprint_id, Fingerprint(id=fingerprint_id)), self.named

    async def get(self, memory_id: str) -> Memory | None:
        new = self.stored.get(memory_id)
        return new.memory if new else None

    async def count_terms(self, filters: SearchFilters, terms: Sequence[str]) -> dict[str, int]:
        found = [new for new in self.stored.values() if _passes(new.memory, filters)]
        return {term: sum(term in new.terms for new in found) for term in terms}

    async def nearest(self, question: Question, limit: int) -> list[Candidate]:
        found = [(distance(question.vector, new.embedding.vector), new) for new in self._comparable(question)]
        found.sort(key=lambda pair: pair[0])
        return [_candidate(new, question, 1 - far, by_vector=True) for far, new in found[:limit]]

    async def nearest_parts(self, question: Question, limit: int) -> list[Candidate]:
        found = [
            (distance(question.vector, part.vector), part, new)
            for new in self._comparable(question)
            for part in new.parts
        ]
        found.sort(key=lambda triple: triple[0])
        return [
            Candidate(
                id=new.memory.id,
                summary=part.summary,
                score=1 - far,
                metadata=new.memory.metadata,
                held=None,
                by_vector=True,
            )
            for far, part, new in found[:limit]
        ]

    async def holding(self, question: Question, term: str, limit: int) -> list[Candidate]:
        found = [new for new in self._comparable(question) if term in new.terms]
        return [
            _candidate(new, question, similarity(question.vector, new.embedding.vector), by_vector=False)
            for new in found[:limit]
        ]

    async def held(self, question: Question, memory_ids: Sequence[str]) -> dict[str, Mapping[str, int]]:
        return {
            memory_id: _held(self.stored[memory_id], question) if memory_id in self.stored else {}
            for memory_id in memory_ids
        }

    def _comparable(self, question: Question) -> list[NewMemory]:
        return [
            new
            for new in self.stored.values()
            if new.embedding.vector_field == question.vector_field and _passes(new.memory, question.filters)
        ]

    async def save(self, new: NewMemory, fingerprint: Fingerprint, event: Event) -> bool:
        current = self._fingerprints.get(fingerprint.id, Fingerprint(id=fingerprint.id))
        if current.revision != fingerprint.revision or new.memory.id in self.stored:
            return False
        self.stored[new.memory.id] = new
        self._fingerprints[fingerprint.id] = Fingerprint(
            id=fingerprint.id,
            memory_id=new.memory.id,
            dedupe_expires_at=(new.memory.metadata.created_at or 0) + DUPLICATE_WINDOW_MS,
            revision=next(self._revisions),
        )
        await self.events.append([event])
        return True

    async def newest(self, filters: ListFilters, after: Position | None, limit: int) -> list[Entry]:
        earliest, before = filters.created_after, filters.created_before
        found = sorted(
            (-memory.metadata.created_at, memory.id, memory)
            for memory in self._memories()
            if memory.metadata.created_at is not None
            and _passes(memory, filters)
            and (earliest is None or memory.metadata.created_at >= earliest)
            and (before is None or memory.metadata.created_at < before)
        )
        behind = [
            memory
            for newness, memory_id, memory in found
            if after is None or (newness, memory_id) > (-after.created_at, after.memory_id)
        ]
        return [
            Entry(
                id=memory.id,
                summary=summary(memory.content),
                metadata=memory.metadata,
                listed_at=memory.metadata.created_at,
            )
            for memory in behind[:limit]
        ]

    async def transact(
        self, work: Callable[[ReadMetadata], Awaitable[tuple[R, Change | None]]], event: Callable[[R], Event]
    ) -> R:
        async def read(memory_id: str) -> Metadata | None:
            memory = await self.get(memory_id)
            return memory.metadata if memory else None

        result, change = await work(read)
        if change is not None:
            self._change(change)
            await self.events.append([event(result)])
        return result

    async def versions(self, memory_ids: Sequence[str]) -> list[Version | None]:
        return [_version(self.stored[memory_id]) if memory_id in self.stored else None for memory_id in memory_ids]

    async def oldest_drafts(self, topic: str, limit: int) -> tuple[list[Version], int]:
        filters = ListFilters(branch_state=BranchState.WIP, topic=topic)
        drafts = sorted(
            (memory.metadata.created_at, memory.id)
            for memory in self._memories()
            if memory.metadata.created_at is not None and _passes(memory, filters)
        )
        return [_version(self.stored[memory_id]) for _, memory_id in drafts[:limit]], len(drafts)

    async def consolidate(self, new: NewMemory, sources: Sequence[Change], event: Event) -> bool:
        unchanged = all(self.stored.get(source.memory_id) is source.revision for source in sources)
        if not unchanged or new.memory.id in self.stored:
            return False
        self.stored[new.memory.id] = new
        for source in sources:
            self._change(source)
        await self.events.append([event])
        return True

    def _memories(self) -> list[Memory]:
        return [new.memory for new in self.stored.values()]

    def _change(self, change: Change) -> None:
        new = self.stored[change.memory_id]
        self.stored[change.memory_id] = replace(new, memory=replace(new.memory, metadata=change.after))


def _version(new: NewMemory) -> Version:
    # Every change makes another record: the record itself is its revision.
    return Version(memory=new.memory, retrieval_text=new.retrieval_text, revision=new)


def _candidate(new: NewMemory, question: Question, found_score: float, *, by_vector: bool) -> Candidate:
    memory = new.memory
    return Candidate(
        id=memory.id,
        summary=summary(memory.content),
        score=found_score,
        metadata=memory.metadata,
        held=_held(new, question),
        by_vector=by_vector,
    )


def _held(new: NewMemory, question: Question) -> dict[str, int]:
    return {term: new.terms[term] for term in question.terms if term in new.terms}


def _passes(memory: Memory, filters: SearchFilters) -> bool:
    metadata = memory.metadata
    origin = metadata.provenance.origin if metadata.provenance else None
    return (
        metadata.branch_state is filters.branch_state
        and filters.topic in {None, metadata.topic}
        and filters.origin in {None, origin}
    )


def distance(one: Sequence[float], other: Sequence[float]) -> float:
    """The cosine distance of two unit vectors."""
    return 1 - sum(a * b for a, b in zip(one, other, strict=True))


PLANE = Space("plane", 2, "plain")


class PlaneEmbedder:
    """The Embedder port on a circle: a text `at N` points N degrees round, any other text points nowhere in particular.

    Tests that need to know which memory is nearest say so in the text.
    """

    def __init__(self, space: Space = PLANE) -> None:
        self.space = space
        self.known_formats: tuple[str, ...] = (space.text_format,)
        self.calls: list[str] = []
        self.part_characters = 1_000_000
        self.near_duplicate = 0.99

    async def ready(self) -> None:
        """There is nothing to load."""

    async def embed_documents(self, documents: Sequence[Document], *, text_format: str) -> list[tuple[float, ...]]:
        return [await self.embed_query(document.text, text_format=text_format) for document in documents]

    async def embed_query(self, text: str, *, text_format: str) -> tuple[float, ...]:
        self.calls.append(text)
        words = text.split()
        degrees = float(words[words.index("at") + 1]) if "at" in words else len(text) % 360
        return math.cos(math.radians(degrees)), math.sin(math.radians(degrees))


@dataclass
class FailingEmbedder(PlaneEmbedder):
    """Raises once for each error it was given, then works."""

    errors: list[Exception] = field(default_factory=list[Exception])

    def __post_init__(self) -> None:
        super().__init__()

    async def embed_query(self, text: str, *, text_format: str) -> tuple[float, ...]:
        if self.errors:
            raise self.errors.pop(0)
        return await super().embed_query(text, text_format=text_format)


class SeeingImages:
    """The ImageDescriber port of a route that can see: always the same description."""

    def __init__(self, description: str = "A diagram with the label Q7.") -> None:
        self.description = description
        self.seen: list[Image] = []

    async def describe(self, image: Image, caption: str) -> str | None:
        self.seen.append(image)
        return self.description


def with_state(new: NewMemory, **changes: object) -> NewMemory:
    """A stored memory as another version of the service would have left it."""
    metadata = replace(new.memory.metadata, **changes)  # pyright: ignore[reportArgumentType]
    return replace(new, memory=replace(new.memory, metadata=metadata))
