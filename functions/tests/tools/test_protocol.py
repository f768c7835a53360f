"""MCP itself: both eras on one endpoint, and what is a protocol error rather than a tool's."""

from typing import Any

import pytest

from builders import JSON_HEADERS, ProtocolError, Service, bearer
from metacortex.tools.server import INSTRUCTIONS

MODERN = "2026-07-28"
HANDSHAKES = ["2025-03-26", "2025-06-18", "2025-11-25"]


async def modern(service: Service, method: str, params: dict[str, Any], **headers: str) -> Any:
    """A request of the stateless era, as a client of that era sends it."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
    }
    return await service.http.post(
        "/clients/agent/mcp",
        json={"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}},
        headers=JSON_HEADERS | bearer("agent") | {"mcp-protocol-version": MODERN, "mcp-method": method} | headers,
    )


@pytest.mark.parametrize("version", HANDSHAKES)
async def test_a_handshake_client_is_answered_in_its_own_version(service: Service, version: str) -> None:
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}}
    answer = await service.rpc("initialize", params)
    assert answer["protocolVersion"] == version
    assert answer["serverInfo"]["name"] == "metacortex"
    assert answer["instructions"] == INSTRUCTIONS
    assert set(answer["capabilities"]) == {"tools"}


async def test_a_tool_can_be_called_without_a_handshake(service: Service) -> None:
    assert await service.search("anything") == []


async def test_a_modern_client_discovers_the_server_and_lists_tools_for_itself_only(service: Service) -> None:
    discovered = (await modern(service, "server/discover", {})).json()["result"]
    assert MODERN in discovered["supportedVersions"]
    assert discovered["instructions"] == INSTRUCTIONS
    listed = (await modern(service, "tools/list", {})).json()["result"]
    assert [tool["name"] for tool in listed["tools"]] == ["save_context", "search_context", "fetch_context"]
    assert listed["cacheScope"] == "private"
    assert listed["ttlMs"] > 0


async def test_a_list_that_was_told_before_is_told_in_each_era_as_at_first_and_to_good_requests_alone(
    service: Service,
) -> None:
    async def told() -> list[Any]:
        return [await service.rpc("tools/list", {}), (await modern(service, "tools/list", {})).json()["result"]]

    handshake, stateless = await told()
    assert ("ttlMs" in handshake, "ttlMs" in stateless) == (False, True)
    assert await told() == [handshake, stateless]
    with pytest.raises(ProtocolError) as error:
        await service.rpc("tools/list", {"cursor": 7})
    assert error.value.code == -32602
    answer = await modern(service, "tools/list", {"cursor": 7})
    assert answer.json()["error"]["code"] == -32602


async def test_a_modern_client_calls_a_tool(service: Service) -> None:
    params = {"name": "save_context", "arguments": {"content": "Fact at 10"}}
    answer = await modern(service, "tools/call", params, **{"mcp-name": "save_context"})
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["result"]["structuredContent"]["write_status"] == "created"


async def test_a_modern_header_that_contradicts_the_body_is_refused(service: Service) -> None:
    params = {"name": "save_context", "arguments": {"content": "Fact"}}
    answer = await modern(service, "tools/call", params, **{"mcp-name": "search_context"})
    assert answer.status_code == 400
    assert "error" in answer.json()


@pytest.mark.parametrize("name", ["nothing", "list_context", "deprecate_context", "", "SAVE_CONTEXT", "x" * 10_000])
async def test_a_tool_that_does_not_exist_for_a_client_is_a_protocol_error_and_an_event(
    service: Service, name: str
) -> None:
    with pytest.raises(ProtocolError) as error:
        await service.call(name, "reader")
    assert error.value.code == -32602
    [event] = service.events
    assert event.fields["tool_name"] == name[:64]
    assert event.fields["status"] == "error"


async def test_a_tool_that_is_not_granted_is_as_unknown_as_one_that_does_not_exist(service: Service) -> None:
    with pytest.raises(ProtocolError) as ungranted:
        await service.call("save_context", "reader", content="Fact")
    with pytest.raises(ProtocolError) as unknown:
        await service.call("nothing", "reader")
    assert str(ungranted.value) == str(unknown.value)


async def test_invalid_arguments_are_a_tool_error_and_an_event(service: Service) -> None:
    result = await service.rpc("tools/call", {"name": "search_context", "arguments": {"limit": 0}})
    assert result["isError"] is True
    [event] = service.events
    assert event.fields["error"]["code"] == "invalid_argument"
    assert event.fields["error"]["status_code"] == 400


@pytest.mark.parametrize(
    "params", [{"name": "save_context", "arguments": "x"}, {"name": {"a": 1}}, {"arguments": {}}, {"name": 5}], ids=str
)
async def test_a_call_without_the_form_of_a_tool_call_is_a_protocol_error_and_an_event(
    service: Service, params: dict[str, Any]
) -> None:
    with pytest.raises(ProtocolError) as error:
        await service.rpc("tools/call", params)
    assert error.value.code == -32602
    [event] = service.events
    assert event.fields["tool_name"] == (params["name"] if isinstance(params.get("name"), str) else "")
    assert event.fields["error"]["status_code"] == 400


async def test_an_unknown_method_is_a_protocol_error(service: Service) -> None:
    with pytest.raises(ProtocolError) as error:
        await service.rpc("resources/list", {})
    assert error.value.code == -32601


def test_instructions_fit_every_known_client() -> None:
    assert len(INSTRUCTIONS.encode()) < 2_048
    assert all(word in INSTRUCTIONS[:512] for word in ("durable memory", "Search it", "save"))
