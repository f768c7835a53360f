"""Log lines, as Cloud Logging and a person at a terminal read them."""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from builders import PROJECT, Service
from logged import Log, logged
from metacortex import logs
from web.edge import VALID, ask

TRACE = "0123456789abcdef0123456789abcdef"
logger = logging.getLogger("metacortex.tests")


@contextmanager
def production(project: str | None = PROJECT) -> Generator[Log]:
    with logged() as log:
        logs.configure(project=project, readable=False)
        yield log


@contextmanager
def terminal() -> Generator[Log]:
    with logged() as log:
        logs.configure(project=PROJECT, readable=True)
        yield log


def fail() -> None:
    try:
        raise RuntimeError("the detail")
    except RuntimeError:
        logger.exception("It failed")


# --- In production ---


@pytest.mark.parametrize("level", ["INFO", "WARNING", "ERROR", "CRITICAL"])
def test_a_line_is_one_json_object_with_severity_and_message(level: str) -> None:
    with production() as log:
        logger.log(logging.getLevelNamesMapping()[level], "Zwei %s\nin «einer»", "Zeilen")
    assert log.lines == [{"severity": level, "message": "Zwei Zeilen\nin «einer»", "logger": "metacortex.tests"}]
    assert "«" in log.text


def test_an_exception_is_part_of_its_line() -> None:
    with production() as log:
        fail()
    [line] = log.lines
    assert line["message"] == "It failed"
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith("RuntimeError: the detail")


def test_an_event_is_part_of_its_line() -> None:
    event = {
        "event_id": "e",
        "event_type": "request",
        "client_id": "agent",
        "status": "rejected",
        "request": {"limit": 5},
    }
    with production() as log:
        logger.info("request refused", extra={"event": event})
    [line] = log.lines
    assert event.items() <= line.items()
    assert line["severity"] == "INFO"


def test_the_libraries_are_quiet_and_we_are_not() -> None:
    with production() as log:
        logging.getLogger("mcp.server").info("chatter")
        logging.getLogger("mcp.server").warning("trouble")
        logger.debug("detail")
        logger.info("news")
    assert [line["message"] for line in log.lines] == ["trouble", "news"]


def test_configuring_twice_leaves_one_handler() -> None:
    with production() as log:
        logs.configure(project=PROJECT, readable=False)
        logger.info("once")
    assert len(log.lines) == 1


# --- Traces ---


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("x-cloud-trace-context", TRACE),
        ("x-cloud-trace-context", f"{TRACE}/123;o=1"),
        ("traceparent", f"00-{TRACE}-0123456789abcdef-01"),
    ],
)
async def test_the_lines_of_a_request_carry_its_trace(service: Service, header: str, value: str) -> None:
    with production() as log:
        await ask(service, headers={"content-type": "application/json", header: value})
    [line] = log.lines
    assert line["logging.googleapis.com/trace"] == f"projects/{PROJECT}/traces/{TRACE}"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-cloud-trace-context": ""},
        {"x-cloud-trace-context": TRACE + "0"},
        {"x-cloud-trace-context": TRACE[1:] + "/1"},
        {"x-cloud-trace-context": "../../" + TRACE},
        {"traceparent": TRACE},
        {"traceparent": f"00-{TRACE[1:]}-0123456789abcdef-01"},
        {"traceparent": "00-" + "x" * 32 + "-0123456789abcdef-01"},
    ],
    ids=str,
)
async def test_what_is_no_trace_is_left_out(service: Service, headers: dict[str, str]) -> None:
    with production() as log:
        await ask(service, headers=headers)
    [line] = log.lines
    assert "logging.googleapis.com/trace" not in line


async def test_without_a_project_there_is_no_trace(service: Service) -> None:
    with production(project=None) as log:
        await ask(service, headers={"x-cloud-trace-context": TRACE})
    assert "logging.googleapis.com/trace" not in log.lines[0]


async def test_a_trace_ends_with_its_request(service: Service) -> None:
    with production() as log:
        await ask(service, headers={"x-cloud-trace-context": TRACE})
        await ask(service, headers={})
    assert ["logging.googleapis.com/trace" in line for line in log.lines] == [True, False]


# --- At a terminal ---


def test_a_line_is_readable() -> None:
    with terminal() as log:
        logger.warning("Something %s", "happened")
    time, level, message = log.text.split(maxsplit=2)
    assert len(time) == len("12:00:00")
    assert (level, message) == ("WARNING", "Something happened\n")


@pytest.mark.parametrize(
    ("event", "shown"),
    [
        (
            {"client_id": "agent", "status": "rejected", "status_code": 401, "path": "/mcp"},
            ["client_id=agent", "status_code=401"],
        ),
        (
            {"client_id": "agent", "status": "success", "latency_ms": 7, "request": {}},
            ["status=success", "latency_ms=7"],
        ),
    ],
)
def test_an_event_shows_what_a_person_looks_for(event: dict[str, Any], shown: list[str]) -> None:
    with terminal() as log:
        logger.info("an event", extra={"event": event})
    assert all(part in log.text for part in shown)
    assert log.text.count("\n") == 1
    assert "request" not in log.text.replace("rejected", "")


def test_an_exception_is_shown_below_its_line() -> None:
    with terminal() as log:
        fail()
    assert "It failed\nTraceback" in log.text
    assert log.text.endswith("RuntimeError: the detail\n")


@pytest.mark.parametrize("name", ["x\n12:00:00 ERROR   forged", "x\r\x1b[2Jforged", "x\u2028forged"])
async def test_nothing_a_caller_sends_looks_like_a_line_of_ours(service: Service, name: str) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name}}
    with terminal() as log:
        await service.http.post("/clients/agent/mcp", json=message, headers=VALID)
    assert "forged" in log.text
    assert len(log.text.splitlines()) == 1
    assert "\x1b" not in log.text
