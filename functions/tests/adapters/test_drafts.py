"""The drafts that a merge takes and those it leaves, counted while others retire some of them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc.aio
from google.cloud.firestore_v1.types import RunAggregationQueryRequest, RunQueryRequest

from builders import Service
from channel import Channel
from metacortex.bootstrap import Stores


class BeforeCounting(grpc.aio.UnaryStreamClientInterceptor):
    """Lets something happen once drafts are read in their order, and before they are counted."""

    def __init__(self, happen: Callable[[], Awaitable[object]]) -> None:
        self._happen = happen
        self._read = asyncio.Event()

    async def intercept_unary_stream(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        if isinstance(request, RunAggregationQueryRequest):
            await self._read.wait()
            await self._happen()
        call = await continuation(client_call_details, request)
        if isinstance(request, RunQueryRequest) and request.structured_query.order_by:
            await call.initial_metadata()
            self._read.set()
        return call


async def test_no_fewer_than_none_are_left_when_a_draft_is_retired_meanwhile(
    channel: Channel, firestore_stores: Stores
) -> None:
    service = Service(stores=firestore_stores)
    retired: list[str] = []

    async def retire() -> None:
        retired.append(ids[0])
        await service.call("deprecate_context", "default", id=ids[0])

    channel.interceptors.insert(0, BeforeCounting(retire))
    ids = [(await service.save(f"Draft at {degrees}", draft=True))["id"] for degrees in (1, 2)]
    answer = await service.call("consolidate_context", "default", preview=True)
    assert (retired, answer["source_count"], answer["remaining_count"]) == (ids[:1], 2, 0)
