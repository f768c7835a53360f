"""The last write of each fingerprint: `<collection>_write_fingerprints`. Keeps equal writes from making two memories."""

from typing import Any

from google.cloud.firestore_v1.async_batch import AsyncWriteBatch
from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.async_document import AsyncDocumentReference
from google.cloud.firestore_v1.base_document import DocumentSnapshot

from metacortex.adapters.firestore_client import timestamp
from metacortex.ports import Fingerprint
from metacortex.rules import DUPLICATE_WINDOW_MS

RETENTION_MS = 30 * 24 * 60 * 60 * 1000


class FirestoreFingerprints:
    def __init__(self, client: AsyncClient, collection: str) -> None:
        self._client = client
        self._collection = client.collection(f"{collection}_write_fingerprints")

    def document(self, fingerprint_id: str) -> AsyncDocumentReference:
        return self._collection.document(fingerprint_id)

    def decode(self, snapshot: DocumentSnapshot) -> Fingerprint:
        stored: dict[str, Any] = snapshot.to_dict() or {}
        return Fingerprint(
            id=snapshot.id,
            memory_id=stored.get("id"),
            # Fingerprints of MetaCortex 0.3 lack this field: their window is over.
            dedupe_expires_at=int(stored.get("dedupe_expires_at") or 0),
            revision=snapshot.update_time if snapshot.exists else None,
        )

    def stage(self, batch: AsyncWriteBatch, fingerprint: Fingerprint, memory_id: str, now: int) -> None:
        """Adds to a commit: this memory is the last write, provided the fingerprint is still as it was read."""
        document = self.document(fingerprint.id)
        fields = {
            "id": memory_id,
            "dedupe_expires_at": now + DUPLICATE_WINDOW_MS,
            "expires_at": timestamp(now + RETENTION_MS),
            "updated_at": now,
        }
        if fingerprint.revision is None:
            batch.create(document, fields)
        else:
            unchanged = self._client.write_option(last_update_time=fingerprint.revision)
            batch.update(document, fields, option=unchanged)
