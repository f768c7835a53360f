"""fetch_context, as a client sees it."""

from typing import Any

import pytest

from builders import Service, ToolError
from metacortex import rules

STRANGE_IDS = ["a/b", ".", "..", "__x__", "x" * 1_501, "é" * 751, "", " ", "a\0b", "/", "unknown"]


async def not_found(service: Service, **arguments: Any) -> ToolError:
    with pytest.raises(ToolError) as error:
        await service.call("fetch_context", **arguments)
    assert (error.value.status, error.value.code) == (404, "not_found")
    return error.value


@pytest.mark.parametrize("memory_id", STRANGE_IDS)
async def test_an_id_that_cannot_exist_is_as_unknown_as_any_other(service: Service, memory_id: str) -> None:
    error = await not_found(service, id=memory_id)
    assert error.message == (await not_found(service, id="another")).message


async def test_a_memory_outside_the_readable_states_answers_as_one_that_does_not_exist(service: Service) -> None:
    draft = await service.save("Fact", draft=True)
    closed = await not_found(service, id=draft["id"])
    assert closed.message == (await not_found(service, id="unknown")).message


async def test_document_id_is_another_name_for_id(service: Service) -> None:
    item = await service.save("Fact")
    for arguments in ({"document_id": item["id"]}, {"id": item["id"], "document_id": item["id"]}):
        assert (await service.call("fetch_context", **arguments))["item"] == item


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "id is required"),
        ({"id": None}, "id is required"),
        ({"id": "a", "document_id": "b"}, "id and document_id name different memories"),
        ({"id": 5}, "id: "),
        ({"id": "a", "offset": -1}, "offset: "),
        ({"id": "a", "offset": "0"}, "offset: "),
    ],
)
async def test_bad_arguments_are_refused_naming_the_field(
    service: Service, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ToolError) as error:
        await service.call("fetch_context", **arguments)
    assert error.value.status == 400
    assert error.value.message.startswith(message)


async def test_long_content_comes_in_pages_that_join_to_the_whole(service: Service) -> None:
    content = "".join(f"{i:09}🦉" for i in range(12_345))
    item = await service.save(content)
    pages: list[str] = []
    offset: int | None = 0
    while offset is not None:
        answer = await service.call("fetch_context", id=item["id"], offset=offset)
        pages.append(answer["item"]["content"])
        offset = answer.get("next_offset")
    assert "".join(pages) == content
    assert [len(page) for page in pages] == [50_000, 50_000, len(content) - 100_000]


async def test_content_of_exactly_one_page_has_no_next(service: Service) -> None:
    item = await service.save("x" * rules.PAGE_CHARACTERS)
    assert "next_offset" not in await service.call("fetch_context", id=item["id"])


async def test_an_offset_past_the_end_is_refused(service: Service) -> None:
    item = await service.save("Fact")
    with pytest.raises(ToolError, match="offset is past the end"):
        await service.call("fetch_context", id=item["id"], offset=4)
