"""functions/main.py with a store that dies at a commit, once, where a test orders it."""

import asyncio
import functools
import os
import signal
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import grpc.aio
from google.cloud.firestore_v1.types import CommitRequest

from metacortex import bootstrap
from metacortex.bootstrap import Stores
from metacortex.ports import MemoryStore
from metacortex.settings import Settings

# Holds a method of the store and a moment of its commit, such as «save before». Whoever obeys it removes it first, so
# that the next worker lives.
ORDER = Path(os.environ["CRASH_ORDER"])

connect_store = bootstrap.firestore
connect_channel = grpc.aio.insecure_channel
method_at_work: ContextVar[str] = ContextVar("method_at_work", default="")


class Telling:
    """A store whose methods tell, while they work, which one does."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._store, name)

        @functools.wraps(method)
        async def telling(*arguments: Any, **options: Any) -> Any:
            token = method_at_work.set(name)
            try:
                return await method(*arguments, **options)
            finally:
                method_at_work.reset(token)

        return telling


class Dying(grpc.aio.UnaryUnaryClientInterceptor):
    """Kills this process before a commit is sent, when it has been sent, or when it has been answered."""

    async def intercept_unary_unary(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        if not isinstance(request, CommitRequest):
            return await continuation(client_call_details, request)
        die_if_ordered("before")
        call = await continuation(client_call_details, request)
        # The call goes out with the next turn of the loop, long before it can be answered.
        await asyncio.sleep(0)
        die_if_ordered("during")
        await call.code()
        die_if_ordered("after")
        return call


def die_if_ordered(moment: str) -> None:
    if ORDER.exists() and ORDER.read_text() == f"{method_at_work.get()} {moment}":
        ORDER.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def firestore(settings: Settings, project: str | None) -> Stores:
    stores = connect_store(settings, project)
    return replace(stores, memories=cast(MemoryStore, Telling(stores.memories)))


def insecure_channel(target: str, options: Any = None) -> grpc.aio.Channel:
    return connect_channel(target, options, interceptors=[Dying()])  # pyright: ignore[reportArgumentType]


bootstrap.firestore = firestore
grpc.aio.insecure_channel = insecure_channel

from main import metaCortexMcp  # noqa: E402, F401  # pyright: ignore[reportUnusedImport]
