"""Which browser pages may call, and what their browser is told."""

import json

import pytest

from builders import JSON_HEADERS, PROFILES, Service, bearer, environment, path_of
from web.edge import ORIGIN, REFUSALS, VALID, Sent, ask, cors_headers

ALLOWED = {
    "access-control-allow-origin": ORIGIN,
    "access-control-expose-headers": "mcp-session-id, www-authenticate",
    "vary": "Origin",
}
PREFLIGHT = {
    "access-control-allow-methods": "POST, OPTIONS",
    "access-control-allow-headers": "authorization, content-type, accept, cache-control, mcp-protocol-version, "
    "mcp-session-id, mcp-method, mcp-name, last-event-id",
    "access-control-max-age": "3600",
}
NOTIFICATION = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
ANSWERS = [Sent(200), Sent(202, content=NOTIFICATION), *REFUSALS]


@pytest.mark.parametrize("sent", ANSWERS, ids=str)
async def test_every_answer_to_an_allowed_origin_carries_the_cors_headers(service: Service, sent: Sent) -> None:
    assert cors_headers(await sent.to(service, origin=ORIGIN)) == ALLOWED


@pytest.mark.parametrize("sent", ANSWERS, ids=str)
async def test_a_request_without_an_origin_passes_and_gets_no_cors_headers(service: Service, sent: Sent) -> None:
    assert cors_headers(await sent.to(service)) == {}


async def test_a_preflight_of_an_allowed_origin_needs_no_token(service: Service) -> None:
    response = await service.http.options(
        path_of("agent"),
        headers={
            "origin": ORIGIN,
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization, content-type",
        },
    )
    assert (response.status_code, response.content) == (204, b"")
    assert cors_headers(response) == ALLOWED | PREFLIGHT
    assert service.events == []


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://claude.ai",
        "https://claude.ai.evil.example",
        "https://evil-claude.ai",
        "https://claude.ai:443",
        "https://claude.ai/",
        "https://claude.ai https://evil.example",
        "HTTPS://CLAUDE.AI",
        "claude.ai",
        "null",
        "*",
        "",
    ],
)
@pytest.mark.parametrize("method", ["OPTIONS", "POST"])
async def test_any_other_origin_is_refused_without_cors_headers_and_recorded(
    service: Service, method: str, origin: str
) -> None:
    response = await service.http.request(method, path_of("agent"), headers=VALID | {"origin": origin})
    assert (response.status_code, response.json()) == (403, {"error": "Origin not allowed"})
    assert cors_headers(response) == {}
    [event] = service.events
    assert (event.fields["reason"], event.fields["method"]) == ("origin_not_allowed", method)


async def test_a_star_allows_every_origin_and_is_answered_by_a_star() -> None:
    profiles = [{**PROFILES[0], "allowedOrigins": ["*"]}]
    service = Service(environment(MCP_CLIENT_PROFILES_JSON=json.dumps(profiles)))
    response = await ask(service, headers=VALID | {"origin": "https://anyone.example"})
    assert response.status_code == 200
    assert cors_headers(response) == {
        "access-control-allow-origin": "*",
        "access-control-expose-headers": ALLOWED["access-control-expose-headers"],
    }


@pytest.mark.parametrize(
    ("profile", "origin", "status"),
    [
        ("default", "https://admin.example", 200),
        ("default", ORIGIN, 403),
        ("agent", "https://admin.example", 403),
        ("reader", "https://admin.example", 403),
        ("reader", ORIGIN, 403),
    ],
)
async def test_the_origins_of_one_profile_are_no_other_profiles(profile: str, origin: str, status: int) -> None:
    service = Service(environment(MCP_ALLOWED_ORIGINS="https://admin.example, https://other.example"))
    response = await ask(service, path_of(profile), JSON_HEADERS | bearer(profile) | {"origin": origin})
    assert response.status_code == status
