"""`metacortex archive export` as an owner runs it, over collections in the emulator."""

import json
import os
import subprocess
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.types import RunQueryRequest
from google.cloud.firestore_v1.vector import Vector
from typer.testing import Result

from archives import Command, command_in_the_loop_of_the_test, database, documents, invoke, memory, said, write_archive
from channel import Channel
from old_data import MEMORIES, store
from ops.endpoints import PROJECT
from signing import Signing

EMULATOR = "FIRESTORE_EMULATOR_HOST"
SPACES = {"current": "plane@2/plain", "spaces": {"plane@2/plain": "embedding", "other@3/plain": "turned"}}


@pytest.fixture
async def archive(monkeypatch: pytest.MonkeyPatch) -> Command:
    return command_in_the_loop_of_the_test(monkeypatch)


@pytest.fixture
def export(firestore: AsyncClient, project: str, archive: Command, tmp_path: Path) -> Command:
    """Exports the database of this test to the folder `archive`."""

    async def run(*arguments: str, status: int = 0) -> Result:
        return await archive("export", str(tmp_path / "archive"), "--project", project, *arguments, status=status)

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "archive"


def in_archive(folder: Path) -> dict[str, Any]:
    lines = (folder / "memories.jsonl").read_text().splitlines()
    return {told["id"]: told["fields"] for told in map(json.loads, lines)}


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def put(folder: Path, name: str, text: str) -> None:
    folder.mkdir()
    (folder / name).write_text(text)


def manifest(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "manifest.json").read_text())


# --- What is written ---


async def test_every_memory_is_written_by_id_without_what_is_made_of_it(
    firestore: AsyncClient, export: Command, folder: Path, project: str
) -> None:
    made = {"summary": "x", "terms": {"words": {}}, "embedding_space": "plane@2/plain", "turned": Vector([1.0] * 3)}
    new = dict(memory(number, embedding=Vector([1.0, 0.0]), **made) for number in range(3))
    await store(firestore, {"memory_vectors": {**MEMORIES, **new}, "memory_vectors_meta": {"space": SPACES}})
    result = await export()
    assert result.stdout.splitlines()[0] == f"memory_vectors of {project} in the emulator at {os.environ[EMULATOR]}"
    assert "9: 7 active, 1 deprecated, 1 wip" in result.stdout
    written = in_archive(folder)
    assert list(written) == sorted([*MEMORIES, *new])
    assert written["noted"] == {name: value for name, value in MEMORIES["noted"].items() if name != "embedding"}
    assert written["m-00001"] == memory(1)[1]
    invoke("verify", str(folder))


async def test_an_archive_holds_memories_alone_and_nothing_of_signing_in(
    firestore: AsyncClient, export: Command, folder: Path, project: str
) -> None:
    await store(firestore, {"memory_vectors": dict([memory(1)])})
    connected = await Signing(project).connected()
    await export()
    assert list(in_archive(folder)) == ["m-00001"]
    assert names_in(folder) == ["manifest.json", "memories.jsonl"]
    assert connected["client_id"] not in "".join((folder / name).read_text() for name in names_in(folder))


async def test_the_manifest_tells_what_the_archive_is_of(
    firestore: AsyncClient, export: Command, folder: Path, project: str
) -> None:
    await store(firestore, {"memory_vectors": MEMORIES, "memory_vectors_meta": {"space": SPACES}})
    answer = json.loads((await export("--json")).stdout)
    told = manifest(folder)
    assert answer == {
        "ok": True,
        "project": project,
        "emulator": os.environ[EMULATOR],
        "collection": "memory_vectors",
        "folder": str(folder),
        "commit": None,
        "manifest": told,
        "error": None,
    }
    created_at = datetime.fromisoformat(told.pop("created_at"))
    assert timedelta() <= datetime.now(UTC) - created_at < timedelta(minutes=5)
    [file] = told.pop("files").values()
    assert file["bytes"] == (folder / "memories.jsonl").stat().st_size
    assert told == {
        "format": "metacortex-archive",
        "schema_version": 1,
        "project": project,
        "emulator": os.environ[EMULATOR],
        "collection": "memory_vectors",
        "embedding_space": SPACES,
        "memories": {"active": 4, "merged": 0, "deprecated": 1, "wip": 1},
    }


async def test_the_same_memories_are_the_same_bytes(
    firestore: AsyncClient, export: Command, archive: Command, project: str, tmp_path: Path
) -> None:
    await store(firestore, {"memory_vectors": MEMORIES})
    await export()
    async with database(f"{project}-b") as other:
        backwards = {name: dict(reversed(fields.items())) for name, fields in reversed(list(MEMORIES.items()))}
        await store(other, {"memory_vectors": backwards})
    await archive("export", str(tmp_path / "other"), "--project", f"{project}-b")
    assert (tmp_path / "other/memories.jsonl").read_bytes() == (tmp_path / "archive/memories.jsonl").read_bytes()


async def test_ids_of_any_script_are_in_one_order(firestore: AsyncClient, export: Command, folder: Path) -> None:
    names = ["a", "Z", "é", "\uffee", "😀", "\ue000", "zz", "0", "-", " x", "10", "9"]
    await store(firestore, {"memory_vectors": {name: memory(1)[1] for name in names}})
    await export()
    assert list(in_archive(folder)) == sorted(names)
    invoke("verify", str(folder))


async def test_another_collection_can_be_archived(firestore: AsyncClient, export: Command, folder: Path) -> None:
    await store(firestore, {"mine": dict([memory(1)]), "memory_vectors": MEMORIES})
    await export("--collection", "mine")
    assert list(in_archive(folder)) == ["m-00001"]
    assert (manifest(folder)["collection"], manifest(folder)["embedding_space"]) == ("mine", None)


async def test_an_export_writes_nothing_to_the_database(
    channel: Channel, firestore: AsyncClient, export: Command
) -> None:
    await store(firestore, {"memory_vectors": MEMORIES})
    before = await documents(firestore, times=True)
    channel.requests.clear()
    await export()
    assert set(channel.calls) == {"BatchGetDocuments", "RunQuery"}
    assert await documents(firestore, times=True) == before


# --- One moment, page by page ---


class BeforePage(grpc.aio.UnaryStreamClientInterceptor):
    """Lets something happen just before a page of memories after the first one is asked for."""

    def __init__(self, happen: Callable[[], Awaitable[object]]) -> None:
        self._happen = happen
        self.happened = False

    async def intercept_unary_stream(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        if isinstance(request, RunQueryRequest) and request.structured_query.start_at and not self.happened:
            self.happened = True
            await self._happen()
        return await continuation(client_call_details, request)


def failing(code: grpc.StatusCode, details: str) -> Callable[[], Awaitable[object]]:
    """What ends a call as the store ends it."""

    async def fail() -> None:
        raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details, None)

    return fail


async def test_the_archive_shows_one_moment_however_long_reading_takes(
    channel: Channel, firestore: AsyncClient, export: Command, folder: Path
) -> None:
    many = dict(map(memory, range(250)))
    await store(firestore, {"memory_vectors": many})
    memories = firestore.collection("memory_vectors")

    async def change() -> None:
        await memories.document("m-00200").update({"content": "Changed"})
        await memories.document("m-00201").delete()
        await memories.document("m-00202-new").set(memory(1)[1])

    meanwhile = BeforePage(change)
    channel.interceptors.insert(0, meanwhile)
    await export()
    assert meanwhile.happened
    assert in_archive(folder) == many
    pages: list[Any] = [request for request in channel.requests if isinstance(request, RunQueryRequest)]
    assert all(page.structured_query.limit <= 100 for page in pages)
    assert len({page.read_time for page in pages}) == 1


async def test_a_moment_that_firestore_has_forgotten_is_told_and_replaces_nothing(
    channel: Channel, firestore: AsyncClient, export: Command, folder: Path
) -> None:
    await store(firestore, {"memory_vectors": dict(map(memory, range(150)))})
    await export()
    before = (folder / "manifest.json").read_bytes()

    forgotten = failing(grpc.StatusCode.FAILED_PRECONDITION, "The requested snapshot version is too old.")
    channel.interceptors.insert(0, BeforePage(forgotten))
    sentence = said(await export(status=1))
    assert "without point-in-time recovery it remembers one hour" in sentence
    assert (folder / "manifest.json").read_bytes() == before
    invoke("verify", str(folder))


async def test_a_store_that_fails_in_the_middle_leaves_the_archive_before(
    channel: Channel, firestore: AsyncClient, export: Command, folder: Path
) -> None:
    await store(firestore, {"memory_vectors": dict(map(memory, range(150)))})
    await export()
    before = (folder / "manifest.json").read_bytes()

    channel.interceptors.insert(0, BeforePage(failing(grpc.StatusCode.RESOURCE_EXHAUSTED, "Quota exceeded.")))
    assert f"or link a billing account. {folder} is as it was." in said(await export(status=1))
    assert (folder / "manifest.json").read_bytes() == before
    invoke("verify", str(folder))


# --- What is refused ---


async def test_a_collection_without_memories_is_no_archive(export: Command, folder: Path) -> None:
    assert "holds no memories; check --project and --collection." in said(await export(status=1))
    assert names_in(folder) == []


async def test_a_much_smaller_archive_takes_the_place_of_a_larger_one_only_by_force(
    firestore: AsyncClient, export: Command, folder: Path
) -> None:
    await store(firestore, {"memory_vectors": dict(map(memory, range(10)))})
    await export()
    for name in ("m-00001", "m-00002"):
        await firestore.collection("memory_vectors").document(name).delete()
    sentence = said(await export(status=1))
    assert "would have 8 memories" in sentence
    assert "add --force" in sentence
    assert len(in_archive(folder)) == 10
    await export("--force")
    assert len(in_archive(folder)) == 8


async def test_the_archive_of_another_collection_is_replaced_only_by_force(
    firestore: AsyncClient, export: Command, folder: Path, project: str
) -> None:
    await store(firestore, {"mine": MEMORIES, "memory_vectors": MEMORIES})
    await export()
    sentence = said(await export("--collection", "mine", status=1))
    assert f"holds an archive of memory_vectors of {project}" in sentence
    await export("--collection", "mine", "--force")
    assert manifest(folder)["collection"] == "mine"


async def test_an_archive_that_cannot_be_read_is_replaced_only_by_force(
    firestore: AsyncClient, export: Command, folder: Path
) -> None:
    await store(firestore, {"memory_vectors": MEMORIES})
    put(folder, "manifest.json", '{"format": "metacortex-archive", "schema_version": 2}')
    assert "To write another archive in its place, add --force." in said(await export(status=1))
    await export("--force")
    invoke("verify", str(folder))


async def test_an_archive_of_a_project_is_not_replaced_by_one_of_an_emulator_that_stands_in_for_it(
    firestore: AsyncClient, export: Command, folder: Path, project: str
) -> None:
    await store(firestore, {"memory_vectors": MEMORIES})
    write_archive(folder, MEMORIES, project=project)
    assert f"holds an archive of memory_vectors of {project}; name another folder" in said(await export(status=1))
    await export("--force")
    # Each emulator takes a port of its own.
    told = {**manifest(folder), "emulator": "127.0.0.1:1"}
    (folder / "manifest.json").write_text(json.dumps(told))
    await export()


@pytest.mark.parametrize("manifest", ['{"kind": "metacortex-mirror", "version": 1}', '{"name": "A page"}', "[]", "{"])
async def test_what_is_no_archive_is_not_replaced_even_by_force(
    firestore: AsyncClient, export: Command, folder: Path, manifest: str
) -> None:
    await store(firestore, {"memory_vectors": MEMORIES})
    put(folder, "manifest.json", manifest)
    for force in ([], ["--force"]):
        sentence = said(await export(*force, status=1))
        assert "manifest.json is not the manifest of an archive, or is damaged; name another folder" in sentence
        assert "--force" not in sentence
    assert (folder / "manifest.json").read_text() == manifest
    assert names_in(folder) == ["manifest.json"]


async def test_a_folder_of_other_things_is_left_alone(firestore: AsyncClient, export: Command, folder: Path) -> None:
    await store(firestore, {"memory_vectors": MEMORIES})
    put(folder, "letter.txt", "Dear")
    for force in ([], ["--force"]):
        assert "holds other files and no archive" in said(await export(*force, status=1))
    assert names_in(folder) == ["letter.txt"]


async def test_a_place_that_cannot_be_written_is_told(
    firestore: AsyncClient, archive: Command, project: str, tmp_path: Path
) -> None:
    await store(firestore, {"memory_vectors": MEMORIES})
    (tmp_path / "file").touch()
    result = await archive("export", str(tmp_path / "file/archive"), "--project", project, status=1)
    assert f"{tmp_path / 'file/archive'} cannot be written: Not a directory." in said(result)
    assert "is a file" in said(await archive("export", str(tmp_path / "file"), "--project", project, status=2))


async def test_a_reference_into_another_database_is_told(firestore: AsyncClient, export: Command, folder: Path) -> None:
    async with database("demo-elsewhere") as other:
        foreign = {**memory(1)[1], "see": other.document("memory_vectors/x")}
        await store(firestore, {"memory_vectors": {"foreign": foreign}})
    assert "holds what no archive can keep" in said(await export(status=1))
    assert not (folder / "manifest.json").exists()


# --- In git ---


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=Owner", "-c", "user.email=owner@example.com"]
    return subprocess.run(["git", *who, "-C", folder, *arguments], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one file in its index that is not committed, around the folder of the archive."""
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "Owner")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "owner@example.com")
    git(tmp_path, "init", "--quiet")
    (tmp_path / "letter.txt").write_text("Dear")
    git(tmp_path, "add", "letter.txt")
    return tmp_path


async def test_an_archive_is_committed_alone_and_only_when_asked(
    firestore: AsyncClient, export: Command, repository: Path
) -> None:
    await store(firestore, {"memory_vectors": MEMORIES})
    await export()
    assert git(repository, "status", "--porcelain") == "A  letter.txt\n?? archive/\n"
    answer = json.loads((await export("--commit", "--json")).stdout)
    assert git(repository, "status", "--porcelain") == "A  letter.txt\n"
    shown = git(repository, "show", "--name-only", "--format=%h %s", "HEAD").splitlines()
    assert shown == [
        f"{answer['commit']} Archive 6 memories of memory_vectors",
        *("", "archive/manifest.json", "archive/memories.jsonl"),
    ]
    await firestore.collection("memory_vectors").document("text").update({"content": "Owls at 10"})
    assert answer["commit"] not in (await export("--commit")).stdout
    changed = git(repository, "show", "--format=", "--numstat", "HEAD", "--", "archive/memories.jsonl")
    assert changed == "1\t1\tarchive/memories.jsonl\n"


async def test_without_a_repository_nothing_is_exported_to_be_committed(
    firestore: AsyncClient, export: Command, folder: Path
) -> None:
    await store(firestore, {"memory_vectors": MEMORIES})
    assert "lies in no git repository" in said(await export("--commit", status=1))
    assert names_in(folder) == []


async def test_what_git_refuses_is_told_and_the_archive_is_written(
    firestore: AsyncClient, export: Command, repository: Path, folder: Path
) -> None:
    await store(firestore, {"memory_vectors": MEMORIES})
    (repository / ".gitignore").write_text("archive/\n")
    sentence = said(await export("--commit", status=1))
    assert "The archive is written, but git could not commit it: The following paths are ignored" in sentence
    invoke("verify", str(folder))


async def test_without_git_it_says_so(
    firestore: AsyncClient, export: Command, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setenv("PATH", "")
    assert "git is not installed" in said(await export("--commit", status=1))
    assert names_in(folder) == []


# --- How it is called ---


def test_the_project_is_never_guessed_outside_the_emulator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(EMULATOR, raising=False)
    result = invoke("export", str(tmp_path / "archive"), status=2, GCLOUD_PROJECT="some-project")
    assert "--project: is needed" in said(result)


async def test_in_the_emulator_the_project_is_that_of_the_scripts(
    firestore: AsyncClient, archive: Command, folder: Path
) -> None:
    result = await archive("export", str(folder), "--collection", "nobody_has_this", "--json", status=1)
    assert json.loads(result.stdout)["project"] == PROJECT


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["DIR", "--project", "--force"], "is not a project's id"),
        (["DIR", "--project", ""], "is not a project's id"),
        (["DIR", "--project", "demo-some", "--collection", "--commit"], "must be the name of a Firestore collection"),
        (["--project", "demo-some"], "Missing argument 'DIR'"),
        (["DIR", "--project", "demo-some", "--unknown"], "No such option"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    monkeypatch.setenv(EMULATOR, "127.0.0.1:1")
    result = invoke("export", *(str(tmp_path) if word == "DIR" else word for word in arguments), status=2)
    assert sentence in said(result)
    assert list(tmp_path.iterdir()) == []


def test_without_credentials_it_says_how_to_get_some(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(EMULATOR, raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    result = invoke("export", str(tmp_path / "archive"), "--project", "demo-nobody", status=1)
    assert "`gcloud auth application-default login`" in said(result)
    assert not (tmp_path / "archive").exists()


@pytest.mark.slow
async def test_an_emulator_that_is_gone_is_told(
    monkeypatch: pytest.MonkeyPatch, archive: Command, folder: Path
) -> None:
    monkeypatch.setenv(EMULATOR, "127.0.0.1:1")
    result = await archive("export", str(folder), status=1)
    assert "No emulator answers at 127.0.0.1:1" in said(result)
    assert names_in(folder) == []
