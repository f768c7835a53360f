"""What a memory is: frozen records, shared by every layer. Times are epoch milliseconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class BranchState(StrEnum):
    ACTIVE = "active"
    MERGED = "merged"
    DEPRECATED = "deprecated"
    WIP = "wip"


class Origin(StrEnum):
    USER_ASSERTED = "user_asserted"
    AGENT_INFERRED = "agent_inferred"
    LEGACY_IMPORT = "legacy_import"


class SupersessionReason(StrEnum):
    CHANGED = "changed"
    CORRECTED = "corrected"


class Initiator(StrEnum):
    USER = "user"
    AGENT = "agent"


class Modality(StrEnum):
    TEXT = "text"
    IMAGE = "image"
    MIXED = "mixed"


class MatchedBy(StrEnum):
    """How a search found a memory: by its meaning, by rare words of the query that it holds, or by both."""

    VECTOR = "vector"
    LEXICAL = "lexical"
    BOTH = "both"


class WriteStatus(StrEnum):
    CREATED = "created"
    DUPLICATE = "duplicate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a memory comes from. A claim of the writing client, not a proof."""

    origin: Origin
    source_session: str | None = None
    derived_from: tuple[str, ...] = ()
    confidence: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """Everything known about a memory but its text. Memories of MetaCortex 0.3 lack some of it."""

    topic: str
    branch_state: BranchState
    modality: Modality
    created_at: int | None = None
    updated_at: int | None = None
    artifact_refs: tuple[str, ...] = ()
    valid_from: int | None = None
    valid_until: int | None = None
    superseded_by: str | None = None
    supersession_reason: SupersessionReason | None = None
    initiator: Initiator | None = None
    provenance: Provenance | None = None
    written_by: str | None = None

    @property
    def date(self) -> int | None:
        """Since when a memory holds, as far as it says: valid_from, else the time it was saved; None where neither is known."""
        return self.created_at if self.valid_from is None else self.valid_from


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    id: str
    content: str
    metadata: Metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A memory found by a search, without its text. `score` is the cosine similarity to the query, 0..1."""

    id: str
    summary: str
    score: float
    metadata: Metadata
    matched_by: MatchedBy = MatchedBy.VECTOR
    holds_all_terms: bool = False
    """Whether it holds every word of the query that was looked for."""
    is_shortened: bool = False
    """Whether the metadata lacks artifact_refs and derived_from, because those of a part that was found do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A memory in a listing, without its text."""

    id: str
    summary: str
    metadata: Metadata
    listed_at: float | None = None
    """Where it stands in the listing: its created_at as it is stored, with whatever fraction that has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """The bytes of an image as they arrived; they are described and then dropped, never stored."""

    mime_type: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A memory as a client asks for it, already normalised and within bounds. `content` is empty only beside an image."""

    content: str
    topic: str
    branch_state: BranchState
    provenance: Provenance
    image: Image | None = None
    artifact_refs: tuple[str, ...] = ()
    valid_from: int | None = None
    valid_until: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedding:
    """A unit vector, and the space and the document field it belongs to."""

    vector: tuple[float, ...] = field(repr=False)
    space_id: str
    vector_field: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A stretch of a long memory, with a vector of its own in the space of the memory's."""

    summary: str
    vector: tuple[float, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMemory:
    """A memory ready to be stored, with what is stored beside it and never shown."""

    memory: Memory
    embedding: Embedding
    terms: Mapping[str, int] = field(default_factory=dict[str, int])
    parts: tuple[Part, ...] = ()
    """Of a long memory; a short one has none."""
    retrieval_text: str | None = None
    image_mime_type: str | None = None
