"""`metacortex reembed` as an owner runs it, over the emulator, with the service at work in both spaces.

The old space is that of the local model; the new one is made by a server that speaks the Gemini API's shapes.
"""

import asyncio
import functools
import json
import math
import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from google.api_core.exceptions import FailedPrecondition, InvalidArgument
from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.base_query import FieldFilter
from google.cloud.firestore_v1.transforms import DELETE_FIELD
from google.cloud.firestore_v1.types import RunQueryRequest
from google.cloud.firestore_v1.vector import Vector
from starlette.responses import JSONResponse, Response
from typer.testing import CliRunner, Result

from builders import FakeClock, Service, ToolError, environment
from channel import Channel, Meanwhile
from gemini_api import Body, GeminiApi, failure, never, text_in, vector_of
from metacortex.adapters.firestore_documents import encode
from metacortex.adapters.firestore_events import FirestoreEvents
from metacortex.adapters.firestore_memories import FirestoreMemories
from metacortex.adapters.local_models import LocalEmbedder
from metacortex.bootstrap import Models, Stores, models
from metacortex.memory import BranchState, Embedding, Memory, Metadata, Modality, NewMemory, Origin, Provenance
from metacortex.ports import Document
from metacortex.settings import load
from metacortex.terms import terms_about
from ops.checkout import ROOT
from ops.cli import app
from ops.endpoints import PROJECT
from ops.reembed_report import tokens
from ops.stored_texts import Pace

KEY = "a-gemini-key-of-the-tests"
OLD = LocalEmbedder.space.id
NEW = "gemini-embedding-2@128/plain"
GEMINI = {"MODEL_PROVIDER": "gemini", "GEMINI_API_KEY": KEY}
LONG = "\n\n".join(f"Paragraph {n}: the owl of barn {n} hunts between {n} and {n + 1} at night." for n in range(120))

Command = Callable[..., Awaitable[Result]]


@pytest.fixture
async def command(monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs the command in a thread, and what it awaits in the loop of the test: grpc's poller belongs to that."""
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(asyncio, "run", lambda work: asyncio.run_coroutine_threadsafe(work, loop).result())

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["reembed", *arguments], env=GEMINI, catch_exceptions=False)

    return functools.partial(asyncio.to_thread, invoke)


@pytest.fixture
def reembed(firestore: AsyncClient, api: GeminiApi, project: str, command: Command) -> Command:
    """Runs the command for the database of this test, where no other service runs."""

    async def run(*arguments: str, status: int = 0) -> Result:
        result = await command(*arguments, "--project", project, "--settle", "0")
        assert result.exit_code == status, result.output
        return result

    return run


@pytest.fixture
def fill(reembed: Command) -> Command:
    return functools.partial(reembed, "--to", NEW)


def service(firestore: AsyncClient, chosen: Models | None = None) -> Service:
    """A service that has just started, in the old space or with other models."""
    stores = Stores(memories=FirestoreMemories(firestore, "memory_vectors"), events=FirestoreEvents(firestore))
    return Service(stores=stores, models=chosen or models(load(environment()), None))


NewService = Callable[[], Service]


@pytest.fixture
async def new_service(firestore: AsyncClient, api: GeminiApi) -> AsyncGenerator[NewService]:
    """Starts services that are configured for the new space."""
    started: list[Models] = []

    def start() -> Service:
        settings = environment(**GEMINI, GEMINI_EMBEDDING_MODEL="gemini-embedding-2", GEMINI_EMBEDDING_DIMENSIONS="128")
        started.append(models(load(settings), None))
        return service(firestore, started[-1])

    yield start
    for each in started:
        await each.close()


def said(result: Result) -> str:
    """What was said on standard error, on one line; nothing was printed beside it."""
    assert result.stdout == ""
    return " ".join(result.stderr.split())


async def documents(firestore: AsyncClient, collection: str = "memory_vectors") -> dict[str, dict[str, Any]]:
    return {snapshot.id: snapshot.to_dict() or {} async for snapshot in firestore.collection(collection).stream()}


async def named(firestore: AsyncClient) -> dict[str, Any] | None:
    return (await firestore.collection("memory_vectors_meta").document("space").get()).to_dict()


def unit(text: str) -> list[float]:
    vector = vector_of(text, 128)
    return [value / math.hypot(*vector) for value in vector]


async def everything(firestore: AsyncClient) -> dict[str, dict[str, dict[str, Any]]]:
    return {
        name: await documents(firestore, name)
        for name in ("memory_vectors", "memory_vectors_parts", "memory_vectors_meta")
    }


# --- The whole way ---


async def test_the_service_finds_the_same_memories_at_every_step(
    firestore: AsyncClient, new_service: NewService, reembed: Command
) -> None:
    old = service(firestore)
    short, long = await old.save("Herons rest at noon by the river"), await old.save(LONG)
    await reembed("--to", NEW, "--write")
    assert await named(firestore) == {"current": OLD, "spaces": {OLD: "embedding"}}
    assert [match["id"] for match in await old.search("herons at noon", limit=1)] == [short["id"]]
    await reembed("switch", "--write")
    assert await named(firestore) == {"current": NEW, "spaces": {OLD: "embedding", NEW: "embedding_2"}}
    for working in (service(firestore), new_service()):
        found = await working.search("Herons rest at noon by the river", limit=2)
        assert {match["id"] for match in found} == {short["id"], long["id"]}
        assert found[0]["id"] == short["id"]
    await reembed("finish", "--write")
    assert await named(firestore) == {"current": NEW, "spaces": {NEW: "embedding_2"}}
    [match, _] = await new_service().search("Herons rest at noon by the river")
    assert (match["id"], match["score"]) == (short["id"], 1.0)
    with pytest.raises(ToolError) as error:
        await service(firestore).search("owl")
    assert error.value.code == "embedding_space_mismatch"


async def test_a_memory_has_in_the_end_what_a_save_in_the_new_space_would_have_given_it(
    firestore: AsyncClient, new_service: NewService, reembed: Command
) -> None:
    arguments: list[dict[str, Any]] = [
        {"content": "Owls rest", "topic": "Birds", "artifact_refs": ["owls.md"]},
        {"content": LONG, "valid_from": "2026-03-01"},
    ]
    old = service(firestore)
    moved = [await old.save(**each) for each in arguments]
    await reembed("--to", "gemini-embedding-2@128", "--write")
    await reembed("switch", "--write")
    await reembed("finish", "--write")
    new = new_service()
    new.clock.advance(minutes=20)
    memories, parts = await documents(firestore), await documents(firestore, "memory_vectors_parts")
    saved = [await new.save(**each) for each in arguments]
    after = await documents(firestore)
    assert await named(firestore) == {
        "current": "gemini-embedding-2@128/prefix-dated",
        "spaces": {"gemini-embedding-2@128/prefix-dated": "embedding_2"},
    }
    for was, made in zip(moved, saved, strict=True):
        assert without_times(memories[was["id"]]) == without_times(after[made["id"]])
    made_parts = await documents(firestore, "memory_vectors_parts")
    old_parts = parts_of(made_parts, moved[1]["id"])
    assert len(old_parts) > 3
    assert old_parts == parts_of(made_parts, saved[1]["id"])
    assert len(parts) == len(old_parts)


def without_times(document: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {name: value for name, value in document["metadata"].items() if name not in {"created_at", "updated_at"}}
    return {**document, "metadata": metadata}


def parts_of(parts: Mapping[str, Mapping[str, Any]], memory_id: str) -> list[tuple[str, Vector]]:
    """Number, summary and vector of each part of a memory."""
    found = sorted(name for name, part in parts.items() if part["memory_id"] == memory_id)
    return [(name[-4:] + parts[name]["summary"], parts[name]["embedding_2"]) for name in found]


async def test_saves_meanwhile_go_where_their_service_works_and_all_are_found_in_the_end(
    firestore: AsyncClient, new_service: NewService, fill: Command, reembed: Command
) -> None:
    old = service(firestore)
    await old.save("Owls rest at noon")
    await fill("--write")
    filled = await old.save("Saved after the filling")
    await reembed("switch", "--write", "--incomplete")
    late, early = (
        await old.save("Saved in the old space"),
        await new_service().save("Saved in the new"),
    )
    fields = {
        name: {"embedding", "embedding_2"} & document.keys() for name, document in (await documents(firestore)).items()
    }
    assert fields[filled["id"]] == fields[late["id"]] == {"embedding"}
    assert fields[early["id"]] == {"embedding_2"}
    assert early["id"] not in {match["id"] for match in await old.search("Saved in the new", limit=20)}
    report = json.loads((await reembed("finish", "--write", "--json")).stdout)
    assert report["memories"] | {"texts": 0, "tokens": 0} == {
        "found": 4,
        "lacking": 0,
        "written": 2,
        "to_drop": 3,
        "dropped": 3,
        "texts": 0,
        "tokens": 0,
    }
    new = new_service()
    for item in (filled, late, early):
        assert [match["id"] for match in await new.search(item["content"], limit=1)] == [item["id"]]


@pytest.mark.slow
async def test_what_a_service_saves_that_has_not_heard_of_the_end_yet_is_caught_up_with(  # noqa: PLR0913, PLR0917 - fixtures
    firestore: AsyncClient, fill: Command, reembed: Command, command: Command, project: str, new_service: NewService
) -> None:
    await service(firestore).save("Owls rest at noon")
    await fill("--write")
    await reembed("switch", "--write")
    old = service(firestore)
    await old.search("owls")
    finishing = asyncio.ensure_future(command("finish", "--write", "--project", project, "--settle", "4"))
    while len((await named(firestore) or {})["spaces"]) > 1:
        assert not finishing.done()
    # What it knows of the collection is less than 30 seconds old.
    late = await old.save("Herons fish at dawn")
    assert (await finishing).exit_code == 0
    assert "embedding" not in (await documents(firestore))[late["id"]]
    assert [match["id"] for match in await new_service().search("Herons fish at dawn", limit=1)] == [late["id"]]


async def test_a_collection_can_move_on_from_its_second_field_to_its_first(
    firestore: AsyncClient, fill: Command, reembed: Command
) -> None:
    old = service(firestore)
    item, long = await old.save("Owls rest"), await old.save(LONG)
    before = await everything(firestore)
    await fill("--write")
    await reembed("switch", "--write")
    await reembed("finish", "--write")
    assert "embedding_space" not in (await documents(firestore))[item["id"]]
    await reembed("--to", OLD, "--write")
    assert (await documents(firestore))[item["id"]]["embedding_space"] == OLD
    await reembed("switch", "--write")
    await reembed("finish", "--write")
    assert await everything(firestore) == before
    assert {match["id"] for match in await service(firestore).search("owl")} == {item["id"], long["id"]}


async def test_the_form_of_the_text_can_change_while_model_and_size_stay(
    firestore: AsyncClient, reembed: Command
) -> None:
    plain = service(firestore)
    await plain.save("Owls rest")
    await reembed("--to", "wordllama-l2-supercat@256/plain", "--write")
    await reembed("switch", "--write")
    item = await service(firestore).save("Owls hunt")
    assert "embedding_2" in (await documents(firestore))[item["id"]]
    await reembed("finish", "--write")
    assert len(await service(firestore).search("owls")) == 2


# --- Changes meanwhile ---


async def test_a_deprecation_reaches_the_parts_of_both_spaces(
    firestore: AsyncClient, new_service: NewService, fill: Command, reembed: Command
) -> None:
    old = service(firestore)
    item = await old.save(LONG)
    await fill("--write")
    await reembed("switch", "--write")
    await old.call("deprecate_context", "default", id=item["id"])
    for working in (service(firestore), new_service()):
        assert await working.search("owl") == []
        [match] = await working.search("owl", "default", filter_state="deprecated")
        assert match["id"] == item["id"]
    await reembed("finish", "--write")
    [match] = await new_service().search("owl", "default", filter_state="deprecated")
    assert match["id"] == item["id"]


@pytest.mark.parametrize("step", ["fill", "finish"])
async def test_a_deprecation_at_the_very_moment_is_kept(
    channel: Channel, firestore: AsyncClient, fill: Command, reembed: Command, step: str
) -> None:
    old = service(firestore)
    item = await old.save(LONG)
    if step == "finish":
        await fill("--write")
        await reembed("switch", "--write")
    meanwhile = Meanwhile(item["id"], lambda: old.call("deprecate_context", "default", id=item["id"]))
    channel.interceptors.insert(0, meanwhile)
    await (fill("--write") if step == "fill" else reembed("finish", "--write"))
    assert meanwhile.happened
    parts = await documents(firestore, "memory_vectors_parts")
    memory = (await documents(firestore))[item["id"]]
    assert memory["parts"] == len(parts)
    assert {part["metadata"]["branch_state"] for part in parts.values()} == {"deprecated"}
    assert "embedding_2" in memory


# --- Giving up ---


@pytest.mark.parametrize("switched", [False, True])
async def test_a_move_that_is_given_up_leaves_everything_as_it_was(
    firestore: AsyncClient, fill: Command, reembed: Command, *, switched: bool
) -> None:
    old = service(firestore)
    await old.save("Owls rest")
    await old.save(LONG)
    before = await everything(firestore)
    await fill("--write")
    if switched:
        await reembed("switch", "--write")
    assert await everything(firestore) != before
    await reembed("abandon", "--write")
    assert await everything(firestore) == before


async def test_what_was_saved_in_the_new_space_alone_survives_its_end(
    firestore: AsyncClient, new_service: NewService, fill: Command, reembed: Command
) -> None:
    await service(firestore).save("Owls rest")
    await fill("--write")
    await reembed("switch", "--write")
    new = new_service()
    item, long = await new.save("Herons fish at dawn"), await new.save(LONG)
    await reembed("abandon", "--write")
    found = await service(firestore).search("herons fishing", limit=1)
    assert [match["id"] for match in found] == [item["id"]]
    kept = (await documents(firestore))[long["id"]]
    parts = await documents(firestore, "memory_vectors_parts")
    assert kept.keys() & {"embedding", "embedding_2", "embedding_space"} == {"embedding", "embedding_space"}
    assert len(parts) == kept["parts"]
    assert all("embedding" in part and "embedding_2" not in part for part in parts.values())


# --- What a dry run tells ---


async def test_without_write_no_step_changes_anything(firestore: AsyncClient, fill: Command, reembed: Command) -> None:
    await service(firestore).save(LONG)
    before = await everything(firestore)
    assert (await fill()).stdout.endswith("Nothing was written. To do it, run the same command with --write.\n")
    assert await everything(firestore) == before
    await fill("--write")
    for step, counted in [("switch", "0 lack a vector"), ("abandon", "1 to be rid of the other")]:
        before = await everything(firestore)
        assert counted in (await reembed(step)).stdout
        assert await everything(firestore) == before
    await reembed("switch", "--write")
    before = await everything(firestore)
    assert "1 to be rid of the other" in (await reembed("finish")).stdout
    assert await everything(firestore) == before


async def test_a_dry_run_tells_the_place_first_and_then_texts_tokens_and_cost(
    firestore: AsyncClient, api: GeminiApi, fill: Command, project: str
) -> None:
    old = service(firestore)
    await old.save("x" * 400)
    await old.save("梟" * 100)
    lines = (await fill("--price", "1000")).stdout.splitlines()
    assert lines[0] == f"memory_vectors of {project} in the emulator at {os.environ['FIRESTORE_EMULATOR_HOST']}"
    assert lines[1:4] == [
        f"  from        {OLD}, in embedding",
        f"  to          {NEW}, in embedding_2",
        f"  memories    2 found, 2 lack a vector in {NEW}",
    ]
    assert lines[4] == "  model       2 texts, about 200 tokens, about $0.20"
    assert "`./scripts/metacortex indexes --collection memory_vectors --dimensions 128 --field embedding_2`" in lines[7]
    assert api.asked == []


async def test_a_price_that_is_not_known_is_not_made_up(firestore: AsyncClient, reembed: Command) -> None:
    await service(firestore).save("Owls rest")
    assert "what new-model costs is not known here" in (await reembed("--to", "new-model@128")).stdout


def test_tokens_are_estimated_by_script() -> None:
    assert [tokens(text) for text in ("", "a", "four", "fives", "梟は夜", "owl 梟")] == [0, 1, 1, 2, 3, 2]


async def test_json_is_one_object_and_nothing_else(firestore: AsyncClient, fill: Command, project: str) -> None:
    await service(firestore).save("Owls rest")
    result = await fill("--write", "--json")
    report = json.loads(result.stdout)
    indexes = report.pop("indexes")
    assert result.stderr == ""
    assert report == {
        "ok": True,
        "project": project,
        "emulator": os.environ["FIRESTORE_EMULATOR_HOST"],
        "collection": "memory_vectors",
        "action": "fill",
        "write": True,
        "from": {"space": OLD, "field": "embedding"},
        "to": {"space": NEW, "field": "embedding_2"},
        "step": "fill",
        "memories": {"found": 1, "lacking": 1, "written": 1, "to_drop": 0, "dropped": 0, "texts": 1, "tokens": 3},
        "cost_dollars": pytest.approx(3 * 0.2 / 1_000_000),
        "refused": [],
        "error": None,
    }
    assert len(indexes) == 8
    assert {index["fields"][-1]["fieldPath"] for index in indexes} == {"embedding_2"}


# --- What is refused ---


async def test_it_is_not_switched_before_nearly_everything_has_its_second_vector(
    firestore: AsyncClient, fill: Command, reembed: Command
) -> None:
    old = service(firestore)
    for number in range(3):
        await old.save(f"Owl {number}")
    await fill("--write")
    for number in range(2):
        await old.save(f"Heron {number}")
    assert "2 of 5 memories" in said(await reembed("switch", "--write", status=1))
    assert await named(firestore) == {"current": OLD, "spaces": {OLD: "embedding"}}
    await fill("--write")
    await reembed("switch", "--write")


class NoIndex(grpc.aio.UnaryStreamClientInterceptor):
    """Answers searches in a field as production does where it has no index for them."""

    async def intercept_unary_stream(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        if isinstance(request, RunQueryRequest) and request.structured_query.find_nearest.vector_field.field_path:
            raise FailedPrecondition("Missing vector index configuration.")
        return await continuation(client_call_details, request)


async def test_it_is_not_switched_while_one_memory_of_few_lacks_its_second_vector(
    firestore: AsyncClient, fill: Command, reembed: Command
) -> None:
    old = service(firestore)
    item = await old.save("Owls rest")
    await fill("--write")
    await firestore.collection("memory_vectors").document(item["id"]).update({"embedding_2": DELETE_FIELD})
    assert "1 of 1 memories" in said(await reembed("switch", "--write", status=1))
    assert await named(firestore) == {"current": OLD, "spaces": {OLD: "embedding"}}


async def test_it_is_not_switched_before_the_indexes_are_there(
    channel: Channel, firestore: AsyncClient, fill: Command, reembed: Command
) -> None:
    await service(firestore).save("Owls rest")
    await fill("--write")
    channel.interceptors.insert(0, NoIndex())
    sentence = said(await reembed("switch", "--write", status=1))
    assert "`./scripts/metacortex indexes --collection memory_vectors --dimensions 128 --field embedding_2`" in sentence
    assert await named(firestore) == {"current": OLD, "spaces": {OLD: "embedding"}}


async def test_one_move_at_a_time(firestore: AsyncClient, fill: Command, reembed: Command) -> None:
    await service(firestore).save("Owls rest")
    await fill("--write")
    sentence = said(await reembed("--to", "gemini-embedding-001@128", "--write", status=1))
    assert f"is on the move to {NEW}" in sentence
    assert "`reembed abandon`" in sentence


async def test_steps_come_in_their_order(firestore: AsyncClient, fill: Command, reembed: Command) -> None:
    await service(firestore).save("Owls rest")
    assert "already; name another space" in said(await reembed("--to", OLD, status=1))
    for step in ("switch", "finish", "abandon"):
        assert "Nothing to do: no move" in (await reembed(step)).stdout
    await fill("--write")
    assert "then `reembed switch`" in said(await reembed("finish", "--write", status=1))


async def test_a_step_of_no_move_is_not_taken_for_done(firestore: AsyncClient, reembed: Command) -> None:
    await service(firestore).save("Owls rest")
    for step in ("switch", "finish"):
        assert f"is on no move to another space, and goes on in {OLD}" in said(await reembed(step, "--write", status=1))
    assert json.loads((await reembed("switch", "--write", "--json", status=1)).stdout)["ok"] is False
    # What an abandoning is to leave behind is there.
    assert "Nothing to do: no move" in (await reembed("abandon", "--write")).stdout


async def test_a_collection_that_names_no_space_is_refused(fill: Command) -> None:
    assert "names no embedding space" in said(await fill(status=1))


async def test_a_failing_model_stops_it_with_everything_whole(
    firestore: AsyncClient, api: GeminiApi, fill: Command
) -> None:
    await service(firestore).save("Owls rest")
    api.unknown_models = {"gemini-embedding-2"}
    sentence = said(await fill("--write", status=1))
    assert "must check the GEMINI_*_MODEL settings" in sentence
    assert sentence.endswith("run the same command again, and it goes on.")
    api.unknown_models = set()
    assert "1 written" in (await fill("--write")).stdout


@pytest.mark.slow
async def test_a_busy_model_is_waited_for(firestore: AsyncClient, api: GeminiApi, fill: Command) -> None:
    await service(firestore).save("Owls rest")
    # The client library asks twice by itself.
    api.next = [failure(429), failure(429)]
    assert "1 written" in (await fill("--write")).stdout


def refusing(word: str) -> Callable[[Body], Response]:
    """A model that takes every text but those with a word in them."""

    def answer(body: Body) -> Response:
        texts = [text_in(each["content"]) for each in body["requests"]]
        if any(word in text for text in texts):
            return failure(400, "INVALID_ARGUMENT")
        return answered(body)

    return answer


async def test_a_text_that_the_model_refuses_is_named_and_does_not_stop_the_others(
    firestore: AsyncClient, new_service: NewService, api: GeminiApi, fill: Command, reembed: Command
) -> None:
    old = service(firestore)
    refused = await old.save("Unspeakable")
    others = [await old.save(f"Owl {number}") for number in range(3)]
    api.next = [refusing("Unspeakable")] * 100
    told = (await fill("--write", status=1)).stdout
    assert "3 written" in told
    assert f"1 by the model or the store, which no search will find there: {refused['id']}" in told
    assert json.loads((await fill("--write", "--json", status=1)).stdout)["ok"] is False
    await fill("--write", "--incomplete")
    await reembed("switch", "--write", status=1)
    await reembed("switch", "--write", "--incomplete")
    sentence = said(await reembed("finish", "--write", status=1))
    assert refused["id"] in sentence
    assert (await named(firestore) or {})["spaces"].keys() == {OLD, NEW}
    await reembed("finish", "--write", "--incomplete")
    new = new_service()
    assert {match["id"] for match in await new.search("owl")} == {item["id"] for item in others}
    assert (await new.fetch(refused["id"]))["content"] == "Unspeakable"


async def test_a_memory_without_text_is_named_and_does_not_stop_the_others(
    firestore: AsyncClient, fill: Command
) -> None:
    old = service(firestore)
    blank, _ = await old.save("To be lost"), await old.save("Owls rest")
    await firestore.collection("memory_vectors").document(blank["id"]).update({"content": " "})
    report = json.loads((await fill("--write", "--json", status=1)).stdout)
    assert (report["memories"]["written"], report["refused"]) == (1, [blank["id"]])


async def test_a_memory_that_the_store_does_not_take_with_a_second_vector_is_named_and_does_not_stop_the_others(
    firestore: AsyncClient, fill: Command
) -> None:
    old = service(firestore)
    large, _ = await old.save("Owls hunt"), await old.save("Owls rest")
    await stuffed(firestore, large["id"])
    report = json.loads((await fill("--write", "--json", status=1)).stdout)
    assert (report["memories"]["written"], report["refused"]) == (1, [large["id"]])


async def stuffed(firestore: AsyncClient, memory_id: str) -> None:
    """Makes a memory as large as a document may be but for 500 bytes, of which a vector of 128 takes twice as many."""
    for size in range(1_048_576, 0, -500):
        with suppress(InvalidArgument):
            await firestore.collection("memory_vectors").document(memory_id).update({"kept": b"x" * size})
            return


async def test_what_another_move_has_left_is_not_taken_for_the_new_space(
    firestore: AsyncClient, fill: Command, reembed: Command
) -> None:
    old = service(firestore)
    short, long = await old.save("Owls rest"), await old.save(LONG)
    await fill("--write")
    left = await documents(firestore)
    await firestore.collection("memory_vectors_meta").document("reembedding").delete()
    await firestore.collection("memory_vectors").document(short["id"]).update({"embedding_2": Vector([1.0] * 128)})
    told = (await fill()).stdout
    assert f"2 found, 2 lack a vector in {NEW}, 2 to be rid of a vector that another move had left" in told
    told = (await fill("--write")).stdout
    assert f"2 written in {NEW}, 2 rid of a vector that another move had left" in told
    filled = await documents(firestore)
    assert list(filled[short["id"]]["embedding_2"]) == pytest.approx(unit("Owls rest"))
    assert filled[long["id"]] == left[long["id"]]
    await reembed("abandon", "--write")
    parts = await documents(firestore, "memory_vectors_parts")
    assert len(parts) == (await documents(firestore))[long["id"]]["parts"]


@pytest.mark.parametrize("requests_before", [0, 1])
async def test_a_filling_stops_before_it_writes_when_the_move_is_given_up_beside_it(
    firestore: AsyncClient, api: GeminiApi, fill: Command, reembed: Command, requests_before: int
) -> None:
    old = service(firestore)
    # One page of them has more texts than one request takes.
    for number in range(30):
        await old.save(f"{LONG} Barn {number}.")
    before = await everything(firestore)

    async def given_up(body: Body) -> Response:
        await reembed("abandon", "--write")
        return answered(body)

    api.next = [*[answered] * requests_before, given_up]
    sentence = said(await fill("--write", status=1))
    assert "Another command has just moved this collection on" in sentence
    assert await everything(firestore) == before
    assert len(await old.search("owl", limit=20)) == 20


async def test_a_filling_does_not_end_well_when_the_move_is_given_up_behind_its_last_commit(
    channel: Channel, firestore: AsyncClient, fill: Command, reembed: Command
) -> None:
    item = await service(firestore).save("Owls rest")
    meanwhile = Meanwhile(item["id"], lambda: reembed("abandon", "--write"))
    channel.interceptors.insert(0, meanwhile)
    assert "Another command has just moved this collection on" in said(await fill("--write", status=1))
    assert meanwhile.happened


def answered(body: Body) -> Response:
    texts = [text_in(each["content"]) for each in body["requests"]]
    return JSONResponse({"embeddings": [{"values": vector_of(text, 128)} for text in texts]})


# --- The pace ---


def test_texts_go_out_no_faster_than_is_said() -> None:
    clock = FakeClock(0)
    pace = Pace(60, lambda: clock.now / 1_000)
    assert pace.most_at_once == 60
    assert [pace.delay(30), pace.delay(30)] == [0, 30]
    clock.advance(minutes=2)
    assert [pace.delay(60), pace.delay(1)] == [0, 60]
    assert [Pace(None).delay(1_000) for _ in range(3)] == [0, 0, 0]


# --- How it is called ---


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--project", "--write"], "--project: '--write' is not a project's id"),
        (["--to", "plane"], "is not MODEL@DIMENSIONS"),
        (["--to", "gemini-embedding-2@128/task"], "has prefix-dated, prefix, plain"),
        (["--to", "gemini-embedding-2@4000"], "GEMINI_EMBEDDING_DIMENSIONS must be a whole number from 128 to 2048"),
        (["switch", "--to", NEW], "--to: is for fill alone"),
        (["--collection", "a/b"], "must be the name of a Firestore collection"),
        (["sideways"], "is not one of"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], sentence: str
) -> None:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", "127.0.0.1:1")
    result = CliRunner().invoke(app, ["reembed", *arguments], env=GEMINI)
    assert result.exit_code == 2
    assert sentence in said(result)


def test_a_model_that_the_configured_route_does_not_have_is_a_wrong_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", "127.0.0.1:1")
    result = CliRunner().invoke(app, ["reembed", "--to", NEW], env={"MODEL_PROVIDER": "local"})
    assert result.exit_code == 2
    assert "MODEL_PROVIDER is local" in said(result)


def test_the_project_is_never_guessed_outside_the_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FIRESTORE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GCLOUD_PROJECT", "some-project")
    result = CliRunner().invoke(app, ["reembed", "switch"])
    assert result.exit_code == 2
    assert "--project: is needed" in result.stderr


async def test_in_the_emulator_the_project_is_that_of_the_scripts(
    emulator_host: str, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", emulator_host)
    result = await command("switch", "--collection", "nobody_has_this", "--json")
    assert json.loads(result.stdout)["project"] == PROJECT


def test_without_credentials_it_says_how_to_get_some(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FIRESTORE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    result = CliRunner().invoke(app, ["reembed", "switch", "--project", "demo-nobody"])
    assert result.exit_code == 1
    assert "`gcloud auth application-default login`" in said(result)


# --- Stopped and searched throughout ---

MANY = 2_000


def text(number: int) -> str:
    return f"Owl {number} hunts"


async def store(firestore: AsyncClient, count: int) -> None:
    """Memories as the service saves them in the old space, without its events."""
    texts = [text(number) for number in range(count)]
    vectors = await LocalEmbedder().embed_documents(
        [Document(text=each, topic="general") for each in texts], text_format="dated"
    )
    metadata = Metadata(
        topic="general",
        branch_state=BranchState.ACTIVE,
        modality=Modality.TEXT,
        created_at=1,
        updated_at=1,
        provenance=Provenance(origin=Origin.AGENT_INFERRED),
    )
    memories = {
        f"m-{number:04}": encode(
            NewMemory(
                memory=Memory(id=f"m-{number:04}", content=each, metadata=metadata),
                embedding=Embedding(vector=vector, space_id=OLD, vector_field="embedding"),
                terms=terms_about(each, ()),
            )
        )
        for number, (each, vector) in enumerate(zip(texts, vectors, strict=True))
    }
    names = list(memories)
    for start in range(0, count, 400):
        batch = firestore.batch()
        for name in names[start : start + 400]:
            batch.set(firestore.collection("memory_vectors").document(name), memories[name])
        await batch.commit()
    await (
        firestore.collection("memory_vectors_meta")
        .document("space")
        .set({"current": OLD, "spaces": {OLD: "embedding"}})
    )


@asynccontextmanager
async def process(emulator_host: str, project: str, *arguments: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    """The command in a process of its own."""
    kept = ("PATH", "GOOGLE_GEMINI_BASE_URL", "NO_PROXY")
    path = os.pathsep.join([str(ROOT / "scripts"), str(ROOT / "functions")])
    env = {name: os.environ[name] for name in kept} | GEMINI
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "ops", "reembed", *arguments, "--project", project, "--settle", "0"),
        env={**env, "PYTHONPATH": path, "FIRESTORE_EMULATOR_HOST": emulator_host},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
            await started.wait()


def embedded(api: GeminiApi) -> int:
    return sum(len(body["requests"]) for path, body in api.asked if path.endswith(":batchEmbedContents"))


async def growing(api: GeminiApi, filling: asyncio.subprocess.Process) -> AsyncGenerator[int]:
    """How many texts have been embedded, each time that it has grown."""
    count = 0
    while True:
        async with asyncio.timeout(60):
            while (now := embedded(api)) == count:
                assert filling.returncode is None
                await asyncio.sleep(0.02)
        count = now
        yield count


async def finds(working: Service, number: int) -> None:
    [match] = await working.search(text(number), limit=1)
    assert match["id"] == f"m-{number:04}"


async def left_in(firestore: AsyncClient, space: str) -> int:
    query = firestore.collection("memory_vectors").where(filter=FieldFilter("embedding_space", "==", space))
    return int((await query.count().get())[0][0].value)


@pytest.mark.slow
async def test_ctrl_c_stops_it_with_a_sentence_and_the_next_run_goes_on(
    firestore: AsyncClient, api: GeminiApi, emulator_host: str, project: str, fill: Command
) -> None:
    await store(firestore, 150)
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def late(body: Body) -> Response:
        loop.call_soon_threadsafe(asked.set)
        return await never(body)

    api.next = [refusing("no such word"), late]
    async with process(emulator_host, project, "--to", NEW, "--write") as filling:
        await asked.wait()
        filling.send_signal(signal.SIGINT)
        printed, told = await filling.communicate()
    assert (filling.returncode, printed) == (1, b"")
    assert (
        told.decode().splitlines()[-1].startswith("Stopped. Whatever was written is whole: run the same command again")
    )
    assert "50 written" in (await fill("--write")).stdout


@pytest.mark.slow
async def test_a_move_of_2000_memories_is_killed_three_times_finished_and_searched_throughout(  # noqa: PLR0913, PLR0917 - fixtures
    firestore: AsyncClient, new_service: NewService, api: GeminiApi, emulator_host: str, project: str, reembed: Command
) -> None:
    await store(firestore, MANY)
    old = service(firestore)
    fill = ("--to", NEW, "--write")
    for embedded_by_then in (200, 700, 1_200):
        async with process(emulator_host, project, *fill) as filling:
            async for count in growing(api, filling):
                await finds(old, count)
                if count >= embedded_by_then:
                    break
            filling.kill()
            await filling.wait()
    report = json.loads((await reembed(*fill, "--json")).stdout)
    assert report["memories"]["found"] == MANY
    assert 0 < report["memories"]["written"] < MANY - 800
    # Nothing was embedded again but what was under way when it was stopped.
    assert MANY <= embedded(api) <= MANY + 3 * 100
    await reembed("switch", "--write")
    new = new_service()
    await finds(old, 1_500)
    await finds(new, 1_500)
    async with process(emulator_host, project, "finish", "--write") as finishing:
        while await left_in(firestore, OLD) == MANY:
            assert finishing.returncode is None
            await finds(new, 700)
        finishing.kill()
        await finishing.wait()
    await finds(new, 800)
    await reembed("finish", "--write")
    for number in (0, 999, MANY - 1):
        await finds(new, number)
    after = await documents(firestore)
    for document in list(after.values())[::50]:
        assert list(document["embedding_2"]) == pytest.approx(unit(document["content"]))
    assert all("embedding_2" in document for document in after.values())
    assert not any({"embedding", "embedding_space"} & document.keys() for document in after.values())
    assert await named(firestore) == {"current": NEW, "spaces": {NEW: "embedding_2"}}
    assert list(await documents(firestore, "memory_vectors_meta")) == ["space"]
