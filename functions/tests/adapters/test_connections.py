"""The connections behind the clients: few, shared, and kept."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from google.cloud.firestore_v1.async_client import AsyncClient

from builders import Service, environment
from gemini_api import GeminiApi, never
from metacortex.adapters import gemini_embedder
from metacortex.adapters.firestore_client import create_client
from metacortex.adapters.firestore_events import FirestoreEvents
from metacortex.adapters.firestore_memories import FirestoreMemories
from metacortex.bootstrap import Models, Stores, models
from metacortex.settings import load
from tcp_proxy import TcpProxy, running_proxy

LONG = "A sentence of forty characters, or so. " * 2_000


@pytest.fixture
async def network(emulator_host: str, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[TcpProxy]:
    async with running_proxy(emulator_host) as proxy:
        monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", proxy.host)
        yield proxy


@pytest.fixture
async def distant(network: TcpProxy, project: str) -> AsyncGenerator[AsyncClient]:
    """A client that reaches the emulator over the proxy."""
    client = create_client(project)
    yield client
    await client._firestore_api.transport.close()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


async def test_all_calls_of_the_store_share_one_connection(network: TcpProxy, distant: AsyncClient) -> None:
    stores = Stores(memories=FirestoreMemories(distant, "memory_vectors"), events=FirestoreEvents(distant))
    service = Service(stores=stores)
    items = await asyncio.gather(*(service.save(f"Fact {number}") for number in range(30)))
    await asyncio.gather(*(service.fetch(item["id"]) for item in items), service.search("fact"))
    assert network.connections == 1


@pytest.fixture
async def gemini(api: GeminiApi) -> AsyncGenerator[Models]:
    chosen = models(load(environment(MODEL_PROVIDER="gemini", GEMINI_API_KEY="a-gemini-key-of-the-tests")), None)
    yield chosen
    await chosen.close()


async def test_long_memories_of_all_callers_together_ask_the_model_three_things_at_once(
    api: GeminiApi, gemini: Models
) -> None:
    most = 0
    three = asyncio.Barrier(3)

    async def three_at_once() -> None:
        nonlocal most
        most = max(most, len(api.waiting))
        await three.wait()

    api.before = three_at_once
    service = Service(models=gemini)
    await asyncio.gather(*(service.save(f"{number} {LONG}") for number in range(6)))
    assert most == 3


async def test_a_long_memory_waits_for_others_that_hang_no_longer_than_its_deadline(
    api: GeminiApi, gemini: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_enough = gemini_embedder.LONG_SECONDS
    monkeypatch.setattr(gemini_embedder, "LONG_SECONDS", 0.5)
    service = Service(models=gemini)
    api.instead = never
    async with asyncio.timeout(10):
        answers = await asyncio.gather(
            *(service.call("save_context", content=f"{number} {LONG}") for number in range(5)), return_exceptions=True
        )
    assert {getattr(answer, "status", None) for answer in answers} == {504}
    api.instead = lambda _: None
    monkeypatch.setattr(gemini_embedder, "LONG_SECONDS", long_enough)
    assert await service.save(LONG)
