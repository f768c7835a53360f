"""Bytes that no well-behaved client sends, against a real server."""

from contextlib import suppress

import pytest

from builders import TOKENS, Service
from running import eventually
from web.edge import BODY_LIMIT
from web.wire import AUTHORIZED, CHUNKED, JSON, MESSAGE, Answer, Wire, chunk, exchange, head, serving, whole

BLANKS = chunk(b" " * 65_536)
END = chunk(b"")


def error_code(answer: Answer) -> int:
    return answer.json()["error"]["code"]


# --- Credentials ---


@pytest.mark.parametrize("second", [AUTHORIZED, "authorization: Bearer wrong", "Authorization:"])
@pytest.mark.parametrize("reverse", [False, True])
def test_two_authorization_headers_are_no_credential(wire: Wire, second: str, *, reverse: bool) -> None:
    headers = [AUTHORIZED, second]
    answer = wire.send(whole(MESSAGE, JSON, *(reversed(headers) if reverse else headers)))
    assert (answer.status, answer.json()) == (401, {"error": "Unauthorized"})


@pytest.mark.parametrize("token", ["x" * 60_000, TOKENS["agent"] + "\xff", "\xe4\xf6\xfc" * 10, "\t"])
def test_a_token_of_any_bytes_is_unauthorized(wire: Wire, token: str) -> None:
    assert wire.send(whole(MESSAGE, f"Authorization: Bearer {token}", JSON)).status == 401


def test_a_token_of_a_megabyte_is_refused_by_the_server_itself(wire: Wire) -> None:
    with suppress(ConnectionError):
        assert wire.send(whole(MESSAGE, "Authorization: Bearer " + "x" * 1_048_576, JSON)).status in {400, 401, 431}
    assert wire.ask().status == 200


@pytest.mark.parametrize("query", [f"auth_token={TOKENS['agent']}\xff", "auth_token=\xff", "\xff=1"])
def test_a_query_of_any_bytes_is_unauthorized(wire: Wire, query: str) -> None:
    assert wire.send(whole(MESSAGE, JSON, target=f"/clients/agent/mcp?{query}")).status in {400, 401}


def test_a_refused_body_is_never_asked_for(wire: Wire) -> None:
    with wire.connect() as connection:
        connection.sendall(head(JSON, "Expect: 100-continue", "Content-Length: 100"))
        assert connection.recv(12) == b"HTTP/1.1 401"


def test_a_refused_body_is_not_read_as_the_next_request(wire: Wire) -> None:
    with wire.connect() as connection:
        first = exchange(connection, [whole(head(method="GET", target="/health"), JSON)])
        second = exchange(connection, [whole(MESSAGE, AUTHORIZED, JSON)])
    assert (first.status, second.status) == (401, 200)
    assert "result" in second.json()


# --- Bodies ---


def test_a_body_without_a_length_is_read(wire: Wire) -> None:
    parts = [chunk(bytes([byte])) for byte in MESSAGE]
    answer = wire.send(head(AUTHORIZED, JSON, CHUNKED), *parts, END)
    assert "result" in answer.json()


def test_a_body_of_five_megabytes_without_a_length_is_cut_off(wire: Wire) -> None:
    answer = wire.send(head(AUTHORIZED, JSON, CHUNKED), *[BLANKS] * 80, END)
    assert (answer.status, error_code(answer)) == (413, -32000)


def test_a_body_without_an_end_is_cut_off(wire: Wire) -> None:
    answer = wire.send(head(AUTHORIZED, JSON, CHUNKED), *[BLANKS] * (BODY_LIMIT // 65_536 + 1))
    assert answer.status == 413


def test_a_body_longer_than_declared_is_read_as_far_as_declared(wire: Wire) -> None:
    answer = wire.send(head(AUTHORIZED, JSON, "Content-Length: 10"), b"[" * 5_000_000)
    assert (answer.status, error_code(answer)) == (400, -32700)


def test_a_body_declared_too_large_is_refused_before_it_is_sent(wire: Wire) -> None:
    answer = wire.send(head(AUTHORIZED, JSON, f"Content-Length: {BODY_LIMIT + 1}"))
    assert answer.status == 413


def test_a_body_cut_off_in_the_middle_is_recorded_as_malformed(service: Service) -> None:
    with serving(service.app) as wire:
        with wire.connect() as connection:
            connection.sendall(head(AUTHORIZED, JSON, "Content-Length: 100") + MESSAGE)
        eventually(lambda: [event.fields["reason"] for event in service.events] == ["malformed"], seconds=5)


def test_a_slow_body_keeps_nobody_waiting(wire: Wire) -> None:
    request = whole(MESSAGE, AUTHORIZED, JSON)
    with wire.connect() as slow:
        slow.sendall(request[:-1])
        assert wire.ask().status == 200
        assert exchange(slow, [request[-1:]]).status == 200


@pytest.mark.parametrize(
    "broken",
    [
        b"no HTTP at all\r\n\r\n",
        head(AUTHORIZED, JSON, CHUNKED) + b"xyz\r\n",
        head(AUTHORIZED, JSON, "Content-Length: x"),
    ],
)
def test_what_is_no_http_is_refused_by_the_server_itself(wire: Wire, broken: bytes) -> None:
    assert wire.send(broken).status == 400
    assert wire.ask().status == 200


# --- Methods ---


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH", "TRACE", "MCP"])
def test_a_stream_is_refused_at_once_and_the_answer_ends(wire: Wire, method: str) -> None:
    answer = wire.send(head(AUTHORIZED, "Accept: text/event-stream", method=method))
    assert (answer.status, answer.headers["allow"], error_code(answer)) == (405, "POST, OPTIONS", -32000)
    assert answer.headers["content-length"] == str(len(answer.body))
