"""What the audit trail holds: one event per tool call and per refused request. Never bodies, images or credentials."""

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from metacortex.errors import MetaCortexError

RETENTION_MS = 90 * 24 * 60 * 60 * 1000
QUERY_PREVIEW_CHARACTERS = 160

Clock = Callable[[], int]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class EventKind(StrEnum):
    """Which collection an event belongs to."""

    MEMORY = "memory_events"
    RETRIEVAL = "retrieval_query_events"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One document of the trail. Times are epoch milliseconds."""

    id: str
    kind: EventKind
    timestamp: int
    fields: Mapping[str, Any]

    @property
    def expires_at(self) -> int:
        return self.timestamp + RETENTION_MS


def describe(error: BaseException) -> dict[str, str]:
    """What the trail says of an error: for one we did not raise ourselves, nothing that it carries."""
    if isinstance(error, MetaCortexError):
        return {"code": error.code, "message": error.message}
    return {"code": MetaCortexError.code, "message": "Something unexpected happened; the log has the details."}


class ToolCall:
    """One call of one tool, from its arrival to its event."""

    def __init__(self, client_id: str, tool_name: str, clock: Clock) -> None:
        self._id = uuid.uuid4().hex
        self._client_id = client_id
        self._tool_name = tool_name
        self._clock = clock
        self._started = time.perf_counter()
        self.request: Mapping[str, Any] = {}

    def _event(self, fields: Mapping[str, Any], event_id: str | None = None) -> Event:
        common = {"event_type": "tool_call", "client_id": self._client_id, "tool_name": self._tool_name}
        document = {**common, "request": self.request, **fields}
        return Event(id=event_id or self._id, kind=EventKind.MEMORY, timestamp=self._clock(), fields=document)

    def _latency(self) -> dict[str, int]:
        return {"latency_ms": round((time.perf_counter() - self._started) * 1000)}

    def committed(self, response: Mapping[str, Any]) -> Event:
        """The event that a write shares its commit with: its latency is not known yet."""
        return self._event({"status": "success", "response": response})

    def succeeded(self, response: Mapping[str, Any]) -> Event:
        return self._event({"status": "success", "response": response} | self._latency())

    def failed(self, error: BaseException, status_code: int) -> Event:
        """An event of its own: where a commit's answer was lost, the success that it stored must stand beside it."""
        outcome = {"status": "error", "error": describe(error) | {"status_code": status_code}}
        return self._event(outcome | self._latency(), uuid.uuid4().hex)

    def retrieval(self, fields: Mapping[str, Any]) -> Event:
        """The opt-in telemetry of a search or fetch, with the whole query."""
        common = {"event_type": "retrieval", "client_id": self._client_id, "tool_name": self._tool_name}
        return Event(id=self._id, kind=EventKind.RETRIEVAL, timestamp=self._clock(), fields={**common, **fields})


def rejection(event_id: str, timestamp: int, fields: Mapping[str, Any]) -> Event:
    """The event of one refused request, or of many that are counted."""
    document = {"event_type": "request", "status": "rejected", **fields}
    return Event(id=event_id, kind=EventKind.MEMORY, timestamp=timestamp, fields=document)


def authorization_event(event_id: str, timestamp: int, action: str, fields: Mapping[str, Any]) -> Event:
    """The event of a step in signing in: who was let in, refused or shut out."""
    document = {"event_type": "authorization", "action": action, **fields}
    return Event(id=event_id, kind=EventKind.MEMORY, timestamp=timestamp, fields=document)
