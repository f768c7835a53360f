"""What every test may ask for: an emulator, a database of its own in it, and the whole service in this process."""

import os
import signal
import uuid
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from google.cloud.firestore_v1.async_client import AsyncClient
from hypothesis import settings

from builders import PROJECT, Service
from channel import Channel
from gemini_api import GeminiApi, surroundings
from metacortex.adapters.firestore_client import create_client
from metacortex.adapters.firestore_events import FirestoreEvents
from metacortex.adapters.firestore_memories import FirestoreMemories
from metacortex.bootstrap import Stores
from ops.emulator import EmulatorUnavailable, clear, running_emulator
from web.wire import serving

# What functions in processes of their own are given. Every other test has a project to itself.
SHARED_PROJECTS = ("demo-e2e", "demo-self-check", "demo-smoke", PROJECT)

# A busy machine is no fault of the code: properties are about what holds, not about how fast.
settings.register_profile("metacortex", deadline=None)
settings.load_profile("metacortex")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
async def one_event_loop(anyio_backend: str) -> AsyncGenerator[None]:
    """Keeps every test in one loop: grpc's poller belongs to the loop that used it first."""
    yield  # noqa: PT022 - what follows a yield is what keeps a fixture, and so the loop, alive


def given_emulator() -> str | None:
    """The emulator to use instead of one started here. It may have been used before, or have started from an export."""
    return os.environ.get("FIRESTORE_EMULATOR_HOST")


@pytest.fixture(scope="session")
def emulator_host() -> Generator[str]:
    """The Firestore emulator: the one in FIRESTORE_EMULATOR_HOST, or one started for this run."""
    if given := given_emulator():
        yield given
        return
    try:
        with running_emulator() as emulator:
            yield emulator.host
    except EmulatorUnavailable as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture
def project() -> str:
    """A project id that no other test has. An emulator that started from an export shows that to it: see `firestore`."""
    return f"demo-{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def firestore(emulator_host: str, project: str, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[AsyncClient]:
    """A client of an empty database in the emulator."""
    if given_emulator():
        clear(emulator_host, project)
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", emulator_host)
    client = create_client(project)
    yield client
    await client._firestore_api.transport.close()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


@pytest.fixture
def firestore_stores(firestore: AsyncClient) -> Stores:
    return Stores(memories=FirestoreMemories(firestore, "memory_vectors"), events=FirestoreEvents(firestore))


@pytest.fixture
def service() -> Service:
    """The whole service over the in-memory store, with vectors that a test chooses by its texts."""
    return Service()


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[GeminiApi]:
    """The Gemini API on this machine, where both routes find it, and an identity that it knows."""
    api = GeminiApi()
    with serving(api.app) as wire:
        for name, value in surroundings(f"http://127.0.0.1:{wire.port}", tmp_path).items():
            monkeypatch.setenv(name, value)
        yield api


@pytest.fixture
def channel(monkeypatch: pytest.MonkeyPatch) -> Channel:
    """Watches the calls of every Firestore client made after it: ask for it before `firestore`."""
    watching = Channel()
    connect = grpc.aio.insecure_channel

    def watched(target: str, options: Any = None) -> grpc.aio.Channel:
        return connect(target, options, interceptors=watching.interceptors)

    monkeypatch.setattr(grpc.aio, "insecure_channel", watched)
    return watching


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden", action="store_true", help="write the golden copies again instead of comparing")


def pytest_configure(config: pytest.Config) -> None:
    # A run in the background ignores Ctrl-C, and so would every process that a test starts and then stops by it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    given = given_emulator()
    # Once, before any worker of xdist: they share these.
    if given and not hasattr(config, "workerinput"):
        for shared in SHARED_PROJECTS:
            clear(given, shared)
