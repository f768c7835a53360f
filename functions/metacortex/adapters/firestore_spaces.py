"""Which embedding spaces a collection names: the document `<collection>_meta/space`."""

import time
from collections.abc import Callable
from contextlib import suppress

from google.api_core.exceptions import AlreadyExists
from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.base_document import DocumentSnapshot

from metacortex.adapters.firestore_client import RETRY, answering
from metacortex.spaces import CollectionSpaces

CACHE_SECONDS = 30.0


class FirestoreSpaces:
    """Remembers what a collection named for at most 30 s; that it names nothing is never remembered."""

    def __init__(self, client: AsyncClient, collection: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.document = client.collection(f"{collection}_meta").document("space")
        self._clock = clock
        self._known: CollectionSpaces | None = None
        self._known_until = 0.0

    def cached(self) -> CollectionSpaces | None:
        return self._known if self._clock() < self._known_until else None

    async def read(self) -> CollectionSpaces | None:
        if known := self.cached():
            return known
        async with answering():
            return self.remember(await self.document.get(retry=RETRY))

    def remember(self, snapshot: DocumentSnapshot) -> CollectionSpaces | None:
        """What a snapshot of the document names, kept for the next callers."""
        stored = snapshot.to_dict() if snapshot.exists else None
        if not stored:
            return None
        self._known = CollectionSpaces(current=stored["current"], fields=dict(stored["spaces"]))
        self._known_until = self._clock() + CACHE_SECONDS
        return self._known

    async def name(self, spaces: CollectionSpaces) -> CollectionSpaces:
        """Names the spaces of a new collection, or answers what another caller named before."""
        async with answering():
            with suppress(AlreadyExists):
                await self.document.create({"current": spaces.current, "spaces": dict(spaces.fields)}, retry=RETRY)
            return self.remember(await self.document.get(retry=RETRY)) or spaces
