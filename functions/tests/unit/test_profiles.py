"""The profiles in MCP_CLIENT_PROFILES_JSON: what they grant, and what is refused."""

import hashlib
import json
from typing import Any

import pytest

from builders import ADMIN_TOKEN, TOKENS, environment
from metacortex.errors import ConfigurationError
from metacortex.memory import BranchState
from metacortex.profiles import PROFILE_FIELDS, SCOPED_WRITE_STATES, TOOL_NAMES, Profile, parse_profiles
from metacortex.settings import load

PLACE = "MCP_CLIENT_PROFILES_JSON"
TOKEN = TOKENS["agent"]
OTHER = TOKENS["reader"]
MINIMAL: dict[str, Any] = {"id": "agent", "token": TOKEN, "allowedTools": ["search_context"]}
MISSING = ...


def agent(**fields: Any) -> dict[str, Any]:
    """A valid profile with other fields; MISSING leaves one out."""
    return {name: value for name, value in {**MINIMAL, **fields}.items() if value is not MISSING}


def loaded(document: dict[str, Any], **settings: str) -> Profile:
    return load(environment(MCP_CLIENT_PROFILES_JSON=json.dumps([document]), **settings)).profiles[document["id"]]


def faults(text: str | list[Any], **settings: str) -> list[str]:
    """What is wrong with profiles, checked to name no token and to begin with the place."""
    given = text if isinstance(text, str) else json.dumps(text)
    with pytest.raises(ConfigurationError) as raised:
        load(environment(MCP_CLIENT_PROFILES_JSON=given, **settings))
    found = list(raised.value.faults)
    assert all(fault.startswith((PLACE, "MCP_ADMIN_TOKEN")) for fault in found)
    assert not [token for token in (TOKEN, OTHER, ADMIN_TOKEN) if token in str(raised.value)]
    return found


# --- What a profile grants ---


def test_a_minimal_profile_reads_and_writes_little() -> None:
    profile = loaded(MINIMAL)
    assert profile.tools == ("search_context",)
    assert profile.readable_states == (BranchState.ACTIVE,)
    assert profile.writable_states == SCOPED_WRITE_STATES == (BranchState.ACTIVE, BranchState.WIP)
    assert profile.default_state is BranchState.ACTIVE
    assert (profile.origins, profile.url_token_allowed, profile.is_admin) == ((), True, False)
    assert profile.accepts(TOKEN)
    assert not profile.accepts(OTHER)


def test_a_full_profile_grants_what_it_says() -> None:
    profile = loaded(
        agent(
            allowedTools=list(TOOL_NAMES),
            allowedFilterStates=["wip", "merged", "wip"],
            allowedWriteStates=["merged"],
            allowedOrigins=["https://claude.ai", "*"],
            allowUrlToken=False,
        )
    )
    assert profile.tools == TOOL_NAMES
    assert profile.readable_states == (BranchState.WIP, BranchState.MERGED)
    assert profile.writable_states == (BranchState.MERGED,)
    assert profile.origins == ("https://claude.ai", "*")
    assert profile.url_token_allowed is False


@pytest.mark.parametrize(
    ("preferred", "states", "expected"),
    [
        ("active", MISSING, "active"),
        ("wip", MISSING, "wip"),
        ("wip", ["active", "wip"], "wip"),
        ("wip", ["merged", "active"], "merged"),
        ("active", ["deprecated"], "deprecated"),
    ],
)
def test_the_default_state_is_the_preferred_one_if_it_may_be_read_else_the_first(
    preferred: str, states: Any, expected: str
) -> None:
    profile = loaded(agent(allowedFilterStates=states), DEFAULT_FILTER_STATE=preferred)
    assert profile.default_state == expected
    assert profile.default_state in profile.readable_states


@pytest.mark.parametrize("form", [str.lower, str.upper, "{}\n".format])
def test_a_token_may_be_given_by_its_digest(form: Any) -> None:
    digest = form(hashlib.sha256(TOKEN.encode()).hexdigest())
    assert loaded(agent(token=MISSING, tokenSha256=digest)).accepts(TOKEN)


def test_a_token_is_accepted_with_white_space_around_it_and_in_no_other_form() -> None:
    profile = loaded(agent(token=f"\t{TOKEN}\n"))
    assert profile.accepts(TOKEN)
    assert profile.accepts(f" {TOKEN} ")
    assert not any(profile.accepts(wrong) for wrong in ("", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "\ud800", "é" * 20))


def test_a_profile_shows_no_digest() -> None:
    assert "digest" not in repr(loaded(MINIMAL))


# --- What is refused ---

A_DIGEST = "0" * 63 + "1"


def test_a_key_that_stands_twice_is_a_fault() -> None:
    tools = '"allowedTools": ["save_context"]'
    text = f'[{{"id": "a", "tokenSha256": "{A_DIGEST}", {tools}, {tools}}}]'
    assert parse_profiles(text, BranchState.ACTIVE, PLACE)[1] == [f"{PLACE}[0].allowedTools stands there twice."]


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"id": MISSING}, "id"),
        ({"id": ""}, "id"),
        ({"id": 7}, "id"),
        ({"id": "a/b"}, "id"),
        ({"id": ".."}, "id"),
        ({"id": "-x"}, "id"),
        ({"id": "with space"}, "id"),
        ({"id": "agent\n"}, "id"),
        ({"id": "ágent"}, "id"),
        ({"id": "x" * 65}, "id"),
        ({"id": "default"}, "id"),
        ({"token": MISSING}, "token"),
        ({"token": None}, "token"),
        ({"token": ""}, "token"),
        ({"token": 1234567890123456}, "token"),
        ({"token": ["a-scoped-token-of-a-list"]}, "token"),
        ({"token": "fifteen-letters"}, "token"),
        ({"token": "a-token with-a-space"}, "token"),
        ({"token": "токен-из-букв-кириллицы"}, "token"),
        ({"token": "change-me-change-me"}, "token"),
        ({"token": "REPLACE_WITH_A_RANDOM_TOKEN"}, "token"),
        ({"token": "your-secret-token-here"}, "token"),
        ({"token": "an-example-of-a-token"}, "token"),
        ({"token": "xxxxxxxxxxxxxxxxxxxxxxxx"}, "token"),
        ({"tokenSha256": A_DIGEST}, "token"),
        ({"token": MISSING, "tokenSha256": "0" * 63}, "tokenSha256"),
        ({"token": MISSING, "tokenSha256": "g" * 64}, "tokenSha256"),
        ({"token": MISSING, "tokenSha256": 1}, "tokenSha256"),
        ({"token": MISSING, "tokenSha256": hashlib.sha256(b"").hexdigest()}, "tokenSha256"),
        ({"allowedTools": MISSING}, "allowedTools"),
        ({"allowedTools": None}, "allowedTools"),
        ({"allowedTools": []}, "allowedTools"),
        ({"allowedTools": "search_context"}, "allowedTools"),
        ({"allowedTools": ["*"]}, "allowedTools[0]"),
        ({"allowedTools": ["search_context", "delete_context"]}, "allowedTools[1]"),
        ({"allowedTools": [["search_context"]]}, "allowedTools"),
        ({"allowedFilterStates": []}, "allowedFilterStates"),
        ({"allowedFilterStates": ["draft"]}, "allowedFilterStates[0]"),
        ({"allowedFilterStates": {"active": True}}, "allowedFilterStates"),
        ({"allowedWriteStates": ["active", "ACTIVE"]}, "allowedWriteStates[1]"),
        ({"allowedWriteStates": []}, "allowedWriteStates"),
        ({"allowedOrigins": "https://claude.ai"}, "allowedOrigins"),
        ({"allowedOrigins": False}, "allowedOrigins"),
        ({"allowedOrigins": ["https://claude.ai", "https://claude.ai/"]}, "allowedOrigins[1]"),
        ({"allowUrlToken": "false"}, "allowUrlToken"),
        ({"allowUrlToken": 0}, "allowUrlToken"),
        ({"allowUrlToken": None}, "allowUrlToken"),
        ({"allowedTool": ["search_context"]}, "allowedTool"),
        ({"allowUrlTokens": True}, "allowUrlTokens"),
        ({"colour": "red"}, "colour"),
        ({"line\nfeed": "x"}, "(a key)"),
        ({OTHER: "a token where the key should be"}, "(a key)"),
    ],
    ids=str,
)
def test_a_wrong_field_is_one_fault_at_its_place(fields: dict[str, Any], place: str) -> None:
    [fault] = faults([agent(id="first", token=OTHER), agent(**fields)])
    assert fault.startswith(f"{PLACE}[1].{place} ")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('[{"id": "agent",}]', " at line 1 column "),
        ('[{"id": "agent"},\n]', " at line "),
        ("[{'id': 'agent'}]", " at line 1 column 3"),
        ('[{"id": "agent"}', " at line 1 column 17"),
        ("[" * 100_000, ""),
    ],
    ids=lambda value: value[:20],
)
def test_broken_json_is_one_fault_that_says_where(text: str, where: str) -> None:
    [fault] = faults(text)
    assert fault.startswith(f"{PLACE} is not valid JSON{where}")
    assert "trailing comma" in fault


@pytest.mark.parametrize("text", ["{}", "null", "true", '"agent"', "7"])
def test_anything_but_a_list_is_refused(text: str) -> None:
    assert faults(text) == [f"{PLACE} must be a JSON list of profiles."]


@pytest.mark.parametrize("item", [None, "agent", 7, ["agent"]])
def test_anything_but_an_object_in_the_list_is_refused(item: object) -> None:
    assert faults([MINIMAL, item]) == [f"{PLACE}[1] must be a JSON object."]


def test_two_profiles_with_one_id_are_refused() -> None:
    [fault] = faults([None, MINIMAL, agent(token=OTHER)])[1:]
    assert fault == f"{PLACE}[2].id is also the id of {PLACE}[1]."


@pytest.mark.parametrize(
    "second",
    [
        {"token": TOKEN},
        {"token": f"{TOKEN}\n"},
        {"token": MISSING, "tokenSha256": hashlib.sha256(TOKEN.encode()).hexdigest()},
    ],
)
def test_two_profiles_with_one_token_are_refused(second: dict[str, Any]) -> None:
    [fault] = faults([MINIMAL, agent(id="other", **second)])
    assert fault == f"{PLACE}[1] has the same token as {PLACE}[0]; give each its own."


def test_a_profile_with_the_admins_token_is_refused() -> None:
    [fault] = faults([agent(token=ADMIN_TOKEN)])
    assert fault == f"{PLACE}[0] has the same token as MCP_ADMIN_TOKEN; give each its own."


def test_a_profile_may_not_pose_as_the_admin() -> None:
    [fault] = faults([agent(id="default")])
    assert "admin" in fault


def test_missing_tokens_are_not_the_same_token() -> None:
    found = faults([agent(token=""), agent(id="other", token=MISSING)], MCP_ADMIN_TOKEN="")
    assert len(found) == 3
    assert not [fault for fault in found if "same token" in fault]


def test_every_fault_of_every_profile_is_told_at_once() -> None:
    wrong = {"id": "a/b", "token": "short", "allowedTools": [], "allowedOrigins": ["x"], "allowUrlToken": 1, "tool": []}
    found = faults([wrong, MINIMAL, wrong, agent()])
    # Six of each wrong one; the token that both have; the id and the token that both others have.
    assert len(found) == 6 + 6 + 1 + 2
    assert found == faults([wrong, MINIMAL, wrong, agent()])


def test_a_fault_about_a_key_names_the_fields_there_are() -> None:
    [fault] = faults([agent(tools=[])])
    assert all(name in fault for name in PROFILE_FIELDS)
