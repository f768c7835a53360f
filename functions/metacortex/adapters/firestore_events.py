"""The audit trail in Firestore: `memory_events` and `retrieval_query_events`."""

from collections.abc import Sequence

from google.cloud.firestore_v1.async_batch import AsyncWriteBatch
from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.async_document import AsyncDocumentReference

from metacortex.adapters.firestore_client import RETRY, answering, timestamp
from metacortex.events import Event


class FirestoreEvents:
    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def append(self, events: Sequence[Event]) -> None:
        batch = self._client.batch()
        for event in events:
            self.stage(batch, event)
        async with answering():
            await batch.commit(retry=RETRY)

    async def holds(self, event: Event) -> bool:
        """Whether an event is stored."""
        async with answering():
            return (await self._document(event).get([], retry=RETRY)).exists

    def _document(self, event: Event) -> AsyncDocumentReference:
        return self._client.collection(event.kind).document(event.id)

    def stage(self, batch: AsyncWriteBatch, event: Event) -> None:
        """Adds an event to a commit."""
        common = {"event_id": event.id, "timestamp": event.timestamp, "expires_at": timestamp(event.expires_at)}
        batch.set(self._document(event), common | dict(event.fields))
