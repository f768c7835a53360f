"""Restoring an archive: what is missing is stored as a save would store it, and what is there is left alone."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.api_core.exceptions import AlreadyExists, InvalidArgument
from google.cloud.firestore_v1.async_client import AsyncClient

from metacortex.adapters.firestore_client import RETRY, answering
from metacortex.adapters.firestore_documents import PARTS, SUMMARY, TERMS, encode, encode_parts
from metacortex.adapters.firestore_memories import FirestoreMemories
from metacortex.adapters.firestore_spaces import FirestoreSpaces
from metacortex.errors import Unavailable
from metacortex.memory import NewMemory
from metacortex.ports import Embedder
from metacortex.spaces import CollectionSpaces, WorkingSpace, unnamed_space, working_space
from ops.archive_embed import made_again
from ops.archive_folder import Archive
from ops.archive_lines import SPACE, Archived, archived, keepable
from ops.place import Place, connect
from ops.processes import OpsError
from ops.progress import Tell

AT_ONCE = 100
# A long memory is many texts, each with a vector of its own: fewer of these go together.
BYTES_AT_ONCE = 2**20


@dataclass(frozen=True, kw_only=True)
class Restore:
    """What to restore, where to, and whether to write at all."""

    place: Place
    archive: Archive
    live: str
    """The collection that the service works in."""
    into_live: bool
    """Whether memories may come to those that this one holds."""
    write: bool


@dataclass
class Restored:
    """What a restoring found and did, as far as it came."""

    space: str | None = None
    named_before: bool = False
    """Whether the collection named the space before."""
    needs_live: bool = False
    """Whether the collection is the live one, and held memories."""
    there: int = 0
    """Memories that were there already, as they are in the archive."""
    missing: int = 0
    restored: int = 0
    """Of the missing ones, those that are there now."""
    differing: list[str] = field(default_factory=list[str])
    """Ids under which something else is there, which stays."""
    refused: dict[str, str] = field(default_factory=dict[str, str])
    """Memories that the model or the store does not take: by their ids, why."""


async def restore(plan: Restore, restored: Restored, embedder: Embedder, tell: Tell) -> None:
    """Do what the plan says, and note what was found and done.

    Raises OpsError where that is refused, and MetaCortexError where store or model fail. Whatever ends it, also a kill,
    leaves whole memories: the same plan goes on from there.
    """
    client = connect(plan.place.project)
    memories = FirestoreMemories(client, plan.place.collection)
    is_empty = await memories.is_empty()
    restored.needs_live = plan.place.collection == plan.live and not is_empty
    named = await memories.spaces()
    if named is None and not is_empty:
        raise unnamed_space(embedder.space)
    spaces = named or CollectionSpaces.only(embedder.space)
    working = working_space(spaces, embedder.space, embedder.known_formats)
    restored.space, restored.named_before = working.space.id, named is not None
    target = _Target(client, plan.place.collection, spaces, restored)
    done = 0
    for some in batches(plan.archive.memories(client.document)):
        missing = await target.missing(some)
        restored.missing += len(missing)
        if plan.write and missing:
            _require_consent(plan, restored)
            made = await made_again(missing, embedder, working)
            if named is None and made.new:
                named = await _name_space(memories, embedder, working)
            restored.refused |= made.refused
            await _require_same(FirestoreSpaces(client, plan.place.collection), named)
            await target.store(made.new)
        done += len(some)
        tell("Restoring memories" if plan.write else "Comparing memories", done, plan.archive.manifest.count)


def _require_consent(plan: Restore, restored: Restored) -> None:
    if restored.needs_live and not plan.into_live:
        raise OpsError(
            f"{plan.place} is the live collection, and holds memories already. Restore into another one, or add --live if"
            " those of the archive are to come to these."
        )


def batches(memories: Iterable[Archived]) -> Iterator[list[Archived]]:
    """The memories in lists that are neither long nor large."""
    some: list[Archived] = []
    size = 0
    for memory in memories:
        some.append(memory)
        size += len(memory.line)
        if len(some) == AT_ONCE or size >= BYTES_AT_ONCE:
            yield some
            some, size = [], 0
    if some:
        yield some


async def _name_space(memories: FirestoreMemories, embedder: Embedder, working: WorkingSpace) -> CollectionSpaces:
    """Names the space as a first save does: once the model has answered, and before anything is stored."""
    named = await memories.name_space(CollectionSpaces.only(embedder.space))
    if working_space(named, embedder.space, embedder.known_formats) != working:
        raise Unavailable("The collection has just been named for another form of text.")
    return named


async def _require_same(spaces: FirestoreSpaces, named: CollectionSpaces | None) -> None:
    """Raises OpsError where the collection names other spaces by now: a memory stored then could not be found."""
    if named is not None and await spaces.read() != named:
        raise OpsError(
            "The collection has just been moved to another space; run the same command again, and it goes on."
        )


class _Target:
    """The collection that memories are restored into."""

    def __init__(self, client: AsyncClient, collection: str, spaces: CollectionSpaces, restored: Restored) -> None:
        self._client = client
        self._collection = client.collection(collection)
        self._parts = client.collection(f"{collection}_parts")
        self._vector_fields = frozenset(spaces.fields.values())
        self._restored = restored

    async def missing(self, some: Sequence[Archived]) -> list[Archived]:
        """Those that are not there; the others are counted."""
        there = await self._lines(memory.id for memory in some)
        for memory in some:
            if memory.id not in there:
                continue
            if there[memory.id] == memory.line:
                self._restored.there += 1
            else:
                self._restored.differing.append(memory.id)
        return [memory for memory in some if memory.id not in there]

    async def _lines(self, memory_ids: Iterable[str]) -> dict[str, bytes]:
        """What is there under these ids, as it would stand in an archive."""
        references = [self._collection.document(memory_id) for memory_id in memory_ids]
        async with answering():
            with keepable(self._collection.id):
                return {
                    snapshot.id: archived(snapshot.id, snapshot.to_dict() or {}, self._vector_fields).line
                    async for snapshot in self._client.get_all(references, retry=RETRY)
                    if snapshot.exists
                }

    async def store(self, made: Sequence[tuple[Archived, NewMemory]]) -> None:
        """Stores each with its parts in a commit of its own, unless something has come to its place meanwhile."""
        created = await asyncio.gather(*(self._create(memory, new) for memory, new in made))
        if outrun := [memory for (memory, _), is_new in zip(made, created, strict=True) if not is_new]:
            await self.missing(outrun)

    async def _create(self, memory: Archived, new: NewMemory) -> bool:
        """False where a document with that id is there now."""
        batch = self._client.batch()
        batch.create(self._collection.document(memory.id), {**memory.fields, **_made_fields(new)})
        for part_id, part in encode_parts(new).items():
            # Without their memory they are what a deletion has left.
            batch.set(self._parts.document(part_id), part)
        async with answering():
            try:
                await batch.commit(retry=RETRY)
            except AlreadyExists:
                return False
            except InvalidArgument as error:
                self._restored.refused[memory.id] = f"The store does not take it: {error.message}"
                return True
        self._restored.restored += 1
        return True


def _made_fields(new: NewMemory) -> dict[str, Any]:
    """Of a document all that a save makes of the text."""
    made = (SUMMARY, TERMS, PARTS, SPACE, new.embedding.vector_field)
    return {name: value for name, value in encode(new).items() if name in made}
