"""Two processes that serve one store at once: nothing is lost, nothing is doubled."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest
from google.cloud.firestore_v1.async_client import AsyncClient

from builders import ToolError, environment
from gemini_api import GeminiApi, surroundings
from served import Served, running_service, stored
from web.wire import serving

pytestmark = pytest.mark.slow

Pair = tuple[Served, Served]


@pytest.fixture
def settings(emulator_host: str, project: str) -> dict[str, str]:
    return environment(FIRESTORE_EMULATOR_HOST=emulator_host, GCLOUD_PROJECT=project)


@pytest.fixture
async def pair(settings: dict[str, str], firestore: AsyncClient) -> AsyncGenerator[Pair]:
    """Two processes that have served a call each, of a collection that is still without a name for its space."""
    async with running_service(settings) as one, running_service(settings) as other:
        await asyncio.gather(one.search("anything"), other.search("anything"))
        yield one, other


async def save_at_once(services: Sequence[Served], contents: Sequence[str]) -> list[dict[str, Any]]:
    """The answers to a save of each text, all sent at once, to the services in turn."""
    return await asyncio.gather(
        *(
            services[i % len(services)].call("save_context", content=content, topic="race")
            for i, content in enumerate(contents)
        )
    )


async def test_different_saves_at_once_make_a_memory_each(pair: Pair, firestore: AsyncClient) -> None:
    contents = [f"Fact {i:02}" for i in range(25)]
    answers = await save_at_once(pair, contents)
    ids = {answer["item"]["id"] for answer in answers}
    kept = await stored(firestore)
    assert {answer["write_status"] for answer in answers} == {"created"}
    assert kept.contents() == contents
    assert kept.memories.keys() == ids
    assert {fingerprint["id"] for fingerprint in kept.fingerprints.values()} == ids
    assert sorted(event["response"]["id"] for event in kept.events_of("save_context")) == sorted(ids)
    assert {memory["embedding_space"] for memory in kept.memories.values()} == {kept.spaces["space"]["current"]}


async def test_equal_saves_at_once_make_one_memory_that_all_are_told(pair: Pair, firestore: AsyncClient) -> None:
    answers = await save_at_once(pair, ["The same fact"] * 20)
    [memory_id] = {answer["item"]["id"] for answer in answers}
    kept = await stored(firestore)
    assert sorted(answer["write_status"] for answer in answers) == ["created"] + ["duplicate"] * 19
    assert list(kept.memories) == [memory_id]
    assert [fingerprint["id"] for fingerprint in kept.fingerprints.values()] == [memory_id]
    told = [event["response"] for event in kept.events_of("save_context")]
    assert sorted(response["write_status"] for response in told) == ["created"] + ["duplicate"] * 19


async def test_equal_saves_at_once_after_the_window_of_an_earlier_one_make_one_more(
    pair: Pair, firestore: AsyncClient
) -> None:
    [first] = await save_at_once(pair, ["The same fact"])
    [fingerprint_id] = (await stored(firestore)).fingerprints
    fingerprint = firestore.collection("memory_vectors_write_fingerprints").document(fingerprint_id)
    await fingerprint.update({"dedupe_expires_at": 0})
    answers = await save_at_once(pair, ["The same fact"] * 20)
    [memory_id] = {answer["item"]["id"] for answer in answers}
    kept = await stored(firestore)
    assert sorted(answer["write_status"] for answer in answers) == ["created"] + ["duplicate"] * 19
    assert kept.memories.keys() == {first["item"]["id"], memory_id}
    assert kept.fingerprints[fingerprint_id]["id"] == memory_id


async def test_of_two_memories_that_replace_each_other_at_once_one_stays(pair: Pair, firestore: AsyncClient) -> None:
    first, second = await pair[0].save("First"), await pair[0].save("Second")
    outcomes = await asyncio.gather(
        deprecation(pair[0], first["id"], by=second["id"]), deprecation(pair[1], second["id"], by=first["id"])
    )
    kept = await stored(firestore)
    states = [memory["metadata"]["branch_state"] for memory in kept.memories.values()]
    assert sorted(outcomes) == ["conflict", "deprecated"]
    assert sorted(states) == ["active", "deprecated"]
    assert len(kept.events_of("deprecate_context")) == 1


async def deprecation(service: Served, memory_id: str, *, by: str) -> str:
    """How a deprecation ends: the new state, or the code of its error."""
    try:
        answer = await service.call("deprecate_context", "default", id=memory_id, superseding_id=by)
    except ToolError as error:
        return error.code
    return answer["item"]["branch_state"]


async def test_of_two_models_that_are_first_at_once_one_names_the_space_and_the_other_stores_nothing(
    settings: dict[str, str], firestore: AsyncClient, tmp_path: Path
) -> None:
    with serving(GeminiApi().app) as api:
        gemini = {"MODEL_PROVIDER": "gemini", "GEMINI_API_KEY": "a-gemini-key-of-the-tests"}
        gemini |= surroundings(f"http://127.0.0.1:{api.port}", tmp_path)
        async with running_service(settings) as one, running_service(settings | gemini) as other:
            await asyncio.gather(one.search("anything"), other.search("anything"))
            outcomes = await asyncio.gather(*(outcome((one, other)[i % 2], f"Fact {i}") for i in range(10)))
    kept = await stored(firestore)
    assert sorted((set(outcomes[::2]), set(outcomes[1::2])), key=min) == [{"created"}, {"embedding_space_mismatch"}]
    assert [memory["embedding_space"] for memory in kept.memories.values()] == [kept.spaces["space"]["current"]] * 5
    assert len(kept.fingerprints) == 5


async def outcome(service: Served, content: str) -> str:
    """How a save ends: its write status, or the code of its error."""
    try:
        return (await service.call("save_context", content=content))["write_status"]
    except ToolError as error:
        return error.code
