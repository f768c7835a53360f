"""Which credential opens which endpoint."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from builders import JSON_HEADERS, PROFILES, TOKENS, Service, environment, path_of
from web.edge import ask

TOKEN = TOKENS["agent"]
UNAUTHORIZED = ({"error": "Unauthorized"}, 'Bearer realm="metacortex"')


async def status(service: Service, *authorization: str | bytes, profile: str = "agent", **query: str) -> int:
    """The status of a request with these Authorization headers, whose 401 is checked to be the one that the contract shows."""
    headers: list[tuple[str, Any]] = [*JSON_HEADERS.items(), *(("authorization", value) for value in authorization)]
    response = await ask(service, path_of(profile), headers, params=query)
    if response.status_code == 401:
        assert (response.json(), response.headers["www-authenticate"]) == UNAUTHORIZED
    else:
        assert "www-authenticate" not in response.headers
    return response.status_code


def with_agent(settings: Mapping[str, str] | None = None, **fields: Any) -> Service:
    """A service whose agent profile has other fields, and which has other settings."""
    agent = {**PROFILES[0], **fields}
    profiles = [{name: value for name, value in agent.items() if value is not None}, *PROFILES[1:]]
    return Service(environment(MCP_CLIENT_PROFILES_JSON=json.dumps(profiles), **(settings or {})))


@pytest.mark.parametrize("profile", TOKENS)
async def test_a_profiles_own_token_opens_its_endpoint(service: Service, profile: str) -> None:
    assert await status(service, f"Bearer {TOKENS[profile]}", profile=profile) == 200


@pytest.mark.parametrize("profile", TOKENS)
@pytest.mark.parametrize("other", TOKENS)
async def test_a_token_opens_no_other_endpoint(service: Service, profile: str, other: str) -> None:
    expected = 200 if profile == other else 401
    assert await status(service, f"Bearer {TOKENS[other]}", profile=profile) == expected


@pytest.mark.parametrize(
    "form", ["bearer {}", "BEARER {}", "bEaReR {}", "Bearer   {}", "  Bearer {}", "Bearer {} \t", "Bearer {}\n"]
)
async def test_the_scheme_is_read_in_any_case_and_with_any_space_around_the_token(service: Service, form: str) -> None:
    assert await status(service, form.format(TOKEN)) == 200


@pytest.mark.parametrize(
    "header",
    [
        "",
        " ",
        "Bearer",
        "Bearer ",
        "Bearer\n",
        TOKEN,
        f"Bearer{TOKEN}",
        f"Basic {TOKEN}",
        f"Token {TOKEN}",
        f"Bearer: {TOKEN}",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN.upper()}",
        f"Bearer {TOKEN} {TOKEN}",
        f"Bearer {TOKEN}, Bearer {TOKEN}",
        f'Bearer "{TOKEN}"',
        f"Bearer {hashlib.sha256(TOKEN.encode()).hexdigest()}",
        b"Bearer \xff\xfe\x00" + TOKEN.encode(),
        "Bearer токен-из-букв-кириллицы".encode(),
        "Bearer " + "x" * 1_048_576,
    ],
    ids=lambda header: repr(header[:40]),
)
async def test_anything_but_the_token_is_unauthorized(service: Service, header: str | bytes) -> None:
    assert await status(service, header) == 401


async def test_no_credential_is_unauthorized(service: Service) -> None:
    assert await status(service) == 401


@pytest.mark.parametrize(
    "headers", [(f"Bearer {TOKEN}", "Bearer wrong"), ("Bearer wrong", f"Bearer {TOKEN}"), (f"Bearer {TOKEN}",) * 2]
)
async def test_two_authorization_headers_are_no_credential(service: Service, headers: Sequence[str]) -> None:
    assert await status(service, *headers) == 401


@pytest.mark.parametrize("method", ["initialize", "server/discover", "tools/list", "ping"])
async def test_no_method_is_open_without_a_token(service: Service, method: str) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {}}
    response = await service.http.post(path_of("agent"), json=message, headers=JSON_HEADERS)
    assert (response.status_code, response.json()) == (401, UNAUTHORIZED[0])


async def test_a_profile_may_hold_the_digest_of_its_token_instead(service: Service) -> None:
    service = with_agent(token=None, tokenSha256=hashlib.sha256(TOKEN.encode()).hexdigest().upper())
    assert await status(service, f"Bearer {TOKEN}") == 200
    assert await status(service, f"Bearer {TOKEN}x") == 401


async def test_a_token_stored_with_a_trailing_newline_is_the_token(service: Service) -> None:
    service = Service(environment(MCP_ADMIN_TOKEN=f"{TOKENS['default']}\n"))
    assert await status(service, f"Bearer {TOKENS['default']}", profile="default") == 200


# --- Tokens in the URL ---


@pytest.fixture
def url_service() -> Service:
    """An installation that takes them."""
    return Service(environment(MCP_URL_TOKENS="true"))


async def test_tokens_in_the_url_are_taken_only_where_the_owner_says_so(service: Service) -> None:
    assert await status(service, auth_token=TOKEN) == 401
    assert await status(service, f"Bearer {TOKEN}", auth_token=TOKEN) == 200


async def test_a_scoped_endpoint_takes_its_token_from_the_url(url_service: Service) -> None:
    assert await status(url_service, auth_token=TOKEN) == 200


async def test_the_admin_endpoint_takes_no_token_from_the_url(url_service: Service) -> None:
    assert await status(url_service, profile="default", auth_token=TOKENS["default"]) == 401


async def test_a_profile_can_refuse_tokens_in_the_url() -> None:
    service = with_agent({"MCP_URL_TOKENS": "true"}, allowUrlToken=False)
    assert await status(service, auth_token=TOKEN) == 401
    assert await status(service, f"Bearer {TOKEN}") == 200
    assert await status(service, profile="reader", auth_token=TOKENS["reader"]) == 200


@pytest.mark.parametrize(
    ("header", "in_url", "expected"), [(TOKEN, "wrong", 200), ("wrong", TOKEN, 401), ("", TOKEN, 401)]
)
async def test_the_header_wins_over_the_url(url_service: Service, header: str, in_url: str, expected: int) -> None:
    assert await status(url_service, f"Bearer {header}", auth_token=in_url) == expected


@pytest.mark.parametrize(
    "query",
    [
        "",
        "auth_token",
        "auth_token=",
        "auth_token=%20",
        f"AUTH_TOKEN={TOKEN}",
        f"token={TOKEN}",
        f"auth_token={TOKENS['reader']}",
        f"auth_token={TOKENS['default']}",
        f"auth_token={TOKEN}&auth_token={TOKEN}",
        f"auth_token={TOKEN}&auth_token=wrong",
        f"auth_token=Bearer {TOKEN}",
        f"auth_token={TOKEN}%FF",
        "auth_token=" + "x" * 60_000,
        "&".join(f"x{number}=1" for number in range(1_000)) + f"&auth_token={TOKEN}",
    ],
    ids=lambda query: query[:40],
)
async def test_any_other_query_is_unauthorized(url_service: Service, query: str) -> None:
    response = await ask(url_service, f"{path_of('agent')}?{query}", JSON_HEADERS)
    assert response.status_code == 401


@pytest.mark.parametrize("host", ["x#", "x?auth_token=wrong", "[", "x/"])
async def test_no_host_header_hides_the_token_in_the_url(url_service: Service, host: str) -> None:
    response = await ask(url_service, f"{path_of('agent')}?auth_token={TOKEN}", JSON_HEADERS | {"host": host})
    assert response.status_code == 200


@pytest.mark.parametrize("host", [f"x?auth_token={TOKEN}", f"x?auth_token={TOKEN}#"])
async def test_no_host_header_brings_a_token(url_service: Service, host: str) -> None:
    assert (await ask(url_service, headers=JSON_HEADERS | {"host": host})).status_code == 401
