"""Lines of the MCP authorization specification that no other test shows; docs/SECURITY.md has the table of all."""

import json

import pytest

from builders import JSON_HEADERS, TOKENS
from gemini_api import GeminiApi
from signing import Browser, Signing

KEY = "a-gemini-key-of-the-tests"


@pytest.mark.parametrize("scope", [None, "", "memory", "offline_access", "something else", "memory admin"])
async def test_a_grant_is_always_enough_for_its_endpoint(signing: Signing, scope: str | None) -> None:
    client = (await signing.register())["client_id"]
    returned = await Browser(signing).approve(signing.authorize_url(client, scope=scope))
    tokens = (await signing.redeem(client, returned["code"])).json()
    assert tokens["scope"] in {"memory", "memory offline_access"}
    assert (await signing.call(tokens["access_token"])).status_code == 200


async def test_a_token_that_was_given_by_signing_in_counts_in_no_url(
    emulator_host: str, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", emulator_host)
    signing = Signing(project, {"MCP_URL_TOKENS": "true"})
    tokens = await signing.connected()
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    for token, status in ((TOKENS["agent"], 200), (tokens["access_token"], 401)):
        url = f"/clients/agent/mcp?auth_token={token}"
        assert (await signing.http.post(url, json=body, headers=JSON_HEADERS)).status_code == status


async def test_a_token_goes_to_nobody_else(
    emulator_host: str, project: str, monkeypatch: pytest.MonkeyPatch, api: GeminiApi
) -> None:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", emulator_host)
    signing = Signing(project, {"MODEL_PROVIDER": "gemini", "GEMINI_API_KEY": KEY})
    token = (await signing.connected())["access_token"]
    save = {"name": "save_context", "arguments": {"content": "A fact"}}
    response = await signing.http.post(
        "/clients/agent/mcp",
        json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": save},
        headers=JSON_HEADERS | {"authorization": f"Bearer {token}"},
    )
    assert response.json()["result"]["isError"] is False
    assert api.asked
    assert token not in json.dumps([api.headers, api.asked])


async def test_bad_requests_are_told_apart_from_missing_and_wrong_tokens(signing: Signing) -> None:
    assert (await signing.call(None)).status_code == 401
    assert (await signing.call("wrong")).status_code == 401
    assert (await signing.http.post("/oauth/token", content=b"")).status_code == 400
    assert (await signing.token(grant_type="refresh_token", client_id="unknown", refresh_token="x")).status_code == 401


async def test_a_token_that_cannot_be_looked_up_is_no_reason_to_sign_in_again(
    emulator_host: str, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", emulator_host)
    signing = Signing(project, is_cold=True)
    token = (await signing.connected())["access_token"]
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", "127.0.0.1:1")
    response = await signing.call(token)
    assert (response.status_code, response.json()["error"]) == (503, "Service unavailable")
    assert "www-authenticate" not in response.headers
