"""The audit trail: every event is logged and stored, a flood cheaply, and nothing waits long for it."""

import asyncio
import math
from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from builders import PROJECT, FakeClock
from fakes import InMemoryEvents
from logged import logged
from metacortex import logs
from metacortex.events import Event, ToolCall
from metacortex.trail import SINGLE_REJECTIONS_A_MINUTE, Recorder, Rejections

REASONS = ["unauthorized", "origin_not_allowed", "malformed"]
BURSTS = st.lists(
    st.tuples(st.sampled_from(REASONS), st.integers(1, 70), st.sampled_from([0, 0, 0.3, 1, 7])), min_size=1, max_size=12
)


class CountingEvents(InMemoryEvents):
    """Counts the writes it takes."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    async def append(self, events: Sequence[Event]) -> None:
        self.writes += 1
        await super().append(events)


class BrokenEvents(InMemoryEvents):
    async def append(self, events: Sequence[Event]) -> None:
        raise RuntimeError("the store is away")


async def refuse(rejections: Rejections, reason: str, times: int = 1) -> None:
    for _ in range(times):
        await rejections.record(client_id="agent", method="POST", path="/mcp", status_code=400, reason=reason)


async def test_the_first_ten_refusals_of_a_minute_are_told_one_by_one() -> None:
    events = InMemoryEvents()
    await refuse(Rejections(Recorder(events.append), FakeClock()), "unauthorized", 10)
    assert len(events.stored) == 10
    assert all("count" not in event.fields and event.fields["client_id"] == "agent" for event in events.stored.values())


async def test_each_new_minute_tells_ten_again() -> None:
    events, clock = InMemoryEvents(), FakeClock()
    rejections = Rejections(Recorder(events.append), clock)
    for _ in range(3):
        await refuse(rejections, "unauthorized", 10)
        clock.advance(minutes=1)
    assert len(events.stored) == 30


async def test_two_instances_count_apart() -> None:
    events, clock = InMemoryEvents(), FakeClock()
    for _ in range(2):
        await refuse(Rejections(Recorder(events.append), clock), "unauthorized", 11)
    assert [event.fields["count"] for event in events.stored.values() if "count" in event.fields] == [1, 1]


@given(bursts=BURSTS)
def test_every_refusal_of_a_flood_is_counted_once_its_minute_is_over_and_costs_few_writes(
    bursts: list[tuple[str, int, float]],
) -> None:
    events, clock = CountingEvents(), FakeClock()
    rejections = Rejections(Recorder(events.append), clock)
    happened: dict[int, Counter[str]] = {}

    async def flood() -> None:
        for reason, times, pause in bursts:
            happened.setdefault(clock.now // 60_000, Counter())[reason] += times
            await refuse(rejections, reason, times)
            clock.advance(minutes=pause)
        # The first one of a later minute writes what was not yet written.
        clock.advance(minutes=1)
        await refuse(rejections, "last")

    asyncio.run(flood())
    stored = [event for event in events.stored.values() if event.fields["reason"] != "last"]
    for minute, expected in happened.items():
        told = [event for event in stored if event.timestamp // 60_000 == minute]
        counted = {event.fields["reason"]: event.fields["count"] for event in told if "count" in event.fields}
        single = Counter(event.fields["reason"] for event in told if "count" not in event.fields)
        assert single + Counter(counted) == expected
        assert single.total() == min(SINGLE_REJECTIONS_A_MINUTE, expected.total())
        assert len(told) == single.total() + len(counted)
    most = sum(
        SINGLE_REJECTIONS_A_MINUTE + len(counter) * (math.ceil(math.log2(counter.total() + 1)) + 1)
        for counter in happened.values()
    )
    assert events.writes <= most + 1


async def test_a_counted_document_says_what_is_common_to_all_it_counts() -> None:
    events, clock = InMemoryEvents(), FakeClock()
    await refuse(Rejections(Recorder(events.append), clock), "malformed", 18)
    [counted] = [event for event in events.stored.values() if "count" in event.fields]
    assert counted.fields == {
        "event_type": "request",
        "status": "rejected",
        "status_code": 400,
        "reason": "malformed",
        "count": 8,
    }


async def test_a_trail_that_cannot_be_written_is_logged_and_fails_nothing() -> None:
    with logged() as log:
        logs.configure(project=PROJECT, readable=False)
        await refuse(Rejections(Recorder(BrokenEvents().append), FakeClock()), "unauthorized")
    told, failed = log.lines
    assert (told["severity"], told["reason"]) == ("INFO", "unauthorized")
    assert failed["severity"] == "ERROR"
    assert "the store is away" in failed["exception"]


async def test_an_event_that_a_write_has_stored_is_only_logged() -> None:
    events = CountingEvents()
    with logged() as log:
        logs.configure(project=PROJECT, readable=False)
        Recorder(events.append).log(ToolCall("agent", "save_context", FakeClock()).committed({"id": "m"}))
    [line] = log.lines
    assert (line["tool_name"], line["response"], events.writes) == ("save_context", {"id": "m"}, 0)


async def test_a_retrieval_event_is_stored_with_its_query_and_logged_without() -> None:
    events = InMemoryEvents()
    event = ToolCall("agent", "search_context", FakeClock()).retrieval({"query": "a private matter", "limit": 5})
    with logged() as log:
        logs.configure(project=PROJECT, readable=False)
        await Recorder(events.append).record(event)
    assert events.stored[event.kind, event.id].fields["query"] == "a private matter"
    [line] = log.lines
    assert (line["limit"], line["event_id"]) == (5, event.id)
    assert "private" not in log.text
