"""An MCP path takes POST, and answers everything else at once."""

import pytest

from builders import JSON_HEADERS, TOKENS, Service, bearer, path_of


@pytest.mark.parametrize("profile", TOKENS)
@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH", "HEAD"])
async def test_another_method_is_answered_by_what_is_allowed(service: Service, method: str, profile: str) -> None:
    headers = JSON_HEADERS | bearer(profile) | {"accept": "text/event-stream", "mcp-session-id": "x"}
    response = await service.http.request(method, path_of(profile), headers=headers)
    assert (response.status_code, response.headers["allow"]) == (405, "POST, OPTIONS")
    assert response.headers["content-type"] == "application/json"
    if method != "HEAD":
        answer = response.json()
        assert (answer["jsonrpc"], answer["id"], answer["error"]["code"]) == ("2.0", None, -32000)


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH", "HEAD"])
async def test_another_method_without_a_token_is_unauthorized(service: Service, method: str) -> None:
    assert (await service.http.request(method, path_of("agent"))).status_code == 401


async def test_a_message_that_asks_for_a_stream_is_told_that_there_is_none(service: Service) -> None:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "subscriptions/listen"}
    response = await service.http.post(
        path_of("agent"),
        json={
            "jsonrpc": "2.0",
            "id": 1,
            "method": "subscriptions/listen",
            "params": {"_meta": meta, "notifications": {"toolsListChanged": True}},
        },
        headers=JSON_HEADERS | bearer("agent") | headers,
    )
    assert (response.status_code, response.headers["content-type"]) == (404, "application/json")
    assert response.json()["error"]["code"] == -32601
