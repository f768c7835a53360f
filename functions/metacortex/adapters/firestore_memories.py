"""Memories in Firestore: reading them, listing them, and every commit that writes any."""

import functools
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from google.cloud.firestore_v1.async_batch import AsyncWriteBatch
from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.base_document import DocumentSnapshot
from google.cloud.firestore_v1.base_query import BaseQuery, FieldFilter
from google.cloud.firestore_v1.transforms import DELETE_FIELD

from metacortex.adapters.firestore_client import RETRY, answering, committed
from metacortex.adapters.firestore_documents import (
    CONTENT,
    METADATA,
    PARTS,
    RETRIEVAL_TEXT,
    SUMMARY,
    decode_entry,
    decode_memory,
    decode_metadata,
    decode_parts,
    decode_retrieval_text,
    decode_summary,
    encode,
    encode_change,
    encode_parts,
    part_ids,
)
from metacortex.adapters.firestore_events import FirestoreEvents
from metacortex.adapters.firestore_fingerprints import FirestoreFingerprints
from metacortex.adapters.firestore_search import FirestoreSearch, filtered
from metacortex.adapters.firestore_spaces import FirestoreSpaces
from metacortex.aside import aside
from metacortex.errors import Unavailable
from metacortex.events import Event
from metacortex.memory import BranchState, Entry, Memory, Metadata, NewMemory
from metacortex.ports import Change, Fingerprint, ListFilters, Position, ReadMetadata, SearchFilters, Version
from metacortex.rules import EARLIEST_MS, LATEST_MS
from metacortex.spaces import CollectionSpaces
from metacortex.together import together

CREATED_AT = "metadata.created_at"
ID = "__name__"
OF_A_VERSION = (CONTENT, METADATA, RETRIEVAL_TEXT, PARTS)

R = TypeVar("R")

TRANSACT_ATTEMPTS = 5
_OUTRUN = "Other clients keep changing these memories at this moment; repeat the same call in a few seconds."


@dataclass(frozen=True)
class Revision:
    """What a change of a memory must know of it: when it was last written, and the ids of its parts."""

    update_time: Any
    parts: Sequence[str]


class FirestoreMemories(FirestoreSearch):
    """The MemoryStore port over one collection and its siblings."""

    def __init__(self, client: AsyncClient, collection: str) -> None:
        super().__init__(client, collection)
        self._spaces = FirestoreSpaces(client, collection)
        self._fingerprints = FirestoreFingerprints(client, collection)
        self._events = FirestoreEvents(client)

    async def spaces(self) -> CollectionSpaces | None:
        return await self._spaces.read()

    async def name_space(self, spaces: CollectionSpaces) -> CollectionSpaces:
        return await self._spaces.name(spaces)

    async def is_empty(self) -> bool:
        async with answering():
            return not await self._collection.select([]).limit(1).get(retry=RETRY)

    async def fingerprint(self, fingerprint_id: str) -> tuple[Fingerprint, CollectionSpaces | None]:
        known = self._spaces.cached()
        document = self._fingerprints.document(fingerprint_id)
        snapshots = await self._read(document) if known else await self._read(document, self._spaces.document)
        fingerprint = self._fingerprints.decode(snapshots[document.path])
        return fingerprint, known or self._spaces.remember(snapshots[self._spaces.document.path])

    async def get(self, memory_id: str) -> Memory | None:
        async with answering():
            snapshot = await self._collection.document(memory_id).get([CONTENT, METADATA], retry=RETRY)
        return decode_memory(snapshot.id, snapshot.to_dict() or {}) if snapshot.exists else None

    async def save(self, new: NewMemory, fingerprint: Fingerprint, event: Event) -> bool:
        batch = self._client.batch()
        # To encode a part takes nearly a millisecond, and there may be more than a hundred.
        if new.parts:
            await aside(self._stage, batch, new)
        else:
            self._stage(batch, new)
        self._fingerprints.stage(batch, fingerprint, new.memory.id, new.memory.metadata.created_at or 0)
        self._events.stage(batch, event)
        return await committed(batch)

    async def newest(self, filters: ListFilters, after: Position | None, limit: int) -> list[Entry]:
        # The bounds are always there: they leave out what could not be shown, a time that is no number or no date.
        earliest = EARLIEST_MS if filters.created_after is None else filters.created_after
        before = LATEST_MS + 1 if filters.created_before is None else filters.created_before
        query = (
            filtered(self._collection, filters)
            .where(filter=FieldFilter(CREATED_AT, ">=", earliest))
            .where(filter=FieldFilter(CREATED_AT, "<", before))
            .order_by(CREATED_AT, direction=BaseQuery.DESCENDING)
            .order_by(ID, direction=BaseQuery.ASCENDING)
            .select([SUMMARY, METADATA])
            .limit(limit)
        )
        if after is not None:
            query = query.start_after({CREATED_AT: after.created_at, ID: self._collection.document(after.memory_id)})
        async with answering():
            found = {snapshot.id: snapshot.to_dict() or {} async for snapshot in query.stream(retry=RETRY)}
        contents = await self._contents(
            memory_id for memory_id, document in found.items() if not decode_summary(document)
        )
        return [decode_entry(memory_id, document, contents.get(memory_id)) for memory_id, document in found.items()]

    async def transact(
        self, work: Callable[[ReadMetadata], Awaitable[tuple[R, Change | None]]], event: Callable[[R], Event]
    ) -> R:
        for attempt in range(TRANSACT_ATTEMPTS):
            seen: dict[str, DocumentSnapshot] = {}
            result, change = await work(functools.partial(self._read_metadata, seen))
            if change is None:
                return result
            done = event(result)
            batch = self._client.batch()
            revision = _revision(seen.pop(change.memory_id))
            # A part that is lost would fail every commit: after a first failure only those that are there are written.
            parts = await self._existing(revision.parts) if attempt else revision.parts
            await aside(self._stage_change, batch, replace(change, revision=replace(revision, parts=parts)))
            self._stage_unchanged(batch, seen.values())
            self._events.stage(batch, done)
            # A commit that the client library repeated meets its own success.
            if await committed(batch) or await self._events.holds(done):
                return result
        raise Unavailable(_OUTRUN)

    async def _read_metadata(self, seen: dict[str, DocumentSnapshot], memory_id: str) -> Metadata | None:
        async with answering():
            snapshot = await self._collection.document(memory_id).get([METADATA, PARTS], retry=RETRY)
        if not snapshot.exists:
            return None
        seen[memory_id] = snapshot
        return decode_metadata(snapshot.to_dict() or {})

    def _stage_unchanged(self, batch: AsyncWriteBatch, snapshots: Iterable[DocumentSnapshot]) -> None:
        """Lets a commit fail if one of these has changed since: each is written as it is, which Firestore counts as no change."""
        for snapshot in snapshots:
            # Where nothing was read there are no parts: taking them away is no change either.
            fields = snapshot.to_dict() or {PARTS: DELETE_FIELD}
            unchanged = self._client.write_option(last_update_time=snapshot.update_time)
            batch.update(snapshot.reference, fields, option=unchanged)

    async def versions(self, memory_ids: Sequence[str]) -> list[Version | None]:
        documents = {memory_id: self._collection.document(memory_id) for memory_id in memory_ids}
        async with answering():
            snapshots = self._client.get_all(list(documents.values()), OF_A_VERSION, retry=RETRY)
            found = {snapshot.id: _version(snapshot) async for snapshot in snapshots if snapshot.exists}
        return [found.get(memory_id) for memory_id in memory_ids]

    async def oldest_drafts(self, topic: str, limit: int) -> tuple[list[Version], int]:
        wip = SearchFilters(branch_state=BranchState.WIP, topic=topic)
        drafts = filtered(self._collection, wip).order_by(CREATED_AT)
        oldest = drafts.select(OF_A_VERSION).limit(limit)
        async with answering():
            counting: Coroutine[Any, Any, Any] = drafts.count().get(retry=RETRY)
            snapshots, counts = await together(oldest.get(retry=RETRY), counting)
        # They are not read at one moment: a draft may have left meanwhile.
        return [_version(snapshot) for snapshot in snapshots], max(len(snapshots), int(counts[0][0].value))

    async def consolidate(self, new: NewMemory, sources: Sequence[Change], event: Event) -> bool:
        if await self._merged(new, sources, event):
            return True
        # A part that is lost fails a commit, too; without it the sources may be as they were read.
        known = [part_id for source in sources for part_id in source.revision.parts]
        existing = set(await self._existing(known))
        if len(existing) == len(known):
            return False
        return await self._merged(new, [_with_parts(source, existing) for source in sources], event)

    async def _merged(self, new: NewMemory, sources: Sequence[Change], event: Event) -> bool:
        batch = self._client.batch()
        await aside(self._stage_merge, batch, new, sources)
        self._events.stage(batch, event)
        return await committed(batch)

    def _stage_merge(self, batch: AsyncWriteBatch, new: NewMemory, sources: Sequence[Change]) -> None:
        self._stage(batch, new)
        for source in sources:
            self._stage_change(batch, source)

    def _stage(self, batch: AsyncWriteBatch, new: NewMemory) -> None:
        batch.create(self._collection.document(new.memory.id), encode(new))
        for part_id, document in encode_parts(new).items():
            batch.create(self._parts.document(part_id), document)

    def _stage_change(self, batch: AsyncWriteBatch, change: Change) -> None:
        """Adds the change of a memory and of its parts, provided that the memory is still as it was read."""
        fields = encode_change(change.before, change.after)
        unchanged = self._client.write_option(last_update_time=change.revision.update_time)
        batch.update(self._collection.document(change.memory_id), fields, option=unchanged)
        for part_id in change.revision.parts:
            batch.update(self._parts.document(part_id), fields)

    async def _existing(self, part_ids: Sequence[str]) -> list[str]:
        """Those of the parts that are stored."""
        if not part_ids:
            return []
        documents = [self._parts.document(part_id) for part_id in part_ids]
        async with answering():
            snapshots = self._client.get_all(documents, [], retry=RETRY)
            return [snapshot.id async for snapshot in snapshots if snapshot.exists]

    async def _read(self, *documents: object) -> dict[str, DocumentSnapshot]:
        """Several documents in one read, by path; each has a snapshot, whether it exists or not."""
        async with answering():
            return {
                snapshot.reference.path: snapshot
                async for snapshot in self._client.get_all(list(documents), retry=RETRY)  # pyright: ignore[reportArgumentType]
            }


def _version(snapshot: DocumentSnapshot) -> Version:
    document = snapshot.to_dict() or {}
    return Version(
        memory=decode_memory(snapshot.id, document),
        retrieval_text=decode_retrieval_text(document),
        revision=_revision(snapshot),
    )


def _revision(snapshot: DocumentSnapshot) -> Revision:
    return Revision(snapshot.update_time, part_ids(snapshot.id, decode_parts(snapshot.to_dict() or {})))


def _with_parts(change: Change, existing: Collection[str]) -> Change:
    parts = [part_id for part_id in change.revision.parts if part_id in existing]
    return replace(change, revision=replace(change.revision, parts=parts))
