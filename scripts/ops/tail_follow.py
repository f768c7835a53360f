"""Following the audit trail by asking again: the client that the service uses has no listeners."""

from collections.abc import Mapping
from typing import Any

from google.cloud.firestore_v1.base_document import DocumentSnapshot
from google.cloud.firestore_v1.base_query import BaseQuery, FieldFilter

from metacortex.events import EventKind
from metacortex.rules import EARLIEST_MS
from ops.paging import pages, read
from ops.place import Place, connect

LAST = 10
PAGE = 300
TIMESTAMP = "timestamp"
# An event is stored after the moment it tells of: by a deadline of the store, and by other clocks.
OVERLAP_MS = 60_000

Stored = Mapping[str, Any]


class Follower:
    """Each event once, in the order of their times as far as they have arrived; a count that grows each time it has grown."""

    def __init__(self, where: Place, begin: int | None) -> None:
        self._events = connect(where.project).collection(EventKind.MEMORY)
        self._begin = begin
        self._newest = begin or 0
        self._seen: dict[str, tuple[int, Any]] = {}

    async def begin(self) -> list[Stored]:
        """The last ten events, or all since the moment that was given."""
        if self._begin is not None:
            return await self.news()
        # The bound leaves out what is no number.
        numbers = self._events.where(filter=FieldFilter(TIMESTAMP, ">=", EARLIEST_MS))
        last = await read(numbers.order_by(TIMESTAMP, direction=BaseQuery.DESCENDING).limit(LAST))
        last.reverse()
        self._begin = _timestamp(last[0]) if len(last) == LAST else 0
        return self._new(last)

    async def news(self) -> list[Stored]:
        """What has been stored or has changed since the last time."""
        start = max(self._begin or 0, self._newest - OVERLAP_MS)
        query = self._events.where(filter=FieldFilter(TIMESTAMP, ">=", start)).order_by(TIMESTAMP)
        found = [event async for page in pages(query, PAGE) for event in self._new(page)]
        self._seen = {name: seen for name, seen in self._seen.items() if seen[0] >= start}
        return found

    def _new(self, snapshots: list[DocumentSnapshot]) -> list[Stored]:
        new: list[Stored] = []
        for snapshot in snapshots:
            seen = (_timestamp(snapshot), snapshot.update_time)
            if self._seen.get(snapshot.id) != seen:
                self._seen[snapshot.id] = seen
                self._newest = max(self._newest, seen[0])
                new.append(snapshot.to_dict() or {})
        return new


def _timestamp(snapshot: DocumentSnapshot) -> int:
    return int((snapshot.to_dict() or {})[TIMESTAMP])
