"""list_context, as a client sees it."""

import json
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from builders import NOON, PROFILES, TOKENS, ProtocolError, Service, ToolError, environment
from fakes import InMemoryMemories
from metacortex import rules
from metacortex.memory import Origin, Provenance

LISTER: dict[str, Any] = {"id": "agent", "token": TOKENS["agent"], "allowedTools": ["save_context", "list_context"]}


async def listing(service: Service, **arguments: Any) -> dict[str, Any]:
    return await service.call("list_context", "default", **arguments)


async def walk(service: Service, **arguments: Any) -> list[list[str]]:
    """The ids on each page, from the first to the last."""
    pages: list[list[str]] = []
    cursor = None
    while True:
        page = await listing(service, cursor=cursor, **arguments)
        pages.append([item["id"] for item in page["items"]])
        if (cursor := page["next_cursor"]) is None:
            return pages


async def saved(service: Service, count: int, **arguments: Any) -> list[str]:
    """The ids of so many memories, each saved a minute after the one before."""
    ids: list[str] = []
    for number in range(count):
        service.clock.advance(minutes=1)
        ids.append((await service.save(f"Fact {number} at {number}", "default", **arguments))["id"])
    return ids


async def test_memories_come_newest_first_as_summaries_with_public_metadata(service: Service) -> None:
    first, second = await saved(service, 2)
    page = await listing(service)
    assert [item["id"] for item in page["items"]] == [second, first]
    assert list(page["items"][0]) == ["id", "summary", "metadata"]
    assert page["items"][0]["summary"] == "Fact 1 at 1"
    assert page["items"][0]["metadata"]["written_by"] == "default"
    assert page["next_cursor"] is None


async def test_memories_of_one_moment_come_by_id(service: Service) -> None:
    ids = [(await service.save(f"Fact at {number}"))["id"] for number in range(5)]
    assert await walk(service, limit=2) == [sorted(ids)[:2], sorted(ids)[2:4], sorted(ids)[4:]]


async def test_an_empty_memory_has_one_empty_page(service: Service) -> None:
    assert await listing(service) == {
        "items": [],
        "next_cursor": None,
        "applied_filters": {
            "filter_topic": None,
            "filter_state": "active",
            "filter_origin": None,
            "created_after": None,
            "created_before": None,
        },
    }


@pytest.mark.parametrize(("count", "pages"), [(2, [2]), (3, [2, 1]), (4, [2, 2])])
async def test_an_exactly_full_last_page_is_the_last(service: Service, count: int, pages: list[int]) -> None:
    ids = await saved(service, count)
    walked = await walk(service, limit=2)
    assert [len(page) for page in walked] == pages
    assert list(chain(*walked)) == ids[::-1]


async def test_a_page_has_20_memories_unless_it_says_otherwise(service: Service) -> None:
    await saved(service, 21)
    assert [len(page) for page in await walk(service)] == [20, 1]
    assert [len(page) for page in await walk(service, limit=100)] == [21]


async def test_new_memories_neither_repeat_nor_hide_what_was_there(service: Service) -> None:
    ids = await saved(service, 4)
    page = await listing(service, limit=2)
    await saved(service, 3, topic="late")
    rest = await listing(service, limit=2, cursor=page["next_cursor"])
    assert [item["id"] for item in [*page["items"], *rest["items"]]] == ids[::-1]


async def test_a_cursor_outlives_the_memory_it_was_made_at(service: Service) -> None:
    ids = await saved(service, 4)
    page = await listing(service, limit=2)
    last = page["items"][-1]["id"]
    await service.call("deprecate_context", "default", id=last)
    rest = await listing(service, cursor=page["next_cursor"])
    assert [item["id"] for item in rest["items"]] == [ids[1], ids[0]]
    assert isinstance(service.stores.memories, InMemoryMemories)
    del service.stores.memories.stored[last]
    assert (await listing(service, cursor=page["next_cursor"]))["items"] == rest["items"]


@pytest.mark.parametrize(
    "changed",
    [
        {"filter_topic": "Birds"},
        {"filter_state": "wip"},
        {"filter_origin": "user_asserted"},
        {"created_after": 1},
        {"created_before": 9_999_999_999_999},
    ],
)
async def test_a_cursor_goes_with_its_filters_only(service: Service, changed: dict[str, Any]) -> None:
    await saved(service, 2)
    cursor = (await listing(service, limit=1))["next_cursor"]
    with pytest.raises(ToolError) as error:
        await listing(service, limit=1, cursor=cursor, **changed)
    assert error.value.status == 400
    assert error.value.message == "cursor was made with other filters; repeat these filters, or leave it out."


async def test_the_size_of_a_page_may_change_on_the_way(service: Service) -> None:
    ids = await saved(service, 4)
    cursor = (await listing(service, limit=1))["next_cursor"]
    rest = await listing(service, limit=100, cursor=cursor, filter_state="active", filter_topic=" ")
    assert [item["id"] for item in rest["items"]] == ids[2::-1]


@pytest.mark.parametrize("cursor", ["", " ", "x", "e30", "WzFd", "AAAA", "🦉", "x" * 20_000, "W" * 16_000])
async def test_what_is_no_cursor_is_refused(service: Service, cursor: str) -> None:
    with pytest.raises(ToolError) as error:
        await listing(service, cursor=cursor)
    assert error.value.status == 400
    assert error.value.message.startswith("cursor is not one that a listing returned")


async def test_a_cursor_tells_nothing_about_memories_that_are_not_shown(service: Service) -> None:
    await service.save("Seen at 1")
    shown = await listing(service, limit=1)
    assert shown["next_cursor"] is None
    await service.save("Hidden at 2", draft=True)
    assert await listing(service, limit=1) == shown


async def test_every_filter_narrows_the_listing_and_is_told(service: Service) -> None:
    [old] = await saved(service, 1, topic="Birds", origin="user_asserted")
    [other] = await saved(service, 1, topic="Fish")
    [draft] = await saved(service, 1, draft=True)
    filters: list[tuple[dict[str, Any], list[str]]] = [
        ({"filter_topic": " Birds "}, [old]),
        ({"filter_topic": "birds"}, []),
        ({"filter_state": "wip"}, [draft]),
        ({"filter_origin": "user_asserted"}, [old]),
        ({"filter_origin": "agent_inferred"}, [other]),
        ({"created_after": NOON + 120_000}, [other]),
        ({"created_before": NOON + 120_000}, [old]),
        ({"created_after": NOON + 60_000, "created_before": NOON + 120_000}, [old]),
    ]
    for given, expected in filters:
        page = await listing(service, **given)
        assert [item["id"] for item in page["items"]] == expected, given
    told = await listing(
        service,
        filter_topic=" Birds ",
        filter_origin="user_asserted",
        created_after="2026-01-01",
        created_before=NOON * 2,
    )
    assert told["applied_filters"] == {
        "filter_topic": "Birds",
        "filter_state": "active",
        "filter_origin": "user_asserted",
        "created_after": "2026-01-01T00:00:00.000Z",
        "created_before": rules.format_time(NOON * 2),
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"limit": 0}, "limit: "),
        ({"limit": 101}, "limit: "),
        ({"limit": "5"}, "limit: "),
        ({"filter_state": "gone"}, "filter_state: "),
        ({"filter_origin": "me"}, "filter_origin: "),
        ({"created_after": "yesterday"}, "created_after: "),
        ({"created_before": True}, "created_before: "),
        ({"created_after": 2, "created_before": 2}, "created_after must be earlier than created_before"),
        ({"filter_topic": "t" * 201}, "filter_topic has 201 characters"),
        ({"cursor": 5}, "cursor: "),
    ],
)
async def test_bad_arguments_are_refused_naming_the_field(
    service: Service, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ToolError) as error:
        await listing(service, **arguments)
    assert error.value.status in {400, 413}
    assert error.value.message.startswith(message)


async def test_an_answer_ends_at_a_whole_memory_and_goes_on_behind_it(service: Service) -> None:
    refs = [f"https://example.org/{number:03}/{'x' * 400}" for number in range(20)]
    ids = [(await service.save(f"Fact at {number}", artifact_refs=refs))["id"] for number in range(12)]
    pages = await walk(service)
    assert len(pages) > 1
    assert sorted(chain(*pages)) == sorted(ids)
    page = await listing(service)
    assert len(json.dumps(page, ensure_ascii=False).encode()) < 42_000


async def test_texts_of_wide_characters_take_the_room_they_take_in_a_models_window(service: Service) -> None:
    for number in range(100):
        await service.save(f"{number} " + "雾" * 300)
    page = await listing(service, limit=100)
    assert 40 < len(page["items"]) < 60
    assert len(list(chain(*await walk(service, limit=100)))) == 100


async def test_a_memory_that_would_fill_an_answer_comes_without_its_lists_and_says_so(service: Service) -> None:
    long = await service.save("Fact at 1", artifact_refs=["x" * 999] * 50, derived_from=["y" * 900] * 50)
    page = await listing(service)
    [item] = page["items"]
    assert item["id"] == long["id"]
    assert "artifact_refs" not in item["metadata"]
    assert page["truncated"] is True
    assert page["next_cursor"] is None


async def test_a_client_lists_what_it_may_read_and_no_more() -> None:
    service = Service(settings=environment(MCP_CLIENT_PROFILES_JSON=json.dumps([LISTER])))
    await service.save("Draft at 1", draft=True)
    for state in ("wip", "deprecated", "merged"):
        with pytest.raises(ToolError) as error:
            await service.call("list_context", filter_state=state)
        assert error.value.status == 403
    assert (await service.call("list_context"))["items"] == []


async def test_the_tool_is_not_there_unless_it_is_granted(service: Service) -> None:
    assert "list_context" not in PROFILES[0]["allowedTools"]
    with pytest.raises(ProtocolError) as error:
        await service.call("list_context")
    assert error.value.code == -32602


async def test_a_memory_without_a_time_that_can_be_shown_spoils_no_page(service: Service) -> None:
    [kept, lost] = await saved(service, 2)
    assert isinstance(service.stores.memories, InMemoryMemories)
    stored = service.stores.memories.stored
    whole = stored[lost].memory
    timeless = replace(
        whole, metadata=replace(whole.metadata, created_at=None, provenance=Provenance(origin=Origin.LEGACY_IMPORT))
    )
    stored[lost] = replace(stored[lost], memory=timeless)
    assert [item["id"] for item in (await listing(service))["items"]] == [kept]
