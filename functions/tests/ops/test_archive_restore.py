"""`metacortex archive restore` as an owner runs it, from archives of the emulator's collections."""

import json
import os
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from google.cloud.firestore_v1 import GeoPoint
from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.vector import Vector
from starlette.responses import JSONResponse, Response
from typer.testing import Result

from archives import (
    Command,
    command_in_the_loop_of_the_test,
    database,
    documents,
    invoke,
    kinds,
    memory,
    said,
    write_archive,
)
from builders import Service, plane_models
from channel import Channel, Meanwhile
from fakes import SeeingImages
from gemini_api import GeminiApi, failure, text_in, vector_of
from images import PNG_BASE64
from metacortex.adapters.firestore_events import FirestoreEvents
from metacortex.adapters.firestore_memories import FirestoreMemories
from metacortex.adapters.local_models import LocalEmbedder
from metacortex.bootstrap import Stores
from metacortex.ports import Document
from old_data import MEMORIES, store

LOCAL_SPACE = LocalEmbedder.space.id
KEY = "a-gemini-key-of-the-tests"
EMULATOR = "FIRESTORE_EMULATOR_HOST"


@pytest.fixture
async def archive(monkeypatch: pytest.MonkeyPatch) -> Command:
    return command_in_the_loop_of_the_test(monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An archive of ten memories."""
    folder = tmp_path / "archive"
    write_archive(folder, dict(map(memory, range(10))))
    return folder


@pytest.fixture
def restore(firestore: AsyncClient, project: str, archive: Command, folder: Path) -> Command:
    """Restores the archive into the database of this test."""

    async def run(*arguments: str, into: str = "memory_vectors", status: int = 0, **env: str | None) -> Result:
        place = ("--into", into, "--project", project)
        return await archive("restore", str(folder), *place, *arguments, status=status, **env)

    return run


@pytest.fixture
async def empty(firestore: AsyncClient, project: str) -> AsyncGenerator[AsyncClient]:
    """The database of another project, with nothing in it."""
    async with database(f"{project}-empty") as client:
        yield client


def service_over(firestore: AsyncClient) -> Service:
    stores = Stores(memories=FirestoreMemories(firestore, "memory_vectors"), events=FirestoreEvents(firestore))
    seeing = SeeingImages("A chart of owls by month, with the label Q7")
    return Service(stores=stores, models=plane_models(embedder=LocalEmbedder(), describer=seeing))


def restored(result: Result) -> dict[str, Any]:
    return json.loads(result.stdout)["restored"]


# --- That it is all there ---


async def live(service: Service) -> None:
    """Saves of every kind, and what became of some of them."""
    first = await service.save("Owls hunt by day", topic="Birds", artifact_refs=["owls.md"], confidence=0.5)
    service.clock.advance(minutes=1)
    second = await service.save("Owls hunt at dusk", topic="Birds", source_session="s-1")
    third = await service.save("Owls hunt at night, says ERR_1042", topic="Birds", valid_from="2026-03-01")
    await service.save("Owls may migrate", draft=True)
    await service.save("雾凇 is rime on trees, at 40", topic="Weather", valid_until="2030-01-01")
    sentences = " ".join(
        f"In month {month} the barn owl number {month * 7} moved to barn {month}." for month in range(99)
    )
    await service.save(f"The diary of the barns. {sentences} The tower owl laid three eggs.", topic="Diary")
    image = {"image_base64": PNG_BASE64, "image_mime_type": "image/png"}
    await service.call("save_context", content="My chart", **image)
    await service.call("save_context", **image)
    service.clock.advance(days=2)
    for old, new in ((first, second), (second, third)):
        await service.call("deprecate_context", "default", id=old["id"], superseding_id=new["id"], initiator="user")
    for text in ("Frogs sing in spring", "Frogs sleep in mud"):
        await service.save(text, topic="Frogs", draft=True)
    await service.call("consolidate_context", "default", topic="Frogs")


QUERIES = ("owls at night", "ERR_1042", "雾凇", "tower owl eggs", "chart with label Q7", "frogs in spring", "barn 42")


async def found(service: Service) -> list[Any]:
    states = ("active", "wip", "deprecated")
    return [
        await service.search(query, "default", filter_state=state, limit=20) for query in QUERIES for state in states
    ]


@pytest.mark.slow
async def test_an_archive_brings_everything_into_an_empty_database_as_it_was(
    firestore: AsyncClient, empty: AsyncClient, archive: Command, tmp_path: Path
) -> None:
    before = service_over(firestore)
    await live(before)
    folder = str(tmp_path / "archive")
    await archive("export", folder, "--project", str(firestore.project))
    into = ("restore", folder, "--into", "memory_vectors", "--project", str(empty.project), "--write")
    assert "11, of which 11 are restored" in (await archive(*into)).stdout

    kept = ("memory_vectors/", "memory_vectors_parts/", "memory_vectors_meta/")
    was = {path: held for path, held in (await documents(firestore)).items() if path.startswith(kept)}
    assert sum(path.startswith("memory_vectors_parts/") for path in was) > 2
    assert sum("retrieval_text" in held for held in was.values()) == 1
    assert await documents(empty) == was
    assert await found(service_over(empty)) == await found(before)

    written = await documents(empty, times=True)
    assert "Nothing to do: the whole archive is there." in (await archive(*into)).stdout
    assert await documents(empty, times=True) == written
    assert (await service_over(empty).save("Owls hunt at noon"))["metadata"]["branch_state"] == "active"


async def test_every_kind_of_value_and_every_unknown_field_is_kept(
    firestore: AsyncClient, archive: Command, project: str, tmp_path: Path
) -> None:
    values: dict[str, Any] = {
        "integer": 1,
        "double": 1.0,
        "large": 2**63 - 1,
        "nan": float("nan"),
        "endless": float("-inf"),
        "nothing": None,
        "flag": True,
        "when": datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        "bytes": b"\x00\xff",
        "place": GeoPoint(-52.5, 13.4),
        "reference": firestore.document("memory_vectors/other/inner/one"),
        "vector": Vector([0.1, 2.0]),
        "text": 'a "line"\nand\x00\u2028more 😀',
        "map": {"$bytes": 5, "list": [{}, b"", None], "$": {"é `.": 1}},
    }
    _, plain = memory(1)
    fields = {**plain, "kept": values, "$odd": [values["when"]], "metadata": {**plain["metadata"], "reviewer": values}}
    await store(firestore, {"memory_vectors": {"all": fields}})
    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    await archive("export", one, "--project", project)
    await archive("restore", one, "--into", "mine", "--project", project, "--write")
    was, now = await stored_as(firestore, "memory_vectors", "all"), await stored_as(firestore, "mine", "all")
    made = {name: now.pop(name) for name in ("summary", "terms", "embedding", "embedding_space")}
    assert (made["summary"], made["embedding_space"]) == (plain["content"], LOCAL_SPACE)
    assert kinds(now) == kinds(was)
    await archive("export", other, "--collection", "mine", "--project", project)
    assert (tmp_path / "one/memories.jsonl").read_bytes() == (tmp_path / "other/memories.jsonl").read_bytes()


async def stored_as(firestore: AsyncClient, collection: str, name: str) -> dict[str, Any]:
    return (await firestore.collection(collection).document(name).get()).to_dict() or {}


async def test_a_memory_of_metacortex_0_3_is_found_again(
    firestore: AsyncClient, archive: Command, project: str, tmp_path: Path
) -> None:
    bare = {"content": "Owls are birds, says OLD_17"}
    await store(firestore, {"old": {**MEMORIES, "bare": bare}})
    folder = str(tmp_path / "archive")
    await archive("export", folder, "--collection", "old", "--project", project)
    await archive("restore", folder, "--into", "memory_vectors", "--project", project, "--write")
    for name, fields in MEMORIES.items():
        now = await stored_as(firestore, "memory_vectors", name)
        assert {kept: now[kept] for kept in fields if kept != "embedding"} == {
            kept: value for kept, value in fields.items() if kept != "embedding"
        }
    assert set(await stored_as(firestore, "memory_vectors", "bare")) == {
        *("content", "summary", "terms", "embedding", "embedding_space")
    }
    [best, *_] = await service_over(firestore).search("A chart of owls")
    assert best["id"] == "image"


# --- What is there already ---


async def test_a_dry_run_tells_what_is_missing_and_writes_nothing(
    channel: Channel, firestore: AsyncClient, restore: Command, project: str
) -> None:
    result = await restore(into="mine")
    assert result.stdout.splitlines()[0] == f"mine of {project} in the emulator at {os.environ[EMULATOR]}"
    assert f"{LOCAL_SPACE}, which the collection does not name yet" in result.stdout
    assert "missing    10\n" in result.stdout
    assert result.stdout.endswith("Nothing was written. To do it, run the same command with --write.\n")
    assert "Commit" not in channel.calls
    assert await documents(firestore) == {}


async def test_only_what_is_missing_is_restored(
    channel: Channel, firestore: AsyncClient, restore: Command, folder: Path
) -> None:
    await restore("--write", into="mine")
    for name in ("m-00003", "m-00007"):
        await firestore.collection("mine").document(name).delete()
    before = await documents(firestore, times=True)
    channel.requests.clear()
    result = await restore("--write", into="mine")
    assert channel.calls.count("Commit") == 2
    assert "there      8 as they are in the archive" in result.stdout
    assert "missing    2, of which 2 are restored" in result.stdout
    assert "which the collection names already" in result.stdout
    after = await documents(firestore, times=True)
    assert len(after) == len(before) + 2
    assert {path: after[path] for path in before} == before


async def test_another_memory_under_the_same_id_stays_and_is_named(firestore: AsyncClient, restore: Command) -> None:
    await restore("--write", into="mine")
    mine = firestore.collection("mine")
    await mine.document("m-00003").update({"metadata.branch_state": "deprecated"})
    await mine.document("m-00004").update({"noted": 1.0})
    await mine.document("m-00007").delete()
    for arguments, missing in (((), "missing    1\n"), (("--write",), "missing    1, of which 1 are restored")):
        result = await restore(*arguments, into="mine", status=1)
        assert missing in result.stdout
        assert "2 are others there, and stay: m-00003, m-00004" in result.stdout
        assert "Not everything in the archive is there" in said(result)
    assert (await stored_as(firestore, "mine", "m-00003"))["metadata"]["branch_state"] == "deprecated"
    assert (await stored_as(firestore, "mine", "m-00007"))["content"] == memory(7)[1]["content"]
    answer = await restore("--write", "--json", into="mine", status=1)
    assert restored(answer)["differing"] == ["m-00003", "m-00004"]


@pytest.mark.parametrize("content", [memory(3)[1]["content"], "Something else"])
async def test_what_comes_to_its_place_meanwhile_is_not_overwritten(
    channel: Channel, firestore: AsyncClient, restore: Command, content: str
) -> None:
    _, fields = memory(3)
    there = firestore.collection("mine").document("m-00003")
    meanwhile = Meanwhile("mine/m-00003", lambda: there.create({**fields, "content": content}))
    channel.interceptors.insert(0, meanwhile)
    is_same = content == fields["content"]
    found = restored(await restore("--write", "--json", into="mine", status=0 if is_same else 1))
    assert meanwhile.happened
    assert (found["restored"], found["there"], found["differing"]) == (9, is_same, [] if is_same else ["m-00003"])
    assert await stored_as(firestore, "mine", "m-00003") == {**fields, "content": content}


async def test_parts_without_their_memory_do_not_stand_in_the_way(
    firestore: AsyncClient, restore: Command, folder: Path
) -> None:
    name, fields = memory(1, content="A barn owl was seen. " * 300)
    write_archive(folder, {name: fields}, force=True)
    await restore("--write", into="mine")
    before = await documents(firestore)
    assert len(before) > 4
    await firestore.collection("mine").document(name).delete()
    await restore("--write", into="mine")
    assert await documents(firestore) == before


# --- The live collection, and the space ---


async def test_nothing_comes_into_the_live_memories_unless_that_is_said(
    firestore: AsyncClient, restore: Command
) -> None:
    await restore("--write")
    assert "Nothing to do" in (await restore("--write")).stdout
    await firestore.collection("memory_vectors").document("m-00003").delete()
    before = await documents(firestore, times=True)
    sentence = said(await restore("--write", status=1))
    assert "is the live collection, and holds memories already" in sentence
    assert "add --live" in sentence
    assert await documents(firestore, times=True) == before
    assert "run the same command with --write --live." in (await restore()).stdout
    assert "1, of which 1 are restored" in (await restore("--write", "--live")).stdout


async def test_the_live_collection_is_the_configured_one(firestore: AsyncClient, restore: Command) -> None:
    await restore("--write", into="mine")
    await firestore.collection("mine").document("m-00003").delete()
    assert "is the live collection" in said(await restore("--write", into="mine", status=1, MEMORY_COLLECTION="mine"))
    await restore("--write", into="mine")


async def test_the_live_collection_and_the_models_are_those_of_the_file_of_the_project(
    firestore: AsyncClient, restore: Command, project: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    functions = tmp_path / "checkout/functions"
    functions.mkdir(parents=True)
    (functions / ".env").write_text("MODEL_PROVIDER=local\n")
    (functions / ".env.prod").write_text("MEMORY_COLLECTION=mine\n")
    (functions.parent / ".firebaserc").write_text(json.dumps({"projects": {"prod": project}}))
    monkeypatch.setattr("ops.model_settings.ROOT", functions.parent)
    await restore("--write", into="mine", MEMORY_COLLECTION=None)
    await firestore.collection("mine").document("m-00003").delete()
    assert "is the live collection" in said(await restore("--write", into="mine", status=1, MEMORY_COLLECTION=None))
    (functions / ".env.prod").write_text("MODEL_PROVIDER=none\n")
    assert "MODEL_PROVIDER must be one of" in said(await restore(status=2, MODEL_PROVIDER=None))


async def test_the_vectors_are_of_the_space_that_the_collection_names(firestore: AsyncClient, restore: Command) -> None:
    plain = f"{LOCAL_SPACE.partition('/')[0]}/plain"
    spaces = {"current": "other@3/plain", "spaces": {"other@3/plain": "embedding", plain: "embedding_2"}}
    await store(firestore, {"mine_meta": {"space": spaces}})
    assert f"{plain}, which the collection names already" in (await restore("--write", into="mine")).stdout
    stored = await stored_as(firestore, "mine", "m-00003")
    assert ("embedding" in stored, "embedding_space" in stored) == (False, False)
    [vector] = await LocalEmbedder().embed_documents(
        [Document(text=memory(3)[1]["content"], topic="Birds")], text_format="plain"
    )
    assert tuple(stored["embedding_2"]) == vector
    assert await stored_as(firestore, "mine_meta", "space") == spaces


async def test_a_space_of_other_models_is_refused(firestore: AsyncClient, restore: Command) -> None:
    spaces = {"current": "other@3/plain", "spaces": {"other@3/plain": "embedding"}}
    await store(firestore, {"mine_meta": {"space": spaces}})
    for arguments in ((), ("--write",)):
        sentence = said(await restore(*arguments, into="mine", status=1))
        assert f"in the space other@3/plain, but the service is configured for {LOCAL_SPACE}" in sentence
    assert await stored_as(firestore, "mine", "m-00003") == {}


async def test_it_stops_when_the_collection_is_moved_to_another_space_meanwhile(
    channel: Channel, firestore: AsyncClient, restore: Command, folder: Path
) -> None:
    await restore("--write", into="mine")
    write_archive(folder, dict(map(memory, range(150))))
    space = firestore.collection("mine_meta").document("space")
    moved = {"current": "other@3/plain", "spaces": {"other@3/plain": "embedding_2"}}
    channel.interceptors.insert(0, Meanwhile("m-00010", lambda: space.set(moved)))
    assert "has just been moved to another space" in said(await restore("--write", into="mine", status=1))
    assert await stored_as(firestore, "mine", "m-00149") == {}


async def test_memories_without_a_named_space_are_left_to_an_upgrade(firestore: AsyncClient, restore: Command) -> None:
    await store(firestore, {"mine": MEMORIES})
    assert "`metacortex upgrade --space" in said(await restore("--write", into="mine", status=1))
    assert await stored_as(firestore, "mine_meta", "space") == {}


# --- The models ---


GEMINI = {"MODEL_PROVIDER": "gemini", "GEMINI_API_KEY": KEY}


async def test_repeating_it_costs_no_call_of_a_model(api: GeminiApi, restore: Command) -> None:
    assert "10 are restored" in (await restore("--write", into="mine", **GEMINI)).stdout
    assert api.verbs == ["batchEmbedContents"]
    await restore("--write", into="mine", **GEMINI)
    await restore(into="other", **GEMINI)
    assert len(api.asked) == 1


async def test_a_busy_model_is_waited_for(api: GeminiApi, restore: Command) -> None:
    # The client library asks twice by itself.
    api.next = [failure(429), failure(429)]
    assert "10 are restored" in (await restore("--write", into="mine", **GEMINI)).stdout
    assert len(api.asked) == 3


async def test_a_model_that_fails_stops_it_before_anything_is_written(
    api: GeminiApi, firestore: AsyncClient, restore: Command
) -> None:
    api.unknown_models = {"gemini-embedding-2"}
    sentence = said(await restore("--write", into="mine", status=1, **GEMINI))
    assert (
        "must check the GEMINI_*_MODEL settings. Whatever was written is whole: run the same command again" in sentence
    )
    assert KEY not in sentence
    assert len(api.asked) == 2
    assert await documents(firestore) == {}


def all_but_two(body: dict[str, Any]) -> Response:
    """Answers as a model that takes neither the third nor the eighth memory."""
    texts = [text_in(each["content"]) for each in body["requests"]]
    if any(owl in text for owl in ("Owl 3 ", "Owl 8 ") for text in texts):
        return failure(400)
    return JSONResponse({"embeddings": [{"values": vector_of(text, 768)} for text in texts]})


async def test_a_text_that_the_model_does_not_take_is_named_and_holds_up_no_other(
    api: GeminiApi, firestore: AsyncClient, restore: Command
) -> None:
    for count in (8, 0):
        api.next = [all_but_two] * 50
        result = await restore("--write", into="mine", status=1, **GEMINI)
        assert f"of which {count} are restored" in result.stdout
        assert "refused    m-00003: The model service does not accept this request" in result.stdout
        assert "refused    m-00008: " in result.stdout
    assert await stored_as(firestore, "mine", "m-00003") == {}
    api.next = []
    answer = restored(await restore("--write", "--json", into="mine", **GEMINI))
    assert (answer["there"], answer["restored"], answer["refused"]) == (8, 2, {})


async def test_a_memory_without_text_is_named_and_holds_up_no_other(restore: Command, folder: Path) -> None:
    blank = {"m-00003": {"content": " "}, "m-00008": {"media": {"kind": "inline_image"}}}
    write_archive(folder, {**dict(map(memory, range(10))), **blank}, force=True)
    for count in (8, 0):
        answer = restored(await restore("--write", "--json", into="mine", status=1))
        assert (answer["restored"], list(answer["refused"])) == (count, ["m-00003", "m-00008"])
        assert "holds no text" in answer["refused"]["m-00003"]


async def test_a_memory_that_the_store_does_not_take_is_named(
    firestore: AsyncClient, restore: Command, folder: Path
) -> None:
    name, fields = memory(3, kept="x" * 1_048_000)
    write_archive(folder, {**dict(map(memory, range(10))), name: fields}, force=True)
    result = await restore("--write", into="mine", status=1)
    assert "of which 9 are restored" in result.stdout
    assert "refused    m-00003: The store does not take it" in result.stdout


# --- What is refused ---


async def test_an_archive_that_is_not_whole_is_refused(
    channel: Channel, firestore: AsyncClient, restore: Command, folder: Path
) -> None:
    change(folder / "memories.jsonl", "Owl 4", "Owl 5")
    assert "SHA-256 is another" in said(await restore("--write", into="mine", status=1))
    change(folder / "memories.jsonl", "Owl 5 lives", "Owl 4 lives")
    change(folder / "manifest.json", '"schema_version": 1', '"schema_version": 2')
    assert "schema_version: Input should be 1" in said(await restore("--write", into="mine", status=1))
    assert channel.calls == []


def change(file: Path, old: str, new: str) -> None:
    file.write_text(file.read_text().replace(old, new))


@pytest.mark.parametrize(
    ("arguments", "env", "sentence"),
    [
        ([], {}, "Missing option '--into'"),
        (["--into", "--write", "--project", "demo-some"], {}, "--into: must be the name of a Firestore collection"),
        (["--into", "a/b"], {}, "--into: must be the name of a Firestore collection"),
        (["--into", "mine", "--project", "--write"], {}, "is not a project's id"),
        (["--into", "mine"], {"MODEL_PROVIDER": "other"}, "MODEL_PROVIDER must be one of"),
        (["--into", "mine"], {"MODEL_PROVIDER": "gemini"}, "GEMINI_API_KEY is not set"),
        (["--into", "mine"], {"MEMORY_COLLECTION": "a/b"}, "MEMORY_COLLECTION must be the name"),
        (["--into", "mine"], {EMULATOR: ""}, "--project: is needed"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, folder: Path, arguments: list[str], env: dict[str, str], sentence: str
) -> None:
    monkeypatch.setenv(EMULATOR, "127.0.0.1:1")
    assert sentence in said(invoke("restore", str(folder), *arguments, status=2, **env))


async def test_json_is_one_object_and_nothing_else(restore: Command, project: str, folder: Path) -> None:
    result = await restore("--write", "--json", into="mine")
    assert result.stderr == ""
    answer = json.loads(result.stdout)
    assert answer.pop("manifest") == json.loads((folder / "manifest.json").read_text())
    assert answer == {
        "ok": True,
        "project": project,
        "emulator": os.environ[EMULATOR],
        "collection": "mine",
        "folder": str(folder),
        "write": True,
        "restored": {
            "space": LOCAL_SPACE,
            "named_before": False,
            "needs_live": False,
            "there": 0,
            "missing": 10,
            "restored": 10,
            "differing": [],
            "refused": {},
        },
        "error": None,
    }
