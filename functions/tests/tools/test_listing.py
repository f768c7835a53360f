"""What clients are told of the tools: a golden copy per profile, and the rules that known clients hold schemas to.

After a change that is meant, write the golden copy again: `functions/venv/bin/python -m pytest functions/tests/tools --golden`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from builders import Service

GOLDEN = Path(__file__).parent / "golden"


async def tools_of(service: Service, profile: str) -> list[dict[str, Any]]:
    return (await service.rpc("tools/list", {}, profile))["tools"]


@pytest.mark.parametrize("profile", ["default", "agent", "reader"])
async def test_each_profile_is_offered_exactly_its_tools(
    service: Service, profile: str, pytestconfig: pytest.Config
) -> None:
    listed = json.dumps(await tools_of(service, profile), indent=2, ensure_ascii=False) + "\n"
    copy = GOLDEN / f"{profile}.json"
    if pytestconfig.getoption("golden"):
        copy.write_text(listed)
    assert listed == copy.read_text()


async def test_a_client_that_may_only_read_is_offered_no_way_to_write(service: Service) -> None:
    assert [tool["name"] for tool in await tools_of(service, "reader")] == ["search_context", "fetch_context"]


async def test_names_and_texts_fit_every_known_client(service: Service) -> None:
    for tool in await tools_of(service, "default"):
        assert len(tool["name"]) <= 40
        assert tool["title"]
        assert len(tool["description"].encode()) < 2_048
        assert {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"} == set(tool["annotations"])
        assert all(len(text) <= 64 for name, text in tool["_meta"].items() if name.startswith("openai/toolInvocation"))


async def test_input_schemas_have_no_union_at_the_root_and_nothing_to_resolve(service: Service) -> None:
    for tool in await tools_of(service, "default"):
        schema = tool["inputSchema"]
        assert schema["type"] == "object"
        assert schema.keys().isdisjoint({"anyOf", "oneOf", "allOf", "$defs"})
        assert "$ref" not in json.dumps(tool)
        assert all(described["description"] for described in schema["properties"].values())


async def test_schemas_are_valid_and_use_known_words_only(service: Service) -> None:
    known = {"type", "properties", "required", "items", "enum", "anyOf", "description", "minimum", "maximum"}
    for tool in await tools_of(service, "default"):
        for schema in (tool["inputSchema"], tool["outputSchema"]):
            Draft202012Validator.check_schema(schema)
            assert set(_words(schema)) <= known


def _words(schema: dict[str, Any]) -> Iterator[str]:
    yield from schema
    for part in schema.get("properties", {}).values():
        yield from _words(part)
    for part in [*schema.get("anyOf", []), *([schema["items"]] if "items" in schema else [])]:
        yield from _words(part)


async def test_every_result_fits_its_output_schema(service: Service) -> None:
    schemas = {tool["name"]: tool["outputSchema"] for tool in await tools_of(service, "default")}
    everything: dict[str, Any] = {
        "artifact_refs": ["a"],
        "valid_from": 1,
        "valid_until": 2,
        "source_session": "s",
        "derived_from": ["x"],
        "confidence": 0.5,
    }
    saved = await service.call("save_context", "default", content="x at 1 " * 20_000, **everything)
    searched = await service.call(
        "search_context", "default", query="at 1", valid_at=1, filter_origin="agent_inferred", filter_topic="general"
    )
    fetched = await service.call("fetch_context", "default", id=saved["item"]["id"])
    assert searched["matches"]
    assert fetched["next_offset"]
    unfiltered = await service.call("search_context", query="at 1")
    results = {"save_context": [saved], "search_context": [searched, unfiltered], "fetch_context": [fetched]}
    for name, answers in results.items():
        closed = Draft202012Validator(schemas[name] | {"additionalProperties": False})
        assert all(closed.is_valid(answer) for answer in answers), name
