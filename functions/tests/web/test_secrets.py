"""No credential, query string or body gets to where it can be read later: a log line, an event, an answer."""

import json
from typing import Any

import pytest

from builders import JSON_HEADERS, PROJECT, TOKENS, Service, bearer, environment, path_of
from logged import logged
from metacortex import logs
from web.edge import LISTING, VALID

CANARY = "canary-9f3b7c"
WRONG = {"authorization": f"Bearer {CANARY}"}
MODERN = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "save_context"}


def calling(tool: str, **arguments: object) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


@pytest.fixture
def service() -> Service:
    """The whole service, with tokens in URLs allowed."""
    return Service(environment(MCP_URL_TOKENS="true"))


REQUESTS: dict[str, dict[str, Any]] = {
    "a wrong token": {"headers": JSON_HEADERS | WRONG},
    "a wrong token in the URL": {"params": {"auth_token": CANARY}, "headers": JSON_HEADERS},
    "two tokens": {"headers": [*JSON_HEADERS.items(), *WRONG.items(), *WRONG.items()]},
    "another scheme": {"headers": JSON_HEADERS | {"authorization": f"Basic {CANARY}"}},
    "a query beside a valid token": {"params": {"q": CANARY}},
    "a refused origin": {"params": {"q": CANARY}, "headers": VALID | {"origin": f"https://{CANARY}.example"}},
    "a wrong method": {"method": "DELETE", "params": {"q": CANARY}},
    "a wrong content type": {"headers": VALID | {"content-type": f"text/{CANARY}"}},
    "broken JSON": {"content": f'{{"{CANARY}": "{CANARY}'},
    "a wrong message": {"json": {**LISTING, "id": {CANARY: 1}, "params": [CANARY]}},
    "wrong parameters": {"json": {**LISTING, "method": "tools/call", "params": {"name": 7, "arguments": CANARY}}},
    "wrong arguments": {"json": calling("save_context", content=7, topic=[CANARY], confidence=CANARY)},
    "a wrong image": {"json": calling("save_context", content="x", image_base64=CANARY, image_mime_type="image/png")},
    "an unknown id": {"json": calling("fetch_context", id=CANARY + "/x")},
    "a wrong header": {"json": calling("fetch_context", id="x", note=CANARY), "headers": VALID | MODERN},
    "a modern call": {"json": calling("save_context", content=CANARY), "headers": VALID | MODERN},
    "a notification": {"json": {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"x": CANARY}}},
}


@pytest.mark.parametrize("sent", REQUESTS.values(), ids=REQUESTS)
async def test_a_request_leaves_nothing_of_itself(service: Service, sent: dict[str, Any]) -> None:
    request: dict[str, Any] = {"method": "POST", "json": LISTING, "headers": VALID, **sent}
    with logged() as log:
        logs.configure(project=PROJECT, readable=False)
        response = await service.http.request(url=path_of("agent"), **request)
    assert CANARY not in log.text
    assert CANARY not in str(service.events)
    assert CANARY not in response.text
    assert TOKENS["agent"] not in log.text + str(service.events) + response.text


@pytest.mark.parametrize("readable", [True, False])
async def test_what_is_saved_and_asked_is_in_no_log_line_and_what_opens_it_nowhere(
    service: Service, *, readable: bool
) -> None:
    with logged() as log:
        logs.configure(project=PROJECT, readable=readable)
        await service.save(CANARY + " at 10", source_session="s", artifact_refs=["r"])
        await service.http.post(
            path_of("agent"),
            params={"auth_token": TOKENS["agent"]},
            content=json.dumps(calling("fetch_context", id="nothing")),
            headers=JSON_HEADERS | bearer("agent"),
        )
    assert "save_context" in log.text
    assert CANARY not in log.text + str(service.events)
    assert TOKENS["agent"] not in log.text + str(service.events)
