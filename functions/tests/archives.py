"""Driving `metacortex archive` as an owner does, over databases in the emulator."""

import asyncio
import functools
import math
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from google.cloud.firestore_v1 import GeoPoint
from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.vector import Vector
from typer.testing import CliRunner, Result

from metacortex.adapters.firestore_client import create_client
from metacortex.settings import TABLE
from ops.archive_folder import Folder, Source
from ops.archive_lines import archived
from ops.checkout import ROOT
from ops.cli import app

Command = Callable[..., Awaitable[Result]]

# Empty, they mean the default and outdo what stands in the files of whoever runs the tests.
UNSET = dict.fromkeys([*(setting.name for setting in TABLE), "GCLOUD_PROJECT", "GOOGLE_API_KEY"], "")
LOCAL = {**UNSET, "MODEL_PROVIDER": "local"}


def invoke(*arguments: str, status: int | None = 0, **env: str | None) -> Result:
    result = CliRunner().invoke(app, ["archive", *arguments], env={**LOCAL, **env}, catch_exceptions=False)
    assert status in {None, result.exit_code}, result.output
    return result


def command_in_the_loop_of_the_test(monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs commands in a thread, and what they await in the loop of the test: grpc's poller belongs to that."""
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(asyncio, "run", lambda work: asyncio.run_coroutine_threadsafe(work, loop).result())
    return functools.partial(asyncio.to_thread, invoke)


def said(result: Result) -> str:
    """What was said on standard error, on one line."""
    return " ".join(result.stderr.split())


@asynccontextmanager
async def database(project: str) -> AsyncGenerator[AsyncClient]:
    """A client of another database in the emulator that the environment names."""
    client = create_client(project)
    try:
        yield client
    finally:
        await client._firestore_api.transport.close()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


def process_of(*arguments: str) -> list[str]:
    """The command as a process of its own."""
    return [sys.executable, "-P", "-m", "ops", "archive", *arguments]


def surroundings(emulator_host: str) -> Mapping[str, str]:
    """What such a process needs."""
    path = os.pathsep.join([str(ROOT / "scripts"), str(ROOT / "functions")])
    return {**LOCAL, "PATH": os.environ["PATH"], "PYTHONPATH": path, "FIRESTORE_EMULATOR_HOST": emulator_host}


async def documents(firestore: AsyncClient, *, times: bool = False) -> dict[str, Any]:
    """The whole database by path: what each document holds, or when it was last written."""
    return {
        snapshot.reference.path: snapshot.update_time if times else snapshot.to_dict()
        async for collection in firestore.collections()
        async for snapshot in collection.stream()
    }


def memory(number: int, **fields: Any) -> tuple[str, dict[str, Any]]:
    """A small memory as it is stored, under an id of its own."""
    metadata = {
        "module_name": "Birds",
        "branch_state": "active",
        "created_at": 1_700_000_000_000 + number,
        "updated_at": 1_700_000_000_000 + number,
        "modality": "text",
        "written_by": "agent",
        "provenance": {"origin": "agent_inferred"},
    }
    return f"m-{number:05}", {"content": f"Owl {number} lives in a barn", "metadata": metadata, **fields}


def write_archive(folder: Path, memories: Mapping[str, dict[str, Any]], *, force: bool = False, **source: Any) -> None:
    """An archive of these memories, as an export writes it."""
    about: dict[str, Any] = {
        "created_at": datetime(2026, 11, 30, 12, tzinfo=UTC),
        "project": "demo-source",
        "collection": "memory_vectors",
        "embedding_space": None,
    }
    about |= source
    with Folder(folder).replaced(Source(**about), force=force) as new:
        for memory_id in sorted(memories):
            new.add(archived(memory_id, memories[memory_id], ()))


def kinds(value: Any) -> Any:
    """The value so that equal means: of the same type and to the last bit."""
    match value:
        case float():
            return ("double", "nan") if math.isnan(value) else ("double", value, math.copysign(1, value))
        case list():
            return [kinds(item) for item in value]
        case dict():
            return {name: kinds(item) for name, item in value.items()}
        case Vector():
            return ("vector", *map(kinds, value))
        case GeoPoint():
            return ("geo", kinds(float(value.latitude)), kinds(float(value.longitude)))
        case _:
            return (type(value), value)
