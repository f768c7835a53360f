"""One memory in two embedding spaces: the vectors it gets in a new one, and what goes with an old one.

A long memory's parts are numbered through both spaces; a part's document holds the vector of its own space alone. So a change
of the memory reaches every part, and a search in either space finds only what belongs there.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from google.cloud.firestore_v1.async_batch import AsyncWriteBatch
from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.base_document import DocumentSnapshot
from google.cloud.firestore_v1.transforms import DELETE_FIELD
from google.cloud.firestore_v1.vector import Vector

from metacortex import rules
from metacortex.adapters.firestore_client import RETRY, answering, committed
from metacortex.adapters.firestore_documents import (
    CONTENT,
    METADATA,
    PARTS,
    RETRIEVAL_TEXT,
    decode_memory,
    decode_metadata,
    encode_parts,
    part_ids,
)
from metacortex.errors import ModelFailed, Unavailable
from metacortex.memory import Embedding, NewMemory, Part
from metacortex.ports import Document, Embedder
from metacortex.spaces import FIRST_VECTOR_FIELD, WorkingSpace

SPACE = "embedding_space"
OF_A_TEXT = (CONTENT, RETRIEVAL_TEXT, METADATA, PARTS)
TEXTS_AT_ONCE = 100
ATTEMPTS = 5
ANY_TEXT = Document(text="Owls hunt in the dark.", topic=rules.DEFAULT_TOPIC)

Vectors = Sequence[tuple[float, ...]]


class Pace:
    """How long to wait so that no more than so many texts go out in a minute; without a limit never."""

    def __init__(self, per_minute: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.most_at_once = min(per_minute or TEXTS_AT_ONCE, TEXTS_AT_ONCE)
        self._seconds_each = 60 / per_minute if per_minute else 0.0
        self._clock = clock
        self._free_at = clock()

    def delay(self, texts: int) -> float:
        """The seconds to wait before these texts; they are counted as gone out."""
        now = self._clock()
        begin = max(now, self._free_at)
        self._free_at = begin + texts * self._seconds_each
        return begin - now


@dataclass(frozen=True)
class Texts:
    """What a model is to embed of one memory: its whole text, or the stretches of a long one."""

    snapshot: DocumentSnapshot
    documents: tuple[Document, ...]

    @property
    def is_long(self) -> bool:
        return len(self.documents) > 1


def texts_of(snapshot: DocumentSnapshot, part_characters: int) -> Texts:
    """The texts of a memory, cut for a model as a save would cut them."""
    document = snapshot.to_dict() or {}
    metadata = decode_metadata(document)
    text: str = document.get(RETRIEVAL_TEXT) or document.get(CONTENT) or ""
    stretches = rules.stretches(text, part_characters) or [text]
    return Texts(snapshot, tuple(Document(text=each, topic=metadata.topic, date=metadata.date) for each in stretches))


def has_vector(snapshot: DocumentSnapshot, working: WorkingSpace) -> bool:
    """Whether a memory can be found in a space."""
    vector = (snapshot.to_dict() or {}).get(working.vector_field)
    return isinstance(vector, Vector) and len(vector) == working.space.dimensions


def batches(memories: Sequence[Texts], size: int) -> Iterator[list[Texts]]:
    """Memories in groups of at most `size` texts; one with more of them goes alone."""
    batch: list[Texts] = []
    count = 0
    for memory in memories:
        if batch and count + len(memory.documents) > size:
            yield batch
            batch, count = [], 0
        batch.append(memory)
        count += len(memory.documents)
    if batch:
        yield batch


class InOneSpace:
    """Gives vectors of one space to memories that lack them."""

    def __init__(self, client: AsyncClient, collection: str, working: WorkingSpace) -> None:
        self._client = client
        self._parts = client.collection(f"{collection}_parts")
        self._working = working

    async def add(self, memory: Texts, vectors: Vectors) -> bool:
        """Stores a memory's vectors and parts in one commit; False where it has some by now, or is gone.

        Where another client changed the memory meanwhile, what is stored beside the vectors is read again.
        """
        snapshot = memory.snapshot
        for _ in range(ATTEMPTS):
            if not snapshot.exists or has_vector(snapshot, self._working):
                return False
            batch = self._client.batch()
            self._stage(batch, snapshot, memory, vectors)
            if await committed(batch):
                return True
            snapshot = await _again(snapshot, (*OF_A_TEXT, self._working.vector_field))
        raise _outrun()

    def _stage(self, batch: AsyncWriteBatch, snapshot: DocumentSnapshot, memory: Texts, vectors: Vectors) -> None:
        document = snapshot.to_dict() or {}
        working = self._working
        new = NewMemory(
            memory=decode_memory(snapshot.id, document),
            embedding=Embedding(
                vector=rules.mean_direction(vectors) if memory.is_long else vectors[0],
                space_id=working.space.id,
                vector_field=working.vector_field,
            ),
            parts=_parts(memory, vectors),
        )
        before = document.get(PARTS, 0)
        after = before + len(new.parts)
        fields: dict[str, Any] = {working.vector_field: Vector(new.embedding.vector)}
        if working.vector_field == FIRST_VECTOR_FIELD:
            fields[SPACE] = working.space.id
        if new.parts:
            fields[PARTS] = after
        batch.update(snapshot.reference, fields, option=_unchanged(self._client, snapshot))
        names = part_ids(snapshot.id, after)[before:]
        for name, part in zip(names, encode_parts(new).values(), strict=True):
            batch.create(self._parts.document(name), part)


def _parts(memory: Texts, vectors: Vectors) -> tuple[Part, ...]:
    if not memory.is_long:
        return ()
    return tuple(
        Part(summary=rules.summary(document.text), vector=vector)
        for document, vector in zip(memory.documents, vectors, strict=True)
    )


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

    def __init__(self, space: InOneSpace, embedder: Embedder, text_format: str, pace: Pace) -> None:
        self._space = space
        self._embedder = embedder
        self._text_format = text_format
        self._pace = pace
        self.part_characters = embedder.part_characters
        self.refused: list[str] = []
        """The ids of memories whose texts the model refuses."""

    async def fill(self, snapshots: Sequence[DocumentSnapshot]) -> int:
        """How many of these memories have got their vectors. Raises MetaCortexError where store or model fail."""
        memories = [texts_of(snapshot, self.part_characters) for snapshot in snapshots]
        written = 0
        for batch in batches(memories, self._pace.most_at_once):
            pairs = await self._embed(batch)
            stored = await asyncio.gather(*(self._space.add(memory, vectors) for memory, vectors in pairs))
            written += sum(stored)
        return written

    async def _embed(self, memories: Sequence[Texts]) -> list[tuple[Texts, Vectors]]:
        """The vectors of each memory that the model takes: where it refuses several together, each by itself."""
        documents = [document for memory in memories for document in memory.documents]
        await asyncio.sleep(self._pace.delay(len(documents)))
        try:
            vectors = iter(await self._embedder.embed_documents(documents, text_format=self._text_format))
        except ModelFailed:
            # Raises again where it is not these texts that the model refuses.
            await self._embedder.embed_documents([ANY_TEXT], text_format=self._text_format)
            if len(memories) > 1:
                return [pair for memory in memories for pair in await self._embed([memory])]
            self.refused.append(memories[0].snapshot.id)
            return []
        return [(memory, [next(vectors) for _ in memory.documents]) for memory in memories]


def _unchanged(client: AsyncClient, snapshot: DocumentSnapshot) -> Any:
    return client.write_option(last_update_time=snapshot.update_time)


async def _again(snapshot: DocumentSnapshot, fields: Sequence[str]) -> DocumentSnapshot:
    async with answering():
        return await snapshot.reference.get(fields, retry=RETRY)


def _outrun() -> Unavailable:
    return Unavailable("Other clients keep changing one of these memories at this moment.")
