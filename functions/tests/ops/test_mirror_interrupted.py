"""Mirrors of large databases: with bounded memory, where the disk has no room, and interrupted at any moment."""

import asyncio
import json
import math
import random
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from google.cloud.firestore_v1.async_client import AsyncClient

from metacortex.adapters.firestore_client import create_client
from mirrors import Message, command_line, names_in, put, saying, size_of, surroundings
from ops.emulator import clear

pytestmark = pytest.mark.slow
MB = 1024 * 1024
INTERRUPTIONS = (signal.SIGKILL, signal.SIGINT, signal.SIGKILL, signal.SIGINT)
# Below a shell that waits: what is measured would otherwise include the memory of the process that started it.
MEASURED = ("/bin/sh", "-c", '"$@"; exit', "sh", sys.executable, "-P", "-c")
MEASURE = """
import resource, sys
from ops.cli import app
try:
    app(["mirror", *sys.argv[1:]])
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""
LITTLE_ROOM = ("/bin/sh", "-c", 'ulimit -f 1000; exec "$@"', "sh")
VERY_LITTLE_ROOM = ("/bin/sh", "-c", 'ulimit -f 100; exec "$@"', "sh")


Progress = Callable[[], Awaitable[int]]
"""How much a running command has done."""


class Machine:
    """Runs the command in processes of its own."""

    def __init__(self, emulator_host: str) -> None:
        self._env = surroundings(emulator_host)

    async def start(self, *command: object) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *map(str, command), env=self._env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    async def run(self, *command: object) -> tuple[int | None, str, str]:
        """How it ended, what it printed, and what it said."""
        process = await self.start(*command)
        out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()

    async def mirror(self, *arguments: object) -> Any:
        """What a command that must succeed tells."""
        status, out, err = await self.run(*command_line(*arguments, "--json"))
        assert (status, err) == (0, ""), out
        return json.loads(out)

    async def interrupt(self, number: signal.Signals, command: list[str], done: Progress, moment: int) -> None:
        """Interrupts a command when it has done so much; it must be at work still."""
        begun_at = await done()
        process = await self.start(*command)
        while await done() < begun_at + moment:
            assert process.returncode is None
            await asyncio.sleep(0)
        process.send_signal(number)
        out, err = await process.communicate()
        if number == signal.SIGKILL:
            assert process.returncode == -signal.SIGKILL
        else:
            assert (process.returncode, len(out.splitlines())) == (1, 1)
            assert "Traceback" not in err.decode()
            assert err.decode().splitlines()[-1].startswith("Stopped before the end. ")


@pytest.fixture
def machine(emulator_host: str) -> Machine:
    return Machine(emulator_host)


@pytest.fixture
async def target(firestore: AsyncClient, emulator_host: str) -> AsyncGenerator[AsyncClient]:
    """A client of a second empty database."""
    project = f"{firestore.project}-2"
    clear(emulator_host, project)
    client = create_client(project)
    yield client
    await client._firestore_api.transport.close()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


async def count(firestore: AsyncClient, collection: str) -> int:
    [[result]] = await firestore.collection(collection).limit(1_000_000).count().get()
    return int(result.value)


def vector() -> Any:
    value = Message().fields["embedding"]
    value.map_value.fields["__type__"].string_value = "__vector__"
    parts = value.map_value.fields["value"].array_value.values
    for place in range(768):
        parts.add().double_value = math.sin(place)
    return value


VECTOR = vector()


def memory(number: int) -> Any:
    """A memory as the service stores it with its default settings, of a few hundred words."""
    document = Message()
    document.fields["content"].string_value = f"Memory {number}. " + "Owls hunt in the dark. " * 40
    document.fields["embedding_space"].string_value = "gemini-embedding-2@768/prefixed"
    vector = document.fields["embedding"]
    vector.CopyFrom(VECTOR)
    vector.map_value.fields["value"].array_value.values[0].double_value = number / 5_000
    for term in range(60):
        document.fields["terms"].map_value.fields[f"term{term}"].boolean_value = True
    document.fields["metadata"].map_value.fields["created_at"].integer_value = number
    return document


async def test_five_thousand_memories_come_through_equal_in_every_byte_with_flat_memory(
    firestore: AsyncClient, target: AsyncClient, machine: Machine, tmp_path: Path
) -> None:
    for start in range(0, 5_000, 250):
        some = range(start, start + 250)
        await put(firestore, {f"memory_vectors/{number:05}": memory(number) for number in some})
        await put(firestore, {f"memory_events/{start:05}": saying("An event")})
    folder, report = tmp_path / "mirror", tmp_path / "report.json"
    for arguments in (
        ("backup", folder, "--project", firestore.project),
        ("restore", folder, "--project", target.project, "--write", "--prune"),
        ("gate", "--source", folder, "--target", target.project, "--report", report),
    ):
        status, out, err = await machine.run(*MEASURED, MEASURE, *arguments)
        assert status == 0, (out, err)
        unit = 1 if sys.platform == "darwin" else 1024
        assert int(err.splitlines()[-1]) * unit < 300 * MB
    collections = json.loads(report.read_text())["collections"]
    assert {name: sides["target"]["documents"] for name, sides in collections.items()} == {
        "memory_events": 20,
        "memory_vectors": 5_000,
    }
    # More than one file, none of which can grow with the database.
    files = [path.stat().st_size for path in folder.glob("data-*/*")]
    assert len(files) > 1
    assert max(files) < 40 * MB


async def test_a_restore_that_is_interrupted_at_any_moment_is_completed_by_the_next_one(
    firestore: AsyncClient, target: AsyncClient, machine: Machine, tmp_path: Path
) -> None:
    await put(firestore, {f"many/{number:04}": saying("z" * 2_000) for number in range(1_500)})
    await put(target, {f"extra/{number:04}": saying("z") for number in range(5_000)})
    folder = tmp_path / "mirror"
    await machine.mirror("backup", folder, "--project", firestore.project)
    restore = ("restore", folder, "--project", target.project, "--write", "--prune")

    async def done() -> int:
        return await count(target, "many") + 5_000 - await count(target, "extra")

    for interruption in INTERRUPTIONS:
        # More than what the one before had under way when it was killed, which still arrives.
        await machine.interrupt(interruption, command_line(*restore), done, random.randint(500, 900))
    left = await count(target, "extra")
    assert 0 < left < 5_000
    report = await machine.mirror(*restore)
    assert report["collections"]["extra"]["extra"] == left
    assert (await machine.mirror("gate", "--source", folder, "--target", target.project))["ok"]


async def test_a_backup_that_is_interrupted_at_any_moment_leaves_the_mirror_that_was_there(
    firestore: AsyncClient, target: AsyncClient, machine: Machine, tmp_path: Path
) -> None:
    await put(firestore, {"many/0000": saying("As it was")})
    folder = tmp_path / "mirror"
    backup = ("backup", folder, "--project", firestore.project)
    await machine.mirror(*backup)
    await machine.mirror("restore", folder, "--project", target.project, "--write")
    before = size_of(folder)
    await put(firestore, {f"many/{number:04}": saying("z" * 3_000) for number in range(4_000)})
    seen = set(names_in(folder))

    async def done() -> int:
        return sum(size_of(folder / name) for name in set(names_in(folder)) - seen)

    for interruption in INTERRUPTIONS:
        await machine.interrupt(interruption, command_line(*backup), done, random.randint(1, 6 * MB))
        if interruption == signal.SIGINT:
            assert (len(names_in(folder)), size_of(folder)) == (2, before)
        seen.update(names_in(folder))
    assert (await machine.mirror("gate", "--source", folder, "--target", target.project))["ok"]
    await machine.mirror(*backup)
    assert len(names_in(folder)) == 2
    assert (await machine.mirror("gate", "--source", folder, "--target", firestore.project))["ok"]


async def test_a_disk_without_room_ends_a_backup_and_leaves_the_mirror_that_was_there(
    firestore: AsyncClient, machine: Machine, tmp_path: Path
) -> None:
    await put(firestore, {"many/0000": saying("As it was")})
    folder = tmp_path / "mirror"
    backup = ("backup", folder, "--project", firestore.project)
    await machine.mirror(*backup)
    before = size_of(folder)
    await put(firestore, {f"many/{number:04}": saying("z" * 3_000) for number in range(1_000)})
    status, _, err = await machine.run(*LITTLE_ROOM, *command_line(*backup))
    assert (status, err.splitlines()[-1]) == (
        1,
        f"The disk has no room for {folder}; make some, or name another place. A mirror that was there still is.",
    )
    assert (len(names_in(folder)), size_of(folder)) == (2, before)


async def test_a_disk_without_room_for_a_report_is_told_as_that(
    firestore: AsyncClient, target: AsyncClient, machine: Machine, tmp_path: Path
) -> None:
    long = "long" * 250
    await put(firestore, {f"many/{number:03}{long}": saying("z") for number in range(100)})
    report = tmp_path / "report.json"
    gate = ("gate", "--source", firestore.project, "--target", target.project, "--report", report)
    status, _, err = await machine.run(*VERY_LITTLE_ROOM, *command_line(*gate))
    assert status == 1
    assert err.splitlines()[-1] == (
        f"The disk has no room for {report}; make some, or name another place. The comparison itself came to its end: add"
        " --json to see it."
    )
