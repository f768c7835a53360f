"""deprecate_context, as a client sees it."""

import json
from itertools import pairwise
from typing import Any

import pytest

from builders import NOON, TOKENS, ProtocolError, Service, ToolError, environment
from fakes import InMemoryMemories, with_state
from metacortex import rules
from metacortex.memory import BranchState


async def deprecate(service: Service, memory_id: str, profile: str = "default", **arguments: Any) -> dict[str, Any]:
    return await service.call("deprecate_context", profile, id=memory_id, **arguments)


async def refusal(service: Service, memory_id: str, profile: str = "default", **arguments: Any) -> tuple[int, str]:
    with pytest.raises(ToolError) as error:
        await deprecate(service, memory_id, profile, **arguments)
    return error.value.status, error.value.message


async def metadata(service: Service, memory_id: str) -> dict[str, Any]:
    return (await service.fetch(memory_id, "default"))["metadata"]


@pytest.fixture
async def old(service: Service) -> str:
    return (await service.save("The old one, at 10"))["id"]


@pytest.fixture
async def new(service: Service) -> str:
    return (await service.save("The new one, at 20"))["id"]


async def test_a_memory_is_retired_in_favour_of_another(service: Service, old: str, new: str) -> None:
    answer = await deprecate(service, old, superseding_id=new, supersession_reason="corrected", initiator="user")
    assert answer == {
        "item": {
            "id": old,
            "branch_state": "deprecated",
            "superseded_by": new,
            "supersession_reason": "corrected",
        },
        "previous_state": "active",
    }
    assert list(answer["item"]) == ["id", "branch_state", "superseded_by", "supersession_reason"]
    shown = await metadata(service, old)
    assert shown["branch_state"] == "deprecated"
    assert shown["superseded_by"] == new
    assert shown["supersession_reason"] == "corrected"
    assert shown["initiator"] == "user"
    assert [match["id"] for match in await service.search("at 10")] == [new]


async def test_a_memory_may_be_retired_without_replacement(service: Service, old: str) -> None:
    answer = await deprecate(service, old)
    assert answer["item"] == {"id": old, "branch_state": "deprecated", "supersession_reason": "changed"}
    assert "superseded_by" not in await metadata(service, old)


async def test_nothing_of_its_text_is_lost(service: Service, old: str) -> None:
    await deprecate(service, old)
    assert (await service.fetch(old, "reader"))["content"] == "The old one, at 10"


async def test_the_time_of_the_change_is_kept(service: Service, old: str) -> None:
    service.clock.advance(minutes=5)
    await deprecate(service, old)
    shown = await metadata(service, old)
    assert shown["updated_at"] == rules.format_time(NOON + 5 * 60_000)
    assert shown["created_at"] == rules.format_time(NOON)


HOUR = 60 * 60 * 1000


@pytest.mark.parametrize(
    ("validity", "until"),
    [
        ({}, NOON + HOUR),
        ({"valid_from": NOON}, NOON + HOUR),
        ({"valid_until": NOON + 2 * HOUR}, NOON + HOUR),
        ({"valid_until": NOON + HOUR // 2}, NOON + HOUR // 2),
        ({"valid_from": NOON + HOUR}, NOON + HOUR),
        ({"valid_from": NOON + 2 * HOUR}, None),
        ({"valid_from": NOON + 2 * HOUR, "valid_until": NOON + 3 * HOUR}, NOON + 3 * HOUR),
    ],
)
async def test_what_has_changed_held_until_now_unless_it_ended_earlier_or_has_not_begun(
    service: Service, validity: dict[str, Any], until: int | None
) -> None:
    memory_id = (await service.save("Fact at 1", **validity))["id"]
    service.clock.advance(minutes=60)
    await deprecate(service, memory_id)
    assert (await metadata(service, memory_id)).get("valid_until") == (until and rules.format_time(until))


async def test_what_was_never_true_keeps_its_validity_and_leaves_searches_of_every_moment(
    service: Service, old: str
) -> None:
    service.clock.advance(minutes=60)
    await deprecate(service, old, supersession_reason="corrected")
    assert "valid_until" not in await metadata(service, old)
    assert await service.search("at 10", "default", filter_state="deprecated", valid_at=NOON + 1) == []
    assert len(await service.search("at 10", "default", filter_state="deprecated")) == 1


async def test_what_has_changed_is_still_found_for_the_time_when_it_held(service: Service, old: str) -> None:
    service.clock.advance(minutes=60)
    await deprecate(service, old)
    [match] = await service.search("at 10", "default", filter_state="deprecated", valid_at=NOON + 1)
    assert match["id"] == old
    assert await service.search("at 10", "default", filter_state="deprecated", valid_at=NOON + HOUR) == []


@pytest.mark.parametrize("state", ["active", "merged", "wip"])
async def test_a_memory_of_any_state_may_be_retired_and_the_answer_names_that_state(
    service: Service, state: str
) -> None:
    memory_id = (await service.save("Fact at 1", "default", branch_state=state))["id"]
    assert (await deprecate(service, memory_id))["previous_state"] == state


async def test_repeating_a_deprecation_changes_nothing(service: Service, old: str, new: str) -> None:
    first = await deprecate(service, old, superseding_id=new, initiator="user")
    before = await metadata(service, old)
    service.clock.advance(minutes=5)
    for arguments in ({"initiator": "user"}, {}):
        again = await deprecate(service, old, superseding_id=new, **arguments)
        assert again == first | {"previous_state": "deprecated"}
    assert await metadata(service, old) == before


@pytest.mark.parametrize(
    "other",
    [{}, {"supersession_reason": "corrected"}, {"initiator": "user"}, {"superseding_id": None}],
)
async def test_a_different_deprecation_of_a_deprecated_memory_is_refused(
    service: Service, old: str, new: str, other: dict[str, Any]
) -> None:
    third = (await service.save("A third at 30"))["id"]
    await deprecate(service, old, superseding_id=new, initiator="agent")
    arguments = {"superseding_id": new, **other} if other else {"superseding_id": third}
    status, message = await refusal(service, old, **arguments)
    assert status == 409
    assert message == "This memory is deprecated already, by another memory or for another reason; fetch it."


async def test_a_memory_deprecated_without_a_reason_counts_as_changed(service: Service, old: str) -> None:
    assert isinstance(service.stores.memories, InMemoryMemories)
    stored = service.stores.memories.stored
    stored[old] = with_state(stored[old], branch_state=BranchState.DEPRECATED)
    answer = await deprecate(service, old)
    assert answer["previous_state"] == "deprecated"
    assert answer["item"]["supersession_reason"] == "changed"


async def test_a_memory_cannot_supersede_itself(service: Service, old: str) -> None:
    assert await refusal(service, old, superseding_id=old) == (
        400,
        "A memory cannot supersede itself; name another superseding_id, or leave it out.",
    )
    # Told before anything is looked up.
    assert (await refusal(service, "nothing", superseding_id="nothing"))[0] == 400


STRANGE_IDS = ["nothing", "", " ", "a/b", ".", "..", "__x__", "x" * 1_501, "🦉" * 500, "\0"]


@pytest.mark.parametrize("memory_id", STRANGE_IDS)
async def test_an_unknown_memory_or_replacement_is_not_found(service: Service, old: str, memory_id: str) -> None:
    status, message = await refusal(service, memory_id)
    assert (status, message) == (404, "No memory with this id is open to this client; search for it, or check the id.")
    status, message = await refusal(service, old, superseding_id=memory_id)
    assert status == 404
    assert message.startswith("superseding_id names no memory that is open to this client")


async def test_an_unknown_replacement_is_told_before_an_unknown_memory(service: Service) -> None:
    _, message = await refusal(service, "nothing", superseding_id="nothing else")
    assert message.startswith("superseding_id")


async def test_a_chain_may_end_in_a_memory_that_counts(service: Service, old: str, new: str) -> None:
    newest = (await service.save("The newest at 30"))["id"]
    await deprecate(service, new, superseding_id=newest)
    answer = await deprecate(service, old, superseding_id=new)
    assert answer["item"]["superseded_by"] == new


async def test_a_chain_that_ends_in_a_retired_memory_is_refused(service: Service, old: str, new: str) -> None:
    middle = (await service.save("The middle at 30"))["id"]
    await deprecate(service, middle, superseding_id=new)
    await deprecate(service, new)
    for replacement in (new, middle):
        assert await refusal(service, old, superseding_id=replacement) == (
            409,
            "The memory in superseding_id no longer counts either; name one that counts now.",
        )
    assert (await metadata(service, old))["branch_state"] == "active"


async def test_a_chain_that_leads_back_is_refused_however_long(service: Service) -> None:
    ids = [(await service.save(f"Fact at {number}"))["id"] for number in range(5)]
    for earlier, later in pairwise(ids):
        await deprecate(service, earlier, superseding_id=later)
    status, message = await refusal(service, ids[-1], superseding_id=ids[0])
    assert status == 409
    assert message == "The memory in superseding_id was itself superseded by this one; name one that counts now."


async def test_a_chain_of_twenty_is_followed_and_a_longer_one_refused(service: Service, old: str) -> None:
    ids = [(await service.save(f"Fact at {number}"))["id"] for number in range(22)]
    for earlier, later in pairwise(ids):
        await deprecate(service, earlier, superseding_id=later)
    assert await refusal(service, old, superseding_id=ids[0]) == (
        409,
        "The memory in superseding_id was superseded many times over; name the one that counts now.",
    )
    assert (await deprecate(service, old, superseding_id=ids[1]))["previous_state"] == "active"


async def test_old_data_that_already_runs_in_a_circle_ends_in_a_refusal(service: Service, old: str, new: str) -> None:
    third = (await service.save("A third at 30"))["id"]
    assert isinstance(service.stores.memories, InMemoryMemories)
    stored = service.stores.memories.stored
    stored[new] = with_state(stored[new], branch_state=BranchState.DEPRECATED, superseded_by=third)
    stored[third] = with_state(stored[third], branch_state=BranchState.DEPRECATED, superseded_by=new)
    assert (await refusal(service, old, superseding_id=new))[0] == 409


async def test_old_data_that_leads_nowhere_ends_in_a_refusal(service: Service, old: str, new: str) -> None:
    assert isinstance(service.stores.memories, InMemoryMemories)
    stored = service.stores.memories.stored
    stored[new] = with_state(stored[new], branch_state=BranchState.DEPRECATED, superseded_by="lost")
    assert (await refusal(service, old, superseding_id=new))[0] == 409


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"supersession_reason": "boring"}, "supersession_reason: "),
        ({"initiator": "owner"}, "initiator: "),
        ({"superseding_id": 5}, "superseding_id: "),
        ({"id": None}, "id is required"),
        ({"id": 5}, "id: "),
    ],
)
async def test_bad_arguments_are_refused_naming_the_field(
    service: Service, old: str, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ToolError) as error:
        await service.call("deprecate_context", "default", **({"id": old} | arguments))
    assert error.value.status == 400
    assert error.value.message.startswith(message)


# --- Who may ---


def granted(**more: Any) -> Service:
    """A service whose agent may deprecate, and what else is given."""
    tools = ["save_context", "fetch_context", "search_context", "deprecate_context"]
    profile = {"id": "agent", "token": TOKENS["agent"], "allowedTools": tools, **more}
    return Service(settings=environment(MCP_CLIENT_PROFILES_JSON=json.dumps([profile])))


async def test_the_tool_is_not_there_unless_it_is_granted(service: Service, old: str) -> None:
    with pytest.raises(ProtocolError) as error:
        await deprecate(service, old, "agent")
    assert error.value.code == -32602


async def test_a_client_that_may_not_write_deprecated_memories_may_not_make_any() -> None:
    service = granted()
    memory_id = (await service.save("Fact at 1"))["id"]
    status, message = await refusal(service, memory_id, "agent")
    assert status == 403
    assert "may not write deprecated memories" in message


async def test_what_a_client_may_not_read_does_not_exist_for_it() -> None:
    service = granted(allowedWriteStates=["active", "wip", "deprecated"])
    seen = (await service.save("Seen at 1"))["id"]
    hidden = (await service.save("Hidden at 2", draft=True))["id"]
    unknown = await refusal(service, "nothing", "agent")
    assert await refusal(service, hidden, "agent") == unknown
    assert await refusal(service, seen, "agent", superseding_id=hidden) == await refusal(
        service, seen, "agent", superseding_id="nothing"
    )
    assert (await deprecate(service, seen, "agent"))["previous_state"] == "active"
    with pytest.raises(ToolError):
        await service.fetch(seen)
    # Any other deprecation of what it cannot read any more is one of an unknown memory.
    assert await refusal(service, seen, "agent", supersession_reason="corrected") == unknown


async def test_repeating_is_safe_for_a_client_that_cannot_read_what_it_has_retired() -> None:
    service = granted(allowedWriteStates=["active", "wip", "deprecated"])
    old, new = [(await service.save(f"Fact at {degrees}"))["id"] for degrees in (1, 2)]
    first = await deprecate(service, old, "agent", superseding_id=new)
    again = await deprecate(service, old, "agent", superseding_id=new)
    assert again == first | {"previous_state": "deprecated"}
