"""A process that dies at a commit: all of it happened or nothing, and the same call completes it."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from google.cloud.firestore_v1.async_client import AsyncClient

from builders import environment
from ops.checkout import FUNCTIONS
from served import Served, Stored, running_service, stored

pytestmark = pytest.mark.slow

CRASHING = FUNCTIONS / "tests/mains/crashing.py"
# How often each thing that a commit writes may be there after a death at each of its moments: all of them equally often.
POSSIBLE = {"before": [{0}], "during": [{0}, {1}], "after": [{1}]}
Arguments = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """A call that commits."""

    store_method: str
    """What the store calls that commit."""
    tool: str
    prepare: Callable[[Served], Awaitable[Arguments]]
    """Makes what must exist before the call, and answers the call's arguments."""
    written: Callable[[Stored, Arguments], set[int]]
    """How often the things that the commit writes are there: one number where it is equal for all."""


async def a_fact(_: Served) -> Arguments:
    return {"content": "A fact"}


def written_by_save(kept: Stored, arguments: Arguments) -> set[int]:
    ids = [memory_id for memory_id, memory in kept.memories.items() if memory["content"] == arguments["content"]]
    named = [fingerprint["id"] for fingerprint in kept.fingerprints.values()]
    responses = [event["response"] for event in kept.events_of("save_context")]
    told = [response["id"] for response in responses if response["write_status"] == "created"]
    return {len(ids), len(named), len(told)} | {len({*ids, *named, *told})}


def written_by_naming(kept: Stored, _: Arguments) -> set[int]:
    return {len(kept.spaces)}


async def a_fact_and_its_replacement(service: Served) -> Arguments:
    old, new = await service.save("An old fact"), await service.save("A new fact")
    return {"id": old["id"], "superseding_id": new["id"]}


def written_by_deprecation(kept: Stored, arguments: Arguments) -> set[int]:
    superseded_by = kept.memories[arguments["id"]]["metadata"].get("superseded_by")
    previous_states = [event["response"]["previous_state"] for event in kept.events_of("deprecate_context")]
    return {int(superseded_by == arguments["superseding_id"]), previous_states.count("active")}


async def two_facts(service: Served) -> Arguments:
    facts = [await service.save("One fact"), await service.save("Another fact")]
    return {"source_ids": [fact["id"] for fact in facts]}


def written_by_consolidation(kept: Stored, arguments: Arguments) -> set[int]:
    merged = [memory_id for memory_id in kept.memories if memory_id not in arguments["source_ids"]]
    successors = [kept.memories[source]["metadata"].get("superseded_by") for source in arguments["source_ids"]]
    told = {event["response"]["merged_id"] for event in kept.events_of("consolidate_context")}
    return {len(merged), len(told), *(int(successor in merged) for successor in successors)}


OPERATIONS = {
    "save": Operation(store_method="save", tool="save_context", prepare=a_fact, written=written_by_save),
    "naming": Operation(store_method="name_space", tool="save_context", prepare=a_fact, written=written_by_naming),
    "deprecate": Operation(
        store_method="transact",
        tool="deprecate_context",
        prepare=a_fact_and_its_replacement,
        written=written_by_deprecation,
    ),
    "consolidate": Operation(
        store_method="consolidate",
        tool="consolidate_context",
        prepare=two_facts,
        written=written_by_consolidation,
    ),
}


@dataclass(frozen=True)
class Order:
    """The file in which the service looks for a commit to die at."""

    path: Path

    def give(self, store_method: str, moment: str) -> None:
        self.path.write_text(f"{store_method} {moment}")


@pytest.fixture
def order(tmp_path: Path) -> Order:
    return Order(tmp_path / "order")


@pytest.fixture
async def service(emulator_host: str, project: str, order: Order, firestore: AsyncClient) -> AsyncGenerator[Served]:
    settings = environment(
        FIRESTORE_EMULATOR_HOST=emulator_host,
        GCLOUD_PROJECT=project,
        CRASH_ORDER=str(order.path),
        PYTHONPATH=str(FUNCTIONS),
    )
    async with running_service(settings, source=CRASHING) as running:
        yield running


@pytest.mark.parametrize("moment", POSSIBLE)
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
async def test_after_a_death_all_of_a_commit_is_there_or_nothing_and_the_same_call_completes_it(
    service: Served, order: Order, firestore: AsyncClient, operation: Operation, moment: str
) -> None:
    arguments = await operation.prepare(service)
    order.give(operation.store_method, moment)
    with pytest.raises(httpx2.TransportError):
        await service.call(operation.tool, "default", **arguments)
    assert operation.written(await stored(firestore), arguments) in POSSIBLE[moment]
    await service.call(operation.tool, "default", **arguments)
    assert operation.written(await stored(firestore), arguments) == {1}
