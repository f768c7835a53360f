"""The isolated corpus: how it is filled, whose it is, and what readers see of its cases meanwhile."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.types import CommitRequest

from builders import Service
from channel import Channel
from evaluation import (
    BIRDS,
    COLLECTION,
    HERON,
    OWL,
    SETTINGS,
    SWIFT,
    Document,
    Evaluation,
    case,
    memory,
    said,
    use_the_loop_of_the_test,
)
from fakes import PlaneEmbedder
from metacortex import ports
from metacortex.bootstrap import Stores
from metacortex.errors import ModelFailed, RateLimited
from metacortex.rules import parse_time
from ops import eval_load
from ops.checkout import ROOT
from ops.eval_cases import CaseStore
from ops.eval_generate import synthetic
from ops.eval_load import load
from ops.eval_pack import Pack, parse_pack
from ops.eval_plan import Model, Partition, read_plan

FISH: Document = {
    "name": "fish",
    "memories": [memory("eel", "Eels cross wet meadows."), memory("pike", "Pikes wait between reeds.")],
    "cases": [case("which fish crosses meadows", "eel"), case("which fish waits between reeds", "pike")],
}


@pytest.fixture
async def evaluation(
    firestore: AsyncClient, project: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Evaluation:
    use_the_loop_of_the_test(monkeypatch)
    return Evaluation(project, tmp_path)


async def everything(firestore: AsyncClient, *collections: str) -> dict[str, Document]:
    """The documents of collections by their paths."""
    return {
        f"{name}/{snapshot.id}": snapshot.to_dict() or {}
        for name in collections
        async for snapshot in firestore.collection(name).stream()
    }


async def memories(firestore: AsyncClient) -> dict[str, Document]:
    """The memories of the isolated corpus by their keys in the pack."""
    found = (await everything(firestore, COLLECTION)).values()
    return {document["metadata"]["provenance"]["source_session"]: document for document in found}


async def queries(firestore: AsyncClient) -> list[str]:
    """What the isolated cases ask."""
    cases = await CaseStore(firestore).read(Partition.ISOLATED)
    return [each.query for each in cases.cases] if cases else []


def queries_of(pack: Document) -> list[str]:
    return [each["query"] for each in pack["cases"]]


# --- What is stored ---


async def test_a_pack_is_saved_as_it_says_and_told_in_one_line(firestore: AsyncClient, evaluation: Evaluation) -> None:
    old = memory("old", "Swallows winter in ponds.", created_at="2020-01-01", superseded_by="new")
    wrong = memory("wrong", "Swallows winter here.", superseded_by="new", supersession_reason="corrected")
    gone = memory("gone", "The nest is in the barn.", deprecated_at="2025-06-01")
    new = memory("new", "Swallows winter in Africa.", origin="user_asserted", valid_from="2025-03-01")
    draft = memory("draft", "Ask about martins.", branch_state="wip", valid_until="2026-01-01")
    result = await evaluation.load({**BIRDS, "memories": [*BIRDS["memories"], old, wrong, gone, new, draft]})
    assert result.stdout.startswith(f"{COLLECTION} in demo-")
    assert result.stdout.endswith(" holds the 8 memories of birds, and 3 cases ask for them.\n")
    found = await memories(firestore)
    metadata = {key: document["metadata"] for key, document in found.items()}
    assert {key: document["content"] for key, document in found.items() if key in {"owl", "old"}} == {
        "owl": OWL["content"],
        "old": old["content"],
    }
    assert metadata["owl"]["created_at"] == parse_time("2025-03-01T08:00:00Z")
    assert {key: each["branch_state"] for key, each in metadata.items()} == {
        **dict.fromkeys(("owl", "heron", "swift", "new"), "active"),
        **dict.fromkeys(("old", "wrong", "gone"), "deprecated"),
        "draft": "wip",
    }
    assert metadata["new"]["provenance"]["origin"] == "user_asserted"
    assert metadata["new"]["valid_from"] == parse_time("2025-03-01")
    assert metadata["draft"]["valid_until"] == parse_time("2026-01-01")
    # Superseded when the other was made; mistakes never held, so that their end is not moved.
    assert metadata["old"]["valid_until"] == parse_time("2025-03-01T08:00:00Z")
    assert "valid_until" not in metadata["wrong"]
    assert metadata["gone"]["valid_until"] == parse_time("2025-06-01")


async def test_memories_that_say_the_same_within_minutes_are_kept_apart(
    firestore: AsyncClient, evaluation: Evaluation
) -> None:
    same = [memory(f"thanks-{number}", "Thank you!") for number in range(3)]
    await evaluation.load({**BIRDS, "memories": [*BIRDS["memories"], *same]})
    assert len(await memories(firestore)) == 6


async def test_the_audit_trail_keeps_counts_and_not_every_memory(
    firestore: AsyncClient, evaluation: Evaluation
) -> None:
    many = [memory(f"m-{number}", f"Bird number {number} sings.") for number in range(60)]
    await evaluation.load({**BIRDS, "memories": [*BIRDS["memories"], *many]})
    events = (await everything(firestore, "memory_events")).values()
    assert len(events) <= eval_load.SAVES_AT_ONCE
    assert sum(event["write_count"] for event in events) == 63
    assert {(event["client_id"], event["event_type"]) for event in events} == {("eval", "evaluation")}


async def test_loading_again_replaces_everything_and_leaves_nothing_of_before(
    firestore: AsyncClient, evaluation: Evaluation
) -> None:
    await evaluation.load(BIRDS)
    await evaluation.load(FISH)
    assert set(await memories(firestore)) == {"eel", "pike"}
    assert len(await everything(firestore, f"{COLLECTION}_write_fingerprints")) == 2
    assert len(await everything(firestore, "retrieval_eval_cases")) == 2
    assert await queries(firestore) == queries_of(FISH)


async def test_another_model_may_take_the_place_of_the_last_one(firestore: AsyncClient, project: str) -> None:
    pack = parse_pack(_json(BIRDS), "birds")
    for degrees in (2, 3):
        await _load_in_process(firestore, project, pack, _Sized(degrees))
        space = (await everything(firestore, f"{COLLECTION}_meta"))[f"{COLLECTION}_meta/space"]
        assert space["current"] == f"sized@{degrees}/plain"


# --- The synthetic corpus ---


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["1", "7"])
async def test_a_correct_service_answers_lifecycle_cases_at_once_and_tells_off_topic_ones_apart(
    evaluation: Evaluation, seed: str
) -> None:
    await evaluation("generate", "--seed", seed, "--model", "local")
    report = await evaluation.run("--retrieval", "hybrid")
    categories, off_topic = report["categories"], report["off_topic"]
    decided = {name: figures for name, figures in categories.items() if name.startswith(("lifecycle-", "filter-"))}
    assert len(decided) == 6
    for figures in decided.values():
        assert figures["hit"]["1"] == figures["recall"]["5"] == 1.0
        assert figures["errors"] == figures["empty"] == 0
    assert off_topic["cases"] == categories["off-topic"]["cases"] == 60
    assert off_topic["auc"] >= 0.95


@pytest.mark.slow
async def test_a_service_that_passed_over_the_filters_would_miss_most_lifecycle_cases(evaluation: Evaluation) -> None:
    pack = synthetic(1)
    bare = [
        each.model_copy(update={"filter_state": None, "filter_origin": None, "valid_at": None})
        for each in pack.cases
        if each.category.startswith("lifecycle-")
    ]
    # Of questions that differ in their filters alone, one is left.
    once = tuple({each.asked: each for each in bare}.values())
    active = tuple(
        each.model_copy(update={"branch_state": "active", "superseded_by": None, "deprecated_at": None})
        for each in pack.memories
    )
    spoilt = pack.model_copy(update={"memories": active, "cases": once})
    await evaluation("load", evaluation.file(_document(spoilt)), "--model", "local")
    for figures in (await evaluation.run())["categories"].values():
        assert figures["hit"]["1"] <= 0.5


# --- Whose collection it is ---


async def refused(evaluation: Evaluation, firestore: AsyncClient, sentence: str, **env: str) -> None:
    """The load is refused with a sentence, and nothing is changed."""
    collections = [each.id async for each in firestore.collections()]
    before = await everything(firestore, *collections)
    assert sentence in said(await evaluation.load(BIRDS, status=1, **env))
    assert await everything(firestore, *[each.id async for each in firestore.collections()]) == before


async def test_the_live_collection_is_refused_whatever_its_name(
    firestore: AsyncClient, firestore_stores: Stores, evaluation: Evaluation
) -> None:
    await Service(stores=firestore_stores).save("A memory at 10")
    # As where the settings of this machine are not those of the deployed service.
    env = {"MEMORY_COLLECTION": "elsewhere", "RETRIEVAL_EVAL_MEMORY_COLLECTION": "memory_vectors"}
    await refused(evaluation, firestore, "memory_vectors holds what no evaluation wrote, so nothing in it", **env)


async def test_the_configured_collection_is_refused(firestore: AsyncClient, evaluation: Evaluation) -> None:
    env = {"RETRIEVAL_EVAL_MEMORY_COLLECTION": "memory_vectors"}
    await refused(evaluation, firestore, "RETRIEVAL_EVAL_MEMORY_COLLECTION must not be MEMORY_COLLECTION", **env)


async def test_a_live_collection_that_is_still_empty_is_refused(firestore: AsyncClient, evaluation: Evaluation) -> None:
    space = {"current": "plane@2/plain", "spaces": {"plane@2/plain": "embedding"}}
    await firestore.collection(f"{COLLECTION}_meta").document("space").set(space)
    await refused(evaluation, firestore, f"{COLLECTION} holds what no evaluation wrote")


async def test_one_memory_of_somebody_else_protects_the_whole_collection(
    firestore: AsyncClient, evaluation: Evaluation
) -> None:
    await evaluation.load(FISH)
    other = {"content": "mine", "metadata": {"written_by": "claude-web"}}
    await firestore.collection(COLLECTION).document("mine").set(other)
    await refused(evaluation, firestore, f"{COLLECTION} holds what no evaluation wrote")


async def test_memories_of_a_client_named_eval_are_no_evaluations(
    firestore: AsyncClient, evaluation: Evaluation
) -> None:
    await firestore.collection(COLLECTION).document("mine").set({"metadata": {"written_by": "eval"}})
    await refused(evaluation, firestore, f"{COLLECTION} holds what no evaluation wrote")


async def test_other_collections_are_left_alone(
    firestore: AsyncClient, firestore_stores: Stores, evaluation: Evaluation
) -> None:
    await Service(stores=firestore_stores).save("A memory at 10")
    live = ("memory_vectors", "memory_vectors_meta", "memory_vectors_write_fingerprints")
    before = await everything(firestore, *live)
    await evaluation.load(BIRDS)
    await evaluation.load(FISH)
    assert await everything(firestore, *live) == before


# --- What readers see meanwhile ---


class AtEveryCommit(grpc.aio.UnaryUnaryClientInterceptor):
    """Lets something happen just before the commits that touch a collection."""

    def __init__(self, collection: str, happen: Callable[[], Awaitable[object]], *, times: int = 1_000) -> None:
        self._part = f"/documents/{collection}/"
        self._happen = happen
        self._times = times
        self.happened = 0

    async def intercept_unary_unary(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        if isinstance(request, CommitRequest) and self.happened < self._times and self._is_touched_by(request):
            self.happened += 1
            await self._happen()
        return await continuation(client_call_details, request)

    def _is_touched_by(self, request: CommitRequest) -> bool:
        return any(self._part in (write.update.name or write.delete) for write in request.writes)


@pytest.mark.slow
async def test_at_every_moment_of_a_replacement_a_reader_sees_all_of_the_old_or_all_of_the_new(
    channel: Channel, firestore: AsyncClient, evaluation: Evaluation
) -> None:
    await evaluation.load({**BIRDS, "cases": [case(f"which bird is number {number}", "owl") for number in range(450)]})
    old = await queries(firestore)
    seen: list[list[str]] = []

    async def look() -> None:
        seen.append(await queries(firestore))

    commits = [AtEveryCommit(name, look) for name in ("retrieval_eval_cases", "retrieval_eval_cases_meta")]
    channel.interceptors[:0] = commits
    await evaluation.load(FISH)
    # One to write the new cases, one to name them, three to remove the old ones.
    assert [each.happened for each in commits] == [4, 1]
    new = queries_of(FISH)
    assert seen == [old, old, new, new, new]


async def test_cases_that_are_removed_while_they_are_read_are_read_again(
    channel: Channel, firestore: AsyncClient, evaluation: Evaluation
) -> None:
    await evaluation.load(BIRDS)
    between = _Once("RunQuery", lambda: evaluation.load(FISH))
    channel.interceptors.insert(0, between)
    assert await queries(firestore) == queries_of(FISH)
    assert between.happened


class _Once(grpc.aio.UnaryStreamClientInterceptor):
    """Lets something happen just before the first call of a kind."""

    def __init__(self, kind: str, happen: Callable[[], Awaitable[object]]) -> None:
        self._kind = f"{kind}Request"
        self._happen = happen
        self.happened = False

    async def intercept_unary_stream(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        if not self.happened and type(request).__name__ == self._kind:
            self.happened = True
            await self._happen()
        return await continuation(client_call_details, request)


async def test_of_two_replacements_at_once_one_is_refused_and_the_other_stays_whole(
    channel: Channel, firestore: AsyncClient, evaluation: Evaluation
) -> None:
    await evaluation.load(BIRDS)
    other = {**FISH, "name": "other"}
    commit = AtEveryCommit("retrieval_eval_cases_meta", lambda: evaluation.load(other), times=1)
    channel.interceptors.insert(0, commit)
    result = await evaluation.load(BIRDS, status=1)
    assert "Another command replaced the isolated cases at the same time, and those stay" in said(result)
    assert await queries(firestore) == queries_of(FISH)
    await evaluation.run()


async def test_a_load_that_another_one_overtook_is_not_called_whole(
    channel: Channel, firestore: AsyncClient, evaluation: Evaluation
) -> None:
    await evaluation.load(BIRDS)
    # This one empties the collection, and goes on once the other has filled it.
    commit = AtEveryCommit(COLLECTION, lambda: evaluation.load(FISH), times=1)
    channel.interceptors.insert(0, commit)
    assert "Another load into" in said(await evaluation.load(BIRDS, status=1))
    assert "holds no whole corpus" in said(await evaluation("run", "--model", "local", status=1))


@pytest.mark.slow
async def test_a_load_that_is_killed_leaves_the_old_cases_readable_and_the_next_one_mends_it(
    firestore: AsyncClient, emulator_host: str, project: str, evaluation: Evaluation
) -> None:
    await evaluation.load(BIRDS)
    many = [memory(f"m-{number}", f"Bird number {number} sings.") for number in range(1_000)]
    file = evaluation.file({**BIRDS, "memories": [*BIRDS["memories"], *many]}, "many.json")
    command = [sys.executable, "-P", "-m", "ops", "eval", "load", file, "--model", "local", "--project", project]
    env = {name: value for name, value in SETTINGS.items() if value} | surroundings(emulator_host)
    process = await asyncio.create_subprocess_exec(*command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not 10 < len(await firestore.collection(COLLECTION).select([]).get()) < 1_000:
        assert process.returncode is None
    process.kill()
    await process.communicate()
    assert await queries(firestore) == queries_of(BIRDS)
    assert "holds no whole corpus" in said(await evaluation("run", "--model", "local", status=1))
    await evaluation.load(FISH)
    assert set(await memories(firestore)) == {"eel", "pike"}
    await evaluation.run()


@pytest.mark.slow
async def test_ctrl_c_ends_a_run_with_one_json_object(
    firestore: AsyncClient, emulator_host: str, project: str, evaluation: Evaluation
) -> None:
    many = [memory(f"bird-{number}", f"Bird {number} sings") for number in range(1_000)]
    pack = evaluation.file({**BIRDS, "memories": [*many, *BIRDS["memories"]]})
    options = ("--pack", pack, "--project", project, "--model", "local", "--json")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "ops", "eval", "run", *options),
        env={name: value for name, value in SETTINGS.items() if value} | surroundings(emulator_host),
        stdout=subprocess.PIPE,
    )
    while len(await firestore.collection(COLLECTION).select([]).get()) <= 10:
        assert process.returncode is None
    process.send_signal(signal.SIGINT)
    out, _ = await process.communicate()
    told = json.loads(out)
    assert (process.returncode, told["ok"]) == (1, False)
    assert told["error"].startswith("Stopped before the end")


def surroundings(emulator_host: str) -> dict[str, str]:
    """What a process of its own needs to run the command."""
    path = os.pathsep.join([str(ROOT / "scripts"), str(ROOT / "functions")])
    return {"PATH": os.environ["PATH"], "PYTHONPATH": path, "FIRESTORE_EMULATOR_HOST": emulator_host}


# --- Models that fail ---


class _Sized(PlaneEmbedder):
    """Texts in a space of so many dimensions."""

    def __init__(self, dimensions: int) -> None:
        super().__init__()
        self.space = replace(self.space, model="sized", dimensions=dimensions)

    async def embed_documents(
        self, documents: Sequence[ports.Document], *, text_format: str
    ) -> list[tuple[float, ...]]:
        return [(1.0, *[0.0] * (self.space.dimensions - 1)) for _ in documents]


class _Refusing(_Sized):
    """Fails a number of times, and works then."""

    def __init__(self, error: Exception, times: int) -> None:
        super().__init__(2)
        self._error = error
        self.left = times

    async def embed_documents(
        self, documents: Sequence[ports.Document], *, text_format: str
    ) -> list[tuple[float, ...]]:
        if self.left:
            self.left -= 1
            raise self._error
        return await super().embed_documents(documents, text_format=text_format)


async def _load_in_process(firestore: AsyncClient, project: str, pack: Pack, embedder: PlaneEmbedder) -> None:
    plan = read_plan(project, Model.LOCAL, None)
    plan = replace(plan, models=replace(plan.models, embedder=embedder))
    await load(plan, firestore, pack, lambda *_: None)


def _json(document: Document) -> bytes:
    return json.dumps(document).encode()


def _document(pack: Pack) -> Document:
    return json.loads(pack.to_json())


async def test_a_model_that_asks_for_fewer_requests_is_asked_again(
    firestore: AsyncClient, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eval_load, "PAUSES", (0.0,) * 3)
    busy = _Refusing(RateLimited("Slow down."), times=4)
    await _load_in_process(firestore, project, parse_pack(_json(BIRDS), "birds"), busy)
    assert set(await memories(firestore)) == {"owl", "heron", "swift"}


@pytest.mark.parametrize("error", [RateLimited("Slow down."), ModelFailed("No words.")])
async def test_a_memory_that_cannot_be_saved_is_named(
    firestore: AsyncClient, project: str, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(eval_load, "PAUSES", (0.0,))
    pack = parse_pack(_json({**BIRDS, "memories": [SWIFT, OWL, HERON]}), "birds")
    with pytest.raises(Exception, match=r"The memory \w+ could not be written\. ") as raised:
        await _load_in_process(firestore, project, pack, _Refusing(error, times=1_000))
    assert str(raised.value).endswith(str(error))
