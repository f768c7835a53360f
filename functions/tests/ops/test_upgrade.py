"""`metacortex upgrade` as an owner runs it, over documents that MetaCortex 0.3 left in the emulator."""

import asyncio
import functools
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.base_query import FieldFilter
from google.cloud.firestore_v1.vector import Vector
from typer.testing import CliRunner, Result

from builders import NOON, FakeClock, Service
from channel import Channel, Meanwhile
from metacortex.adapters.local_models import LocalEmbedder
from metacortex.bootstrap import Stores
from metacortex.ports import Document
from old_data import DATABASE, DAY, EVENTS, FINGERPRINTS, MEMORIES, MINUTE, THEN, old_memory, store, stored
from ops.checkout import ROOT
from ops.cli import app
from ops.endpoints import PROJECT
from ops.progress import lines

SPACE = "plane@2/plain"
NAMED = {"current": SPACE, "spaces": {SPACE: "embedding"}}
WRITTEN = {
    "memories": {"found": 6, "lacking": 6, "written": 6},
    "fingerprints": {"found": 1, "lacking": 1, "written": 1},
    "memory_events": {"found": 2, "lacking": 2, "written": 2},
    "retrieval_query_events": {"found": 1, "lacking": 1, "written": 1},
}


Command = Callable[..., Awaitable[Result]]


def invoke(*arguments: str, **env: str) -> Result:
    return CliRunner().invoke(app, ["upgrade", *arguments], env=env or None, catch_exceptions=False)


@pytest.fixture
async def command(monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs the command in a thread, and what it awaits in the loop of the test: grpc's poller belongs to that."""
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(asyncio, "run", lambda work: asyncio.run_coroutine_threadsafe(work, loop).result())
    return functools.partial(asyncio.to_thread, invoke)


@pytest.fixture
def upgrade(firestore: AsyncClient, project: str, command: Command) -> Command:
    """Runs the command for the database of this test."""

    async def run(*arguments: str, space: str = SPACE, status: int = 0, **env: str) -> Result:
        result = await command("--space", space, "--project", project, *arguments, **env)
        assert result.exit_code == status, result.output
        return result

    return run


async def document(firestore: AsyncClient, collection: str, name: str) -> dict[str, Any]:
    snapshot = await firestore.collection(collection).document(name).get()
    return snapshot.to_dict() or {}


async def memory(firestore: AsyncClient, name: str) -> dict[str, Any]:
    """A memory but for its words, which have a test of their own."""
    found = await document(firestore, "memory_vectors", name)
    found.pop("terms")
    return found


def moment(milliseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


def said(result: Result) -> str:
    """What was said on standard error, on one line; nothing was printed beside it."""
    assert result.stdout == ""
    return " ".join(result.stderr.split())


# --- What is written ---


async def test_a_dry_run_tells_what_is_lacking_and_changes_nothing(firestore: AsyncClient, upgrade: Command) -> None:
    await store(firestore)
    before = await stored(firestore)
    result = await upgrade()
    assert await stored(firestore) == before
    assert "memories                6 found, 6 lack something" in result.stdout
    assert "vectors                 6 looked at: 2 dimensions, lengths from 0.5 to 0.5." in result.stdout
    assert "which the collection does not name yet" in result.stdout
    assert result.stdout.endswith("Nothing was written. To do it, run the same command with --write.\n")


async def test_every_memory_gets_what_it_lacks_and_keeps_all_else(firestore: AsyncClient, upgrade: Command) -> None:
    await store(firestore)
    await upgrade("--write")
    assert await document(firestore, "memory_vectors_meta", "space") == NAMED
    for name, before in MEMORIES.items():
        metadata = {**before["metadata"], "provenance": {"origin": "legacy_import"}}
        if name == "image":
            metadata["modality"] = "mixed"
        added = {"embedding_space": SPACE, "summary": " ".join(before["content"].split()), "metadata": metadata}
        if name == "long":
            added["summary"] = before["content"][:217] + "..."
        assert await memory(firestore, name) == {**before, **added}


async def test_memories_are_found_by_their_words_afterwards(
    firestore: AsyncClient, firestore_stores: Stores, upgrade: Command
) -> None:
    await store(firestore)
    await upgrade("--write")
    matches = await Service(stores=firestore_stores).search("owls 2023 at 200")
    assert {match["matched_by"] for match in matches} == {"both"}


async def test_fingerprints_and_events_get_the_time_at_which_firestore_deletes_them(
    firestore: AsyncClient, upgrade: Command
) -> None:
    await store(firestore)
    await upgrade("--write")
    [(name, fingerprint)] = FINGERPRINTS.items()
    ended = THEN + 15 * MINUTE
    assert await document(firestore, "memory_vectors_write_fingerprints", name) == {
        **fingerprint,
        "expires_at": moment(ended),
        "dedupe_expires_at": ended,
    }
    for name, event in EVENTS.items():
        assert await document(firestore, "memory_events", name) == {**event, "expires_at": moment(THEN + 90 * DAY)}
    query = await document(firestore, "retrieval_query_events", "query-1")
    assert query["expires_at"] == moment(THEN + 90 * DAY)


async def test_the_running_service_works_on_it_at_once(
    firestore: AsyncClient, firestore_stores: Stores, upgrade: Command
) -> None:
    await store(firestore)
    service = Service(stores=firestore_stores)
    await service.call("list_context", "default")
    await upgrade("--write")
    item = await service.save("New at 11")
    assert [match["id"] for match in await service.search("at 11", limit=2)] == [item["id"], "text"]
    assert (await service.search("at 20", limit=1))[0]["summary"] == MEMORIES["long"]["content"][:217] + "..."
    listed = await service.call("list_context", "default", filter_origin="legacy_import")
    assert [entry["id"] for entry in listed["items"]] == ["long", "image", "noted", "text"]
    answer = await service.call("deprecate_context", "default", id="text", superseding_id=item["id"])
    assert answer["previous_state"] == "active"
    again = await service.call("deprecate_context", "default", id="replaced", superseding_id="text")
    assert again["previous_state"] == "deprecated"


async def test_what_a_memory_without_metadata_is_taken_for_is_stored_so_that_it_is_found(
    firestore: AsyncClient, firestore_stores: Stores, upgrade: Command
) -> None:
    bare = {name: value for name, value in old_memory("Bare at 10", 10).items() if name != "metadata"}
    await store(firestore, {"memory_vectors": {"bare": bare}})
    await upgrade("--write")
    service = Service(stores=firestore_stores)
    [listed] = (await service.call("list_context", "default"))["items"]
    [match] = await service.search("at 10")
    assert match["metadata"] == listed["metadata"]
    assert (match["metadata"]["topic"], match["metadata"]["branch_state"]) == ("general", "active")
    created_at = datetime.fromisoformat(match["metadata"]["created_at"])
    assert abs(created_at - datetime.now(UTC)) < timedelta(minutes=5)


async def test_values_that_are_no_times_are_passed_over_or_replaced(firestore: AsyncClient, upgrade: Command) -> None:
    spoilt = {"id": "x", "expires_at": float("nan")}
    await store(
        firestore,
        {
            "memory_vectors": MEMORIES,
            "memory_vectors_write_fingerprints": {"ab": spoilt},
            "memory_events": {"no-time": {"timestamp": "yesterday", "expires_at": 1e300}},
        },
    )
    counts = json.loads((await upgrade("--write", "--json")).stdout)["documents"]
    assert counts["fingerprints"] == {"found": 1, "lacking": 0, "written": 0}
    expires_at = (await document(firestore, "memory_events", "no-time"))["expires_at"]
    assert abs(expires_at - datetime.now(UTC) - timedelta(days=90)) < timedelta(minutes=5)
    assert "Nothing to do" in (await upgrade()).stdout


# --- Again, and beside others ---


async def test_repeating_it_reads_but_writes_nothing(
    channel: Channel, firestore: AsyncClient, upgrade: Command
) -> None:
    await store(firestore)
    await upgrade("--write")
    before = await stored(firestore)
    channel.requests.clear()
    result = await upgrade("--write")
    assert "Commit" not in channel.calls
    assert result.stdout.endswith("Nothing to do: every document has what today's schema wants.\n")
    assert "which the collection names already" in result.stdout
    assert await stored(firestore) == before


async def test_of_a_mixed_collection_only_the_old_documents_are_written(
    firestore: AsyncClient, firestore_stores: Stores, upgrade: Command
) -> None:
    service = Service(stores=firestore_stores)
    for number in range(3):
        await service.save(f"New at {number}")
    before = await stored(firestore)
    await store(firestore)
    counts = json.loads((await upgrade("--write", "--json")).stdout)["documents"]
    assert counts["memories"] == {"found": 9, "lacking": 6, "written": 6}
    assert counts["memory_events"] == {"found": 5, "lacking": 2, "written": 2}
    after = await stored(firestore)
    assert {path: after[path] for path in before} == before


async def test_vectors_of_another_field_are_not_put_into_the_first_space(
    firestore: AsyncClient, upgrade: Command
) -> None:
    two = {"current": "other@3/plain", "spaces": {SPACE: "embedding", "other@3/plain": "embedding_2"}}
    new = {
        "content": "New",
        "summary": "New",
        "embedding_2": Vector([1.0, 0.0, 0.0]),
        "metadata": {**MEMORIES["text"]["metadata"], "provenance": {"origin": "agent_inferred"}},
    }
    await store(firestore, {"memory_vectors": {**MEMORIES, "new": new}, "memory_vectors_meta": {"space": two}})
    await upgrade("--write")
    assert await memory(firestore, "new") == new
    assert (await document(firestore, "memory_vectors", "text"))["embedding_space"] == SPACE
    assert await document(firestore, "memory_vectors_meta", "space") == two


async def test_a_deprecation_meanwhile_is_kept(
    channel: Channel, firestore: AsyncClient, firestore_stores: Stores, upgrade: Command
) -> None:
    # Without a state of its own: when the upgrade read it, active was what it lacked.
    stateless = {name: value for name, value in MEMORIES["image"]["metadata"].items() if name != "branch_state"}
    image = {**MEMORIES["image"], "metadata": stateless}
    await store(firestore, {**DATABASE, "memory_vectors": {**MEMORIES, "image": image}})
    service = Service(stores=firestore_stores)
    meanwhile = Meanwhile("memory_vectors/image", lambda: service.call("deprecate_context", "default", id="image"))
    channel.interceptors.insert(0, meanwhile)
    counts = json.loads((await upgrade("--write", "--json")).stdout)["documents"]
    assert meanwhile.happened
    assert counts == WRITTEN
    assert await memory(firestore, "image") == {
        **image,
        "embedding_space": SPACE,
        "summary": "My chart",
        "metadata": {
            **stateless,
            "branch_state": "deprecated",
            "modality": "mixed",
            "updated_at": NOON,
            "valid_until": NOON,
            "supersession_reason": "changed",
            "provenance": {"origin": "legacy_import"},
        },
    }


async def test_a_fingerprint_that_firestore_deletes_meanwhile_is_not_made_again(
    channel: Channel, firestore: AsyncClient, upgrade: Command
) -> None:
    await store(firestore)
    [name] = FINGERPRINTS
    gone = firestore.collection("memory_vectors_write_fingerprints").document(name)
    meanwhile = Meanwhile(name, gone.delete)
    channel.interceptors.insert(0, meanwhile)
    counts = json.loads((await upgrade("--write", "--json")).stdout)["documents"]
    assert meanwhile.happened
    assert counts["fingerprints"] == {"found": 1, "lacking": 1, "written": 0}
    assert not (await gone.get()).exists


async def test_another_space_that_is_named_meanwhile_is_obeyed(
    channel: Channel, firestore: AsyncClient, upgrade: Command
) -> None:
    await store(firestore)
    space = firestore.collection("memory_vectors_meta").document("space")
    other = {"current": "sphere@2/plain", "spaces": {"sphere@2/plain": "embedding"}}
    channel.interceptors.insert(0, Meanwhile("memory_vectors_meta/space", lambda: space.create(other)))
    assert "names the space sphere@2/plain already" in said(await upgrade("--write", status=1))
    assert await document(firestore, "memory_vectors", "text") == MEMORIES["text"]


@pytest.mark.slow
async def test_what_is_killed_in_the_middle_is_completed_by_the_next_run(
    firestore: AsyncClient, emulator_host: str, project: str, upgrade: Command
) -> None:
    many = {f"m-{number}": old_memory(f"Memory {number} at {number}", number) for number in range(1_500)}
    await store(firestore, {**DATABASE, "memory_vectors": many})
    upgraded = firestore.collection("memory_vectors").where(filter=FieldFilter("embedding_space", "==", SPACE)).count()
    command = [sys.executable, "-P", "-m", "ops", "upgrade", "--space", SPACE, "--project", project, "--write"]
    process = await asyncio.create_subprocess_exec(*command, env=surroundings(emulator_host), stdout=subprocess.DEVNULL)
    while not (await upgraded.get())[0][0].value:
        assert process.returncode is None
    process.kill()
    await process.wait()
    memories = json.loads((await upgrade("--write", "--json")).stdout)["documents"]["memories"]
    # What was under way when it was killed may have arrived since.
    assert 0 < memories["written"] <= memories["lacking"] < memories["found"] == 1_500
    assert "Nothing to do" in (await upgrade()).stdout
    for name in ("m-0", "m-777", "m-1499"):
        after = await document(firestore, "memory_vectors", name)
        assert after["embedding"] == many[name]["embedding"]
        assert after["summary"] == many[name]["content"]


@pytest.mark.slow
async def test_ctrl_c_is_told_with_what_was_done(firestore: AsyncClient, emulator_host: str, project: str) -> None:
    many = {f"m-{number}": old_memory(f"Memory {number} at {number}", number) for number in range(1_500)}
    await store(firestore, {**DATABASE, "memory_vectors": many})
    upgraded = firestore.collection("memory_vectors").where(filter=FieldFilter("embedding_space", "==", SPACE)).count()
    options = ("--space", SPACE, "--project", project, "--write", "--json")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "ops", "upgrade", *options),
        env=surroundings(emulator_host),
        stdout=subprocess.PIPE,
    )
    while not (await upgraded.get())[0][0].value:
        assert process.returncode is None
    process.send_signal(signal.SIGINT)
    out, _ = await process.communicate()
    told = json.loads(out)
    assert (process.returncode, told["ok"]) == (1, False)
    assert told["error"].startswith("Stopped. Whatever was written is whole")
    assert told["documents"]["memories"]["written"] < 1_500


async def test_a_memory_that_the_store_does_not_take_is_named_and_stops_no_other(
    firestore: AsyncClient, upgrade: Command
) -> None:
    large = old_memory("Owls hunt at 10 " + "z" * 1_048_000, 10)
    await store(firestore, {"memory_vectors": {**MEMORIES, "large": large}})
    for written in (6, 0):
        result = await upgrade("--write", status=1)
        assert f"7 found, {written} written" in result.stdout
        assert "memory_vectors/large: the store does not take it: " in result.stdout
        assert result.stdout.endswith("complete but for 1 document, which stays as it was.\n")
    answer = json.loads((await upgrade("--write", "--json", status=1)).stdout)
    assert (answer["ok"], list(answer["refused"])) == (False, ["memory_vectors/large"])
    assert await document(firestore, "memory_vectors", "large") == large


# --- What is refused ---


async def test_vectors_of_other_dimensions_are_refused(firestore: AsyncClient, upgrade: Command) -> None:
    await store(firestore)
    await store(firestore, {"memory_vectors": {"odd": {**MEMORIES["text"], "embedding": Vector([1.0, 0.0, 0.0])}}})
    before = await stored(firestore)
    assert "Of 7 vectors looked at, 1 have not 2 dimensions: that of odd has 3." in said(
        await upgrade("--write", status=1)
    )
    assert "6 have not 3 dimensions" in said(await upgrade("--write", space="plane@3/plain", status=1))
    assert await stored(firestore) == before


async def test_memories_that_cannot_be_compared_are_named_and_do_not_stop_the_others(
    firestore: AsyncClient, upgrade: Command
) -> None:
    vectors: Mapping[str, Any] = {
        "zero": Vector([0.0, 0.0]),
        "endless": Vector([float("inf"), 1.0]),
        "list": [1.0, 0.0],
    }
    spoilt = {name: {**MEMORIES["text"], "embedding": vector} for name, vector in vectors.items()}
    await store(firestore, {"memory_vectors": {**MEMORIES, **spoilt}})
    result = await upgrade("--write", "--json")
    assert json.loads(result.stdout)["vectors"] == {
        "looked_at": 9,
        "unusable": ["endless", "list", "zero"],
        "shortest": pytest.approx(0.5),
        "longest": pytest.approx(0.5),
        "least_cosine": None,
    }
    told = (await upgrade()).stdout
    assert "3 of them cannot be compared, so no search finds these memories: endless, list, zero." in told


async def test_a_collection_without_any_vector_is_refused(firestore: AsyncClient, upgrade: Command) -> None:
    await store(firestore, {"memory_vectors": {"list": {**MEMORIES["text"], "embedding": [1.0, 0.0]}}})
    assert "None of 1 memories looked at has a vector" in said(await upgrade("--write", status=1))
    assert await document(firestore, "memory_vectors_meta", "space") == {}


async def test_a_collection_that_names_another_space_is_refused(firestore: AsyncClient, upgrade: Command) -> None:
    await store(firestore)
    await store(firestore, {"memory_vectors_meta": {"space": NAMED}})
    sentence = said(await upgrade("--write", space="sphere@2/plain", status=1))
    assert f"names the space {SPACE} already" in sentence
    assert await document(firestore, "memory_vectors", "text") == MEMORIES["text"]


async def test_memories_that_say_they_are_of_another_space_are_refused(
    firestore: AsyncClient, upgrade: Command
) -> None:
    await store(firestore)
    claiming = {**MEMORIES["text"], "embedding_space": "sphere@2/plain"}
    await store(firestore, {"memory_vectors": {"claiming": claiming}})
    assert "are of sphere@2/plain" in said(await upgrade("--write", status=1))
    assert await document(firestore, "memory_vectors_meta", "space") == {}


async def test_a_collection_without_memories_is_refused(firestore: AsyncClient, upgrade: Command, project: str) -> None:
    await store(firestore, {"memory_events": EVENTS})
    sentence = said(await upgrade("--write", "--collection", "elsewhere", status=1))
    assert f"elsewhere of {project} in the emulator" in sentence
    assert "holds no memories" in sentence
    assert set(await stored(firestore)) == {f"memory_events/{name}" for name in EVENTS}


async def test_another_collection_is_upgraded_with_its_own_siblings(firestore: AsyncClient, upgrade: Command) -> None:
    await store(firestore, {"mine": MEMORIES, "mine_write_fingerprints": FINGERPRINTS, "memory_vectors": MEMORIES})
    await upgrade("--write", "--collection", "mine")
    assert await document(firestore, "mine_meta", "space") == NAMED
    assert (await document(firestore, "mine", "text"))["embedding_space"] == SPACE
    [fingerprint] = FINGERPRINTS
    assert "dedupe_expires_at" in await document(firestore, "mine_write_fingerprints", fingerprint)
    assert await document(firestore, "memory_vectors", "text") == MEMORIES["text"]


# --- Whether the model is the one that is named ---


async def of_the_local_model(*texts: str) -> dict[str, dict[str, Any]]:
    embedder = LocalEmbedder()
    documents = [Document(text=text, topic="") for text in texts]
    vectors = await embedder.embed_documents(documents, text_format="plain")
    return {
        text: {**old_memory(text), "embedding": Vector(vector)} for text, vector in zip(texts, vectors, strict=True)
    }


LOCAL = "wordllama-l2-supercat@256/plain"


async def test_the_named_model_can_be_tried_on_what_is_stored(firestore: AsyncClient, upgrade: Command) -> None:
    texts = [f"The owl number {number} lives in a barn" for number in range(8)]
    await store(firestore, {"memory_vectors": await of_the_local_model(*texts)})
    told = (await upgrade("--verify", space=LOCAL, MODEL_PROVIDER="local")).stdout
    assert "makes the same vectors of a few of these texts (least cosine 1.000)" in told


async def test_a_model_that_makes_other_vectors_is_refused(firestore: AsyncClient, upgrade: Command) -> None:
    memories = await of_the_local_model("Owls live in barns", "Frogs live in ponds")
    swapped = {
        name: {**other, "content": name} for name, other in zip(memories, reversed(memories.values()), strict=True)
    }
    await store(firestore, {"memory_vectors": swapped})
    sentence = said(await upgrade("--verify", "--write", space=LOCAL, status=1, MODEL_PROVIDER="local"))
    assert "makes other vectors of these texts than those stored (the least cosine of 2 is 0." in sentence
    assert await document(firestore, "memory_vectors_meta", "space") == {}


async def test_memories_with_images_are_not_compared(firestore: AsyncClient, upgrade: Command) -> None:
    [memory] = (await of_the_local_model("A chart")).values()
    memory["metadata"]["modality"] = "text_image"
    await store(firestore, {"memory_vectors": {"chart": memory}})
    sentence = said(await upgrade("--verify", space=LOCAL, status=1, MODEL_PROVIDER="local"))
    assert "leave out --verify" in sentence


async def test_a_route_without_the_named_model_is_a_wrong_setting(upgrade: Command) -> None:
    sentence = said(await upgrade("--verify", space="sphere@256/plain", status=2, MODEL_PROVIDER="local"))
    assert "MODEL_PROVIDER is local" in sentence
    sentence = said(await upgrade("--verify", status=2, MODEL_PROVIDER="vertex"))
    assert "GEMINI_EMBEDDING_DIMENSIONS must be a whole number from 128 to 2048" in sentence


# --- How it is called ---


async def test_json_is_one_object_and_nothing_else(firestore: AsyncClient, upgrade: Command, project: str) -> None:
    await store(firestore)
    result = await upgrade("--write", "--json")
    assert result.stderr == ""
    assert json.loads(result.stdout) == {
        "ok": True,
        "project": project,
        "emulator": os.environ["FIRESTORE_EMULATOR_HOST"],
        "collection": "memory_vectors",
        "space": SPACE,
        "write": True,
        "named_before": False,
        "vectors": {
            "looked_at": 6,
            "unusable": [],
            "shortest": pytest.approx(0.5),
            "longest": pytest.approx(0.5),
            "least_cosine": None,
        },
        "documents": WRITTEN,
        "refused": {},
        "error": None,
    }


async def test_a_refusal_as_json_says_why(upgrade: Command) -> None:
    result = await upgrade("--json", status=1)
    answer = json.loads(result.stdout)
    assert (answer["ok"], result.stderr) == (False, "")
    assert "holds no memories" in answer["error"]


def test_the_project_is_never_guessed_outside_the_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FIRESTORE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GCLOUD_PROJECT", "some-project")
    result = invoke("--space", SPACE)
    assert result.exit_code == 2
    assert "--project: is needed" in result.stderr


async def test_in_the_emulator_the_project_is_that_of_the_scripts(
    emulator_host: str, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", emulator_host)
    result = await command("--space", SPACE, "--collection", "nobody_has_this", "--json")
    assert json.loads(result.stdout)["project"] == PROJECT


def test_without_credentials_it_says_how_to_get_some(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FIRESTORE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    result = invoke("--space", SPACE, "--project", "demo-nobody")
    assert result.exit_code == 1
    assert "`gcloud auth application-default login`" in said(result)


@pytest.mark.slow
async def test_an_emulator_that_is_gone_is_told(monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", "127.0.0.1:1")
    result = await command("--space", SPACE)
    assert result.exit_code == 1
    assert "No emulator answers at 127.0.0.1:1" in said(result)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--space", "plane"], "is not MODEL@DIMENSIONS/plain"),
        (["--space", "plane@2"], "is not MODEL@DIMENSIONS/plain"),
        (["--space", "plane@2/prefix"], "its spaces end in /plain, not in /prefix"),
        (["--space", SPACE, "--collection", "a/b"], "must be the name of a Firestore collection"),
        ([], "Missing option '--space'"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], sentence: str
) -> None:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", "127.0.0.1:1")
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert sentence in said(result)


def test_the_help_shows_the_command_that_refusals_name() -> None:
    told = " ".join(invoke("--help").stdout.split())
    assert "--space MODEL@DIMENSIONS/plain" in told
    assert "./scripts/metacortex upgrade --space gemini-embedding-001@768/plain --project PROJECT --write" in told


# --- Progress ---


def test_a_line_tells_the_progress_every_two_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    clock = FakeClock(0)
    tell = lines(lambda: clock.now / 60_000)
    for done in (500, 1_000, 1_500):
        clock.advance(minutes=1.5)
        tell("Reading memories", done, None)
    clock.advance(minutes=1)
    tell("Writing memories", 50, 2_000)
    assert capsys.readouterr().err == "Reading memories: 1,000\nWriting memories: 50 of 2,000\n"


@pytest.mark.slow
async def test_a_terminal_shows_the_progress(firestore: AsyncClient, emulator_host: str, project: str) -> None:
    await store(firestore)
    env = {**surroundings(emulator_host), "TERM": "xterm"}
    command = [sys.executable, "-P", "-m", "ops", "upgrade", "--space", SPACE, "--project", project, "--write"]
    shown, printed = await asyncio.to_thread(run_at_a_terminal, command, env)
    assert "Writing memories" in shown
    assert "6/6" in shown
    assert "Writing" not in printed
    assert printed.endswith("The upgrade is complete.\n")


def run_at_a_terminal(command: list[str], env: dict[str, str]) -> tuple[str, str]:
    """What a program that must succeed shows on standard error, where that is a terminal, and what it prints."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=theirs, text=True) as process:
        os.close(theirs)
        shown = b""
        # Linux answers with an error, macOS with nothing, once nobody can write any more.
        with suppress(OSError):
            while read := os.read(ours, 4096):
                shown += read
        printed, _ = process.communicate()
    os.close(ours)
    assert process.returncode == 0
    return shown.decode(), printed


def surroundings(emulator_host: str) -> dict[str, str]:
    """What a process of its own needs to run the command."""
    path = os.pathsep.join([str(ROOT / "scripts"), str(ROOT / "functions")])
    return {"PATH": os.environ["PATH"], "PYTHONPATH": path, "FIRESTORE_EMULATOR_HOST": emulator_host}
