"""`metacortex smoke` as an operator runs it: against the real function, and against servers that misbehave."""

import json
import os
import signal
import socket
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from typer.testing import CliRunner

from builders import TOKENS, environment, path_of
from images import PNG
from ops.cli import app
from ops.function import running_function
from ops.processes import free_port
from running import call_tool

PROJECT = "demo-smoke"
PREFIX = f"/{PROJECT}/us-central1/metaCortexMcp"
SETTINGS = (
    "MCP_BASE_URL",
    "MCP_SMOKE_MODE",
    "MCP_ADMIN_TOKEN",
    "MCP_SMOKE_TOKEN",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
)
WRONG_TOKEN = "not-the-token-of-anybody"


class Run:
    """What one run of the command left: its exit status and all it printed, which never holds a token."""

    def __init__(self, *arguments: str, env: Mapping[str, str]) -> None:
        unset = {name: None for setting in SETTINGS for name in (setting, setting.lower())}
        result = CliRunner().invoke(app, ["smoke", *arguments], env={**unset, **env}, catch_exceptions=False)
        self.exit_code = result.exit_code
        self.lines = result.stdout.splitlines()
        self.errors = " ".join(result.stderr.split())
        for secret in (*TOKENS.values(), WRONG_TOKEN):
            assert secret not in result.output

    def steps(self) -> list[str]:
        """The marks and names of the steps."""
        return [" ".join(line.split()[:2]) for line in self.lines[:-1]]

    def line(self, name: str) -> str:
        """What is told of one step."""
        return next(line for line in self.lines if line.split()[1] == name)

    def failure(self) -> str:
        """The one failing step; the run must have failed."""
        assert self.exit_code == 1
        [failure] = [line for line in self.lines if line.startswith("✗")]
        assert self.lines[-1].split()[1] == "failed"
        return failure


def smoke(url: str, *arguments: str, token: str = TOKENS["default"], **env: str) -> Run:
    return Run("--url", url, "--token", token, *arguments, env=env)


def refusal(*arguments: str, **env: str) -> str:
    """What is said of a command that is wrong."""
    run = Run(*arguments, env=env)
    assert run.exit_code == 2
    assert run.lines == []
    return run.errors


# --- The real function ---


@pytest.fixture(scope="module")
def service_url(emulator_host: str) -> Generator[str]:
    with running_function(environment(FIRESTORE_EMULATOR_HOST=emulator_host, GCLOUD_PROJECT=PROJECT)) as function:
        yield function.url


@pytest.mark.slow
def test_the_admin_endpoint_saves_finds_and_fetches(service_url: str) -> None:
    run = smoke(service_url, "--topic", "an admin's run")
    assert run.exit_code == 0
    assert run.steps()[:6] == ["✓ health", "✓ connect", "✓ tools", "✓ save", "✓ search", "✓ fetch"]
    assert all(" ms " in line for line in run.lines[:6])
    assert "an admin's run" in run.line("save")
    assert run.lines[-1] == f"admin-read-write passed at {service_url}/mcp"


def matches_in(url: str, client: str, topic: str) -> list[dict[str, Any]]:
    """What an ordinary search finds in a topic."""
    found = call_tool(
        f"{url}{path_of(client)}", TOKENS[client], "search_context", {"query": "x", "filter_topic": topic}
    )
    return found["matches"]


@pytest.mark.slow
def test_it_retires_what_it_saved_or_leaves_a_draft_that_ordinary_searches_do_not_find(service_url: str) -> None:
    run = smoke(service_url, "--topic", "an ordinary topic")
    memory_id = run.line("save").split()[4]
    if "deprecate_context" in run.line("tools"):
        assert run.line("retire").startswith("✓")
    else:
        assert run.line("retire").startswith("–")
        assert f"memory {memory_id} stays in the topic an ordinary topic as a draft (wip)" in run.line("retire")
    assert matches_in(service_url, "default", "an ordinary topic") == []


@pytest.mark.slow
def test_a_client_that_may_not_read_drafts_leaves_an_active_memory_that_soon_is_out_of_date(service_url: str) -> None:
    arguments = ("--mode", "browser-read-write", "--client", "agent", "--topic", "of an agent")
    run = smoke(service_url, *arguments, token=TOKENS["agent"])
    assert run.exit_code == 0
    assert "stays in the topic of an agent as active, where ordinary searches can find it" in run.lines[-2]
    [match] = matches_in(service_url, "agent", "of an agent")
    until = datetime.fromisoformat(match["metadata"]["valid_until"])
    assert timedelta(0) < until - datetime.now(UTC) < timedelta(minutes=1)


@pytest.mark.slow
def test_the_environment_says_everything_and_the_platforms_prefix_is_a_base_url(service_url: str) -> None:
    env = {"MCP_BASE_URL": f"{service_url}{PREFIX}/", "MCP_SMOKE_MODE": "admin-read-write"}
    run = Run(env={**env, "MCP_ADMIN_TOKEN": TOKENS["default"]})
    assert run.exit_code == 0
    assert run.lines[-1].endswith(f"{PREFIX}/mcp")


@pytest.mark.slow
def test_an_image_and_artifact_refs_are_saved_and_come_back(service_url: str, tmp_path: Path) -> None:
    image = tmp_path / "dot.PNG"
    image.write_bytes(PNG)
    refs = ("--artifact-ref", "https://example.org/7", "--artifact-ref", "docs/PLAN.md")
    assert smoke(service_url, "--image-file", str(image), *refs).exit_code == 0


@pytest.mark.slow
def test_an_image_of_another_type_than_its_name_says_is_refused_by_the_service(
    service_url: str, tmp_path: Path
) -> None:
    image = tmp_path / "dot.gif"
    image.write_bytes(PNG)
    failure = smoke(service_url, "--image-file", str(image)).failure()
    assert failure.split()[1] == "save"
    assert "save_context was refused: image_base64 does not hold a whole image/gif image" in failure


@pytest.mark.slow
def test_a_browsers_client_is_answered_with_cors_headers(service_url: str) -> None:
    run = smoke(service_url, "--mode", "browser-read-write", "--client", "agent", token=TOKENS["agent"])
    assert run.exit_code == 0
    assert run.steps()[:2] == ["✓ health", "✓ preflight"]
    assert run.line("cors").startswith("✓")
    assert run.lines[-1].endswith(path_of("agent"))


@pytest.mark.slow
def test_an_origin_that_is_not_allowed_is_named_with_what_to_do(service_url: str) -> None:
    arguments = ("--mode", "browser-read-write", "--client", "agent", "--origin", "https://evil.example")
    failure = smoke(service_url, *arguments, token=TOKENS["agent"]).failure()
    assert "The origin https://evil.example is not allowed (403): pass one that is allowed by --origin" in failure
    assert "./scripts/metacortex profile add ID --origin https://evil.example; then restart ./scripts/dev" in failure


@pytest.mark.slow
def test_search_only_writes_nothing(service_url: str) -> None:
    writing = ("--mode", "browser-read-write", "--client", "agent", "--topic", "one memory")
    assert smoke(service_url, *writing, token=TOKENS["agent"]).exit_code == 0
    arguments = ("--mode", "search-only", "--topic", "one memory")
    for _ in range(2):
        run = smoke(f"{service_url}{path_of('reader')}", *arguments, MCP_SMOKE_TOKEN="", token=TOKENS["reader"])
        assert run.exit_code == 0
        assert run.steps() == ["✓ health", "✓ connect", "✓ tools", "✓ search"]
        assert "1 found in the topic one memory" in run.line("search")


@pytest.mark.slow
def test_search_only_fails_for_a_client_that_may_write(service_url: str) -> None:
    failure = smoke(service_url, "--mode", "search-only", "--client", "agent", token=TOKENS["agent"]).failure()
    assert failure.split()[1] == "tools"
    assert "offered save_context" in failure


@pytest.mark.slow
def test_search_only_may_look_at_the_admin_endpoint_without_writing(service_url: str) -> None:
    run = smoke(f"{service_url}/mcp", "--mode", "search-only")
    assert run.exit_code == 0
    assert run.steps() == ["✓ health", "✓ connect", "✓ tools", "✓ search"]


@pytest.mark.slow
def test_reading_and_writing_fails_for_a_client_that_may_only_read(service_url: str) -> None:
    url = f"{service_url}{path_of('reader')}"
    arguments = ("--mode", "browser-read-write", "--origin", "https://claude.ai")
    assert "The origin https://claude.ai is not allowed" in smoke(url, *arguments, token=TOKENS["reader"]).failure()


@pytest.mark.slow
def test_a_wrong_admin_token_is_told_with_where_the_right_one_is(service_url: str) -> None:
    failure = smoke(service_url, token=WRONG_TOKEN).failure()
    assert failure.split()[1] == "connect"
    assert "The token was refused (401): pass the admin token this service was started with" in failure


@pytest.mark.slow
def test_a_wrong_client_token_is_told_with_how_to_make_another(service_url: str) -> None:
    arguments = ("--mode", "search-only", "--client", "reader")
    failure = smoke(service_url, *arguments, token=WRONG_TOKEN).failure()
    assert "./scripts/metacortex profile rotate reader" in failure


@pytest.mark.slow
@pytest.mark.parametrize("client", ["nobody", "default", "../mcp", "agent/mcp"])
def test_an_unknown_client_is_told(service_url: str, client: str) -> None:
    failure = smoke(service_url, "--mode", "search-only", "--client", client, token=TOKENS["agent"]).failure()
    assert "(404): the client id is unknown to this service, or the base URL is wrong" in failure


@pytest.mark.slow
def test_a_wrong_base_url_is_told(service_url: str) -> None:
    failure = smoke(f"{service_url}/another-project/us-central1/metaCortexMcp").failure()
    assert failure.split()[1] == "health"
    assert "(404): the base URL is wrong" in failure


@pytest.mark.slow
def test_a_wrong_configuration_is_told_with_the_request_id_to_look_for(emulator_host: str, tmp_path: Path) -> None:
    settings = environment(FIRESTORE_EMULATOR_HOST=emulator_host, GCLOUD_PROJECT=PROJECT, SEARCH_RESULT_LIMIT="many")
    log = tmp_path / "function.log"
    with running_function(settings, log=log) as function:
        failure = smoke(function.url).failure()
    assert "(503): its log names every fault, under the requestId " in failure
    assert failure.rstrip(".").split()[-1] in log.read_text()


@pytest.mark.slow
def test_json_holds_the_steps_the_id_and_the_latencies_and_nothing_else_is_printed(service_url: str) -> None:
    run = smoke(service_url, "--json", "--topic", "as JSON")
    assert run.exit_code == 0
    [line] = run.lines
    answer = json.loads(line)
    assert answer["ok"] is True
    assert answer["error"] is None
    assert answer["mode"] == "admin-read-write"
    assert answer["endpoint"] == f"{service_url}/mcp"
    assert answer["topic"] == "as JSON"
    assert answer["saved_id"]
    assert answer["saved_state"] in {"active", "wip"}
    assert [step["name"] for step in answer["steps"]][:4] == ["health", "connect", "tools", "save"]
    assert all(step["latency_ms"] > 0 for step in answer["steps"] if step["status"] == "ok")


# --- Servers that are something else, or not well ---

Answer = Callable[[str, dict[str, Any], Mapping[str, str]], Any]
HEALTH = {"ok": True, "service": "toy", "endpoints": ["/mcp"]}


class Refusal(Exception):
    """The toy server answers this status and body, or hangs up where there is no status."""

    def __init__(self, status: int | None, body: str = "", content_type: str = "application/json") -> None:
        super().__init__(status)
        self.status = status
        self.body = body
        self.content_type = content_type


class Toy:
    """A memory of one text behind MCP's first requests, with the faults a test gives it."""

    def __init__(self, **tools: Any) -> None:
        self.tools = {
            "save_context": self.save,
            "search_context": self.search,
            "fetch_context": self.fetch,
            **tools,
        }
        self.text = ""
        self.state = "active"
        self.calls: list[str] = []

    def answer(self, method: str, params: dict[str, Any], headers: Mapping[str, str]) -> Any:
        if method == "server/discover":
            unknown = {"jsonrpc": "2.0", "id": None, "error": {"code": -32601, "message": "Unknown method"}}
            raise Refusal(404, json.dumps(unknown))
        if method == "initialize":
            info = {"name": "toy", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        if method == "tools/list":
            return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in self.tools]}
        self.calls.append(params["name"])
        result = self.tools[params["name"]](params["arguments"])
        is_error = "error" in result
        content = {"content": [{"type": "text", "text": json.dumps(result)}], "isError": is_error}
        return content if is_error else content | {"structuredContent": result}

    def item(self) -> dict[str, Any]:
        return {"id": "m1", "content": self.text, "metadata": {"branch_state": self.state}}

    def save(self, arguments: dict[str, Any]) -> dict[str, Any]:
        self.text = arguments["content"]
        self.state = "wip" if arguments.get("draft") else "active"
        return {"item": self.item(), "write_status": "created"}

    def search(self, arguments: dict[str, Any]) -> dict[str, Any]:
        match = {"id": "m1", "summary": self.text, "score": 1.0, "metadata": {}}
        return {"matches": [match], "applied_filters": {"filter_topic": arguments["filter_topic"]}}

    def fetch(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"item": self.item()}


class Server(ThreadingHTTPServer):
    """An HTTP server that is healthy unless told otherwise, and answers MCP messages with `answer`."""

    daemon_threads = True

    def __init__(self, answer: Answer, health: Refusal | None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = answer
        self.health = health


class Handler(BaseHTTPRequestHandler):
    """One request to a Server."""

    @property
    def toy(self) -> Server:
        assert isinstance(self.server, Server)
        return self.server

    def do_GET(self) -> None:
        assert "authorization" not in self.headers
        if self.toy.health:
            self.refuse(self.toy.health)
        else:
            self.reply(200, json.dumps(HEALTH))

    def do_OPTIONS(self) -> None:
        assert "authorization" not in self.headers
        self.reply(204, "")

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "id" not in message:
            self.reply(202, "")
            return
        try:
            result = self.toy.answer(message["method"], message.get("params", {}), dict(self.headers.items()))
        except Refusal as refusal:
            self.refuse(refusal)
        else:
            self.reply(200, json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}))

    def refuse(self, refusal: Refusal) -> None:
        if refusal.status is not None:
            self.reply(refusal.status, refusal.body, refusal.content_type)

    def reply(self, status: int, body: str, content_type: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@contextmanager
def serving(answer: Answer, health: Refusal | None = None) -> Generator[str]:
    with Server(answer, health) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def refusing(status: int | None, body: str = "", content_type: str = "application/json") -> Answer:
    def answer(*_: Any) -> None:
        raise Refusal(status, body, content_type)

    return answer


def test_what_was_saved_is_retired_where_that_is_offered() -> None:
    toy = Toy(deprecate_context=lambda arguments: {"item": {"id": arguments["id"], "branch_state": "deprecated"}})
    with serving(toy.answer) as url:
        run = smoke(url, "--json")
    assert run.exit_code == 0
    answer = json.loads(run.lines[0])
    assert (answer["saved_id"], answer["retired"]) == ("m1", True)
    assert toy.calls == ["save_context", "search_context", "fetch_context", "deprecate_context"]


def test_ctrl_c_names_what_was_saved_and_stays() -> None:
    ended = Event()

    def stopped(_: dict[str, Any]) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGINT)
        ended.wait()
        return {}

    toy = Toy(search_context=stopped, deprecate_context=lambda _: {})
    with serving(toy.answer) as url:
        run = smoke(url, "--json")
        ended.set()
    assert run.exit_code == 1
    answer = json.loads(run.lines[0])
    assert (answer["ok"], answer["error"], answer["saved_id"], answer["retired"]) == (False, "Stopped.", "m1", False)
    assert answer["steps"][-1]["detail"].startswith("memory m1 stays in the topic smoke-test as active")


def test_a_client_that_may_read_drafts_but_not_write_them_leaves_an_active_memory() -> None:
    def save(arguments: dict[str, Any]) -> dict[str, Any]:
        forbidden = {"status": 403, "code": "forbidden", "message": "This client may not write wip memories."}
        return {"error": forbidden} if "draft" in arguments else toy.save(arguments)

    toy = Toy(save_context=save)
    with serving(toy.answer) as url:
        run = smoke(url)
    assert run.exit_code == 0
    assert "as active, where ordinary searches can find it" in run.line("retire")


@pytest.mark.parametrize(
    ("tool", "result", "says"),
    [
        ("search_context", {"matches": [], "applied_filters": {}}, "does not find what was saved"),
        ("fetch_context", {"item": {"content": "Another text", "metadata": {}}}, "text is not the saved one"),
        ("fetch_context", {"item": "m1"}, "The answer has no item.content"),
        ("search_context", {"matches": [{"id": "m1"}]}, "The answer has no summary"),
        (
            "search_context",
            {"error": {"status": 503, "code": "embedding_space_mismatch", "message": "Set the model back."}},
            "search_context was refused: Set the model back. (503 embedding_space_mismatch)",
        ),
    ],
)
def test_what_was_saved_is_retired_also_where_the_run_fails(tool: str, result: dict[str, Any], says: str) -> None:
    retire = {"item": {"branch_state": "deprecated"}}
    toy = Toy(**{"deprecate_context": lambda _: retire, tool: lambda _: result})
    with serving(toy.answer) as url:
        run = smoke(url)
    assert says in run.failure()
    assert run.steps()[-1] == "✓ retire"


def test_a_memory_that_could_not_be_retired_is_named() -> None:
    toy = Toy(deprecate_context=lambda _: {"error": {"status": 409, "code": "conflict", "message": "No."}})
    with serving(toy.answer) as url:
        run = smoke(url)
    assert "deprecate_context was refused: No. (409 conflict)" in run.failure()
    assert "memory m1 stays in the topic smoke-test as active" in run.lines[-2]


def test_a_server_without_cors_headers_fails_the_browsers_run() -> None:
    with serving(Toy().answer) as url:
        failure = smoke(url, "--mode", "browser-read-write", "--client", "agent").failure()
    assert failure.split()[1] == "preflight"
    assert "does not allow the origin https://claude.ai" in failure


def test_a_connection_that_breaks_in_the_middle_fails_the_step_it_broke_in() -> None:
    def hang_up(_: Any) -> Any:
        raise Refusal(None)

    with serving(Toy(fetch_context=hang_up).answer) as url:
        run = smoke(url)
    assert run.failure().split()[1] == "fetch"
    assert "broke the connection" in run.failure()
    assert "memory m1 stays in the topic smoke-test as a draft (wip)" in run.lines[-2]
    assert "the run failed" in run.lines[-2]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (refusing(200, "<html>Hello</html>", "text/html"), "Unexpected content type: text/html"),
        (refusing(200, "<html>Hello</html>"), "is not valid MCP"),
        (refusing(200, "[1, 2]"), "is not valid MCP"),
        (refusing(None), "broke the connection"),
        (refusing(500, '{"error": "Internal server error", "requestId": "r-7"}'), "under the requestId r-7"),
        (refusing(502, "<html>Bad gateway</html>", "text/html"), "answered 502: look in the log"),
        (refusing(429, "Too many"), "(429): try again"),
        (refusing(403, "<html>Forbidden</html>", "text/html"), "let anyone invoke the function"),
        (lambda *_: {"tools": "none"}, "is not valid MCP"),
        (lambda *_: None, "is not valid MCP"),
    ],
)
def test_an_endpoint_that_answers_something_else_is_told_from_one_that_works(answer: Answer, says: str) -> None:
    with serving(answer) as url:
        run = smoke(url)
    assert says in run.failure()
    assert run.errors == ""


@pytest.mark.parametrize(
    ("health", "says"),
    [
        (Refusal(200, "<html>Hello</html>", "text/html"), "answers, but not as MetaCortex does (200)"),
        (Refusal(200, '{"ok": true}'), "answers, but not as MetaCortex does (200)"),
        (Refusal(200, "[" * 50_000), "answers, but not as MetaCortex does (200)"),
        (Refusal(302), "redirects elsewhere (302)"),
        (Refusal(403), "let anyone invoke the function"),
        (Refusal(500), "the function does not start"),
        (Refusal(None), "broke the connection"),
    ],
)
def test_a_server_that_is_not_healthy_is_not_asked_further(health: Refusal, says: str) -> None:
    toy = Toy()
    with serving(toy.answer, health) as url:
        failure = smoke(url).failure()
    assert says in failure
    assert toy.calls == []


def test_a_server_that_repeats_the_token_does_not_get_it_printed() -> None:
    def repeat(_: str, __: Any, headers: Mapping[str, str]) -> Any:
        error = {"code": -32000, "message": f"\x1b[31mNot \n{headers['Authorization']}!"}
        raise Refusal(400, json.dumps({"jsonrpc": "2.0", "id": None, "error": error}))

    with serving(repeat) as url:
        failure = smoke(url).failure()
    assert "[31mNot Bearer (the token)! (JSON-RPC error -32000)" in failure
    assert "\x1b" not in failure


def test_a_server_that_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        failure = smoke(f"http://127.0.0.1:{silent.getsockname()[1]}", "--timeout", "0.3").failure()
    assert "gave no answer within 0.3 seconds" in failure


def test_a_server_that_answers_another_request_than_ours_is_given_up() -> None:
    toy = Toy()

    def answer(method: str, params: dict[str, Any], headers: Mapping[str, str]) -> Any:
        if method != "initialize":
            return toy.answer(method, params, headers)
        raise Refusal(200, json.dumps({"jsonrpc": "2.0", "id": "of-somebody-else", "result": {}}))

    with serving(answer) as url:
        failure = smoke(url, "--timeout", "0.3").failure()
    assert "gave no answer within 0.3 seconds" in failure


def test_nothing_listening_is_told_with_how_to_start_it() -> None:
    failure = smoke(f"http://127.0.0.1:{free_port()}").failure()
    assert "is it running? If not, start it with ./scripts/dev" in failure


@pytest.mark.slow
def test_a_name_that_leads_nowhere_is_told() -> None:
    failure = smoke("https://no-such-function.invalid").failure()
    assert "The name of no-such-function.invalid leads nowhere: check its spelling" in failure


def test_tls_with_a_server_that_has_none_is_told() -> None:
    with serving(Toy().answer) as url:
        failure = smoke(url.replace("http:", "https:")).failure()
    assert "could not agree on TLS" in failure


# --- Commands that are wrong ---

BASE = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "--url"),
        (["--url", "127.0.0.1:5001"], "must be a URL such as http://127.0.0.1:5001/"),
        (["--url", "http://127.0.0.1:port"], "must be a URL such as"),
        (["--url", "ftp://127.0.0.1"], "must be a URL such as"),
        (["--url", f"{BASE}/clients/a/mcp?auth_token={WRONG_TOKEN}"], "the token goes into --token"),
        (["--url", f"http://me:{WRONG_TOKEN}@127.0.0.1"], "the token goes into --token"),
        (["--url", BASE, "--mode", "write-only"], "--mode"),
        (["--url", BASE, "--mode", "search-only"], "--client: is needed for search-only"),
        (["--url", BASE, "--client", "agent"], "--mode: admin-read-write uses the admin endpoint"),
        (["--url", f"{BASE}/clients/agent/mcp"], "--mode: admin-read-write uses the admin endpoint"),
        (["--url", f"{BASE}/mcp", "--client", "agent", "--mode", "search-only"], "leave out one of the two"),
        (["--url", BASE, "--origin", "https://claude.ai"], "--origin: is sent by --mode browser-read-write alone"),
        (["--url", f"{BASE}/mcp", "--mode", "browser-read-write", "--origin", "*"], "must be one origin"),
        (["--url", f"{BASE}/mcp", "--mode", "browser-read-write", "--origin", "claude.ai"], "must be one origin"),
        (["--url", f"{BASE}/mcp", "--mode", "search-only", "--artifact-ref", "x"], "which saves nothing"),
        (["--url", BASE, "--artifact-ref", " "], "artifact_refs[0] is blank"),
        (["--url", BASE, "--topic", "t" * 201], "has 201 characters and the limit is 200"),
        (["--url", BASE, "--image-file", "no such file.png"], "--image-file"),
        (["--url", BASE, "--image-file", __file__], "a name that tells its type, one of image/png"),
        (["--url", BASE, "--timeout", "0"], "--timeout"),
    ],
)
def test_a_wrong_command_is_a_usage_error_before_anything_is_sent(arguments: list[str], says: str) -> None:
    assert says in refusal(*arguments, "--token", WRONG_TOKEN)


def test_a_missing_token_is_asked_for_by_the_name_its_mode_reads() -> None:
    assert "MCP_ADMIN_TOKEN in the environment" in refusal("--url", BASE, MCP_SMOKE_TOKEN=WRONG_TOKEN)
    scoped = ("--url", BASE, "--client", "a", "--mode", "search-only")
    assert "MCP_SMOKE_TOKEN in the environment" in refusal(*scoped, MCP_ADMIN_TOKEN=WRONG_TOKEN)


@pytest.mark.parametrize("token", [f"{WRONG_TOKEN} x", f"{WRONG_TOKEN}\n{WRONG_TOKEN}", f"{WRONG_TOKEN}é"])
def test_what_cannot_be_a_token_is_not_sent_and_not_shown(token: str) -> None:
    assert "--token: must be printable ASCII" in refusal("--url", BASE, "--token", token)


def test_an_image_that_is_too_large_for_a_request_is_told_with_its_size(tmp_path: Path) -> None:
    image = tmp_path / "large.jpg"
    image.write_bytes(bytes(800_000))
    assert "has 800,000 bytes and a request has room for 750,000" in refusal(
        "--url", BASE, "--token", WRONG_TOKEN, "--image-file", str(image)
    )
