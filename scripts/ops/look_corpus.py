"""What is in a database, read with few reads: counts instead of documents wherever Firestore can count."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.async_collection import AsyncCollectionReference
from google.cloud.firestore_v1.base_query import BaseQuery, FieldFilter

from metacortex.adapters.firestore_search import STATE, TOPIC
from metacortex.events import EventKind, now_ms
from metacortex.memory import BranchState
from metacortex.rules import EARLIEST_MS
from metacortex.spaces import CollectionSpaces
from ops.paging import count, pages, read
from ops.place import Place
from ops.processes import OpsError
from ops.progress import Tell
from ops.reembed_move import Move
from ops.reembed_record import Moves

TOPICS_SHOWN = 20
MOST_TOPICS = 500
LAST = 5
DAYS = 30
DAY_MS = 86_400_000
MOST_EVENTS = 5_000
PAGE = 500
_OF_EVENTS = (
    "timestamp",
    "client_id",
    "tool_name",
    "status",
    "status_code",
    "reason",
    "count",
    "latency_ms",
    "error.code",
)


@dataclass(frozen=True, kw_only=True)
class Memories:
    """How many memories there are, by state and by topic, and in which spaces."""

    total: int
    parts: int
    by_state: Mapping[str, int]
    by_topic: Mapping[str, int]
    """The twenty topics with the most memories."""
    topics: int
    more_topics: bool
    """Whether there are topics that were not looked at."""
    spaces: CollectionSpaces | None
    move: Move | None


@dataclass
class Events:
    """What happened in the last thirty days, or in as much of them as there are events of, of which 5,000 are read.

    They are of all collections of the project.
    """

    found: int = 0
    days: float = DAYS
    calls: Counter[str] = field(default_factory=Counter[str])
    clients: Counter[str] = field(default_factory=Counter[str])
    errors: Counter[str] = field(default_factory=Counter[str])
    rejections: Counter[str] = field(default_factory=Counter[str])
    rejection_events: int = 0
    last: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])


async def read_memories(client: AsyncClient, where: Place, tell: Tell) -> Memories:
    memories = client.collection(where.collection)
    states = [memories.where(filter=FieldFilter(STATE, "==", state.value)) for state in BranchState]
    total, parts, *counts = await asyncio.gather(
        count(memories.select([])),
        count(client.collection(f"{where.collection}_parts").select([])),
        *map(count, states),
    )
    topics, more = await _topics(memories, tell)
    spaces, move = await _spaces(client, where)
    return Memories(
        total=total,
        parts=parts,
        by_state={state.value: found for state, found in zip(BranchState, counts, strict=True)},
        by_topic=dict(topics.most_common(TOPICS_SHOWN)),
        topics=len(topics),
        more_topics=more,
        spaces=spaces,
        move=move,
    )


async def _topics(memories: AsyncCollectionReference, tell: Tell) -> tuple[Counter[str], bool]:
    """How many memories each topic has: from one topic to the next, at the price of two reads each."""
    topics: Counter[str] = Counter()
    query = memories.order_by(TOPIC).select([TOPIC]).limit(1)
    page = await read(query)
    while page and len(topics) < MOST_TOPICS:
        topic = page[0].get(TOPIC)
        following = query.start_after({TOPIC: topic})
        found, page = await asyncio.gather(
            count(memories.where(filter=FieldFilter(TOPIC, "==", topic))), read(following)
        )
        topics[str(topic)] += found
        tell("Counting topics", len(topics), None)
    return topics, bool(page)


async def _spaces(client: AsyncClient, where: Place) -> tuple[CollectionSpaces | None, Move | None]:
    try:
        standing = await Moves(client, where).read()
    except OpsError:
        # A new collection names none, and neither does one of MetaCortex 0.3.
        return None, None
    return standing.spaces, standing.move


async def read_events(client: AsyncClient, tell: Tell) -> Events:
    """The newest events, page by page."""
    now = now_ms()
    since = FieldFilter("timestamp", ">=", now - DAYS * DAY_MS)
    stored = client.collection(EventKind.MEMORY)
    query = stored.where(filter=since).order_by("timestamp", direction=BaseQuery.DESCENDING).select(_OF_EVENTS)
    events = Events()
    oldest = await _oldest(stored)
    async for page in pages(query, PAGE):
        for snapshot in page:
            _add(events, snapshot.to_dict() or {})
        tell("Reading events", events.found, None)
        if events.found >= MOST_EVENTS:
            # They reach no further back than to the oldest that was read.
            oldest = page[-1].get("timestamp")
            break
    events.days = min(DAYS, max((now - oldest) / DAY_MS, 1 / 24)) if events.found else DAYS
    return events


async def _oldest(stored: AsyncCollectionReference) -> int:
    """When the oldest event happened that is still kept: a young installation has not thirty days to tell of."""
    # The bound leaves out what is no number.
    numbers = stored.where(filter=FieldFilter("timestamp", ">=", EARLIEST_MS))
    first = await read(numbers.order_by("timestamp").select(["timestamp"]).limit(1))
    return first[0].get("timestamp") if first else 0


def _add(events: Events, event: Mapping[str, Any]) -> None:
    events.found += 1
    if len(events.last) < LAST:
        events.last.append(event)
    events.clients[str(event.get("client_id") or "-")] += 1
    if event.get("status") == "rejected":
        events.rejection_events += 1
        events.rejections[str(event.get("reason"))] += event.get("count", 1)
        return
    events.calls[str(event.get("tool_name"))] += 1
    if event.get("status") == "error":
        events.errors[str((event.get("error") or {}).get("code"))] += 1
