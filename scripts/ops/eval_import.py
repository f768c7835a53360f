"""Cases from what clients did: they searched, and then fetched what they had found. A fetch says that a result was right.

Of what was not fetched nothing is inferred.
"""

import itertools
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.base_query import FieldFilter

from metacortex.events import EventKind
from metacortex.memory import BranchState, Origin
from ops.eval_cases import Case, CaseSet, CaseStore
from ops.eval_plan import Partition
from ops.paging import pages
from ops.progress import Tell

SEARCH = "search_context"
CATEGORY = "production"
FOLLOWS_MS = 30 * 60 * 1000
"""How long after a search a fetch may follow it."""
PAGE = 500

Fields = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What an import found: how many events, how many fetches that a search led to, and how many cases there are."""

    events: int
    fetches: int
    fresh: int
    """How many cases there were not before."""
    cases: int


@dataclass(frozen=True, kw_only=True)
class Window:
    """Whose fetches to look at, and since when (epoch milliseconds)."""

    collection: str
    since: int
    now: int


async def import_cases(client: AsyncClient, window: Window, tell: Tell, *, anew: bool) -> Imported:
    """Puts the cases of a window's fetches to the production cases, or, anew, in their place.

    Importing the same again changes nothing.
    """
    events = [fields async for fields in _events(client, window.since - FOLLOWS_MS, tell)]
    # Of one millisecond searches come first: a fetch follows what led to it.
    events.sort(key=lambda event: (event["timestamp"], event["tool_name"] != SEARCH))
    store = CaseStore(client)
    old = await store.read(Partition.PRODUCTION)
    there = old.cases if old else ()
    pairs = list(_pairs(events, window))
    cases = joined([*([] if anew else there), *pairs])
    if cases != there:
        source = f"fetches from {window.collection}"
        new = CaseSet(source=source, cases=cases, revision=old.revision if old else None)
        await store.replace(Partition.PRODUCTION, new, window.now)
    known = {case.key for case in there}
    fresh = sum(case.key not in known for case in cases)
    return Imported(events=len(events), fetches=len(pairs), fresh=fresh, cases=len(cases))


async def _events(client: AsyncClient, since: int, tell: Tell) -> AsyncGenerator[Fields]:
    """The retrieval events since a moment, oldest first."""
    events = client.collection(EventKind.RETRIEVAL).where(filter=FieldFilter("timestamp", ">=", since))
    read = 0
    async for page in pages(events.order_by("timestamp"), PAGE):
        read += len(page)
        tell("Reading events", read, None)
        for snapshot in page:
            yield snapshot.to_dict() or {}


def _pairs(events: Iterable[Fields], window: Window) -> Iterator[Case]:
    """A case for each fetch that a search of the same client led to: the most recent one whose results hold the id."""
    searches: dict[str, list[Fields]] = {}
    for event in events:
        # Events from before they named a collection are of the configured one.
        if event.get("collection", window.collection) != window.collection:
            continue
        of_client = searches.setdefault(event["client_id"], [])
        if event["tool_name"] == SEARCH:
            of_client.append(event)
        elif event["timestamp"] >= window.since and (search := _led_to(event, of_client)):
            yield _case(search, event["fetch_id"])


def _led_to(fetch: Fields, searches: Sequence[Fields]) -> Fields | None:
    """The most recent of the searches, oldest first, that a fetch follows in time and in what it reads."""
    earliest = fetch["timestamp"] - FOLLOWS_MS
    recent = itertools.takewhile(lambda search: search["timestamp"] >= earliest, reversed(searches))
    return next((each for each in recent if any(hit["id"] == fetch["fetch_id"] for hit in each["results"])), None)


def _case(search: Fields, fetched: str) -> Case:
    state, origin = search.get("filter_state"), search.get("filter_origin")
    return Case(
        query=search["query"],
        positive_ids=(fetched,),
        category=CATEGORY,
        topic=search.get("filter_topic"),
        state=BranchState(state) if state else None,
        origin=Origin(origin) if origin else None,
        valid_at=search.get("valid_at"),
    )


def joined(cases: Iterable[Case]) -> tuple[Case, ...]:
    """The same searches made one, with everything that answered any of them; in the order they were first asked in."""
    by_key: dict[str, Case] = {}
    for case in cases:
        known = by_key.get(case.key, case)
        positives = dict.fromkeys((*known.positive_ids, *case.positive_ids))
        by_key[case.key] = replace(known, positive_ids=tuple(positives))
    return tuple(by_key.values())
