"""One memory in two embedding spaces: the vectors it gets in a new one, and what goes with an old one.

A long memory's parts are numbered through both spaces; a part's document holds the vector of its own space alone. So a change
of the memory reaches every part, and a search in either space finds only what belongs there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from google.cloud.firestore_v1.async_batch import AsyncWriteBatch
from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.base_document import DocumentSnapshot
from google.cloud.firestore_v1.transforms import DELETE_FIELD
from google.cloud.firestore_v1.vector import Vector as StoredVector

from metacortex.adapters.firestore_client import RETRY, answering, committed
from metacortex.adapters.firestore_documents import (
    CONTENT,
    METADATA,
    PARTS,
    RETRIEVAL_TEXT,
    decode_memory,
    encode_parts,
    part_ids,
)
from metacortex.errors import TooLarge, Unavailable
from metacortex.spaces import FIRST_VECTOR_FIELD, WorkingSpace
from ops.stored_texts import Model, Pace, StoredText, Vector, stored_text

SPACE = "embedding_space"
OF_A_TEXT = (CONTENT, RETRIEVAL_TEXT, METADATA, PARTS)
ATTEMPTS = 5


def has_vector(snapshot: DocumentSnapshot, working: WorkingSpace) -> bool:
    """Whether a memory can be found in a space."""
    vector = (snapshot.to_dict() or {}).get(working.vector_field)
    return isinstance(vector, StoredVector) and len(vector) == working.space.dimensions


@dataclass(frozen=True)
class Lacking:
    """A memory that lacks a vector, and the text to make it of."""

    snapshot: DocumentSnapshot
    text: StoredText


def batches(memories: Sequence[Lacking], size: int) -> Iterator[list[Lacking]]:
    """Memories in groups of at most `size` texts; one with more of them goes alone."""
    batch: list[Lacking] = []
    count = 0
    for memory in memories:
        texts = len(memory.text.documents)
        if batch and count + texts > size:
            yield batch
            batch, count = [], 0
        batch.append(memory)
        count += texts
    if batch:
        yield batch


class InOneSpace:
    """Gives vectors of one space to memories that lack them."""

    def __init__(self, client: AsyncClient, collection: str, working: WorkingSpace) -> None:
        self._client = client
        self._parts = client.collection(f"{collection}_parts")
        self._working = working

    async def add(self, memory: Lacking, vectors: Sequence[Vector]) -> bool:
        """Stores a memory's vectors and parts in one commit; False where it has some by now, or is gone.

        Where another client changed the memory meanwhile, what is stored beside the vectors is read again. Raises
        TooLarge where the store does not take it any more.
        """
        snapshot = memory.snapshot
        for _ in range(ATTEMPTS):
            if not snapshot.exists or has_vector(snapshot, self._working):
                return False
            batch = self._client.batch()
            self._stage(batch, snapshot, memory.text, vectors)
            if await committed(batch):
                return True
            snapshot = await _again(snapshot, (*OF_A_TEXT, self._working.vector_field))
        raise _outrun()

    def _stage(
        self, batch: AsyncWriteBatch, snapshot: DocumentSnapshot, text: StoredText, vectors: Sequence[Vector]
    ) -> None:
        document = snapshot.to_dict() or {}
        working = self._working
        new = text.new_memory(decode_memory(snapshot.id, document), vectors, working)
        before = document.get(PARTS, 0)
        after = before + len(new.parts)
        fields: dict[str, Any] = {working.vector_field: StoredVector(new.embedding.vector)}
        if working.vector_field == FIRST_VECTOR_FIELD:
            fields[SPACE] = working.space.id
        if new.parts:
            fields[PARTS] = after
        batch.update(snapshot.reference, fields, option=_unchanged(self._client, snapshot))
        names = part_ids(snapshot.id, after)[before:]
        for name, part in zip(names, encode_parts(new).values(), strict=True):
            batch.create(self._parts.document(name), part)


class Leaving:
    """Deletes what memories hold of a space that their collection no longer names."""

    def __init__(self, client: AsyncClient, collection: str, dropped: WorkingSpace) -> None:
        self._client = client
        self._parts = client.collection(f"{collection}_parts")
        self._dropped = dropped

    def concerns(self, snapshot: DocumentSnapshot) -> bool:
        return self._dropped.vector_field in (snapshot.to_dict() or {})

    async def drop(self, snapshot: DocumentSnapshot) -> None:
        """Deletes a memory's vector and parts in the space, in one commit; the parts that stay are numbered anew."""
        for _ in range(ATTEMPTS):
            if not snapshot.exists or not self.concerns(snapshot):
                return
            batch = self._client.batch()
            await self._stage(batch, snapshot)
            if await committed(batch):
                return
            snapshot = await _again(snapshot, (PARTS, self._dropped.vector_field))
        raise _outrun()

    async def _stage(self, batch: AsyncWriteBatch, snapshot: DocumentSnapshot) -> None:
        names = part_ids(snapshot.id, (snapshot.to_dict() or {}).get(PARTS, 0))
        kept = await self._kept_parts(names)
        fields: dict[str, Any] = {self._dropped.vector_field: DELETE_FIELD}
        if self._dropped.vector_field == FIRST_VECTOR_FIELD:
            fields[SPACE] = DELETE_FIELD
        if names:
            fields[PARTS] = len(kept) or DELETE_FIELD
        batch.update(snapshot.reference, fields, option=_unchanged(self._client, snapshot))
        for name, part in zip(names, kept, strict=False):
            batch.set(self._parts.document(name), part)
        for name in names[len(kept) :]:
            batch.delete(self._parts.document(name))

    async def _kept_parts(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """The parts of the other space, in their order."""
        if not names:
            return []
        references = [self._parts.document(name) for name in names]
        async with answering():
            found = [snapshot async for snapshot in self._client.get_all(references, retry=RETRY) if snapshot.exists]
        documents = {snapshot.id: snapshot.to_dict() or {} for snapshot in found}
        return [
            documents[name] for name in names if name in documents and self._dropped.vector_field not in documents[name]
        ]


class Filling:
    """Embeds memories in one space and stores their vectors, at a pace."""

    def __init__(
        self, space: InOneSpace, model: Model, pace: Pace, part_characters: int, require: Callable[[], Awaitable[None]]
    ) -> None:
        self._space = space
        self._model = model
        self._most_at_once = pace.most_at_once
        self._part_characters = part_characters
        self._require = require
        self.refused: list[str] = []
        """The ids of memories that the model or the store does not take."""

    def lacking(self, snapshots: Sequence[DocumentSnapshot]) -> list[Lacking]:
        """These memories with their texts."""
        return [Lacking(each, stored_text(each.id, each.to_dict() or {}, self._part_characters)) for each in snapshots]

    async def fill(self, memories: Sequence[Lacking]) -> int:
        """How many of these memories have got their vectors. Raises MetaCortexError where store or model fail."""
        written = 0
        for batch in batches(memories, self._most_at_once):
            embedded = await self._model.embed([memory.text for memory in batch])
            self.refused += embedded.refused
            # The move may have been given up while the model was at work: what is written then would stay for ever.
            await self._require()
            taken = [memory for memory in batch if memory.snapshot.id in embedded.vectors]
            stored = await asyncio.gather(
                *(self._store(memory, embedded.vectors[memory.snapshot.id]) for memory in taken)
            )
            written += sum(stored)
        return written

    async def _store(self, memory: Lacking, vectors: Sequence[Vector]) -> bool:
        try:
            return await self._space.add(memory, vectors)
        except TooLarge:
            self.refused.append(memory.snapshot.id)
            return False


def _unchanged(client: AsyncClient, snapshot: DocumentSnapshot) -> Any:
    return client.write_option(last_update_time=snapshot.update_time)


async def _again(snapshot: DocumentSnapshot, fields: Sequence[str]) -> DocumentSnapshot:
    async with answering():
        return await snapshot.reference.get(fields, retry=RETRY)


def _outrun() -> Unavailable:
    return Unavailable("Other clients keep changing one of these memories at this moment.")
