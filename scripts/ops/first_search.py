"""Waiting until a search answers: the proof that function, store and model work together."""

import http.client
import json
import time
from typing import Any

from ops.function import Function
from ops.processes import OpsError, ending

SEARCH = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "search_context", "arguments": {"query": "ready", "limit": 1}},
}
WORTH_ANOTHER_TRY = {429, 502, 503, 504}


class NotYet(Exception):
    """No answer, but there may be one in a moment."""


def wait_for_search(function: Function, token: str, *, seconds: float = 20) -> str | None:
    """Search through the admin endpoint until it answers; raises OpsError if it does not, or cannot.

    Returns None, or the sentence with which searching is refused: an answer too, and one to show.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return _search(function, token, timeout=max(1, deadline - time.monotonic()))
        except NotYet as reason:
            if (exit_code := function.process.exit_code()) is not None:
                raise OpsError(
                    f"The function {ending(exit_code)}. Its last words:\n{function.process.tail()}"
                ) from None
            if time.monotonic() > deadline:
                raise OpsError(f"No search was answered within {seconds:.0f} seconds: {reason}") from None
            time.sleep(0.2)


def _search(function: Function, token: str, *, timeout: float) -> str | None:
    logged = function.log_size()
    status, body = _post(function.port, token, timeout)
    if status == 503:
        raise OpsError(
            f"The function refuses to serve until its settings are mended:\n{_words_after(logged, function)}"
        )
    if status != 200:
        raise OpsError(
            f"The function answered a search with {status}. Its last words:\n{_words_after(logged, function)}"
        )
    answer = json.loads(body)
    if "error" in answer:
        return f"The admin endpoint does not search: {answer['error']['message']}"
    return _refusal(answer["result"])


def _refusal(result: dict[str, Any]) -> str | None:
    if not result.get("isError"):
        return None
    error = json.loads(result["content"][0]["text"])["error"]
    if error["code"] == "embedding_space_mismatch":
        return error["message"]
    if error["status"] in WORTH_ANOTHER_TRY:
        raise NotYet(error["message"])
    raise OpsError(f"A first search was refused: {error['message']}")


def _words_after(logged: int, function: Function) -> str:
    # A server may write down what happened only after it has answered.
    deadline = time.monotonic() + 2
    while function.log_size() == logged and time.monotonic() < deadline:
        time.sleep(0.05)
    return function.process.tail()


def _post(port: int, token: str, timeout: float) -> tuple[int, bytes]:
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("POST", "/mcp", json.dumps(SEARCH), headers)
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, http.client.HTTPException) as error:
        raise NotYet(f"the function does not answer ({error or type(error).__name__})") from error
    finally:
        connection.close()
