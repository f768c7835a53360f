"""The calls one instance serves at once, and what happens to one more."""

import asyncio
import json
import threading
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx2
import pytest

from builders import JSON_HEADERS, Service, bearer, path_of, plane_models
from fakes import PlaneEmbedder
from metacortex.web.limits import BODIES_BYTES, BODY_BYTES, CALLS_AT_ONCE, ORDINARY_BYTES
from running import eventually
from web.edge import ORIGIN, VALID, ask, cors_headers
from web.wire import AUTHORIZED, JSON, serving, whole


class SlowEmbedder(PlaneEmbedder):
    """Answers no one until it may. `full` is set as soon as every call there may be is waiting for it.

    Its service may run in another thread than the test.
    """

    def __init__(self) -> None:
        super().__init__()
        self.full = threading.Event()
        self._may_answer = asyncio.Event()
        self._asked: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def embed_query(self, text: str, *, text_format: str) -> tuple[float, ...]:
        vector = await super().embed_query(text, text_format=text_format)
        self._loop = asyncio.get_running_loop()
        self._asked[len(self.calls)].set()
        if len(self.calls) == CALLS_AT_ONCE:
            self.full.set()
        await self._may_answer.wait()
        return vector

    async def has_been_asked(self, times: int) -> None:
        await self._asked[times].wait()

    def answer(self) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._may_answer.set)

    def service(self) -> Service:
        return Service(models=plane_models(embedder=self))


@asynccontextmanager
async def full() -> AsyncGenerator[tuple[Service, SlowEmbedder, list[asyncio.Task[object]]]]:
    """A service at its limit, its embedder, and the calls it is serving."""
    embedder = SlowEmbedder()
    service = embedder.service()
    async with asyncio.timeout(10):
        calls: list[asyncio.Task[object]] = [
            asyncio.create_task(service.save(f"Fact {number}")) for number in range(CALLS_AT_ONCE)
        ]
        await asyncio.to_thread(embedder.full.wait)
        yield service, embedder, calls


def test_at_least_forty_calls_pass_at_once() -> None:
    assert CALLS_AT_ONCE >= 40


async def test_one_call_over_the_limit_is_told_to_come_back_and_all_others_are_served() -> None:
    async with full() as (service, embedder, calls):
        response = await ask(service, headers=VALID | {"origin": ORIGIN})
        assert (response.status_code, response.json()) == (429, {"error": "Too many requests"})
        assert int(response.headers["retry-after"]) >= 1
        assert cors_headers(response)["access-control-allow-origin"] == ORIGIN
        embedder.answer()
        await asyncio.gather(*calls)
        assert (await ask(service)).status_code == 200
        reasons = [event.fields["reason"] for event in service.events if event.fields["event_type"] == "request"]
        assert reasons == ["too_many_requests"]


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ({"url": "/clients/nobody/mcp", "headers": VALID}, 404),
        ({"url": path_of("agent"), "headers": VALID | {"origin": "https://evil.example"}}, 403),
        ({"url": path_of("agent"), "headers": JSON_HEADERS | bearer("reader")}, 401),
        ({"url": path_of("agent"), "headers": VALID, "content": b"{"}, 429),
        ({"url": path_of("reader"), "headers": JSON_HEADERS | bearer("reader")}, 429),
        ({"url": path_of("agent"), "headers": VALID | {"content-type": "text/plain"}}, 429),
    ],
)
async def test_the_limit_is_checked_after_the_token_and_before_the_message(
    request_: dict[str, object], status: int
) -> None:
    async with full() as (service, embedder, calls):
        assert (await service.http.request("POST", **request_)).status_code == status  # pyright: ignore[reportArgumentType]
        embedder.answer()
        await asyncio.gather(*calls)


async def test_health_answers_at_the_limit() -> None:
    async with full() as (service, embedder, calls):
        assert (await service.http.get("/health")).status_code == 200
        embedder.answer()
        await asyncio.gather(*calls)


async def test_cancelled_calls_make_room() -> None:
    async with full() as (service, embedder, calls):
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        embedder.answer()
        assert (
            len(await asyncio.gather(*(service.save(f"Later {number}") for number in range(CALLS_AT_ONCE))))
            == CALLS_AT_ONCE
        )


async def large_save(service: Service, number: int) -> httpx2.Response:
    """A save whose body is as large as a body may be."""
    body = saving(f"Fact {number}").ljust(BODY_BYTES)
    return await service.http.post(path_of("agent"), content=body, headers=VALID)


async def test_bodies_that_are_too_much_together_are_told_to_come_back_and_ordinary_calls_are_served() -> None:
    embedder = SlowEmbedder()
    service = embedder.service()
    large = BODIES_BYTES // BODY_BYTES
    async with asyncio.timeout(10):
        first = [asyncio.create_task(large_save(service, number)) for number in range(large)]
        await embedder.has_been_asked(large)
        for number in range(3):
            response = await large_save(service, large + number)
            assert (response.status_code, response.json()) == (429, {"error": "Too many requests"})
            assert int(response.headers["retry-after"]) >= 1
        ordinary = saving("x").ljust(ORDINARY_BYTES)
        others = [
            asyncio.create_task(service.http.post(path_of("agent"), content=ordinary, headers=VALID)) for _ in range(40)
        ]
        await embedder.has_been_asked(large + len(others))
        embedder.answer()
        assert {response.status_code for response in await asyncio.gather(*first, *others)} == {200}
        assert (await large_save(service, large)).status_code == 200


async def test_a_client_whose_body_is_too_much_may_send_it_to_its_end() -> None:
    embedder = SlowEmbedder()
    service = embedder.service()
    sent = 0

    async def body() -> AsyncGenerator[bytes]:
        nonlocal sent
        for _ in range(16):
            sent += 1
            yield b" " * (BODY_BYTES // 16)

    async with asyncio.timeout(10):
        first = [asyncio.create_task(large_save(service, number)) for number in range(BODIES_BYTES // BODY_BYTES)]
        await embedder.has_been_asked(len(first))
        response = await service.http.post(path_of("agent"), content=body(), headers=VALID)
        assert (response.status_code, sent) == (429, 16)
        embedder.answer()
        await asyncio.gather(*first)


def test_calls_whose_client_is_gone_make_room_when_they_end() -> None:
    embedder = SlowEmbedder()
    with serving(embedder.service().app) as wire:
        connections = [wire.connect() for _ in range(CALLS_AT_ONCE)]
        for number, connection in enumerate(connections):
            connection.sendall(whole(saving(f"Fact {number}"), AUTHORIZED, JSON))
        assert embedder.full.wait(10)
        assert wire.ask().status == 429
        for connection in connections:
            connection.close()
        embedder.answer()
        eventually(lambda: wire.ask().status == 200, seconds=10)


def saving(content: str) -> bytes:
    params = {"name": "save_context", "arguments": {"content": content}}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()


async def test_failed_and_refused_calls_make_room(service: Service) -> None:
    for _ in range(CALLS_AT_ONCE + 1):
        response = await service.http.post(path_of("agent"), content=b"{", headers=VALID)
        assert response.status_code == 400
    assert (await ask(service)).status_code == 200
