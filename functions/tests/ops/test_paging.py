"""Reading many documents over a connection that is too slow for a whole page of them."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.types import RunQueryRequest

from archives import Command, command_in_the_loop_of_the_test, memory
from channel import Channel
from metacortex.adapters.firestore_memories import ID
from metacortex.errors import TimedOut
from old_data import store
from ops.paging import pages

DEADLINE = 1.0


class SlowAfter(grpc.aio.UnaryStreamClientInterceptor):
    """Lets so many answers of each query through, and holds the next ones for ever."""

    def __init__(self, count: int) -> None:
        self._count = count

    async def intercept_unary_stream(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        call = await continuation(client_call_details, request)
        slow = isinstance(request, RunQueryRequest) and request.structured_query.limit != 1
        return self._slowly(call) if slow else call

    async def _slowly(self, call: Any) -> AsyncGenerator[Any]:
        passed = 0
        async for answer in call:
            if passed == self._count:
                await asyncio.Event().wait()
            passed += 1
            yield answer


@pytest.fixture
def slow(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    monkeypatch.setattr("metacortex.adapters.firestore_client.DEADLINE_SECONDS", DEADLINE)
    return lambda count: channel.interceptors.insert(0, SlowAfter(count))


@pytest.mark.slow
async def test_what_comes_within_the_deadline_is_a_page_and_the_next_goes_on_behind_it(
    firestore: AsyncClient, slow: Callable[[int], None]
) -> None:
    slow(3)
    await store(firestore, {"memory_vectors": dict(map(memory, range(7)))})
    query = firestore.collection("memory_vectors").select([]).order_by(ID)
    found = [[snapshot.id for snapshot in page] async for page in pages(query, 5)]
    assert [len(page) for page in found] == [3, 3, 1]
    assert [name for page in found for name in page] == [f"m-{number:05}" for number in range(7)]


async def test_where_nothing_comes_it_has_timed_out(firestore: AsyncClient, slow: Callable[[int], None]) -> None:
    slow(0)
    await store(firestore, {"memory_vectors": dict(map(memory, range(2)))})
    with pytest.raises(TimedOut):
        [page async for page in pages(firestore.collection("memory_vectors").order_by(ID), 5)]


async def test_a_page_that_is_full_is_followed_by_one_that_may_be_empty(firestore: AsyncClient) -> None:
    query = firestore.collection("memory_vectors").order_by(ID)
    assert [page async for page in pages(query, 2)] == []
    await store(firestore, {"memory_vectors": dict(map(memory, range(4)))})
    assert [len(page) async for page in pages(query, 2)] == [2, 2]


@pytest.mark.slow
async def test_an_archive_is_whole_over_a_slow_connection(
    firestore: AsyncClient,
    project: str,
    slow: Callable[[int], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    archive: Command = command_in_the_loop_of_the_test(monkeypatch)
    slow(3)
    await store(firestore, {"memory_vectors": dict(map(memory, range(7)))})
    await archive("export", str(tmp_path / "archive"), "--project", project)
    lines = (tmp_path / "archive/memories.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == [f"m-{number:05}" for number in range(7)]
    await archive("verify", str(tmp_path / "archive"))
