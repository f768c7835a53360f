"""What a client is told when the service itself is at fault, and what only the log knows."""

import dataclasses
import http.client
from collections.abc import Callable

import httpx2
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from builders import ADMIN_TOKEN, JSON_HEADERS, PROJECT, bearer, environment, in_memory, plane_models
from logged import Log, logged
from metacortex import logs
from metacortex.bootstrap import Installation, application, install
from metacortex.errors import ConfigurationError
from metacortex.settings import load
from metacortex.startup import once
from metacortex.web.app import create_app
from web.edge import ORIGIN, VALID, cors_headers
from web.wire import serving

WRONG = environment(
    MCP_ADMIN_TOKEN="short-secret",
    SEARCH_RESULT_LIMIT="many",
    MCP_CLIENT_PROFILES_JSON='[{"id":"agent","token":"a-scoped-token-of-the-tests","allowedTool":["search_context"]}]',
)


def client(app: ASGIApp) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1")


async def listing(app: ASGIApp, path: str = "/mcp", **headers: str) -> httpx2.Response:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    return await client(app).post(path, json=message, headers=JSON_HEADERS | bearer("default") | headers)


def app_of(load_: Callable[[], Installation]) -> ASGIApp:
    logs.configure(project=PROJECT, readable=False)
    return create_app(once(load_), project_id=PROJECT, service_name="metacortex")


def installed() -> Installation:
    return install(load(environment()), in_memory, plane_models())


# --- 503 ---


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What makes Firestore's client ask for no credentials; nothing listens there."""
    surroundings = {"FIRESTORE_EMULATOR_HOST": "127.0.0.1:1", "GCLOUD_PROJECT": PROJECT}
    for name, value in surroundings.items():
        monkeypatch.setenv(name, value)
    return surroundings


def said(log: Log, request_id: str) -> list[str]:
    """The messages of the log that carry a request id."""
    return [line for line in log.text.splitlines() if request_id in line]


async def test_a_wrong_configuration_is_answered_503_with_every_fault_in_the_log(emulated: dict[str, str]) -> None:
    with logged() as log:
        response = await listing(application(WRONG | emulated))
    assert response.status_code == 503
    answer = response.json()
    assert answer == {"error": "Service unavailable", "requestId": answer["requestId"]}
    faults = "\n".join(said(log, answer["requestId"]))
    assert log.text.strip() == faults.strip()
    for place in ("MCP_ADMIN_TOKEN", "SEARCH_RESULT_LIMIT", "[0].allowedTool ", "[0].allowedTools "):
        assert place in faults
    for secret in ("short-secret", "a-scoped-token-of-the-tests"):
        assert secret not in log.text + response.text


async def test_the_configuration_is_looked_at_again_with_the_next_request(emulated: dict[str, str]) -> None:
    surroundings = WRONG | emulated
    with logged() as log:
        app = application(surroundings)
        first, second = await listing(app), await listing(app)
        surroundings |= environment(SEARCH_RESULT_LIMIT="5")
        assert (await listing(app)).status_code == 200
        surroundings |= WRONG
        assert (await listing(app)).status_code == 200
    assert (first.status_code, second.status_code) == (503, 503)
    assert first.json()["requestId"] != second.json()["requestId"]
    assert len(said(log, second.json()["requestId"])) == 4


async def test_a_wrong_configuration_hides_no_unknown_path_and_stops_no_health_answer(emulated: dict[str, str]) -> None:
    with logged():
        app = application(WRONG | emulated)
    assert (await client(app).post("/nothing")).status_code == 404
    assert (await client(app).get("/health")).status_code == 200


async def test_a_configuration_error_outside_the_settings_is_answered_the_same_way() -> None:
    def fail() -> Installation:
        raise ConfigurationError(["MODEL_PROVIDER is not part of this version."])

    with logged() as log:
        response = await listing(app_of(fail))
    assert response.status_code == 503
    [line] = log.lines
    assert line["severity"] == "ERROR"
    assert line["message"].startswith("Configuration: MODEL_PROVIDER is not part of this version.")


# --- 500 ---


def failing(*, begun: bool = False) -> Callable[[], Installation]:
    """An installation whose MCP part fails, before or after its answer has begun."""

    async def mcp(_: Scope, __: Receive, send: Send) -> None:
        if begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("the detail")

    installation = dataclasses.replace(installed(), mcp=mcp)
    return lambda: installation


def cannot_load() -> Installation:
    raise RuntimeError("the detail")


@pytest.mark.parametrize("load_", [failing(), cannot_load], ids=["while serving", "while loading"])
async def test_an_unexpected_error_is_answered_500_with_its_details_in_the_log_only(
    load_: Callable[[], Installation],
) -> None:
    with logged() as log:
        response = await listing(app_of(load_))
    assert response.status_code == 500
    answer = response.json()
    assert answer == {"error": "Internal server error", "requestId": answer["requestId"]}
    [line] = log.lines
    assert line["severity"] == "ERROR"
    assert answer["requestId"] in line["message"]
    assert "RuntimeError: the detail" in line["exception"]
    assert ADMIN_TOKEN not in log.text


async def test_an_unexpected_error_is_shown_to_an_allowed_origin() -> None:
    with logged():
        response = await listing(app_of(failing()), "/clients/agent/mcp", **VALID, origin=ORIGIN)
    assert response.status_code == 500
    assert cors_headers(response)["access-control-allow-origin"] == ORIGIN


def test_an_unexpected_error_in_the_middle_of_an_answer_adds_nothing_to_it() -> None:
    with logged() as log, serving(app_of(failing(begun=True))) as wire, pytest.raises(http.client.IncompleteRead):
        wire.ask()
    assert "RuntimeError: the detail" in log.lines[0]["exception"]


async def test_after_an_unexpected_error_the_next_request_is_served() -> None:
    errors = [RuntimeError("once")]
    installation = installed()

    def load_() -> Installation:
        if errors:
            raise errors.pop()
        return installation

    with logged():
        app = app_of(load_)
        assert [(await listing(app)).status_code for _ in range(2)] == [500, 200]
