"""What counts as an answer to the first search, and what is told of everything else."""

import json
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from ops.first_search import wait_for_search
from ops.function import Function
from ops.processes import OpsError, start

TOKEN = "the-admin-token"
Answers = list[tuple[int, Any]]
Serve = Callable[..., Function]


def tool_error(status: int, code: str, message: str) -> Any:
    text = json.dumps({"error": {"status": status, "code": code, "message": message}})
    return {"result": {"isError": True, "content": [{"type": "text", "text": text}]}}


FOUND = {"result": {"content": [{"type": "text", "text": '{"matches":[]}'}]}}
BUSY = tool_error(503, "unavailable", "The store is busy; try again.")


@pytest.fixture
def serve(tmp_path: Path) -> Generator[Serve]:
    """A function that gives the listed answers in turn, the last one for good, and has logged something."""
    answers: Answers = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert request["params"]["name"] == "search_context"
            assert self.headers["Authorization"] == f"Bearer {TOKEN}"
            status, body = answers.pop(0) if len(answers) > 1 else answers[0]
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    process = start(
        "The function", ["sh", "-c", "echo MCP_ADMIN_TOKEN is short; exec sleep 1000"], log=tmp_path / "log"
    )

    def listed(*given: tuple[int, Any]) -> Function:
        answers.extend(given)
        return Function(server.server_address[1], process)

    yield listed
    process.stop()
    server.shutdown()
    thread.join()
    server.server_close()


def test_matches_are_an_answer(serve: Serve) -> None:
    assert wait_for_search(serve((200, FOUND)), TOKEN) is None


def test_a_space_mismatch_is_an_answer_with_its_remedy(serve: Serve) -> None:
    refused = tool_error(503, "embedding_space_mismatch", "The collection has a@1/plain; run metacortex upgrade.")
    assert wait_for_search(serve((200, refused)), TOKEN) == "The collection has a@1/plain; run metacortex upgrade."


def test_a_search_that_is_not_offered_is_an_answer(serve: Serve) -> None:
    refusal = wait_for_search(serve((200, {"error": {"code": -32602, "message": "Unknown tool"}})), TOKEN)
    assert refusal == "The admin endpoint does not search: Unknown tool"


def test_what_may_pass_is_waited_for(serve: Serve) -> None:
    assert wait_for_search(serve((200, BUSY), (200, BUSY), (200, FOUND)), TOKEN) is None


def test_what_does_not_pass_is_told_at_last(serve: Serve) -> None:
    with pytest.raises(OpsError, match="No search was answered within 0 seconds: The store is busy"):
        wait_for_search(serve((200, BUSY)), TOKEN, seconds=0.3)


def test_another_refusal_is_told_at_once(serve: Serve) -> None:
    refused = tool_error(400, "invalid_argument", "query must not be blank.")
    with pytest.raises(OpsError, match="A first search was refused: query must not be blank"):
        wait_for_search(serve((200, refused)), TOKEN)


def test_a_configuration_error_shows_what_the_function_logged(serve: Serve) -> None:
    with pytest.raises(OpsError, match=r"until its settings are mended:\nMCP_ADMIN_TOKEN is short"):
        wait_for_search(serve((503, {"error": "Service unavailable"})), TOKEN)


def test_any_other_status_shows_what_the_function_logged(serve: Serve) -> None:
    with pytest.raises(OpsError, match=r"answered a search with 500\. Its last words:\nMCP_ADMIN_TOKEN is short"):
        wait_for_search(serve((500, {"error": "Internal server error"})), TOKEN)


def test_a_function_that_died_is_not_waited_for(serve: Serve) -> None:
    function = serve((200, FOUND))
    function.process.stop()
    with pytest.raises(OpsError, match="The function was killed by signal"):
        wait_for_search(Function(1, function.process), TOKEN)
