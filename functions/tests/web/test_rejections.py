"""What a refused request leaves in the audit trail."""

import asyncio
from collections.abc import Sequence

import pytest

from builders import JSON_HEADERS, NOON, Service, path_of
from fakes import InMemoryEvents, InMemoryMemories
from logged import logged
from metacortex.bootstrap import Stores
from metacortex.events import Event, EventKind
from web.edge import REFUSALS, VALID, Sent, ask

DAY_MS = 24 * 60 * 60 * 1000
ORIGIN_REFUSED = Sent(403, "origin_not_allowed", headers=VALID | {"origin": "https://evil.example"})


@pytest.mark.parametrize("refused", [ORIGIN_REFUSED, *REFUSALS], ids=str)
async def test_every_refusal_leaves_one_event(service: Service, refused: Sent) -> None:
    await refused.to(service)
    [event] = service.events
    assert event.fields == {
        "event_type": "request",
        "client_id": "agent",
        "method": refused.method,
        "path": path_of("agent"),
        "status": "rejected",
        "status_code": refused.status,
        "reason": refused.reason,
    }
    assert event.kind is EventKind.MEMORY
    assert (event.timestamp, event.expires_at) == (NOON, NOON + 90 * DAY_MS)


async def test_the_path_of_an_event_holds_no_query(service: Service) -> None:
    await ask(service, f"/metaCortexMcp{path_of('reader')}?auth_token=wrong", JSON_HEADERS)
    [event] = service.events
    assert (event.fields["client_id"], event.fields["path"]) == ("reader", f"/metaCortexMcp{path_of('reader')}")


async def test_the_admin_endpoint_is_recorded_under_its_own_id(service: Service) -> None:
    await ask(service, "/mcp", JSON_HEADERS)
    [event] = service.events
    assert event.fields["client_id"] == "default"


async def test_what_is_not_refused_leaves_no_rejection(service: Service) -> None:
    assert (await ask(service)).status_code == 200
    assert (await service.http.options(path_of("agent"))).status_code == 204
    assert (await service.http.post("/nothing")).status_code == 404
    assert service.events == []


async def test_a_flood_of_refusals_costs_few_documents(service: Service) -> None:
    for _ in range(100):
        assert (await ask(service, headers=JSON_HEADERS)).status_code == 401
    service.clock.advance(minutes=1)
    assert (await ask(service, headers=JSON_HEADERS)).status_code == 401
    counts = [event.fields.get("count") for event in service.events]
    assert sorted(counts, key=str) == [90, *[None] * 11]


class BrokenEvents(InMemoryEvents):
    async def append(self, events: Sequence[Event]) -> None:
        raise RuntimeError("the trail is full")


class HangingEvents(InMemoryEvents):
    async def append(self, events: Sequence[Event]) -> None:
        await asyncio.Event().wait()


def keeping(events: InMemoryEvents) -> Service:
    return Service(stores=Stores(memories=InMemoryMemories(events), events=events))


@pytest.mark.parametrize("refused", REFUSALS, ids=str)
async def test_a_failing_trail_changes_no_answer(refused: Sent) -> None:
    assert (await refused.to(keeping(BrokenEvents()))).status_code == refused.status


@pytest.mark.slow
async def test_a_hanging_trail_delays_an_answer_by_two_seconds_at_most() -> None:
    service = keeping(HangingEvents())
    with logged():
        async with asyncio.timeout(3):
            refused, found = await asyncio.gather(ask(service, headers=JSON_HEADERS), service.search("anything"))
    assert (refused.status_code, found) == (401, [])
