"""Which paths there are, and that nothing else is one."""

import pytest

from builders import JSON_HEADERS, PROJECT, Service, bearer
from logged import logged
from metacortex import logs
from metacortex.settings import FUNCTION_NAME, REGION
from web.edge import NOT_FOUND, ORIGIN, VALID, ask, cors_headers
from web.wire import AUTHORIZED, JSON, Wire, head

PREFIXES = ["", f"/{FUNCTION_NAME}", f"/{PROJECT}/{REGION}/{FUNCTION_NAME}"]
SERVED = {"/mcp": JSON_HEADERS | bearer("default"), "/clients/agent/mcp": VALID}


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("path", SERVED)
async def test_an_endpoint_is_served_with_and_without_the_platforms_prefix(
    service: Service, prefix: str, path: str
) -> None:
    assert (await ask(service, prefix + path, SERVED[path])).status_code == 200


@pytest.mark.parametrize(
    "prefix",
    [
        f"/{FUNCTION_NAME.lower()}",
        f"/another/{REGION}/{FUNCTION_NAME}",
        f"/{PROJECT}/europe-west1/{FUNCTION_NAME}",
        f"/{PROJECT}/{REGION}/another",
        f"/{PROJECT}/{REGION}",
        f"/{PROJECT}/{FUNCTION_NAME}",
        f"/{REGION}/{FUNCTION_NAME}",
        f"/{FUNCTION_NAME}/{FUNCTION_NAME}",
        f"/x/{PROJECT}/{REGION}/{FUNCTION_NAME}",
        "/v1",
    ],
)
@pytest.mark.parametrize("path", [*SERVED, "/health"])
async def test_nothing_else_is_tolerated_before_a_path(service: Service, prefix: str, path: str) -> None:
    response = await ask(service, prefix + path, SERVED.get(path, {}))
    assert (response.status_code, response.json()) == (404, NOT_FOUND)


@pytest.mark.parametrize(
    "host", ["metacortexmcp-abc123-uc.a.run.app", "memory.example.org:8443", "203.0.113.7", "[::1]:80"]
)
async def test_the_service_answers_under_any_name_its_owner_gives_it(service: Service, host: str) -> None:
    assert (await ask(service, headers=VALID | {"host": host})).status_code == 200


@pytest.mark.parametrize(
    "client_id",
    [
        "nobody",
        "default",
        "AGENT",
        "agent.",
        "agent%20",
        "a%2Fb",
        "%E2%98%83",
        "x" * 10_000,
        "{client_id}",
        "%00",
    ],
    ids=lambda client_id: client_id[:20],
)
@pytest.mark.parametrize("method", ["POST", "OPTIONS", "GET"])
async def test_an_unknown_client_id_is_not_found_and_leaves_no_trace(
    service: Service, method: str, client_id: str
) -> None:
    with logged() as log:
        logs.configure(project=PROJECT, readable=False)
        response = await service.http.request(
            method, f"/clients/{client_id}/mcp", headers=JSON_HEADERS | bearer("default") | {"origin": ORIGIN}
        )
    assert (response.status_code, response.json(), cors_headers(response)) == (404, NOT_FOUND, {})
    assert (log.text, service.events) == ("", [])


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "//mcp",
        "/mcp/",
        "/mcp//",
        "/./mcp",
        "/mcp%0a",
        "/mcp%00",
        "/mcp%2f",
        "/mcp;x",
        "/MCP",
        "/clients/mcp",
        "/clients//mcp",
        "/clients/agent",
        "/clients/agent/",
        "/clients/agent/mcp/",
        "/clients/agent/mcp%0A",
        "/clients/agent/x/mcp",
        "/clients/../mcp",
        "/clients/./agent/mcp",
        "/clients/%2e%2e/mcp",
        "/clients/..%2f/mcp",
        "/clients/agent/../agent/mcp",
        "/clients/%c3%28/mcp",
        "http://127.0.0.1/mcp",
        "/health%0a",
        "/healthz/",
    ],
)
def test_a_path_is_taken_as_it_was_sent(wire: Wire, target: str) -> None:
    answer = wire.send(head(AUTHORIZED, JSON, "Content-Length: 0", target=target))
    assert (answer.status, answer.json()) == (404, NOT_FOUND)
