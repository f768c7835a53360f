"""What events hold, and what they never hold."""

import pytest

from metacortex.errors import InvalidArgument
from metacortex.events import EventKind, ToolCall, describe, rejection

NOON = 1_780_000_000_000
DAY_MS = 24 * 60 * 60 * 1000


def call() -> ToolCall:
    call = ToolCall("agent", "save_context", lambda: NOON)
    call.request = {"topic": "t"}
    return call


def test_a_successful_call_is_told_with_request_response_and_time() -> None:
    event = call().succeeded({"id": "m"})
    latency = event.fields["latency_ms"]
    assert isinstance(latency, int)
    assert event.fields == {
        "event_type": "tool_call",
        "client_id": "agent",
        "tool_name": "save_context",
        "request": {"topic": "t"},
        "status": "success",
        "response": {"id": "m"},
        "latency_ms": latency,
    }


def test_the_event_of_a_write_knows_no_latency() -> None:
    event = call().committed({"id": "m"})
    assert "latency_ms" not in event.fields
    assert event.fields["status"] == "success"


def test_a_failed_call_is_told_with_the_error_and_without_a_response() -> None:
    event = call().failed(InvalidArgument("content is missing."), 400)
    assert event.fields["status"] == "error"
    assert event.fields["error"] == {"code": "invalid_argument", "message": "content is missing.", "status_code": 400}
    assert "response" not in event.fields


def test_an_error_that_is_not_ours_is_told_without_what_it_carries() -> None:
    told = describe(ValueError("a secret detail"))
    assert told["code"] == "internal"
    assert "detail" not in told["message"].removesuffix("the log has the details.")


def test_all_events_of_one_call_have_its_id() -> None:
    one = call()
    assert one.committed({}).id == one.succeeded({}).id == one.retrieval({}).id
    assert call().succeeded({}).id != one.committed({}).id


def test_retrieval_telemetry_is_kept_apart_from_the_trail() -> None:
    event = call().retrieval({"query": "the whole query", "results": []})
    assert event.kind is EventKind.RETRIEVAL
    assert event.fields["event_type"] == "retrieval"
    assert "status" not in event.fields


@pytest.mark.parametrize(
    "event", [call().succeeded({}), call().retrieval({}), rejection("id", NOON, {"reason": "unauthorized"})]
)
def test_every_event_expires_after_ninety_days(event: object) -> None:
    assert (event.timestamp, event.expires_at) == (NOON, NOON + 90 * DAY_MS)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
