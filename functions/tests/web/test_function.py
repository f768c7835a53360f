"""The HTTP edge as it is deployed: main.py under functions-framework, in its own process."""

import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from builders import ADMIN_TOKEN, PROJECT, TOKENS, environment
from metacortex.settings import FUNCTION_NAME, REGION
from ops.function import Function, running_function
from web.edge import BODY_LIMIT, NOT_FOUND
from web.wire import AUTHORIZED, CHUNKED, JSON, MESSAGE, Wire, chunk, head, whole

pytestmark = pytest.mark.slow

CANARY = "canary-9f3b7c"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("function") / "log"


@pytest.fixture(scope="module")
def function(emulator_host: str, log: Path) -> Generator[Function]:
    settings = environment(FIRESTORE_EMULATOR_HOST=emulator_host, GCLOUD_PROJECT=PROJECT, MCP_URL_TOKENS="true")
    with running_function(settings, log=log) as function:
        yield function


@pytest.fixture(scope="module")
def wire(function: Function) -> Wire:
    return Wire(function.port)


def memory(function: Function) -> int:
    """The resident memory of the worker, in KiB."""
    listing = ["ps", "-o", "rss=", "-p", str(function.worker_pid())]
    return int(subprocess.run(listing, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("prefix", ["", f"/{FUNCTION_NAME}", f"/{PROJECT}/{REGION}/{FUNCTION_NAME}"])
def test_every_path_is_served_with_and_without_the_platforms_prefix(wire: Wire, prefix: str) -> None:
    assert wire.send(head(method="GET", target=f"{prefix}/healthz")).json()["ok"] is True
    assert "result" in wire.send(whole(MESSAGE, AUTHORIZED, JSON, target=f"{prefix}/clients/agent/mcp")).json()
    admin = f"Authorization: Bearer {ADMIN_TOKEN}"
    assert "result" in wire.send(whole(MESSAGE, admin, JSON, target=f"{prefix}/mcp")).json()


@pytest.mark.parametrize(
    "target", ["/", "//mcp", "/clients/../mcp", "/clients/%2e%2e/mcp", "/clients/default/mcp", "/mcp/", "/mcp%0a"]
)
def test_nothing_else_is_a_path(wire: Wire, target: str) -> None:
    answer = wire.send(whole(MESSAGE, AUTHORIZED, JSON, target=target))
    assert (answer.status, answer.json()) == (404, NOT_FOUND)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (whole(MESSAGE, JSON), 401),
        (whole(MESSAGE, JSON, AUTHORIZED, AUTHORIZED), 401),
        (whole(MESSAGE, JSON, AUTHORIZED, "Origin: https://evil.example"), 403),
        (head("Origin: https://claude.ai", method="OPTIONS"), 204),
        (head(AUTHORIZED, "Accept: text/event-stream", method="GET"), 405),
        (head(AUTHORIZED, method="DELETE"), 405),
        (head(AUTHORIZED, method="PUT"), 405),
        (head(AUTHORIZED, method="PATCH"), 405),
        (head(AUTHORIZED, JSON, f"Content-Length: {BODY_LIMIT + 1}"), 413),
        (whole(MESSAGE, AUTHORIZED), 415),
        (whole(b"{", AUTHORIZED, JSON), 400),
        (whole(b"[" * 100_000, AUTHORIZED, JSON), 400),
        (whole(b'{"jsonrpc":"2.0","method":"notifications/initialized"}', AUTHORIZED, JSON), 202),
    ],
)
def test_the_deployed_app_answers_as_the_contract_says(wire: Wire, request_: bytes, status: int) -> None:
    answer = wire.send(request_)
    assert answer.status == status
    assert not answer.body or "jsonrpc" in answer.json() or answer.json().keys() == {"error"}


def test_a_body_of_fifty_megabytes_leaves_the_memory_flat(wire: Wire, function: Function) -> None:
    assert wire.ask().status == 200
    before = memory(function)
    answer = wire.send(head(AUTHORIZED, JSON, CHUNKED), *[chunk(b" " * 65_536)] * 800, chunk(b""))
    assert answer.status == 413
    assert memory(function) - before < 16 * 1024


def test_no_token_and_no_query_gets_into_the_log_of_the_process(wire: Wire, log: Path) -> None:
    url = f"/clients/agent/mcp?auth_token={TOKENS['agent']}&q={CANARY}"
    assert wire.send(whole(MESSAGE, JSON, target=url)).status == 200
    assert wire.send(whole(MESSAGE, JSON, f"Authorization: Bearer {CANARY}")).status == 401
    assert wire.send(whole(CANARY.encode(), JSON, AUTHORIZED)).status == 400
    assert wire.send(head("Authorization: Bearer " + CANARY * 1_000)).status == 401
    text = log.read_text()
    assert "unauthorized" in text
    assert not [secret for secret in (CANARY, *TOKENS.values()) if secret in text]
