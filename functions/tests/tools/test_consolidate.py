"""consolidate_context, as a client sees it."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from builders import NOON, TOKENS, ProtocolError, Service, ToolError, environment, in_memory, plane_models
from fakes import FailingEmbedder, InMemoryMemories, PlaneEmbedder, SeeingImages
from images import PNG_BASE64
from metacortex import rules
from metacortex.errors import ModelFailed, Unavailable
from metacortex.memory import Memory
from metacortex.service import MERGES_AT_ONCE
from metacortex.spaces import CollectionSpaces, Space


@dataclass
class ListeningMerger:
    """The Merger port: answers a text of a test's choice, remembers what it was asked, and lets things happen meanwhile."""

    answer: str | Exception = "Merged, at 50"
    asked: list[tuple[str, Sequence[Memory]]] = field(default_factory=list[tuple[str, Sequence[Memory]]])
    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def merge(self, sources: Sequence[Memory], *, topic: str) -> str:
        self.asked.append((topic, sources))
        if self.meanwhile:
            await self.meanwhile()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def merger() -> ListeningMerger:
    return ListeningMerger()


@pytest.fixture
def service(merger: ListeningMerger) -> Service:
    return Service(models=plane_models(merger=merger))


async def consolidate(service: Service, profile: str = "default", **arguments: Any) -> dict[str, Any]:
    return await service.call("consolidate_context", profile, **arguments)


async def refusal(service: Service, profile: str = "default", **arguments: Any) -> ToolError:
    """The error of a consolidation that changes nothing."""
    assert isinstance(service.stores.memories, InMemoryMemories)
    before = dict(service.stores.memories.stored)
    with pytest.raises(ToolError) as error:
        await consolidate(service, profile, **arguments)
    assert service.stores.memories.stored == before
    return error.value


async def drafts(service: Service, count: int, **arguments: Any) -> list[str]:
    """The ids of so many drafts, oldest first."""
    ids: list[str] = []
    for number in range(count):
        service.clock.advance(minutes=1)
        ids.append((await service.save(f"Draft {number} at {number}", "default", draft=True, **arguments))["id"])
    return ids


# --- Merges at once ---


async def test_four_merges_run_at_once_and_one_more_is_told_to_come_back(
    service: Service, merger: ListeningMerger
) -> None:
    topics = [f"Topic {number}" for number in range(MERGES_AT_ONCE)]
    for topic in (*topics, "One more"):
        await drafts(service, 2, topic=topic)
    running, may_end = asyncio.Barrier(len(topics) + 1), asyncio.Event()

    async def wait() -> None:
        await running.wait()
        await may_end.wait()

    merger.meanwhile = wait
    async with asyncio.timeout(10):
        merges = [asyncio.create_task(consolidate(service, topic=topic, preview=True)) for topic in topics]
        await running.wait()
        for preview in (True, False):
            assert (await refusal(service, topic="One more", preview=preview)).status == 429
        may_end.set()
        await asyncio.gather(*merges)
    merger.meanwhile = None
    assert (await consolidate(service, topic="One more"))["source_count"] == 2


# --- Drafts of a topic ---


async def test_the_drafts_of_a_topic_become_one_active_memory(service: Service, merger: ListeningMerger) -> None:
    ids = await drafts(service, 3, topic="Birds")
    await drafts(service, 2, topic="Fish")
    service.clock.advance(minutes=1)
    answer = await consolidate(service, topic=" Birds ")
    merged = answer["item"]
    assert answer == {
        "item": {
            "merged_id": merged["merged_id"],
            "merged_content": "Merged, at 50",
            "topic": "Birds",
            "branch_state": "active",
        },
        "deprecated_ids": ids,
        "source_count": 3,
        "remaining_count": 0,
    }
    [(topic, sources)] = merger.asked
    assert topic == "Birds"
    assert [source.content for source in sources] == ["Draft 0 at 0", "Draft 1 at 1", "Draft 2 at 2"]


async def test_the_merged_memory_says_where_it_comes_from(service: Service) -> None:
    ids = await drafts(service, 2)
    answer = await consolidate(service)
    shown = await service.fetch(answer["item"]["merged_id"], "default")
    assert shown["content"] == "Merged, at 50"
    assert shown["metadata"] == {
        "topic": "general",
        "branch_state": "active",
        "modality": "text",
        "created_at": rules.format_time(service.clock.now),
        "updated_at": rules.format_time(service.clock.now),
        "provenance": {"origin": "agent_inferred", "derived_from": ids},
        "written_by": "default",
    }


async def test_its_sources_are_deprecated_in_its_favour_and_leave_default_searches(service: Service) -> None:
    ids = await drafts(service, 2)
    merged_id = (await consolidate(service))["item"]["merged_id"]
    for memory_id in ids:
        shown = (await service.fetch(memory_id, "default"))["metadata"]
        assert shown["branch_state"] == "deprecated"
        assert shown["superseded_by"] == merged_id
        assert shown["supersession_reason"] == "changed"
        assert shown["initiator"] == "agent"
        assert shown["valid_until"] == rules.format_time(service.clock.now)
    assert [match["id"] for match in await service.search("at 0")] == [merged_id]
    assert [match["id"] for match in await service.search("at 50")] == [merged_id]


async def test_the_oldest_come_first_and_the_rest_is_counted() -> None:
    service = Service(settings=environment(CONSOLIDATION_BATCH_LIMIT="3"))
    ids = await drafts(service, 5)
    first = await consolidate(service)
    assert first["deprecated_ids"] == ids[:3]
    assert first["remaining_count"] == 2
    second = await consolidate(service)
    assert second["deprecated_ids"] == ids[3:]
    assert second["remaining_count"] == 0


@pytest.mark.parametrize("count", [0, 1])
async def test_fewer_than_two_drafts_are_nothing_to_merge(
    service: Service, merger: ListeningMerger, count: int
) -> None:
    await drafts(service, count)
    await service.save("Active at 1")
    await service.save("Active at 2")
    error = await refusal(service)
    assert (error.status, error.code) == (422, "nothing_to_do")
    assert merger.asked == []


# --- Named sources ---


async def test_named_sources_may_be_of_any_topic_and_state_that_counts(service: Service) -> None:
    ids = [
        (await service.save(f"Fact at {number}", "default", topic=f"t{number}", branch_state=state))["id"]
        for number, state in enumerate(["active", "merged", "wip"])
    ]
    answer = await consolidate(service, topic="Birds", source_ids=ids)
    assert answer["item"]["topic"] == "Birds"
    assert answer["deprecated_ids"] == ids
    assert answer["remaining_count"] == 0
    assert (await service.fetch(answer["item"]["merged_id"]))["metadata"]["provenance"]["derived_from"] == ids


async def test_merging_the_same_sources_again_answers_the_memory_there_is(
    service: Service, merger: ListeningMerger
) -> None:
    ids = await drafts(service, 3)
    first = await consolidate(service)
    for order in (ids, ids[::-1]):
        again = await consolidate(service, source_ids=order)
        assert again["item"] == first["item"]
        assert again["deprecated_ids"] == order
    assert len(merger.asked) == 1


async def test_another_set_of_the_same_sources_is_no_repetition(service: Service) -> None:
    ids = await drafts(service, 3)
    await consolidate(service)
    other = (await service.save("Another at 9"))["id"]
    for source_ids in (ids[:2], [*ids, other]):
        error = await refusal(service, source_ids=source_ids)
        assert error.status == 409
        assert "deprecated memory" in error.message


async def test_sources_superseded_by_hand_are_deprecated_and_not_merged(service: Service) -> None:
    ids = await drafts(service, 2)
    other = (await service.save("Another at 9"))["id"]
    for memory_id in ids:
        await service.call("deprecate_context", "default", id=memory_id, superseding_id=other)
    assert (await refusal(service, source_ids=ids)).status == 409


@pytest.mark.parametrize("memory_id", ["nothing", "", "a/b", "__x__", "x" * 1_501])
async def test_an_unknown_source_is_not_found(service: Service, merger: ListeningMerger, memory_id: str) -> None:
    [known] = await drafts(service, 1)
    error = await refusal(service, source_ids=[known, memory_id])
    assert (error.status, error.message) == (
        404,
        "source_ids names a memory that is not open to this client; check each id.",
    )
    assert merger.asked == []


@pytest.mark.parametrize(
    ("source_ids", "message"),
    [
        (["a", "a"], "source_ids names a memory twice"),
        ([str(number) for number in range(21)], "source_ids has 21 ids and the limit is 20"),
        (["a", 5], "source_ids[1]: "),
        ("a", "source_ids: "),
    ],
)
async def test_a_wrong_list_of_sources_is_refused(service: Service, source_ids: Any, message: str) -> None:
    error = await refusal(service, source_ids=source_ids)
    assert error.status == 400
    assert error.message.startswith(message)


@pytest.mark.parametrize("preview", [None, True])
async def test_fewer_than_two_sources_are_nothing_to_merge_once_they_are_known_and_count(
    service: Service, merger: ListeningMerger, *, preview: bool | None
) -> None:
    [known, retired] = await drafts(service, 2)
    await service.call("deprecate_context", "default", id=retired)
    for source_ids, status in (([], 422), (["nothing"], 404), ([retired], 409), ([known], 422)):
        error = await refusal(service, source_ids=source_ids, preview=preview)
        assert error.status == status
    assert error.message == "source_ids needs at least 2 ids; leave it out to merge the drafts of the topic."
    assert merger.asked == []


async def test_a_wrong_topic_or_preview_is_refused(service: Service) -> None:
    assert (await refusal(service, topic="t" * 201)).status == 413
    assert (await refusal(service, preview="yes")).message.startswith("preview: ")


# --- What the merged memory takes over ---


async def test_references_are_joined_and_each_kept_once(service: Service) -> None:
    await drafts(service, 1, artifact_refs=["a", "b"])
    await drafts(service, 1, artifact_refs=["b", "c"])
    merged_id = (await consolidate(service))["item"]["merged_id"]
    assert (await service.fetch(merged_id))["metadata"]["artifact_refs"] == ["a", "b", "c"]


async def test_more_references_than_a_memory_holds_are_refused(service: Service, merger: ListeningMerger) -> None:
    for part in range(2):
        await drafts(service, 1, artifact_refs=[f"{part}-{number}" for number in range(26)])
    error = await refusal(service)
    assert error.status == 413
    assert error.message.startswith("Together these memories have 52 artifact_refs and the limit is 50")
    assert merger.asked == []


async def test_a_validity_that_all_sources_have_is_kept(service: Service) -> None:
    validity = {"valid_from": "2026-01-01", "valid_until": "2027-01-01"}
    await drafts(service, 2, **validity)
    shown = (await service.fetch((await consolidate(service))["item"]["merged_id"]))["metadata"]
    assert shown["valid_from"] == "2026-01-01T00:00:00.000Z"
    assert shown["valid_until"] == "2027-01-01T00:00:00.000Z"


async def test_sources_of_different_validity_are_refused_and_named(service: Service, merger: ListeningMerger) -> None:
    [always] = await drafts(service, 1)
    [begun] = await drafts(service, 1, valid_from="2026-01-01")
    [ended] = await drafts(service, 1, valid_until="2027-01-01")
    error = await refusal(service)
    assert error.status == 409
    assert error.message.endswith(
        f"always: {always}; from 2026-01-01T00:00:00.000Z: {begun}; until 2027-01-01T00:00:00.000Z: {ended}."
    )
    assert merger.asked == []


async def test_what_only_the_description_of_an_image_says_goes_into_the_merge(merger: ListeningMerger) -> None:
    service = Service(models=plane_models(merger=merger, describer=SeeingImages("The label reads Q7")))
    image = {"image_base64": PNG_BASE64, "image_mime_type": "image/png"}
    await drafts(service, 1, **image)
    await drafts(service, 1)
    await consolidate(service)
    [(_, sources)] = merger.asked
    assert "The label reads Q7" in sources[0].content


async def test_the_merged_memory_is_no_duplicate_of_anything_and_nothing_of_it(
    service: Service, merger: ListeningMerger
) -> None:
    """What the merge says may equal a recent save, its own sources' even: neither swallows the other."""
    first = (await service.save("Same at 1", "default"))["id"]
    second = (await service.save("Other at 2", "default"))["id"]
    merger.answer = "Same at 1"
    merged_id = (await consolidate(service, source_ids=[first, second]))["item"]["merged_id"]
    assert merged_id not in {first, second}
    assert (await service.fetch(merged_id))["metadata"]["branch_state"] == "active"
    saved = await service.call("save_context", "default", content="Same at 1")
    assert saved["write_status"] == "created"
    assert saved["item"]["id"] not in {first, merged_id}


# --- Preview ---


async def test_a_preview_shows_everything_and_writes_nothing(service: Service) -> None:
    assert isinstance(service.stores.memories, InMemoryMemories)
    ids = await drafts(service, 2)
    before = dict(service.stores.memories.stored)
    answer = await consolidate(service, preview=True)
    assert service.stores.memories.stored == before
    assert list(answer) == ["preview", "merged_content", "topic", "sources", "source_count", "remaining_count"]
    assert answer["preview"] is True
    assert answer["merged_content"] == "Merged, at 50"
    assert [source["id"] for source in answer["sources"]] == ids
    assert [list(source) for source in answer["sources"]] == [["id", "summary", "metadata"]] * 2
    assert (await consolidate(service, preview=False))["deprecated_ids"] == ids


async def test_a_preview_that_would_be_too_long_shows_every_source_without_its_lists_and_says_so(
    service: Service,
) -> None:
    refs = [f"https://example.org/{number}/{'r' * 900}" for number in range(45)]
    ids = await drafts(service, 2, artifact_refs=refs, derived_from=["d" * 300])
    answer = await consolidate(service, preview=True)
    assert answer["truncated"] is True
    assert [source["id"] for source in answer["sources"]] == ids
    for source in answer["sources"]:
        assert "artifact_refs" not in source["metadata"]
        assert source["metadata"]["provenance"] == {"origin": "agent_inferred"}
    few = await drafts(service, 2, topic="Few", artifact_refs=refs[:2])
    answer = await consolidate(service, topic="Few", preview=True)
    assert "truncated" not in answer
    assert [(source["id"], source["metadata"]["artifact_refs"]) for source in answer["sources"]] == [
        (memory_id, refs[:2]) for memory_id in few
    ]


async def test_both_forms_of_answer_fit_the_schema_and_share_what_it_requires(service: Service) -> None:
    tools = (await service.rpc("tools/list", {}, "default"))["tools"]
    [schema] = [tool["outputSchema"] for tool in tools if tool["name"] == "consolidate_context"]
    await drafts(service, 2)
    answers = [await consolidate(service, preview=True), await consolidate(service)]
    closed = Draft202012Validator(schema | {"additionalProperties": False})
    assert all(closed.is_valid(answer) for answer in answers)
    assert set(schema["required"]) == set(answers[0]) & set(answers[1])


# --- When something fails ---


@pytest.mark.parametrize(
    ("answer", "status"),
    [(ModelFailed("The merge was cut off."), 502), (Unavailable("Away."), 503), (RuntimeError("boom"), 500)],
)
async def test_a_merge_that_fails_changes_nothing_and_works_when_repeated(
    service: Service, merger: ListeningMerger, answer: Exception, status: int
) -> None:
    ids = await drafts(service, 2)
    merger.answer = answer
    assert (await refusal(service)).status == status
    merger.answer = "Merged, at 50"
    assert (await consolidate(service))["deprecated_ids"] == ids


async def test_a_merge_beyond_what_a_memory_holds_changes_nothing(service: Service, merger: ListeningMerger) -> None:
    await drafts(service, 2)
    merger.answer = "x" * 400_001
    error = await refusal(service)
    assert error.status == 413
    assert error.message.startswith("The merged text has 400,001 bytes and the limit is 400,000")


async def test_an_embedding_that_fails_changes_nothing(merger: ListeningMerger) -> None:
    embedder = FailingEmbedder()
    service = Service(models=plane_models(merger=merger, embedder=embedder))
    ids = await drafts(service, 2)
    embedder.errors = [Unavailable("Away.")]
    assert (await refusal(service)).status == 503
    assert (await consolidate(service))["deprecated_ids"] == ids


async def test_a_source_deprecated_while_the_model_thinks_ends_the_merge(
    service: Service, merger: ListeningMerger
) -> None:
    ids = await drafts(service, 2)

    async def deprecate() -> None:
        merger.meanwhile = None
        await service.call("deprecate_context", "default", id=ids[0])

    merger.meanwhile = deprecate
    with pytest.raises(ToolError) as error:
        await consolidate(service, source_ids=ids)
    assert error.value.status == 409
    assert error.value.message.startswith("One of these memories was changed while they were merged")
    assert (await service.fetch(ids[1], "default"))["metadata"]["branch_state"] == "wip"
    assert await service.search("at 50") == []


async def test_two_merges_of_the_same_drafts_leave_one(service: Service, merger: ListeningMerger) -> None:
    ids = await drafts(service, 2)

    async def be_overtaken() -> None:
        merger.meanwhile = None
        await consolidate(service)

    merger.meanwhile = be_overtaken
    with pytest.raises(ToolError) as error:
        await consolidate(service)
    assert error.value.status == 409
    [match] = await service.search("at 50")
    again = await consolidate(service, source_ids=ids)
    assert again["item"]["merged_id"] == match["id"]


async def test_a_collection_of_another_space_is_refused_before_the_model_is_asked(merger: ListeningMerger) -> None:
    stores = in_memory()
    await drafts(Service(stores=stores), 2)
    other = Space("other", 2, "plain")
    service = Service(stores=stores, models=plane_models(merger=merger, embedder=PlaneEmbedder(other)))
    error = await refusal(service)
    assert (error.status, error.code) == (503, "embedding_space_mismatch")
    assert merger.asked == []
    assert isinstance(stores.memories, InMemoryMemories)
    assert isinstance(stores.memories.named, CollectionSpaces)


# --- Who may ---


def granted(**more: Any) -> Service:
    """A service whose agent may consolidate, and what else is given."""
    tools = ["save_context", "fetch_context", "consolidate_context"]
    profile = {"id": "agent", "token": TOKENS["agent"], "allowedTools": tools, **more}
    return Service(settings=environment(MCP_CLIENT_PROFILES_JSON=json.dumps([profile])))


WRITES_ALL = {"allowedWriteStates": ["active", "wip", "deprecated"]}


async def test_the_tool_is_not_there_unless_it_is_granted(service: Service) -> None:
    with pytest.raises(ProtocolError) as error:
        await consolidate(service, "agent")
    assert error.value.code == -32602


@pytest.mark.parametrize("states", [["active", "wip"], ["wip", "deprecated"]])
async def test_a_client_needs_to_write_both_states_that_a_merge_writes(states: list[str]) -> None:
    service = granted(allowedFilterStates=["active", "wip"], allowedWriteStates=states)
    await drafts(service, 2)
    assert (await refusal(service, "agent")).status == 403


async def test_a_client_that_may_not_read_drafts_may_not_merge_them() -> None:
    service = granted(**WRITES_ALL)
    await drafts(service, 2)
    assert (await refusal(service, "agent")).status == 403
    assert (await refusal(service, "agent", preview=True)).status == 403


async def test_a_source_that_a_client_may_not_read_does_not_exist_for_it() -> None:
    service = granted(**WRITES_ALL)
    seen = (await service.save("Seen at 1"))["id"]
    [hidden] = await drafts(service, 1)
    error = await refusal(service, "agent", source_ids=[seen, hidden])
    unknown = await refusal(service, "agent", source_ids=[seen, "nothing"])
    assert (error.status, error.message) == (unknown.status, unknown.message) == (404, unknown.message)


async def test_a_client_that_may_not_read_the_merged_memory_is_not_shown_it() -> None:
    service = granted(allowedFilterStates=["wip"], **WRITES_ALL)
    ids = await drafts(service, 2)
    await consolidate(service)
    assert (await refusal(service, "agent", source_ids=ids)).status == 404


# --- The trail ---


async def test_the_trail_tells_topic_sources_and_result(service: Service) -> None:
    ids = await drafts(service, 2)
    service.stores.events.stored.clear()  # pyright: ignore[reportAttributeAccessIssue]
    await consolidate(service, preview=True)
    merged_id = (await consolidate(service, topic="general", source_ids=ids))["item"]["merged_id"]
    await consolidate(service, source_ids=ids)
    previewed, committed, repeated = service.events
    assert previewed.fields["request"] == {"preview": True}
    assert previewed.fields["response"] == {"source_count": 2}
    assert committed.fields["request"] == {"topic": "general", "source_ids": ids}
    result = {"merged_id": merged_id, "source_count": 2, "deprecated_ids": ids}
    assert committed.fields["response"] == result
    assert repeated.fields["response"] == result
    assert [event.fields["status"] for event in service.events] == ["success"] * 3
    assert committed.timestamp == service.clock.now > NOON
