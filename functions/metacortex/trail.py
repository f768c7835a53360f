"""Keeping the audit trail: every event is one structured log line, and stored."""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from metacortex.errors import MetaCortexError
from metacortex.events import Clock, Event, EventKind, rejection

WRITE_SECONDS = 2.0
SINGLE_REJECTIONS_A_MINUTE = 10
# A method is whatever a caller calls it.
LONGEST_METHOD = 20

logger = logging.getLogger(__name__)


class Recorder:
    """Logs and stores events; a trail that cannot be written is logged and never fails the call it is about."""

    def __init__(self, append: Callable[[Sequence[Event]], Awaitable[None]]) -> None:
        """`append` is that of an EventLog."""
        self._append = append

    async def record(self, *events: Event) -> None:
        """Logs and stores, within 2 s."""
        self.log(*events)
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                await self._append(events)
        except (MetaCortexError, TimeoutError) as error:
            logger.warning("An event could not be stored: %s", getattr(error, "message", "no answer in time"))
        except Exception:
            logger.exception("An event could not be stored")

    def log(self, *events: Event) -> None:
        """Logs only: for an event that a write has already stored in its own commit."""
        for event in events:
            hidden = {"query"} if event.kind is EventKind.RETRIEVAL else set[str]()
            shown = {key: value for key, value in event.fields.items() if key not in hidden}
            what = shown.get("tool_name") or shown.get("reason") or shown.get("action")
            logger.info("%s %s", shown["event_type"], what, extra={"event": {"event_id": event.id, **shown}})


class Rejections:
    """Events of refused requests. A flood costs few writes: after 10 a minute, one counted document per minute and reason.

    The count is written as it doubles and once more when its minute is over, so it lags by less than half while a minute runs.
    """

    def __init__(self, recorder: Recorder, clock: Clock) -> None:
        self._recorder = recorder
        self._clock = clock
        self._instance = uuid.uuid4().hex[:12]
        self._minute = 0
        self._seen = 0
        self._flood: dict[str, _Flood] = {}

    async def record(self, *, client_id: str, method: str, path: str, status_code: int, reason: str) -> None:
        now = self._clock()
        late = self._turn_to(now // 60_000)
        self._seen += 1
        fields = {
            "client_id": client_id,
            "method": method[:LONGEST_METHOD],
            "path": path,
            "status_code": status_code,
            "reason": reason,
        }
        if self._seen <= SINGLE_REJECTIONS_A_MINUTE:
            await self._recorder.record(*late, rejection(uuid.uuid4().hex, now, fields))
            return
        flood = self._flood.setdefault(reason, _Flood(f"{self._minute}-{self._instance}-{reason}", now, fields))
        flood.count += 1
        if flood.count.bit_count() == 1:
            late.append(flood.event())
        if late:
            await self._recorder.record(*late)

    def _turn_to(self, minute: int) -> list[Event]:
        """The counted documents of the minute that is over, if it is over, whose last counts were not yet written."""
        if minute == self._minute:
            return []
        late = [flood.event() for flood in self._flood.values() if flood.count.bit_count() != 1]
        self._minute, self._seen, self._flood = minute, 0, {}
        return late


class _Flood:
    """The rejections of one minute and reason beyond the first ten."""

    def __init__(self, event_id: str, timestamp: int, first: Mapping[str, Any]) -> None:
        self._event_id = event_id
        self._timestamp = timestamp
        self._common = {key: first[key] for key in ("status_code", "reason")}
        self.count = 0

    def event(self) -> Event:
        return rejection(self._event_id, self._timestamp, self._common | {"count": self.count})
