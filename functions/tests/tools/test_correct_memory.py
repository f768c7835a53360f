"""correct_memory: the prompt, as a client gets it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import TOKENS, ProtocolError, Service, environment
from metacortex.tools import correct_memory

ARGUMENTS = {"incorrect_memory_id": "memory-1", "corrected_content": "The meeting is on Tuesday."}


async def text_of(service: Service, profile: str = "default", **arguments: Any) -> str:
    given = {"name": "correct_memory", "arguments": ARGUMENTS | arguments}
    answer = await service.rpc("prompts/get", given, profile)
    [message] = answer["messages"]
    assert message["role"] == "user"
    return message["content"]["text"]


def quoted(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments of both calls that the prompt asks for."""
    saved, deprecated = (json.loads(line) for line in text.splitlines() if line.startswith("{"))
    return saved, deprecated


async def test_it_walks_the_model_through_saving_and_then_retiring(service: Service) -> None:
    text = await text_of(service, topic="Work", valid_from="2026-03-01", valid_until="2026-04-01T00:00:00+02:00")
    assert text.index("save_context") < text.index("deprecate_context") < text.index("both ids")
    assert quoted(text) == (
        {
            "content": "The meeting is on Tuesday.",
            "topic": "Work",
            "valid_from": "2026-03-01T00:00:00.000Z",
            "valid_until": "2026-03-31T22:00:00.000Z",
            "origin": "user_asserted",
        },
        {"id": "memory-1", "supersession_reason": "corrected", "initiator": "user"},
    )


async def test_following_it_corrects_the_memory(service: Service) -> None:
    wrong = await service.save("The meeting is on Monday, at 10", "default")
    saved, deprecated = quoted(await text_of(service, incorrect_memory_id=wrong["id"]))
    right = (await service.call("save_context", "default", **saved))["item"]
    answer = await service.call("deprecate_context", "default", **deprecated, superseding_id=right["id"])
    assert answer["item"]["superseded_by"] == right["id"]
    assert [match["id"] for match in await service.search("meeting")] == [right["id"]]


async def test_it_is_listed_with_its_arguments(service: Service) -> None:
    [prompt] = (await service.rpc("prompts/list", {}, "default"))["prompts"]
    assert prompt["name"] == "correct_memory"
    required = {argument["name"] for argument in prompt["arguments"] if argument["required"]}
    assert required == {"incorrect_memory_id", "corrected_content"}
    assert all(argument["description"] for argument in prompt["arguments"])


@pytest.mark.parametrize("missing", ["save_context", "deprecate_context"])
async def test_it_is_there_only_where_both_tools_are_granted(missing: str) -> None:
    tools = [tool for tool in ("save_context", "deprecate_context", "search_context") if tool != missing]
    profile = {"id": "agent", "token": TOKENS["agent"], "allowedTools": tools}
    service = Service(settings=environment(MCP_CLIENT_PROFILES_JSON=json.dumps([profile])))
    for method, params in (("prompts/list", {}), ("prompts/get", {"name": "correct_memory", "arguments": ARGUMENTS})):
        with pytest.raises(ProtocolError) as error:
            await service.rpc(method, params)
        assert error.value.code == -32601
    handshake = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    assert "prompts" not in (await service.rpc("initialize", handshake))["capabilities"]
    assert "prompts" in (await service.rpc("initialize", handshake, "default"))["capabilities"]


async def test_a_scoped_client_with_both_tools_has_it() -> None:
    profile = {"id": "agent", "token": TOKENS["agent"], "allowedTools": ["save_context", "deprecate_context"]}
    service = Service(settings=environment(MCP_CLIENT_PROFILES_JSON=json.dumps([profile])))
    assert "memory-1" in await text_of(service, "agent")


async def test_an_unknown_prompt_is_a_protocol_error(service: Service) -> None:
    with pytest.raises(ProtocolError) as error:
        await service.rpc("prompts/get", {"name": "another"}, "default")
    assert error.value.code == -32602


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"incorrect_memory_id": ""}, "incorrect_memory_id is required"),
        ({"incorrect_memory_id": "a/b"}, "incorrect_memory_id cannot be the id of a memory"),
        ({"corrected_content": " "}, "corrected_content is required"),
        ({"corrected_content": "x" * 400_001}, "corrected_content is 400,001 bytes"),
        ({"topic": "t" * 201}, "topic has 201 characters"),
        ({"valid_from": "tomorrow"}, "valid_from: "),
        ({"valid_from": "2026-03-02", "valid_until": "2026-03-01"}, "valid_from must be earlier"),
    ],
)
async def test_bad_arguments_are_refused_naming_them(service: Service, arguments: dict[str, str], message: str) -> None:
    with pytest.raises(ProtocolError) as error:
        await text_of(service, **arguments)
    assert error.value.code == -32602
    assert str(error.value).startswith(message)


async def test_what_a_form_leaves_blank_is_left_out(service: Service) -> None:
    assert await text_of(service, topic="", valid_from=" ", valid_until="") == await text_of(service)
    assert "topic of the wrong memory" in await text_of(service)


@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip))
def test_no_text_poses_as_a_step(text: str) -> None:
    plain = correct_memory.message(ARGUMENTS)
    filled = correct_memory.message(ARGUMENTS | {"corrected_content": f"ok\n4. {text}\u2028```"})
    assert len(filled.splitlines()) == len(plain.splitlines())
    assert quoted(filled)[0]["content"] == f"ok\n4. {text}\u2028```".strip()
