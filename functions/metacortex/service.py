"""What the tools mean. Every method takes the calling profile and checks what it may do before any work is done."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace

from metacortex import rules
from metacortex.errors import NotFound, Unavailable
from metacortex.events import Clock, Event
from metacortex.memory import (
    BranchState,
    Draft,
    Embedding,
    Match,
    Memory,
    Metadata,
    Modality,
    NewMemory,
    Origin,
    WriteStatus,
)
from metacortex.ports import Embedder, Fingerprint, ImageDescriber, MemoryStore, Nearest
from metacortex.profiles import Profile
from metacortex.spaces import CollectionSpaces, WorkingSpace, unnamed_space, working_space

COMMIT_ATTEMPTS = 3
WIDER_CANDIDATES = 1_000


@dataclass(frozen=True, slots=True)
class Saved:
    memory: Memory
    write_status: WriteStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """A search as a client asks for it. `branch_state` and `limit` are None where the client leaves them to us."""

    query: str
    topic: str | None = None
    branch_state: BranchState | None = None
    origin: Origin | None = None
    valid_at: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The matches, nearest first, with the state and the limit that counted. `truncated`: there may be more, not seen."""

    matches: tuple[Match, ...]
    branch_state: BranchState
    limit: int
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """A memory whose content is one page of the whole, and the offset of the next page if there is one."""

    memory: Memory
    next_offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The numbers an owner may set."""

    results: int
    candidates: int


class MemoryService:
    def __init__(
        self, store: MemoryStore, embedder: Embedder, describer: ImageDescriber, limits: Limits, clock: Clock
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._describer = describer
        self._limits = limits
        self._clock = clock

    # --- Save ---

    async def save(self, profile: Profile, draft: Draft, event: Callable[[Saved], Event]) -> Saved:
        """Stores a memory in one commit with its event, or answers the one that an equal recent write made.

        `event` makes the event of a result; it is stored only with a created memory.
        """
        profile.require_tool("save_context")
        profile.require_writable(draft.branch_state)
        profile.require_origin(draft.provenance.origin)
        fingerprint, spaces = await self._store.fingerprint(rules.fingerprint(draft))
        space = await self._space_to_write(spaces)
        if earlier := await self._earlier(fingerprint, draft):
            return Saved(earlier, WriteStatus.DUPLICATE)
        new = await self._prepare(profile, draft, space)
        if spaces is None:
            await self._name_space(space)
        return await self._commit(new, draft, fingerprint, event)

    async def _earlier(self, fingerprint: Fingerprint, draft: Draft) -> Memory | None:
        """The memory an equal write made within the duplicate window, if it is still in the state that was written."""
        if fingerprint.memory_id is None or fingerprint.dedupe_expires_at <= self._clock():
            return None
        memory = await self._store.get(fingerprint.memory_id)
        if memory is None or memory.metadata.branch_state is not draft.branch_state:
            return None
        return memory

    async def _prepare(self, profile: Profile, draft: Draft, working: WorkingSpace) -> NewMemory:
        """Everything the models have to say, before anything is written."""
        description = await self._describer.describe(draft.image, draft.content) if draft.image else None
        content = draft.content or description or ""
        retrieval_text = "\n\n".join(filter(None, (draft.content, description)))
        vector = await self._embedder.embed_document(
            retrieval_text, topic=draft.topic, text_format=working.space.text_format
        )
        now = self._clock()
        metadata = Metadata(
            topic=draft.topic,
            branch_state=draft.branch_state,
            modality=_modality(draft),
            created_at=now,
            updated_at=now,
            artifact_refs=draft.artifact_refs,
            valid_from=draft.valid_from,
            valid_until=draft.valid_until,
            provenance=draft.provenance,
            written_by=profile.id,
        )
        return NewMemory(
            memory=Memory(id=str(uuid.uuid4()), content=content, metadata=metadata),
            embedding=Embedding(vector=vector, space_id=working.space.id, vector_field=working.vector_field),
            retrieval_text=retrieval_text if retrieval_text != content else None,
            image_mime_type=draft.image.mime_type if draft.image else None,
        )

    async def _commit(
        self, new: NewMemory, draft: Draft, fingerprint: Fingerprint, event: Callable[[Saved], Event]
    ) -> Saved:
        created = Saved(new.memory, WriteStatus.CREATED)
        for _ in range(COMMIT_ATTEMPTS):
            if await self._store.save(new, fingerprint, event(created)):
                return created
            fingerprint, _ = await self._store.fingerprint(fingerprint.id)
            # A commit that the client library repeated meets its own success.
            if fingerprint.memory_id == new.memory.id:
                return created
            if earlier := await self._earlier(fingerprint, draft):
                return Saved(earlier, WriteStatus.DUPLICATE)
        raise Unavailable("Other clients keep saving the same memory at this moment; save it again in a few seconds.")

    # --- Search ---

    async def search(self, profile: Profile, request: SearchRequest) -> Found:
        """The nearest memories of one state, and of one topic, origin or moment where the request names it."""
        profile.require_tool("search_context")
        state = profile.readable(request.branch_state)
        limit = request.limit or self._limits.results
        working = await self._space_to_read()
        if working is None:
            return Found(matches=(), branch_state=state, limit=limit)
        vector = await self._embedder.embed_query(request.query, text_format=working.space.text_format)
        candidates = limit if request.valid_at is None else max(limit, self._limits.candidates)
        question = Nearest(
            vector=vector,
            vector_field=working.vector_field,
            branch_state=state,
            topic=request.topic,
            origin=request.origin,
            limit=candidates,
        )
        matches, truncated = await self._valid_matches(question, request.valid_at, limit)
        return Found(matches=tuple(matches[:limit]), branch_state=state, limit=limit, truncated=truncated)

    async def _valid_matches(self, question: Nearest, valid_at: int | None, limit: int) -> tuple[list[Match], bool]:
        """The matches that hold at a moment, and whether more may exist than could be looked at."""
        matches = await self._store.nearest(question)
        if valid_at is None:
            return matches, False
        valid = [match for match in matches if rules.is_valid_at(match.metadata, valid_at)]
        if len(valid) >= limit or len(matches) < question.limit:
            return valid, False
        matches = await self._store.nearest(replace(question, limit=WIDER_CANDIDATES))
        valid = [match for match in matches if rules.is_valid_at(match.metadata, valid_at)]
        return valid, len(valid) < limit and len(matches) == WIDER_CANDIDATES

    # --- Fetch ---

    async def fetch(self, profile: Profile, memory_id: str, offset: int) -> Page:
        """One memory. One that this client may not read is as unknown to it as one that does not exist."""
        profile.require_tool("fetch_context")
        memory = await self._store.get(memory_id) if rules.is_document_id(memory_id) else None
        if memory is None or memory.metadata.branch_state not in profile.readable_states:
            raise NotFound("No memory with this id is open to this client; search for it, or check the id.")
        content, next_offset = rules.page(memory.content, offset)
        return Page(replace(memory, content=content), next_offset)

    # --- Embedding spaces ---

    async def _space_to_read(self) -> WorkingSpace | None:
        """The space to search in; None where the collection is new and so holds nothing to find."""
        spaces = await self._store.spaces()
        if spaces is None:
            spaces = await self._spaces_of_unnamed()
        return None if spaces is None else self._working(spaces)

    async def _space_to_write(self, spaces: CollectionSpaces | None) -> WorkingSpace:
        if spaces is None:
            spaces = await self._spaces_of_unnamed()
        return self._working(spaces or CollectionSpaces.only(self._embedder.space))

    async def _spaces_of_unnamed(self) -> CollectionSpaces | None:
        """Looks closer at a collection that seemed to name no space: None if it is new, else what another caller just wrote."""
        if await self._store.is_empty():
            return None
        # A first save names the space before it stores the memory that was just seen.
        spaces = await self._store.spaces()
        if spaces is None:
            raise unnamed_space(self._embedder.space)
        return spaces

    async def _name_space(self, working: WorkingSpace) -> None:
        """Names a new collection's space, and checks the name against another caller who was first."""
        named = await self._store.name_space(CollectionSpaces.only(self._embedder.space))
        if self._working(named) != working:
            raise Unavailable("The collection has just been named for another form of text; the same call works now.")

    def _working(self, spaces: CollectionSpaces) -> WorkingSpace:
        return working_space(spaces, self._embedder.space, self._embedder.known_formats)


def _modality(draft: Draft) -> Modality:
    if draft.image is None:
        return Modality.TEXT
    return Modality.MIXED if draft.content else Modality.IMAGE
