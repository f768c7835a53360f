"""What the tools mean. Every method takes the calling profile and checks what it may do before any work is done."""

import asyncio
import logging
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain

from metacortex import fusion, lifecycle, rules
from metacortex.aside import aside
from metacortex.errors import (
    Conflict,
    InvalidArgument,
    MetaCortexError,
    NotFound,
    NothingToDo,
    RateLimited,
    TooLarge,
    Unavailable,
)
from metacortex.events import Clock, Event
from metacortex.fusion import Candidate
from metacortex.lifecycle import Deprecation
from metacortex.memory import (
    BranchState,
    Draft,
    Embedding,
    Entry,
    Initiator,
    Match,
    Memory,
    Metadata,
    Modality,
    NewMemory,
    Origin,
    Part,
    Provenance,
    SupersessionReason,
    WriteStatus,
)
from metacortex.ports import (
    Change,
    Document,
    Fingerprint,
    ListFilters,
    MemoryStore,
    Models,
    Position,
    Question,
    ReadMetadata,
    SearchFilters,
    Version,
)
from metacortex.profiles import Profile
from metacortex.query_vectors import QueryVectors
from metacortex.spaces import CollectionSpaces, WorkingSpace, unnamed_space, working_space
from metacortex.terms import LONGEST, MOST_TERMS, memory_terms, query_terms, terms_about
from metacortex.together import together

COMMIT_ATTEMPTS = 3
WIDER_CANDIDATES = 1_000
LONG_TEXT = 10_000
# Of Chinese each character makes a term.
LONG_QUERY = 2_000
# Each holds all its sources, up to 8 MB of them, for as long as a model takes.
MERGES_AT_ONCE = 4
SIMILAR = 3
SIMILAR_SECONDS = 2.0
# The store takes a document of 1 MiB; a vector and the description of an image need the rest.
ROOM_BYTES = 1_004_000
# Each memory of a chain is one more read, and one more write of the commit.
LONGEST_CHAIN = 20

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Saved:
    """A stored memory, and the active ones of its topic that say nearly the same, nearest first."""

    memory: Memory
    write_status: WriteStatus
    similar: tuple[Match, ...] = ()


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
    """The matches, best first, with the state and the limit that counted. `truncated`: there may be more, not seen.

    `below_floor` counts those among the best that were left out for their score; None where no floor is set.
    """

    matches: tuple[Match, ...]
    branch_state: BranchState
    limit: int
    truncated: bool = False
    below_floor: int | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """A memory whose content is one page of the whole, and the offset of the next page if there is one."""

    memory: Memory
    next_offset: int | None


@dataclass(frozen=True, slots=True)
class Listed:
    """One page of a listing; `more`: others follow it."""

    entries: tuple[Entry, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class Deprecated:
    """A memory that is now deprecated, and the state it was in when that was asked."""

    memory_id: str
    metadata: Metadata
    previous_state: BranchState


@dataclass(frozen=True, slots=True, kw_only=True)
class Consolidated:
    """A merged memory and the ids of the sources it replaced. `remaining`: wip memories of the topic that are left."""

    memory: Memory
    source_ids: tuple[str, ...]
    remaining: int
    is_new: bool = True
    """False where an earlier call had already merged these sources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a consolidation would write, with nothing written."""

    content: str
    sources: tuple[Memory, ...]
    remaining: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What an owner may set. With `lexical_weight` 0 memories are found by their vectors alone."""

    results: int
    candidates: int
    sources: int
    lexical_weight: float
    floor: float | None


class MemoryService:
    def __init__(self, store: MemoryStore, models: Models, options: Options, clock: Clock) -> None:
        self._store = store
        self._merges = 0
        self._embedder = models.embedder
        self._describer = models.describer
        self._merger = models.merger
        self._options = options
        self._clock = clock
        self._queries = QueryVectors(models.embedder)
        self._last_space: WorkingSpace | None = None

    # --- Save ---

    async def save(self, profile: Profile, draft: Draft, event: Callable[[Saved], Event]) -> Saved:
        """Stores a memory in one commit with its event, or answers the one that an equal recent write made.

        `event` makes the event of a result; it is stored only with a created memory.
        """
        profile.require_tool("save_context")
        profile.require_writable(draft.branch_state)
        profile.require_origin(draft.provenance.origin)
        await _require_room(draft)
        (fingerprint, spaces), _ = await together(
            self._store.fingerprint(rules.fingerprint(draft)), self._load_models()
        )
        space = await self._space_to_write(spaces)
        if earlier := await self._earlier(fingerprint, draft):
            return Saved(earlier, WriteStatus.DUPLICATE)
        new = await self._prepare(profile, draft, space)
        if spaces is None:
            await self._name_space(space)
        similar = asyncio.create_task(self._similar(profile, new))
        try:
            saved = await self._commit(new, draft, fingerprint, event)
            return replace(saved, similar=await similar) if saved.write_status is WriteStatus.CREATED else saved
        finally:
            similar.cancel()

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
        now = self._clock()
        date = now if draft.valid_from is None else draft.valid_from
        vector, parts = await self._embed(Document(text=retrieval_text, topic=draft.topic, date=date), working)
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
            terms=await _terms(retrieval_text, metadata),
            parts=parts,
            retrieval_text=retrieval_text if retrieval_text != content else None,
            image_mime_type=draft.image.mime_type if draft.image else None,
        )

    async def _embed(self, document: Document, working: WorkingSpace) -> tuple[tuple[float, ...], tuple[Part, ...]]:
        """The vector of a text; for a long one the mean of its parts' vectors, and these parts."""
        stretches = await _stretches(document.text, self._embedder.part_characters)
        documents = [replace(document, text=stretch) for stretch in stretches] or [document]
        vectors = await self._embedder.embed_documents(documents, text_format=working.space.text_format)
        return await aside(_parted, stretches, vectors) if stretches else (vectors[0], ())

    async def _similar(self, profile: Profile, new: NewMemory) -> tuple[Match, ...]:
        """The active memories of the topic that say nearly the same. That they cannot be had fails no save."""
        if BranchState.ACTIVE not in profile.readable_states:
            return ()
        filters = SearchFilters(branch_state=BranchState.ACTIVE, topic=new.memory.metadata.topic)
        question = Question(vector=new.embedding.vector, vector_field=new.embedding.vector_field, filters=filters)
        try:
            async with asyncio.timeout(SIMILAR_SECONDS):
                # One more than asked for: the new memory may be among them already.
                found = await self._store.nearest(question, SIMILAR + 1)
        except (MetaCortexError, TimeoutError) as error:
            logger.warning("Similar memories could not be looked up: %s", type(error).__name__)
            return ()
        except Exception:
            logger.exception("Similar memories could not be looked up")
            return ()
        near = [
            candidate
            for candidate in found
            if candidate.score >= self._embedder.near_duplicate and candidate.id != new.memory.id
        ]
        return tuple(fusion.ranked(near[:SIMILAR], {}, 0))

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
        """The best memories of one state, and of one topic, origin or moment where the request names it.

        The rare words of the query are counted while it is embedded; then every query goes out at once.
        """
        profile.require_tool("search_context")
        state = profile.readable(request.branch_state)
        limit = request.limit or self._options.results
        filters = SearchFilters(branch_state=state, topic=request.topic, origin=request.origin)
        words = await _asked_terms(request.query) if self._options.lexical_weight else ()
        expected = self._last_space or await self._first_space()
        if expected is None:
            return Found(matches=(), branch_state=state, limit=limit)
        # A collection seldom changes its space: it is looked up beside what is then known to be right, or is done again.
        working, vector, counts = await together(
            self._space_to_read(),
            self._queries.vector(request.query, expected.space),
            self._store.count_terms(filters, words),
        )
        if working is None:
            return Found(matches=(), branch_state=state, limit=limit)
        if working.space != expected.space:
            vector = await self._queries.vector(request.query, working.space)
        question = Question(vector=vector, vector_field=working.vector_field, filters=filters, terms=words)
        found, truncated = await self._candidates_of(question, counts, request.valid_at, limit)
        candidates = await self._with_words(found, question, counts)
        matches = fusion.ranked(candidates, counts, self._options.lexical_weight)
        kept, below = fusion.above_floor(matches, self._options.floor, limit)
        return Found(
            matches=tuple(kept),
            branch_state=state,
            limit=limit,
            truncated=truncated,
            below_floor=None if self._options.floor is None else below,
        )

    async def _candidates_of(
        self, question: Question, counts: Mapping[str, int], valid_at: int | None, limit: int
    ) -> tuple[list[Candidate], bool]:
        """What may match, each memory once, and whether more may exist than could be looked at."""
        narrowed = valid_at is not None or self._options.lexical_weight
        size = max(limit, self._options.candidates) if narrowed else limit
        near, by_words = await together(self._near(question, size), self._holding(question, counts))
        found = fusion.joined([*chain(*near), *by_words])
        if valid_at is None:
            return found, False
        valid = [candidate for candidate in found if rules.is_valid_at(candidate.metadata, valid_at)]
        memories, parts = near
        if len(valid) >= limit or (len(memories) < size and len(parts) < max(size, self._options.candidates)):
            return valid, False
        near = await self._near(question, WIDER_CANDIDATES)
        found = fusion.joined([*chain(*near), *by_words])
        valid = [candidate for candidate in found if rules.is_valid_at(candidate.metadata, valid_at)]
        return valid, len(valid) < limit and any(len(leg) == WIDER_CANDIDATES for leg in near)

    async def _near(self, question: Question, size: int) -> tuple[list[Candidate], list[Candidate]]:
        """The nearest memories, and the nearest parts of long ones; of these many may belong to one memory."""
        return await together(
            self._store.nearest(question, size),
            self._store.nearest_parts(question, max(size, self._options.candidates)),
        )

    async def _holding(self, question: Question, counts: Mapping[str, int]) -> list[Candidate]:
        """Memories that hold one of the query's rarest words."""
        rare = fusion.rare_terms(counts)
        found = await together(*(self._store.holding(question, term, size) for term, size in rare.items()))
        return list(chain(*found))

    async def _with_words(
        self, found: list[Candidate], question: Question, counts: Mapping[str, int]
    ) -> list[Candidate]:
        """The candidates, with the words of those of which only a part was found, where they may hold any."""
        unseen = fusion.unseen(found, counts)
        held = await self._store.held(question, unseen) if unseen else {}
        return [
            replace(candidate, held=held[candidate.id]) if candidate.id in held else candidate for candidate in found
        ]

    # --- Fetch ---

    async def fetch(self, profile: Profile, memory_id: str, offset: int) -> Page:
        """One memory. One that this client may not read is as unknown to it as one that does not exist."""
        profile.require_tool("fetch_context")
        memory = await self._store.get(memory_id) if rules.is_document_id(memory_id) else None
        if memory is None or memory.metadata.branch_state not in profile.readable_states:
            raise NotFound("No memory with this id is open to this client; search for it, or check the id.")
        content, next_offset = rules.page(memory.content, offset)
        return Page(replace(memory, content=content), next_offset)

    # --- List ---

    async def list_memories(self, profile: Profile, filters: ListFilters, after: Position | None, limit: int) -> Listed:
        """The memories that pass the filters, newest first, from behind a position on."""
        profile.require_tool("list_context")
        profile.readable(filters.branch_state)
        # One more than asked for tells whether there is a next page.
        entries = await self._store.newest(filters, after, limit + 1)
        return Listed(tuple(entries[:limit]), more=len(entries) > limit)

    # --- Deprecate ---

    async def deprecate(
        self, profile: Profile, memory_id: str, deprecation: Deprecation, event: Callable[[Deprecated], Event]
    ) -> Deprecated:
        """Retires a memory, in favour of another where the deprecation names one. Nothing is ever deleted.

        Repeating a deprecation changes nothing; what would contradict one, or close a circle, raises Conflict.
        """
        profile.require_tool("deprecate_context")
        profile.require_writable(BranchState.DEPRECATED)
        if memory_id == deprecation.superseding_id:
            raise InvalidArgument("A memory cannot supersede itself; name another superseding_id, or leave it out.")

        async def work(read: ReadMetadata) -> tuple[Deprecated, Change | None]:
            replacement = await self._replacement(profile, deprecation.superseding_id, read)
            before = await read(memory_id) if rules.is_document_id(memory_id) else None
            # Before it counts what this client may read: it may have lost the memory by this very deprecation.
            if before and lifecycle.is_repeated(before, deprecation):
                return Deprecated(memory_id, before, before.branch_state), None
            if before is None or not _is_readable(profile, before):
                raise NotFound("No memory with this id is open to this client; search for it, or check the id.")
            if before.branch_state is BranchState.DEPRECATED:
                raise Conflict("This memory is deprecated already, by another memory or for another reason; fetch it.")
            if replacement is not None:
                await _require_current_end(memory_id, replacement, read)
            after = lifecycle.deprecated(before, deprecation, self._clock())
            change = Change(memory_id=memory_id, before=before, after=after)
            return Deprecated(memory_id, after, before.branch_state), change

        return await self._store.transact(work, event)

    async def _replacement(self, profile: Profile, memory_id: str | None, read: ReadMetadata) -> Metadata | None:
        if memory_id is None:
            return None
        replacement = await _readable(profile, memory_id, read)
        if replacement is None:
            raise NotFound("superseding_id names no memory that is open to this client; save the new memory first.")
        return replacement

    # --- Consolidate ---

    async def consolidate(
        self, profile: Profile, topic: str, source_ids: Sequence[str] | None, event: Callable[[Consolidated], Event]
    ) -> Consolidated:
        """Merges memories into one active memory that supersedes them, in one commit.

        Without ids these are the oldest wip memories of the topic. Sources that one memory has already replaced answer
        that memory. `event` makes the event of a result; it is stored only with a new merged memory.
        """
        profile.require_tool("consolidate_context")
        profile.require_writable(BranchState.ACTIVE)
        profile.require_writable(BranchState.DEPRECATED)
        with self._merge_at_once():
            candidates, remaining = await self._candidates(profile, topic, source_ids)
            if earlier := await self._earlier_merge(profile, candidates):
                return earlier
            sources = _mergeable(profile, candidates)
            space = await self._space_to_write(await self._store.spaces())
            draft = await self._merge(sources, topic)
            new = await self._prepare(profile, draft, space)
            merged = Consolidated(memory=new.memory, source_ids=draft.provenance.derived_from, remaining=remaining)
            changes = [_superseded(source, new.memory) for source in sources]
            if await self._store.consolidate(new, changes, event(merged)):
                return merged
            # A commit that the client library repeated meets its own success.
            if await self._store.get(new.memory.id):
                return merged
            raise Conflict(
                "One of these memories was changed while they were merged, and nothing was written; try again."
            )

    async def preview(self, profile: Profile, topic: str, source_ids: Sequence[str] | None) -> Preview:
        """What `consolidate` would write at this moment."""
        profile.require_tool("consolidate_context")
        with self._merge_at_once():
            candidates, remaining = await self._candidates(profile, topic, source_ids)
            sources = _mergeable(profile, candidates)
            draft = await self._merge(sources, topic)
            return Preview(
                content=draft.content, sources=tuple(source.memory for source in sources), remaining=remaining
            )

    @contextmanager
    def _merge_at_once(self) -> Generator[None]:
        if self._merges == MERGES_AT_ONCE:
            raise RateLimited("Other memories are being merged at this moment; repeat the same call in a minute.")
        self._merges += 1
        try:
            yield
        finally:
            self._merges -= 1

    async def _candidates(
        self, profile: Profile, topic: str, source_ids: Sequence[str] | None
    ) -> tuple[Sequence[Version | None], int]:
        """The memories that the ids name, or the oldest drafts of the topic and how many of its drafts stay behind."""
        if source_ids is None:
            profile.readable(BranchState.WIP)
            drafts, count = await self._store.oldest_drafts(topic, self._options.sources)
            if len(drafts) < 2:
                raise NothingToDo("Fewer than two drafts (wip) are left in this topic, so there is nothing to merge.")
            return drafts, count - len(drafts)
        if len(source_ids) > self._options.sources:
            raise InvalidArgument(
                f"source_ids has {len(source_ids)} ids and the limit is {self._options.sources}; merge fewer at once."
            )
        if not source_ids:
            raise NothingToDo(_TOO_FEW_SOURCES)
        if not all(map(rules.is_document_id, source_ids)):
            raise NotFound(_UNKNOWN_SOURCE)
        return await self._store.versions(source_ids), 0

    async def _earlier_merge(self, profile: Profile, sources: Sequence[Version | None]) -> Consolidated | None:
        """The memory that has already replaced exactly these sources, if there is one that this client may read."""
        [successor, *others] = {source.memory.metadata.superseded_by if source else None for source in sources}
        memory = None if others or successor is None else await self._store.get(successor)
        if memory is None or not _is_readable(profile, memory.metadata):
            return None
        source_ids = tuple(source.memory.id for source in sources if source)
        provenance = memory.metadata.provenance
        if provenance is None or set(provenance.derived_from) != set(source_ids):
            return None
        return Consolidated(memory=memory, source_ids=source_ids, remaining=0, is_new=False)

    async def _merge(self, sources: Sequence[Version], topic: str) -> Draft:
        """The merged memory as a draft. Its text keeps what only an image's description says."""
        memories = [source.memory for source in sources]
        valid_from, valid_until = lifecycle.shared_validity(memories)
        artifact_refs = lifecycle.all_artifact_refs(memories)
        whole = [replace(source.memory, content=source.retrieval_text or source.memory.content) for source in sources]
        content = (await self._merger.merge(whole, topic=topic)).strip()
        if len(content.encode()) > rules.CONTENT_BYTES:
            raise TooLarge(
                f"The merged text has {len(content.encode()):,} bytes and the limit is {rules.CONTENT_BYTES:,}; "
                "merge fewer memories at once."
            )
        return Draft(
            content=content,
            topic=topic,
            branch_state=BranchState.ACTIVE,
            provenance=Provenance(origin=Origin.AGENT_INFERRED, derived_from=tuple(memory.id for memory in memories)),
            artifact_refs=artifact_refs,
            valid_from=valid_from,
            valid_until=valid_until,
        )

    # --- Embedding spaces ---

    async def _first_space(self) -> WorkingSpace | None:
        """What `_space_to_read` answers a new process."""
        working, _ = await together(self._space_to_read(), self._load_models())
        return working

    async def _load_models(self) -> None:
        """Beside a new process's first read. What fails here is told by the call that needs it."""
        with suppress(Exception):
            await self._embedder.ready()

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
        self._last_space = None
        self._last_space = working_space(spaces, self._embedder.space, self._embedder.known_formats)
        return self._last_space


async def _require_room(draft: Draft) -> None:
    """Raises TooLarge where one document cannot hold a memory, before any model is asked."""
    size = rules.stored_bytes(draft)
    # The words are counted only where they may matter: 300 at most, each of 4 bytes a character, and stored twice.
    if size > ROOM_BYTES - MOST_TERMS * 2 * (4 * LONGEST + 9):
        told = (draft.topic, *draft.artifact_refs)
        size += words_bytes(await aside(terms_about, draft.content, told))
    if size > ROOM_BYTES:
        raise TooLarge(
            f"content (twice beside an image), the words in it, artifact_refs and derived_from are {size:,} bytes together and "
            f"the limit is {ROOM_BYTES:,}; shorten them, or save the text and the image apart."
        )


def words_bytes(counts: Mapping[str, int]) -> int:
    """What words take in a document: each once, with a mark, and again with its number where that is more than one."""
    return sum(len(word.encode()) + 2 + (len(word.encode()) + 9 if often > 1 else 0) for word, often in counts.items())


async def _asked_terms(query: str) -> tuple[str, ...]:
    return await aside(query_terms, query) if len(query) > LONG_QUERY else query_terms(query)


async def _terms(text: str, metadata: Metadata) -> dict[str, int]:
    """The terms of a memory. To find those of a long one takes up to a second, those of a page a millisecond or two."""
    length = len(text) + sum(map(len, metadata.artifact_refs))
    return await aside(memory_terms, text, metadata) if length > LONG_TEXT else memory_terms(text, metadata)


async def _stretches(text: str, page: int) -> list[str]:
    return await aside(rules.stretches, text, page) if len(text) > LONG_TEXT else rules.stretches(text, page)


def _parted(
    stretches: Sequence[str], vectors: Sequence[tuple[float, ...]]
) -> tuple[tuple[float, ...], tuple[Part, ...]]:
    parts = zip(map(rules.summary, stretches), vectors, strict=True)
    return rules.mean_direction(vectors), tuple(Part(summary=summary, vector=vector) for summary, vector in parts)


def _modality(draft: Draft) -> Modality:
    if draft.image is None:
        return Modality.TEXT
    return Modality.MIXED if draft.content else Modality.IMAGE


_UNKNOWN_SOURCE = "source_ids names a memory that is not open to this client; check each id."
_TOO_FEW_SOURCES = "source_ids needs at least 2 ids; leave it out to merge the drafts of the topic."


def _mergeable(profile: Profile, candidates: Sequence[Version | None]) -> list[Version]:
    """The sources of a merge, where every candidate may be one."""
    sources = [version for version in candidates if version and _is_readable(profile, version.memory.metadata)]
    if len(sources) < len(candidates):
        raise NotFound(_UNKNOWN_SOURCE)
    if any(source.memory.metadata.branch_state is BranchState.DEPRECATED for source in sources):
        raise Conflict("source_ids names a deprecated memory, and only what still counts is merged; leave it out.")
    if len(sources) < 2:
        raise NothingToDo(_TOO_FEW_SOURCES)
    return sources


def _superseded(source: Version, merged: Memory) -> Change:
    deprecation = Deprecation(superseding_id=merged.id, reason=SupersessionReason.CHANGED, initiator=Initiator.AGENT)
    before = source.memory.metadata
    after = lifecycle.deprecated(before, deprecation, merged.metadata.created_at or 0)
    return Change(memory_id=source.memory.id, before=before, after=after, revision=source.revision)


def _is_readable(profile: Profile, metadata: Metadata) -> bool:
    return metadata.branch_state in profile.readable_states


async def _readable(profile: Profile, memory_id: str, read: ReadMetadata) -> Metadata | None:
    """The metadata of a memory that this client may read; to it, any other memory does not exist."""
    metadata = await read(memory_id) if rules.is_document_id(memory_id) else None
    return metadata if metadata and _is_readable(profile, metadata) else None


async def _require_current_end(memory_id: str, replacement: Metadata, read: ReadMetadata) -> None:
    """Raises Conflict unless what replaces a memory leads, through whatever replaced that, to one that still counts."""
    passed: set[str] = set()
    current: Metadata | None = replacement
    while current and current.superseded_by is not None:
        successor = current.superseded_by
        if successor == memory_id or successor in passed:
            raise Conflict("The memory in superseding_id was itself superseded by this one; name one that counts now.")
        if len(passed) == LONGEST_CHAIN:
            raise Conflict("The memory in superseding_id was superseded many times over; name the one that counts now.")
        passed.add(successor)
        current = await read(successor)
    if current is None or current.branch_state is BranchState.DEPRECATED:
        raise Conflict("The memory in superseding_id no longer counts either; name one that counts now.")
