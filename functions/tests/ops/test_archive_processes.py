"""`metacortex archive` in processes of its own: interrupted, killed, and with a corpus of 5,000 memories."""

import asyncio
import json
import random
import signal
import sys
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from google.cloud.firestore_v1.async_client import AsyncClient

from archives import database, memory, process_of, surroundings
from old_data import store

pytestmark = pytest.mark.slow

MANY = 1_500
CORPUS = 5_000
MEGABYTES = 300
# Runs the command that is given, and tells at the end how much memory it had at its most, in kilobytes.
MEASURED = """
import resource, subprocess, sys
status = subprocess.run(sys.argv[1:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(status)
"""


@dataclass(frozen=True)
class Run:
    status: int
    lines: list[str]
    said: str


@pytest.fixture
async def other(firestore: AsyncClient, project: str) -> AsyncGenerator[AsyncClient]:
    async with database(f"{project}-other") as client:
        yield client


@pytest.fixture
def env(emulator_host: str) -> Mapping[str, str]:
    return surroundings(emulator_host)


async def started(env: Mapping[str, str], *command: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*command, env=env, stdout=pipe, stderr=pipe)


async def ended(process: asyncio.subprocess.Process) -> Run:
    out, err = await process.communicate()
    assert process.returncode is not None
    return Run(process.returncode, out.decode().splitlines(), " ".join(err.decode().split()))


async def completed(env: Mapping[str, str], *arguments: str) -> Run:
    run = await ended(await started(env, *process_of(*arguments)))
    assert run.status == 0, run.said
    return run


def state_of(file: Path) -> tuple[int, int]:
    """When it was written, and its size."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


# --- Interrupted ---


ENDS = [signal.SIGKILL, signal.SIGINT, signal.SIGKILL]


async def test_an_export_that_is_interrupted_leaves_the_archive_before(
    firestore: AsyncClient, project: str, env: Mapping[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "archive"
    export = ("export", str(folder), "--project", project)
    await store(firestore, {"memory_vectors": dict(map(memory, range(MANY)))})
    await completed(env, *export)
    before = (folder / "manifest.json").read_bytes()
    _, whole = state_of(folder / "memories.jsonl")
    unfinished = folder / ".unfinished/memories.jsonl"
    chance = random.Random(41)
    for end in ENDS:
        # Later than what a killed one left, and anywhere in the first half.
        moment = (state_of(unfinished)[0] + 1, chance.randrange(1, whole // 2))
        process = await started(env, *process_of(*export))
        while any(now < then for now, then in zip(state_of(unfinished), moment, strict=True)):
            assert process.returncode is None
            await asyncio.sleep(0)
        process.send_signal(end)
        run = await ended(process)
        assert (folder / "manifest.json").read_bytes() == before
        await completed(env, "verify", str(folder))
        if end == signal.SIGINT:
            assert run.status == 1
            assert run.said.endswith(f"Stopped. {folder} is as it was.")
            assert not (folder / ".unfinished").exists()
    await completed(env, *export)
    assert (folder / "manifest.json").read_bytes() != before
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "memories.jsonl"]


async def test_a_restoring_that_is_interrupted_goes_on_where_it_was(
    firestore: AsyncClient, other: AsyncClient, project: str, env: Mapping[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "archive"
    long = dict(memory(number, content=f"Barn {number} has owls. " * 150) for number in range(0, MANY, 50))
    await store(firestore, {"memory_vectors": {**dict(map(memory, range(MANY))), **long}})
    await completed(env, "export", str(folder), "--project", project)
    restore = ("restore", str(folder), "--into", "mine", "--project", str(other.project), "--write")
    mine, parts = other.collection("mine"), other.collection("mine_parts")
    count = mine.order_by("__name__").count()
    chance = random.Random(41)
    there = 0
    for end in ENDS:
        process = await started(env, *process_of(*restore))
        moment = there + chance.randrange(1, MANY // 4)
        while (there := (await count.get())[0][0].value) < moment:
            assert process.returncode is None
        process.send_signal(end)
        run = await ended(process)
        if end == signal.SIGINT:
            assert run.status == 1
            assert "Stopped. Whatever was written is whole: run the same command again and it goes on." in run.said
    answer = json.loads((await completed(env, *restore, "--json")).lines[0])["restored"]
    assert answer["there"] >= there
    assert answer["there"] + answer["restored"] == MANY
    written = {snapshot.id: snapshot.to_dict() or {} async for snapshot in mine.stream()}
    assert len(written) == MANY
    assert all("embedding" in held for held in written.values())
    of_long = [snapshot.get("memory_id") async for snapshot in parts.select(["memory_id"]).stream()]
    assert {name: of_long.count(name) for name in long} == {name: written[name]["parts"] for name in long}
    assert len(of_long) == sum(written[name]["parts"] for name in long)


# --- A large corpus ---


async def test_five_thousand_memories_come_through_in_little_memory(
    firestore: AsyncClient, other: AsyncClient, project: str, env: Mapping[str, str], tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    await store(firestore, {"memory_vectors": dict(map(memory, range(CORPUS)))})
    steps = [
        ("export", str(one), "--project", project),
        ("restore", str(one), "--into", "memory_vectors", "--project", str(other.project), "--write"),
        ("export", str(two), "--project", str(other.project)),
    ]
    for step in steps:
        run = await ended(await started(env, sys.executable, "-c", MEASURED, *process_of(*step)))
        assert run.status == 0, run.said
        assert int(run.lines[-1]) < MEGABYTES * 1024
    assert (one / "memories.jsonl").read_bytes() == (two / "memories.jsonl").read_bytes()
    assert json.loads((two / "manifest.json").read_text())["memories"]["active"] == CORPUS
