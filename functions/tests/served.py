"""The function in a process of its own, driven as `Service` drives it in this one, and what it left in the store."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.async_transaction import AsyncTransaction, async_transactional

from builders import Client
from ops.checkout import FUNCTIONS
from ops.function import Function, running_function

Documents = Mapping[str, dict[str, Any]]


class Served(Client):
    """The clients' side of the served function."""

    def __init__(self, function: Function) -> None:
        self.http = httpx2.AsyncClient(base_url=function.url, timeout=60, trust_env=False)


@asynccontextmanager
async def running_service(env: Mapping[str, str], *, source: Path = FUNCTIONS / "main.py") -> AsyncGenerator[Served]:
    with running_function(env, source=source) as function:
        service = Served(function)
        async with service.http:
            yield service


@dataclass(frozen=True)
class Stored:
    """Every document of a project, by collection and id."""

    memories: Documents
    fingerprints: Documents
    spaces: Documents
    events: Documents

    def events_of(self, tool: str, status: str = "success") -> list[dict[str, Any]]:
        """The events of a tool's calls that ended with a status."""
        return [
            event for event in self.events.values() if (event.get("tool_name"), event.get("status")) == (tool, status)
        ]

    def contents(self) -> list[str]:
        """The texts of the memories, sorted."""
        return sorted(memory["content"] for memory in self.memories.values())


@async_transactional
async def _read(transaction: AsyncTransaction, firestore: AsyncClient) -> Stored:
    async def documents(collection: str) -> Documents:
        snapshots = firestore.collection(collection).stream(transaction=transaction)  # pyright: ignore[reportArgumentType]
        return {snapshot.id: snapshot.to_dict() or {} async for snapshot in snapshots}

    return Stored(
        memories=await documents("memory_vectors"),
        fingerprints=await documents("memory_vectors_write_fingerprints"),
        spaces=await documents("memory_vectors_meta"),
        events=await documents("memory_events"),
    )


async def stored(firestore: AsyncClient) -> Stored:
    """What is in the store at one moment, read past the service."""
    return await _read(firestore.transaction(read_only=True), firestore)
