"""`metacortex mirror` as an owner runs it: a database into a folder, from there into another one, and the proof of both."""

import asyncio
import fcntl
import functools
import hashlib
import json
import os
import stat
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.types import CommitRequest, RunQueryRequest
from typer.testing import CliRunner, Result

from builders import Service
from channel import Channel, name_of
from metacortex.adapters.firestore_client import create_client
from metacortex.adapters.firestore_events import FirestoreEvents
from metacortex.adapters.firestore_memories import FirestoreMemories
from metacortex.bootstrap import Stores
from mirrors import Message, documents_file, everything, held, names_in, put, root_of, saying, size_of
from ops.cli import app
from ops.emulator import clear
from ops.endpoints import PROJECT
from ops.mirror_manifest import SIGN_IN, sealed, unsealed
from signing import Browser, Signing, request_on
from tcp_proxy import running_proxy

Command = Callable[..., Coroutine[Any, Any, Result]]
MB = 1024 * 1024


def invoke(*arguments: object, **env: str) -> Result:
    return CliRunner().invoke(app, ["mirror", *map(str, arguments)], env=env or None, catch_exceptions=False)


@pytest.fixture
async def mirror(monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs the command in a thread, and what it awaits in the loop of the test: grpc's poller belongs to that."""
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(asyncio, "run", lambda work: asyncio.run_coroutine_threadsafe(work, loop).result())

    async def run(*arguments: object, status: int = 0, **env: str) -> Result:
        result = await asyncio.to_thread(functools.partial(invoke, *arguments, **env))
        assert result.exit_code == status, result.output
        return result

    return run


@pytest.fixture
async def target(firestore: AsyncClient, emulator_host: str) -> AsyncGenerator[AsyncClient]:
    """A client of a second empty database."""
    project = f"{firestore.project}-2"
    clear(emulator_host, project)
    client = create_client(project)
    yield client
    await client._firestore_api.transport.close()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "of" / "mirror"


@pytest.fixture
async def made(firestore: AsyncClient, folder: Path, mirror: Command) -> Path:
    """A mirror of four documents in three collections."""
    await put(firestore, DATABASE)
    await mirror("backup", folder, "--project", firestore.project)
    return folder


DATABASE = {
    "birds/owl": saying("Owls hunt in the dark"),
    "birds/owl/notes/1": saying("Seen in May"),
    "birds/wren": saying("Wrens are loud"),
    "fish/eel": saying("Eels travel far"),
}
COLLECTIONS = {"birds": 2, "birds/*/notes": 1, "fish": 1}


def said(result: Result) -> str:
    """What was said on standard error, on one line."""
    return " ".join(result.stderr.split())


def told(result: Result) -> Any:
    """The one object that was printed; nothing was said beside it."""
    assert result.stderr == ""
    return json.loads(result.stdout)


def tally(*, equal: int = 0, missing: int = 0, different: int = 0, extra: int = 0) -> dict[str, int]:
    return {"equal": equal, "missing": missing, "different": different, "extra": extra}


def exactly(document: Any) -> bytes:
    return document.SerializeToString(deterministic=True)


# --- There and back ---


async def test_every_type_of_value_comes_back_in_every_byte(
    firestore: AsyncClient, target: AsyncClient, folder: Path, mirror: Command
) -> None:
    original = everything(firestore.project)
    await put(firestore, {"things/everything": original})
    assert exactly((await held(firestore))["things/everything"]) == exactly(original)
    await mirror("backup", folder, "--project", firestore.project)
    await mirror("restore", folder, "--project", target.project, "--write")
    expected = everything(target.project)
    # A text stays what it is, whatever it names.
    expected.fields["a path in a text"].CopyFrom(original.fields["a path in a text"])
    assert exactly((await held(target))["things/everything"]) == exactly(expected)
    await mirror("gate", "--source", folder, "--target", target.project)


async def test_documents_come_back_wherever_they_lie(
    firestore: AsyncClient, target: AsyncClient, folder: Path, mirror: Command
) -> None:
    paths = [
        "top/a",
        "top/a/below/b/below/c",
        "nowhere/none/below/nothing/far below/d",
        "top/__id7__",
        "top/__id10__",
        "top/\U0001f989",
        "top/\ue000",
        "a collection/of 100% #1?",
        "top/" + "long" * 300,
    ]
    await put(firestore, {path: saying(path) for path in paths})
    await mirror("backup", folder, "--project", firestore.project)
    await mirror("restore", folder, "--project", target.project, "--write")
    assert {path: document.fields["text"].string_value for path, document in (await held(target)).items()} == {
        path: path for path in paths
    }


async def test_an_empty_document_is_one(
    firestore: AsyncClient, target: AsyncClient, folder: Path, mirror: Command
) -> None:
    await put(firestore, {"things/empty": Message(), "things/empty/below/too": Message()})
    await mirror("backup", folder, "--project", firestore.project)
    await mirror("restore", folder, "--project", target.project, "--write")
    assert set(await held(target)) == {"things/empty", "things/empty/below/too"}


async def test_a_mirror_of_what_was_restored_says_the_same_in_the_same_bytes(
    firestore: AsyncClient, target: AsyncClient, folder: Path, mirror: Command
) -> None:
    await put(firestore, {**DATABASE, "things/everything": points_to(firestore.project)})
    await mirror("backup", folder, "--project", firestore.project)
    await mirror("restore", folder, "--project", target.project, "--write")
    again = folder.with_name("again")
    await mirror("backup", again, "--project", target.project)
    assert contents(again) == contents(folder)
    assert told(await mirror("gate", "--source", folder, "--target", again, "--json"))["ok"]


def points_to(project: str) -> Any:
    document = Message()
    document.fields["here"].reference_value = f"{root_of(project)}/birds/owl"
    return document


def contents(folder: Path) -> list[tuple[str, str]]:
    lines = documents_file(folder).read_text().splitlines()
    return [(entry["path"], entry["document"]) for entry in map(json.loads, lines)]


async def test_the_service_goes_on_with_a_restored_database(
    firestore: AsyncClient, firestore_stores: Stores, target: AsyncClient, folder: Path, mirror: Command
) -> None:
    service = Service(stores=firestore_stores)
    saved = await service.save("Owls hunt at 10")
    fetched = await service.call("fetch_context", "default", id=saved["id"])
    await mirror("backup", folder, "--project", firestore.project)
    await mirror("restore", folder, "--project", target.project, "--write")
    stores = Stores(memories=FirestoreMemories(target, "memory_vectors"), events=FirestoreEvents(target))
    restored = Service(stores=stores)
    assert [match["id"] for match in await restored.search("at 10")] == [saved["id"]]
    assert await restored.call("fetch_context", "default", id=saved["id"]) == fetched


class Meanwhile(grpc.aio.UnaryStreamClientInterceptor):
    """Lets something happen before the first page of documents is read."""

    def __init__(self, happen: Callable[[], Awaitable[object]]) -> None:
        self._happen = happen
        self.happened = False

    async def intercept_unary_stream(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        if not self.happened and isinstance(request, RunQueryRequest):
            self.happened = True
            await self._happen()
        return await continuation(client_call_details, request)


async def test_what_is_written_during_a_backup_is_not_in_it(
    channel: Channel, firestore: AsyncClient, folder: Path, mirror: Command
) -> None:
    await put(firestore, DATABASE)
    meanwhile = Meanwhile(lambda: put(firestore, {"birds/owl": saying("Changed"), "birds/crow": saying("New")}))
    channel.interceptors.insert(0, meanwhile)
    await mirror("backup", folder, "--project", firestore.project)
    assert meanwhile.happened
    result = await mirror("gate", "--source", folder, "--target", firestore.project, "--json", status=1)
    report = told(result)
    assert report["extra"] == {"documents": 1, "named": ["birds/crow"]}
    assert report["different"] == {"documents": 1, "named": ["birds/owl"]}


async def test_a_connection_that_breaks_in_the_middle_is_made_again(
    firestore: AsyncClient, emulator_host: str, folder: Path, mirror: Command
) -> None:
    await put(firestore, {f"many/{number:04}": saying("z" * 1_500) for number in range(2_500)})
    async with running_proxy(emulator_host) as proxy:
        running = asyncio.create_task(
            mirror("backup", folder, "--project", firestore.project, "--json", FIRESTORE_EMULATOR_HOST=proxy.host)
        )
        while size_of(folder) < 100_000:
            assert not running.done()
            await asyncio.sleep(0)
        proxy.reset()
        assert told(await running)["mirror"]["documents"] == 2_500


# --- Backups ---


async def test_a_backup_tells_whose_it_is_first_and_then_what_it_holds(
    firestore: AsyncClient, folder: Path, mirror: Command
) -> None:
    await put(firestore, DATABASE)
    lines = (await mirror("backup", folder, "--project", firestore.project)).stdout.splitlines()
    host = os.environ["FIRESTORE_EMULATOR_HOST"]
    assert lines[0] == f"Backing up {firestore.project} in the emulator at {host} into {folder}"
    assert [line.split() for line in lines[1:-1]] == [["birds", "2"], ["birds/*/notes", "1"], ["fish", "1"]]
    assert lines[-1].startswith("The mirror is complete: 4 documents in ")


async def test_a_backup_as_json_is_one_object_that_the_manifest_agrees_with(
    firestore: AsyncClient, folder: Path, mirror: Command
) -> None:
    await put(firestore, DATABASE)
    report = told(await mirror("backup", folder, "--project", firestore.project, "--json"))
    manifest = json.loads((folder / "manifest.json").read_text())
    assert report == {
        "ok": True,
        "project": firestore.project,
        "folder": str(folder),
        "mirror": {
            "project": firestore.project,
            "emulator": os.environ["FIRESTORE_EMULATOR_HOST"],
            "read_time": manifest["read_time"],
            "sign_in": False,
            "documents": 4,
            "bytes": documents_file(folder).stat().st_size,
            "collections": COLLECTIONS,
        },
        "error": None,
    }
    assert (manifest["kind"], manifest["sign_in"]) == ("metacortex-mirror", False)
    assert manifest["collections"] == COLLECTIONS


def test_only_the_owner_can_read_a_mirror(made: Path) -> None:
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (made, *made.rglob("*"))}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}


async def test_a_new_backup_takes_the_place_of_the_former_one(
    firestore: AsyncClient, made: Path, mirror: Command
) -> None:
    await put(firestore, {"birds/crow": saying("Crows are clever")})
    await mirror("backup", made, "--project", firestore.project)
    assert len(names_in(made)) == 2
    assert told(await mirror("gate", "--source", made, "--target", firestore.project, "--json"))["ok"]


async def test_what_an_interrupted_backup_left_is_removed_by_the_next_one(
    firestore: AsyncClient, folder: Path, mirror: Command
) -> None:
    left = folder / "data-20260101T000000000000Z"
    left.mkdir(parents=True)
    (left / "documents-00001.jsonl").write_text("{")
    (folder / "manifest.json.unfinished").write_text("{")
    await put(firestore, DATABASE)
    assert "holds no mirror" in said(await mirror("restore", folder, "--project", "demo-other", "--write", status=1))
    await mirror("backup", folder, "--project", firestore.project)
    assert names_in(folder) == [documents_file(folder).parent.name, "manifest.json"]


async def test_an_empty_database_replaces_no_mirror(
    firestore: AsyncClient, emulator_host: str, made: Path, mirror: Command
) -> None:
    before = contents(made)
    clear(emulator_host, firestore.project)
    result = await mirror("backup", made, "--project", firestore.project, status=1)
    assert "holds no documents" in said(result)
    assert contents(made) == before


async def test_a_mirror_that_lost_much_takes_the_place_of_a_larger_one_only_by_force(
    firestore: AsyncClient, emulator_host: str, folder: Path, mirror: Command
) -> None:
    lasting = {f"memory_vectors/{number}": saying("kept") for number in range(10)}
    passing = {
        f"{name}/{number}": saying("gone")
        for name in (
            "memory_events",
            "retrieval_query_events",
            "memory_vectors_write_fingerprints",
            "memory_vectors_parts",
        )
        for number in range(10)
    }
    await put(firestore, lasting | passing)
    await mirror("backup", folder, "--project", firestore.project)
    clear(emulator_host, firestore.project)
    await put(firestore, dict(list(lasting.items())[:9]))
    await mirror("backup", folder, "--project", firestore.project)
    before = contents(folder)
    clear(emulator_host, firestore.project)
    await put(firestore, dict(list(lasting.items())[:8]) | passing)
    sentence = said(await mirror("backup", folder, "--project", firestore.project, status=1))
    assert "would have 8 documents that neither expire nor are parts" in sentence
    assert "has 9: more than 10 % are gone. That one was kept; if the loss is meant, add --force." in sentence
    assert contents(folder) == before
    assert len(names_in(folder)) == 2
    await mirror("backup", folder, "--project", firestore.project, "--force")
    assert len(contents(folder)) == 48


async def test_a_mirror_of_a_project_is_not_replaced_by_one_of_an_emulator_that_stands_in_for_it(
    firestore: AsyncClient, made: Path, mirror: Command
) -> None:
    manifest = unsealed("manifest.json", (made / "manifest.json").read_bytes())
    (made / "manifest.json").write_bytes(sealed(replace(manifest, emulator="127.0.0.1:1")))
    await mirror("backup", made, "--project", firestore.project)
    (made / "manifest.json").write_bytes(sealed(replace(manifest, emulator=None)))
    sentence = said(await mirror("backup", made, "--project", firestore.project, status=1))
    assert f"name another folder for {firestore.project} in the emulator at" in sentence


def in_a_file(folder: Path) -> None:
    folder.parent.mkdir(parents=True)
    folder.write_text("Mine")


def beside_other_things(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "diary.txt").write_text("Mine")


def over_an_archive(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text('{"kind": "metacortex-archive", "created_at": "2026-01-01T00:00:00Z"}')


def over_nonsense(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_bytes(b"\xff")


@pytest.mark.parametrize(
    ("prepare", "sentence"),
    [
        (in_a_file, "is no folder"),
        (beside_other_things, "holds other things, such as diary.txt"),
        (over_an_archive, "is not that of a mirror"),
        (over_nonsense, "is not as it was written"),
    ],
)
async def test_a_backup_writes_into_nothing_else_s_folder(
    firestore: AsyncClient, folder: Path, mirror: Command, prepare: Callable[[Path], None], sentence: str
) -> None:
    prepare(folder)
    before = sorted(folder.parent.rglob("*"))
    await put(firestore, DATABASE)
    assert sentence in said(await mirror("backup", folder, "--project", firestore.project, status=1))
    assert sorted(folder.parent.rglob("*")) == before


async def test_a_backup_does_not_replace_the_mirror_of_another_project(
    target: AsyncClient, made: Path, mirror: Command
) -> None:
    before = contents(made)
    await put(target, DATABASE)
    result = await mirror("backup", made, "--project", target.project, status=1)
    assert f"name another folder for {target.project}" in said(result)
    assert contents(made) == before


async def test_a_folder_that_another_command_uses_is_left_to_it(
    firestore: AsyncClient, target: AsyncClient, made: Path, mirror: Command
) -> None:
    descriptor = os.open(made, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    assert "Another command uses" in said(await mirror("backup", made, "--project", firestore.project, status=1))
    await mirror("restore", made, "--project", target.project)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert "A backup into" in said(await mirror("restore", made, "--project", target.project, status=1))
    os.close(descriptor)


# --- Restores ---


async def test_a_dry_run_tells_what_would_be_done_and_changes_nothing(
    target: AsyncClient, made: Path, mirror: Command
) -> None:
    await put(target, {"birds/owl": saying("Otherwise"), "birds/wren": DATABASE["birds/wren"], "mine/1": saying("1")})
    before = await held(target)
    lines = (await mirror("restore", made, "--project", target.project, "--prune")).stdout.splitlines()
    assert lines[0].startswith(f"Comparing {made} with {target.project} in the emulator at ")
    assert [line.split(maxsplit=1) for line in lines[2:-1]] == [
        ["birds", "1 equal; 1 different"],
        ["birds/*/notes", "1 missing"],
        ["fish", "1 missing"],
        ["mine", "1 besides"],
    ]
    assert lines[-1] == "Nothing was written. To do it, run the same command with --write."
    assert await held(target) == before


async def test_a_restore_writes_what_is_missing_or_different_and_leaves_the_rest(
    channel: Channel, target: AsyncClient, made: Path, mirror: Command
) -> None:
    await put(target, {"birds/owl": saying("Otherwise"), "birds/wren": DATABASE["birds/wren"], "mine/1": saying("1")})
    channel.requests.clear()
    result = await mirror("restore", made, "--project", target.project, "--write")
    assert written(channel) == {"birds/owl", "birds/owl/notes/1", "fish/eel"}
    assert result.stdout.endswith("The restore is complete. 1 document besides stay unless you add --prune.\n")
    assert await held(target) == {**DATABASE, "mine/1": saying("1")}


def written(channel: Channel) -> set[str]:
    """The paths of the documents that commits wrote or deleted."""
    names = (write.update.name or write.delete for commit in commits(channel) for write in commit.writes)
    return {name.partition("/documents/")[2] for name in names}


def commits(channel: Channel) -> Iterator[CommitRequest]:
    return (request for request in channel.requests if name_of(request) == "Commit")


async def test_a_restored_document_keeps_no_field_that_the_mirror_has_not(
    target: AsyncClient, made: Path, mirror: Command
) -> None:
    more = saying("Owls hunt in the dark")
    more.fields["more"].boolean_value = True
    await put(target, {"birds/owl": more})
    await mirror("restore", made, "--project", target.project, "--write")
    assert await held(target) == DATABASE


async def test_pruning_deletes_what_the_mirror_does_not_hold_after_all_is_written(
    channel: Channel, target: AsyncClient, made: Path, mirror: Command
) -> None:
    extra = {"mine/1": saying("1"), "mine/1/below/2": saying("2"), "none/none/below/3": saying("3")}
    await put(target, extra)
    channel.requests.clear()
    report = told(await mirror("restore", made, "--project", target.project, "--write", "--prune", "--json"))
    *before, last = commits(channel)
    assert before
    assert not any(write.delete for commit in before for write in commit.writes)
    assert all(write.delete for write in last.writes)
    assert await held(target) == DATABASE
    assert report["collections"] == {
        "birds": tally(missing=2),
        "birds/*/notes": tally(missing=1),
        "fish": tally(missing=1),
        "mine": tally(extra=1),
        "mine/*/below": tally(extra=1),
        "none/*/below": tally(extra=1),
    }


async def test_a_restore_that_is_repeated_writes_nothing(
    channel: Channel, target: AsyncClient, made: Path, mirror: Command
) -> None:
    await mirror("restore", made, "--project", target.project, "--write", "--prune")
    channel.requests.clear()
    result = await mirror("restore", made, "--project", target.project, "--write", "--prune")
    assert "Commit" not in channel.calls
    assert result.stdout.endswith("Nothing to do: the database holds all that the mirror holds.\n")


@pytest.mark.slow
async def test_commits_stay_under_the_limits_of_firestore(
    channel: Channel, firestore: AsyncClient, target: AsyncClient, folder: Path, mirror: Command
) -> None:
    for number in range(8):
        await put(firestore, {f"large/{number}": saying("z" * 1_000_000)})
    await put(firestore, {f"small/{number}": saying("z") for number in range(700)})
    await put(target, {f"extra/{number}": saying("z") for number in range(700)})
    await mirror("backup", folder, "--project", firestore.project)
    channel.requests.clear()
    await mirror("restore", folder, "--project", target.project, "--write", "--prune")
    assert max(len(commit.writes) for commit in commits(channel)) <= 500
    assert max(CommitRequest.pb(commit).ByteSize() for commit in commits(channel)) < 10 * MB
    assert set(await held(target)) == set(await held(firestore))


async def test_the_project_of_the_mirror_itself_must_be_allowed(
    firestore: AsyncClient, made: Path, mirror: Command
) -> None:
    await put(firestore, {"birds/owl": saying("Changed since")})
    before = await held(firestore)
    result = await mirror("restore", made, "--project", firestore.project, "--write", status=1)
    assert "add --allow-source" in said(result)
    assert await held(firestore) == before
    await mirror("restore", made, "--project", firestore.project, "--write", "--allow-source")
    assert await held(firestore) == DATABASE


def edit_a_file(folder: Path) -> None:
    file = documents_file(folder)
    file.write_bytes(file.read_bytes().replace(b"birds/owl", b"birds/awl", 1))


def cut_a_file(folder: Path) -> None:
    file = documents_file(folder)
    os.truncate(file, file.stat().st_size - 1)


def remove_a_file(folder: Path) -> None:
    documents_file(folder).unlink()


def edit_the_manifest(folder: Path) -> None:
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"fish": 1', '"fish": 2'))


def cut_the_manifest(folder: Path) -> None:
    os.truncate(folder / "manifest.json", 100)


def raise_the_version(folder: Path) -> None:
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"version": 1', '"version": 2'))


def remove_the_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (edit_a_file, "documents-00001.jsonl is not as it was written"),
        (cut_a_file, "documents-00001.jsonl is not as it was written"),
        (remove_a_file, "documents-00001.jsonl is missing"),
        (edit_the_manifest, "manifest.json is not as it was written"),
        (cut_the_manifest, "manifest.json is not as it was written"),
        (raise_the_version, "manifest.json is of another version"),
        (remove_the_manifest, "holds no mirror"),
    ],
)
async def test_a_damaged_mirror_is_refused_before_anything_is_written(
    target: AsyncClient, made: Path, mirror: Command, damage: Callable[[Path], None], sentence: str
) -> None:
    damage(made)
    await put(target, {"mine/1": saying("1")})
    result = await mirror("restore", made, "--project", target.project, "--write", "--prune", status=1)
    assert sentence in said(result)
    assert sentence in said(await mirror("gate", "--source", made, "--target", target.project, status=1))
    assert await held(target) == {"mine/1": saying("1")}


@pytest.mark.parametrize(
    ("prepare", "sentence"),
    [
        (lambda _: None, "is missing"),
        (in_a_file, "is no folder"),
        (beside_other_things, "holds no mirror"),
        (over_an_archive, "is not that of a mirror"),
    ],
)
async def test_what_is_no_mirror_is_not_restored(
    target: AsyncClient, folder: Path, mirror: Command, prepare: Callable[[Path], None], sentence: str
) -> None:
    prepare(folder)
    assert sentence in said(await mirror("restore", folder, "--project", target.project, "--write", status=1))


# --- Gates ---


async def test_a_gate_passes_only_what_is_equal_and_names_the_rest(
    firestore: AsyncClient, target: AsyncClient, tmp_path: Path, mirror: Command
) -> None:
    await put(firestore, DATABASE)
    await put(target, {**DATABASE, "birds/owl": saying("Otherwise"), "mine/1": saying("1")})
    await target.document("fish/eel").delete()
    file = tmp_path / "report.json"
    file.write_text("An older report")
    result = await mirror("gate", "--source", firestore.project, "--target", target.project, "--report", file, status=1)
    assert [line.split(maxsplit=1) for line in result.stdout.splitlines()[3:7]] == [
        ["birds", "2 and 2, not equal"],
        ["birds/*/notes", "1 and 1, equal"],
        ["fish", "1 and 0, not equal"],
        ["mine", "0 and 1, not equal"],
    ]
    assert result.stdout.endswith("Not equal.\n")
    report = json.loads(file.read_text())
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert report["ok"] is False
    assert report["missing"] == {"documents": 1, "named": ["fish/eel"]}
    assert report["extra"] == {"documents": 1, "named": ["mine/1"]}
    assert report["different"] == {"documents": 1, "named": ["birds/owl"]}
    birds, notes = report["collections"]["birds"], report["collections"]["birds/*/notes"]
    assert birds["source"]["sha256"] != birds["target"]["sha256"]
    assert notes["source"] == notes["target"]
    assert names_in(tmp_path) == ["report.json"]


async def test_equal_databases_pass(firestore: AsyncClient, target: AsyncClient, mirror: Command) -> None:
    await put(firestore, DATABASE)
    await put(target, DATABASE)
    result = await mirror("gate", "--source", firestore.project, "--target", target.project)
    assert result.stdout.splitlines()[0].startswith(f"Comparing {firestore.project} in the emulator at ")
    assert result.stdout.endswith("Equal in every byte: 4 documents.\n")


def integer(value: int) -> Any:
    document = Message()
    document.fields["x"].integer_value = value
    return document


def double(value: float) -> Any:
    document = Message()
    document.fields["x"].double_value = value
    return document


@pytest.mark.parametrize(
    ("one", "other"),
    [(integer(1), double(1.0)), (double(0.0), double(-0.0)), (double(0.1), double(0.1 + 2**-56)), (Message(), None)],
)
async def test_a_gate_sees_the_smallest_difference(
    firestore: AsyncClient, target: AsyncClient, mirror: Command, one: Any, other: Any
) -> None:
    await put(firestore, {"things/x": one, "things/y": saying("The same")})
    await put(target, {"things/y": saying("The same")} | ({"things/x": other} if other else {}))
    report = told(await mirror("gate", "--source", firestore.project, "--target", target.project, "--json", status=1))
    named = report["different" if other else "missing"]["named"]
    assert (report["ok"], named) == (False, ["things/x"])


async def test_a_report_names_a_hundred_documents_and_counts_all(
    firestore: AsyncClient, target: AsyncClient, mirror: Command
) -> None:
    await put(firestore, {f"many/{number:03}": saying("z") for number in range(150)})
    await put(target, DATABASE)
    result = await mirror("gate", "--source", firestore.project, "--target", target.project, "--json", status=1)
    missing = told(result)["missing"]
    assert missing == {"documents": 150, "named": [f"many/{number:03}" for number in range(100)]}
    result = await mirror("gate", "--source", firestore.project, "--target", target.project, status=1)
    assert "150: many/000, many/001, many/002, …" in result.stdout


async def test_two_empty_databases_prove_nothing(firestore: AsyncClient, target: AsyncClient, mirror: Command) -> None:
    result = await mirror("gate", "--source", firestore.project, "--target", target.project, status=1)
    assert "Neither side holds a document" in said(result)


# --- What signing in keeps ---


@pytest.fixture
async def signed_in(firestore: AsyncClient) -> dict[str, Any]:
    """A database of one document and all that signing in keeps."""
    signing = Signing(firestore.project)
    await put(firestore, {"birds/owl": saying("Owls hunt in the dark")})
    await signing.connected()
    # A client that still waits for an answer, and a wrong passphrase.
    client = await signing.register("Another client")
    browser = Browser(signing)
    request = request_on(await browser.open(signing.authorize_url(client["client_id"])))
    await browser.send("/oauth/sign-in", request=request, passphrase="wrong")
    return await held(firestore)


def of_sign_in(documents: Iterable[str]) -> set[str]:
    """The paths of what signing in keeps."""
    return {path for path in documents if path.startswith(("oauth_", "owner_"))}


def in_mirror(folder: Path) -> set[str]:
    return {path for path, _ in contents(folder)}


async def test_a_backup_leaves_out_what_signing_in_keeps_unless_asked(
    firestore: AsyncClient, signed_in: dict[str, Any], folder: Path, mirror: Command
) -> None:
    kept = of_sign_in(signed_in)
    assert {path.partition("/")[0] for path in kept} == set(SIGN_IN)
    result = await mirror("backup", folder, "--project", firestore.project)
    assert result.stdout.endswith(", without what signing in keeps.\n")
    assert in_mirror(folder) == set(signed_in) - kept
    await mirror("backup", folder, "--project", firestore.project, "--with-sign-in")
    assert in_mirror(folder) == set(signed_in)
    assert json.loads((folder / "manifest.json").read_text())["sign_in"] is True


async def test_a_restore_leaves_alone_what_signing_in_keeps_in_the_target(
    firestore: AsyncClient, target: AsyncClient, signed_in: dict[str, Any], folder: Path, mirror: Command
) -> None:
    await mirror("backup", folder, "--project", firestore.project, "--with-sign-in")
    mine = {path: saying("Mine") for path in list(of_sign_in(signed_in))[:3]} | {"oauth_grants/mine": saying("Mine")}
    await put(target, {**mine, "birds/crow": saying("Crows are clever")})
    await mirror("restore", folder, "--project", target.project, "--write", "--prune")
    after = await held(target)
    assert set(after) == (set(signed_in) - of_sign_in(signed_in)) | set(mine)
    assert {after[path].fields["text"].string_value for path in mine} == {"Mine"}


async def test_a_restore_that_is_asked_to_brings_back_and_prunes_what_signing_in_keeps(
    firestore: AsyncClient, target: AsyncClient, signed_in: dict[str, Any], folder: Path, mirror: Command
) -> None:
    await mirror("backup", folder, "--project", firestore.project, "--with-sign-in")
    await put(target, {"oauth_grants/mine": saying("Mine")})
    report = told(
        await mirror("restore", folder, "--project", target.project, "--write", "--prune", "--with-sign-in", "--json")
    )
    assert (report["sign_in"], report["collections"]["oauth_grants"]) == (True, tally(missing=1, extra=1))
    assert {path: exactly(document) for path, document in (await held(target)).items()} == {
        path: exactly(document) for path, document in signed_in.items()
    }


async def test_a_gate_compares_what_signing_in_keeps_only_when_asked(
    firestore: AsyncClient, target: AsyncClient, signed_in: dict[str, Any], folder: Path, mirror: Command
) -> None:
    await mirror("backup", folder, "--project", firestore.project, "--with-sign-in")
    await mirror("restore", folder, "--project", target.project, "--write")
    sides = ("--source", folder, "--target", target.project, "--json")
    report = told(await mirror("gate", *sides))
    assert (report["ok"], report["sign_in"], of_sign_in(report["collections"])) == (True, False, set())
    report = told(await mirror("gate", *sides, "--with-sign-in", status=1))
    assert report["missing"]["documents"] == len(of_sign_in(signed_in))


async def test_what_a_mirror_leaves_out_cannot_be_restored_or_compared(
    target: AsyncClient, made: Path, mirror: Command
) -> None:
    for command in (
        ("restore", made, "--project", target.project, "--write"),
        ("gate", "--source", made, "--target", target.project),
    ):
        sentence = said(await mirror(*command, "--with-sign-in", status=1))
        assert f"{made} was made without --with-sign-in and holds nothing of signing in" in sentence
    assert await held(target) == {}


async def test_a_mirror_that_does_not_say_holds_what_signing_in_keeps(
    target: AsyncClient, made: Path, mirror: Command
) -> None:
    manifest = json.loads((made / "manifest.json").read_text())
    silent = {name: value for name, value in manifest.items() if name not in {"sign_in", "sha256"}}
    digest = hashlib.sha256(json.dumps(silent, sort_keys=True).encode()).hexdigest()
    (made / "manifest.json").write_text(json.dumps({**silent, "sha256": digest}))
    await mirror("restore", made, "--project", target.project, "--write", "--with-sign-in")
    assert set(await held(target)) == set(DATABASE)


# --- What Firestore refuses ---


@dataclass(frozen=True)
class Refusal:
    """What Firestore answers, after how many good answers, and what is said of it."""

    code: grpc.StatusCode
    details: str
    sentence: str
    after: int = 0


@pytest.mark.parametrize(
    "refusal",
    [
        Refusal(grpc.StatusCode.PERMISSION_DENIED, "Missing permissions.", "the role roles/datastore.user there"),
        Refusal(grpc.StatusCode.NOT_FOUND, "The database (default) does not exist", "has no Firestore database"),
        Refusal(grpc.StatusCode.UNAUTHENTICATED, "No token", "`gcloud auth application-default login`"),
        Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "Quota exceeded.", "free quota of the day is used up"),
        Refusal(
            grpc.StatusCode.INTERNAL, "Something broke.", "run the same command again. It said: InternalServerError"
        ),
        Refusal(grpc.StatusCode.ABORTED, "Too much contention.", "run the same command again. It said: Aborted"),
        Refusal(grpc.StatusCode.FAILED_PRECONDITION, "It is in Datastore Mode.", "It is in Datastore Mode."),
        Refusal(
            grpc.StatusCode.FAILED_PRECONDITION,
            "The requested snapshot version is too old.",
            "took longer than the hour for which Firestore keeps a moment",
            after=2,
        ),
    ],
)
async def test_a_refusal_of_firestore_is_told_and_leaves_the_mirror_that_was_there(
    channel: Channel, firestore: AsyncClient, made: Path, mirror: Command, refusal: Refusal
) -> None:
    await put(firestore, {f"many/{number}": saying("z") for number in range(1_100)})
    before = contents(made)
    channel.interceptors.append(Failing(refusal))
    result = await mirror("backup", made, "--project", firestore.project, status=1)
    assert refusal.sentence in said(result)
    assert contents(made) == before
    assert names_in(made) == [documents_file(made).parent.name, "manifest.json"]


class Failing(grpc.aio.UnaryStreamClientInterceptor):
    """Refuses as Firestore would."""

    def __init__(self, refusal: Refusal) -> None:
        metadata = grpc.aio.Metadata()
        self._error = grpc.aio.AioRpcError(refusal.code, metadata, metadata, refusal.details, None)
        self._passing = refusal.after

    async def intercept_unary_stream(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        if not self._passing:
            raise self._error
        self._passing -= 1
        return await continuation(client_call_details, request)


@pytest.mark.parametrize(
    "arguments",
    [
        ["backup", "DIR"],
        ["restore", "DIR", "--write"],
        ["gate", "--source", "DIR", "--target"],
    ],
)
async def test_without_credentials_it_says_how_to_get_some(
    monkeypatch: pytest.MonkeyPatch, made: Path, mirror: Command, arguments: list[str]
) -> None:
    monkeypatch.delenv("FIRESTORE_EMULATOR_HOST")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(made / "none.json"))
    before = contents(made)
    place = ["demo-nobody"] if "--target" in arguments else ["--project", "demo-nobody"]
    name = made.with_name("new") if "backup" in arguments else made
    given = [str(name) if argument == "DIR" else argument for argument in arguments]
    result = await mirror(*given, *place, status=1)
    assert "`gcloud auth application-default login`" in said(result)
    assert contents(made) == before


@pytest.mark.slow
async def test_an_emulator_that_is_gone_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mirror: Command
) -> None:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", "127.0.0.1:1")
    report = told(await mirror("backup", tmp_path / "mirror", "--json", status=1))
    assert (report["project"], report["error"]) == (
        PROJECT,
        "No emulator answers at 127.0.0.1:1; start it, or correct FIRESTORE_EMULATOR_HOST.",
    )
    assert names_in(tmp_path) == []


# --- How it is called ---


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["backup", "DIR", "--project", "--write"], "'--write' is not a project's id"),
        (["restore", "DIR", "--project", "--write"], "'--write' is not a project's id"),
        (["restore", "DIR", "--project", "My Project"], "'My Project' is not a project's id"),
        (["backup", "--project", "demo-any"], "Missing argument 'DIR'"),
        (["gate", "--source", "demo-any", "--target", "demo-any"], "names the same as --source"),
        (["gate", "--source", "demo-any"], "Missing option '--target'"),
        (["gate", "--source", "demo-any", "--target", "X"], "'X' is not a project's id"),
        (
            ["gate", "--source", "demo-any", "--target", "demo-other", "--report", "none/report.json"],
            "there is no folder none",
        ),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], sentence: str
) -> None:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", "127.0.0.1:1")
    result = invoke(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert sentence in said(result)


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_the_project_is_never_guessed_outside_the_emulator(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.delenv("FIRESTORE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GCLOUD_PROJECT", "some-project")
    result = invoke(command, "DIR")
    assert result.exit_code == 2
    assert "--project: is needed" in said(result)


@pytest.mark.parametrize("command", ["backup", "restore", "gate"])
def test_the_help_shows_how_it_is_used(command: str) -> None:
    assert f"./scripts/metacortex mirror {command}" in invoke(command, "--help").stdout
