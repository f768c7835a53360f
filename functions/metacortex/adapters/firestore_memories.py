"""Memories in Firestore: reading one, the nearest-neighbour query, and the one commit of a save."""

from google.api_core.exceptions import AlreadyExists, FailedPrecondition, NotFound
from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.async_query import AsyncQuery
from google.cloud.firestore_v1.base_document import DocumentSnapshot
from google.cloud.firestore_v1.base_query import FieldFilter
from google.cloud.firestore_v1.base_vector_query import DistanceMeasure
from google.cloud.firestore_v1.vector import Vector

from metacortex.adapters.firestore_client import RETRY, answering
from metacortex.adapters.firestore_documents import (
    CONTENT,
    DISTANCE,
    METADATA,
    SUMMARY,
    decode_match,
    decode_memory,
    encode,
)
from metacortex.adapters.firestore_events import FirestoreEvents
from metacortex.adapters.firestore_fingerprints import FirestoreFingerprints
from metacortex.adapters.firestore_spaces import FirestoreSpaces
from metacortex.events import Event
from metacortex.memory import Match, Memory, NewMemory
from metacortex.ports import Fingerprint, Nearest
from metacortex.spaces import CollectionSpaces


class FirestoreMemories:
    """The MemoryStore port over one collection and its siblings."""

    def __init__(self, client: AsyncClient, collection: str) -> None:
        self._client = client
        self._collection = client.collection(collection)
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

    async def nearest(self, question: Nearest) -> list[Match]:
        query = self._filtered(question).select([SUMMARY, METADATA, DISTANCE])
        neighbours = query.find_nearest(
            question.vector_field,
            Vector(question.vector),
            limit=question.limit,
            distance_measure=DistanceMeasure.COSINE,
            distance_result_field=DISTANCE,
        )
        async with answering():
            found = {snapshot.id: snapshot.to_dict() or {} async for snapshot in neighbours.stream(retry=RETRY)}
        unsummarised = [memory_id for memory_id, document in found.items() if not document.get(SUMMARY)]
        contents = await self._contents(unsummarised) if unsummarised else {}
        return [decode_match(memory_id, document, contents.get(memory_id)) for memory_id, document in found.items()]

    def _filtered(self, question: Nearest) -> AsyncQuery:
        filters = {
            "metadata.branch_state": question.branch_state.value,
            "metadata.module_name": question.topic,
            "metadata.provenance.origin": question.origin.value if question.origin else None,
        }
        query: AsyncQuery = self._collection  # pyright: ignore[reportAssignmentType]
        for path, value in filters.items():
            if value is not None:
                query = query.where(filter=FieldFilter(path, "==", value))
        return query

    async def _contents(self, memory_ids: list[str]) -> dict[str, str]:
        """The texts of documents that have no summary: those of MetaCortex 0.3, until they are upgraded."""
        references = [self._collection.document(memory_id) for memory_id in memory_ids]
        async with answering():
            snapshots = [snapshot async for snapshot in self._client.get_all(references, [CONTENT], retry=RETRY)]
        return {snapshot.id: (snapshot.to_dict() or {}).get(CONTENT, "") for snapshot in snapshots}

    async def save(self, new: NewMemory, fingerprint: Fingerprint, event: Event) -> bool:
        batch = self._client.batch()
        batch.create(self._collection.document(new.memory.id), encode(new))
        self._fingerprints.stage(batch, fingerprint, new.memory.id, new.memory.metadata.created_at or 0)
        self._events.stage(batch, event)
        async with answering():
            try:
                await batch.commit(retry=RETRY)
            except (AlreadyExists, FailedPrecondition, NotFound):
                return False
        return True

    async def _read(self, *documents: object) -> dict[str, DocumentSnapshot]:
        """Several documents in one read, by path; each has a snapshot, whether it exists or not."""
        async with answering():
            return {
                snapshot.reference.path: snapshot
                async for snapshot in self._client.get_all(list(documents), retry=RETRY)  # pyright: ignore[reportArgumentType]
            }
