"""`metacortex smoke --mode sign-in` as an owner runs it: against the real function, behind a front that may spoil its answers."""

import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner, Result

from builders import environment
from ops.cli import app
from ops.function import running_function
from signing import HASH

PROJECT = "demo-smoke"
ENDPOINT = "/clients/agent/mcp"
DOCUMENT = f"/.well-known/oauth-protected-resource{ENDPOINT}"
SERVER = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"
PASSED_ON = ("content-type", "cache-control", "www-authenticate")


@dataclass(frozen=True)
class Spoilt:
    """What the front makes of an answer."""

    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    document: Mapping[str, Any] = field(default_factory=dict[str, Any])
    body: bytes | None = None

    def of(self, answer: httpx2.Response) -> tuple[int, dict[str, str], bytes]:
        headers = {name: value for name, value in answer.headers.items() if name.lower() in PASSED_ON}
        body = json.dumps(answer.json() | dict(self.document)).encode() if self.document else answer.content
        return self.status or answer.status_code, headers | dict(self.headers), body if self.body is None else self.body


class Front(ThreadingHTTPServer):
    """What stands at the public origin and passes every request on to the function."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.function = ""
        self.spoilt: dict[str, Spoilt] = {}


class Handler(BaseHTTPRequestHandler):
    server: Front  # pyright: ignore[reportIncompatibleVariableOverride]

    def answer(self) -> None:
        content = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {"content-type": self.headers.get("content-type", "")}
        passed = httpx2.request(self.command, f"{self.server.function}{self.path}", content=content, headers=headers)
        status, headers, body = self.server.spoilt.get(self.path, Spoilt()).of(passed)
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_GET = answer  # noqa: N815
    do_POST = answer  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture(scope="module")
def running_front(emulator_host: str) -> Generator[Front]:
    front = Front()
    Thread(target=front.serve_forever, daemon=True).start()
    settings = environment(
        FIRESTORE_EMULATOR_HOST=emulator_host,
        GCLOUD_PROJECT=PROJECT,
        PUBLIC_BASE_URL=front.url,
        OWNER_PASSPHRASE_HASH=HASH,
    )
    with running_function(settings) as function:
        front.function = function.url
        yield front
    front.shutdown()
    front.server_close()


@pytest.fixture
def front(running_front: Front) -> Front:
    running_front.spoilt.clear()
    return running_front


def smoke(url: str, *arguments: str, client: str = "agent") -> Result:
    named = ("--client", client) if client else ()
    command = ["smoke", "--mode", "sign-in", "--url", url, *named, *arguments]
    unset: dict[str, str | None] = dict.fromkeys(("MCP_BASE_URL", "MCP_SMOKE_MODE", "MCP_SMOKE_TOKEN"))
    return CliRunner().invoke(app, command, env=unset, catch_exceptions=False)


def failure(result: Result) -> tuple[str, str]:
    """The step that failed, and what is said of it."""
    assert result.exit_code == 1, result.output
    [line] = [line for line in result.stdout.splitlines() if line.startswith("✗")]
    return line.split()[1], line


@pytest.mark.slow
def test_a_client_without_a_token_finds_its_way_to_the_page_where_the_owner_signs_in(front: Front) -> None:
    result = smoke(front.url)
    assert result.exit_code == 0, result.output
    *steps, last = result.stdout.splitlines()
    assert [step.split()[1] for step in steps] == ["challenge", "resource", "server", "pages", "admin"]
    assert last == f"sign-in passed at {front.url}{ENDPOINT}"


@pytest.mark.slow
def test_the_url_of_the_endpoint_says_everything_and_json_is_one_object(front: Front) -> None:
    result = smoke(f"{front.url}{ENDPOINT}", "--json", client="")
    answer = json.loads(result.stdout)
    assert (answer["ok"], answer["mode"], answer["endpoint"]) == (True, "sign-in", f"{front.url}{ENDPOINT}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "spoilt", "step", "says"),
    [
        (ENDPOINT, Spoilt(status=308, headers={"location": "/elsewhere"}), "challenge", "redirects elsewhere (308)"),
        (ENDPOINT, Spoilt(status=200), "challenge", "A call without a token is answered 200, not 401"),
        (ENDPOINT, Spoilt(status=403, body=b"<html>"), "challenge", "let anyone invoke the function"),
        (
            ENDPOINT,
            Spoilt(headers={"www-authenticate": "Bearer"}),
            "challenge",
            "Signing in is off: set PUBLIC_BASE_URL",
        ),
        (DOCUMENT, Spoilt(status=404), "resource", "it needs a rewrite for /.well-known/**"),
        (DOCUMENT, Spoilt(body=b"<html>"), "resource", "it needs a rewrite for /.well-known/**"),
        (DOCUMENT, Spoilt(document={"resource": "https://other.example.org"}), "resource", "resource is https://other"),
        (DOCUMENT, Spoilt(document={"authorization_servers": []}), "resource", "authorization_servers is []"),
        (DOCUMENT, Spoilt(headers={"cache-control": "no-cache"}), "resource", "is no-cache, not public, max-age=300"),
        (SERVER, Spoilt(document={"issuer": "https://other.example.org"}), "server", "are not the same document"),
        (OPENID, Spoilt(status=404), "server", "openid-configuration answers 404"),
        ("/oauth/authorize", Spoilt(status=200), "pages", "it needs a rewrite for /oauth/**"),
        ("/oauth/authorize", Spoilt(headers={"cache-control": "public"}), "pages", "not with a page of the service"),
        ("/mcp", Spoilt(status=200), "admin", "/mcp answers a call without a token (200)"),
    ],
)
def test_what_stands_before_the_function_and_spoils_its_answers_is_told(
    front: Front, path: str, spoilt: Spoilt, step: str, says: str
) -> None:
    front.spoilt[path] = spoilt
    failed, line = failure(smoke(front.url))
    assert (failed, says in line) == (step, True), line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "wrong", "says"),
    [
        ("issuer", "https://memory.example.org/", "issuer is https://memory.example.org/, not http://127.0.0.1"),
        ("token_endpoint", "https://other.example.org/oauth/token", "The token_endpoint is not below http://127.0.0.1"),
        (
            "code_challenge_methods_supported",
            ["plain", "S256"],
            "code_challenge_methods_supported is ['plain', 'S256']",
        ),
    ],
)
def test_a_document_of_the_server_that_is_wrong_is_told(front: Front, name: str, wrong: object, says: str) -> None:
    front.spoilt |= dict.fromkeys((SERVER, OPENID), Spoilt(document={name: wrong}))
    failed, line = failure(smoke(front.url))
    assert (failed, says in line) == ("server", True), line


@pytest.mark.slow
def test_another_origin_than_the_public_one_is_told_with_both(front: Front) -> None:
    failed, line = failure(smoke(front.function))
    assert failed == "challenge"
    assert f"PUBLIC_BASE_URL is {front.url}, not {front.function}: clients must be given the endpoint below" in line


@pytest.mark.slow
@pytest.mark.parametrize("client", ["nobody", "default"])
def test_an_unknown_client_is_told(front: Front, client: str) -> None:
    assert "(404): the client id is unknown to this service" in failure(smoke(front.url, client=client))[1]


@pytest.mark.parametrize(
    ("url", "arguments", "says"),
    [
        ("http://127.0.0.1:9", (), "--client: is needed for sign-in"),
        ("http://127.0.0.1:9/mcp", (), "the admin endpoint knows no signing in"),
        ("https://us-central1-mine.cloudfunctions.net/metaCortexMcp", ("--client", "a"), "must be the origin alone"),
        ("http://127.0.0.1:9", ("--client", "a", "--token", "any"), "--token: has no place in sign-in"),
        ("http://127.0.0.1:9", ("--client", "a", "--origin", "https://claude.ai"), "--origin: is sent by"),
        ("http://127.0.0.1:9", ("--client", "a", "--artifact-ref", "x"), "which saves nothing"),
    ],
)
def test_a_wrong_command_is_a_usage_error(url: str, arguments: tuple[str, ...], says: str) -> None:
    result = smoke(url, *arguments, client="")
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in " ".join(result.stderr.split())
