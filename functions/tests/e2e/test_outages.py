"""A store that goes away while the function serves: each call is told so in time, and succeeds once the store is back."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from itertools import pairwise
from typing import Any

import pytest
from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.base_query import FieldFilter

from builders import ToolError, environment
from served import Served, running_service, stored
from tcp_proxy import TcpProxy, running_proxy

pytestmark = pytest.mark.slow

FACT = "A fact in the time of an outage"
KNOWN = "A fact from before"
REPLACED = "A fact from before that no longer counts"
UNREACHABLE = (
    503,
    "unavailable",
    "The store cannot be reached at the moment; the same call is safe to repeat in a few seconds.",
)
TOO_SLOW = (504, "timed_out", "The store did not answer in time; the same call is safe to repeat.")
Call = tuple[str, dict[str, Any]]


@pytest.fixture
async def network(emulator_host: str) -> AsyncGenerator[TcpProxy]:
    async with running_proxy(emulator_host) as proxy:
        yield proxy


@pytest.fixture
async def service(network: TcpProxy, project: str, firestore: AsyncClient) -> AsyncGenerator[Served]:
    """The function, which reaches the store over the network that may fail."""
    async with running_service(environment(FIRESTORE_EMULATOR_HOST=network.host, GCLOUD_PROJECT=project)) as running:
        yield running


@pytest.fixture
async def calls(service: Served) -> list[Call]:
    """A call of each kind that succeeds where the store can be reached."""
    known, replaced = await service.save(KNOWN), await service.save(REPLACED)
    return [
        ("save_context", {"content": FACT}),
        ("search_context", {"query": KNOWN}),
        ("fetch_context", {"id": known["id"]}),
        ("deprecate_context", {"id": replaced["id"], "superseding_id": known["id"]}),
    ]


async def refusal(service: Served, call: Call) -> tuple[int, str, str]:
    """How a call fails."""
    tool, arguments = call
    with pytest.raises(ToolError) as error:
        await service.call(tool, "default", **arguments)
    return error.value.status, error.value.code, error.value.message


async def refusals(service: Served, calls: list[Call]) -> set[tuple[int, str, str]]:
    """How calls fail that are made at once."""
    return set(await asyncio.gather(*(refusal(service, call) for call in calls)))


async def answers(service: Served, calls: list[Call]) -> list[dict[str, Any]]:
    """What calls answer that are made at once."""
    return await asyncio.gather(*(service.call(tool, "default", **arguments) for tool, arguments in calls))


async def arrival(firestore: AsyncClient) -> str:
    """The id of the fact, as soon as the store holds it."""
    facts = firestore.collection("memory_vectors").where(filter=FieldFilter("content", "==", FACT))
    async with asyncio.timeout(30):
        while not (found := await facts.get()):
            pass
    return found[0].id


async def test_every_call_is_told_within_seconds_that_the_store_is_away_and_succeeds_once_it_is_back(
    network: TcpProxy, service: Served, calls: list[Call], firestore: AsyncClient
) -> None:
    network.cut()
    async with asyncio.timeout(10):
        assert await refusals(service, calls) == {UNREACHABLE}
    network.heal()
    async with asyncio.timeout(5):
        await answers(service, calls)
    assert (await stored(firestore)).contents() == [KNOWN, REPLACED, FACT]


async def test_a_store_that_stays_away_is_looked_for_at_least_every_two_seconds(
    network: TcpProxy, service: Served, calls: list[Call]
) -> None:
    network.cut()
    await refusals(service, calls)
    await refusals(service, calls)
    gaps = [later - earlier for earlier, later in pairwise(network.refusals)]
    assert len(gaps) > 5
    assert max(gaps) < 2


async def test_a_slow_store_is_waited_for(network: TcpProxy, service: Served, calls: list[Call]) -> None:
    network.slow_down(0.5)
    async with asyncio.timeout(15):
        await answers(service, calls)


@pytest.mark.parametrize("fail", [TcpProxy.fall_silent_from, TcpProxy.mute_after], ids=["commit", "answer"])
async def test_every_call_is_told_at_its_deadline_that_the_store_is_silent_and_succeeds_once_it_speaks(
    network: TcpProxy,
    service: Served,
    calls: list[Call],
    firestore: AsyncClient,
    fail: Callable[[TcpProxy, str], None],
) -> None:
    fail(network, FACT)
    async with asyncio.timeout(20):
        saving = asyncio.create_task(refusal(service, calls[0]))
        await network.reached.wait()
        assert await refusals(service, calls[1:]) | {await saving} == {TOO_SLOW}
    network.heal()
    async with asyncio.timeout(5):
        await answers(service, calls)
    assert (await stored(firestore)).contents() == [KNOWN, REPLACED, FACT]


async def test_a_save_whose_commit_was_cut_off_from_its_answer_answers_as_if_nothing_had_been(
    network: TcpProxy, service: Served, firestore: AsyncClient
) -> None:
    network.mute_after(FACT)
    saving = asyncio.create_task(service.call("save_context", content=FACT))
    memory_id = await arrival(firestore)
    network.reset()
    answer = await saving
    kept = await stored(firestore)
    assert (answer["item"]["id"], answer["write_status"]) == (memory_id, "created")
    assert list(kept.memories) == [memory_id]
    assert [event["response"]["id"] for event in kept.events_of("save_context")] == [memory_id]


async def test_a_save_that_was_told_of_an_outage_after_its_commit_finds_its_memory_when_repeated(
    network: TcpProxy, service: Served, firestore: AsyncClient
) -> None:
    network.mute_after(FACT)
    saving = asyncio.create_task(refusal(service, ("save_context", {"content": FACT})))
    memory_id = await arrival(firestore)
    network.cut()
    assert await saving == UNREACHABLE
    network.heal()
    answer = await service.call("save_context", content=FACT)
    assert (answer["item"]["id"], answer["write_status"]) == (memory_id, "duplicate")
    assert list((await stored(firestore)).memories) == [memory_id]
