"""What a new process imports, and when: an owner waits for every module before the first answer."""

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from heapq import nlargest

import pytest

from builders import TOKENS, FakeClock, environment, path_of
from metacortex.events import now_ms
from metacortex.settings import FUNCTION_NAME
from ops.checkout import FUNCTIONS
from signing import BASE, HASH, Signing

pytestmark = pytest.mark.slow

HEAVY = {
    "firebase_admin",
    "firebase_functions",
    "google.cloud.firestore_v1",
    "google.genai",
    "grpc",
    "mcp",
    "numpy",
    "wordllama",
}
# What it takes to tell whether an access token opens an endpoint.
VERIFYING = {
    "metacortex.adapters.client_documents",
    "metacortex.adapters.firestore_oauth",
    "metacortex.adapters.freshness",
    "metacortex.oauth",
    "metacortex.oauth.clients",
    "metacortex.oauth.errors",
    "metacortex.oauth.grants",
    "metacortex.oauth.ports",
    "metacortex.oauth.service",
    "metacortex.oauth.urls",
}
FETCH = ("fetch_context", {"id": "unknown"})
# Asks the deployed app for one thing after the other, and prints which modules have come along by then.
PROBE = """
import functions_framework.aio
import asyncio, json, sys, main

async def ask(method, params):
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}

    async def receive():
        return messages.pop() if messages else await asyncio.Event().wait()

    async def send(message):
        if message["type"] == "http.response.start":
            assert message["status"] == 200, message

    scope = {"type": "http", "http_version": "1.1", "method": "POST", "path": path, "root_path": "", "query_string": b"",
             "headers": [(name.encode(), value.encode()) for name, value in headers.items()]}
    await main.app(scope, receive, send)

def loaded():
    print(json.dumps([*sys.modules]))

async def everything():
    loaded()
    await ask("tools/list", {})
    loaded()
    for tool, arguments in calls:
        await ask("tools/call", {"name": tool, "arguments": arguments})
        loaded()

path, token, calls = json.loads(sys.argv[1])
asyncio.run(everything())
"""


def probe(
    settings: dict[str, str],
    *calls: tuple[str, dict[str, str]],
    token: str = TOKENS["agent"],
    python: tuple[str, ...] = (),
) -> tuple[list[set[str]], str]:
    """The modules that are there after each step, and what Python says of its imports."""
    done = subprocess.run(
        [sys.executable, *python, "-c", PROBE, json.dumps([path_of("agent"), token, calls])],
        cwd=FUNCTIONS,
        env={"FUNCTION_TARGET": FUNCTION_NAME, **settings},
        capture_output=True,
        text=True,
        check=True,
    )
    return [set(json.loads(line)) for line in done.stdout.splitlines() if line.startswith("[")], done.stderr


def gemini(**settings: str) -> dict[str, str]:
    return environment(MODEL_PROVIDER="gemini", GEMINI_API_KEY="a-gemini-key-of-the-tests", **settings)


def test_each_request_imports_only_what_it_needs(emulator_host: str, project: str) -> None:
    settings = gemini(FIRESTORE_EMULATOR_HOST=emulator_host, GCLOUD_PROJECT=project)
    steps, _ = probe(settings, FETCH, ("search_context", {"query": "owls"}))
    store = {"google.cloud.firestore_v1", "grpc"}
    assert [modules & HEAVY for modules in steps] == [
        set[str](),
        {"mcp"},
        {"mcp", *store},
        {"mcp", *store, "google.genai"},
    ]


async def test_where_the_owner_signs_in_a_call_imports_no_more_than_the_check_of_an_access_token(
    emulator_host: str, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", emulator_host)
    access = (await Signing(project, clock=FakeClock(now_ms())).connected())["access_token"]
    off = gemini(FIRESTORE_EMULATOR_HOST=emulator_host, GCLOUD_PROJECT=project)
    on = off | {"PUBLIC_BASE_URL": BASE, "OWNER_PASSPHRASE_HASH": HASH}
    (before, listed, fetched), _ = probe(off, FETCH)
    own, _ = probe(on, FETCH)
    granted, _ = probe(on, FETCH, token=access)
    assert [set(), set(), VERIFYING] == [own[0] ^ before, own[1] ^ listed, own[2] ^ fetched]
    # To look at an access token is to read from Firestore, as a fetch does.
    assert [set(), VERIFYING, VERIFYING] == [granted[0] ^ before, granted[1] ^ fetched, granted[2] ^ fetched]


def test_the_imports_before_the_first_listing_take_less_than_six_times_those_of_the_framework() -> None:
    # A busy machine makes some of them slow in each run, but none in every run. The first run writes bytecode.
    runs = [imports_of_a_listing() for _ in range(5)]
    fastest = {name: min(run[name] for run in runs) for name in runs[0]}
    names = list(fastest)
    place = names.index("functions_framework.aio") + 1
    framework = sum(fastest[name] for name in names[:place])
    ours = {name: fastest[name] for name in names[place:]}
    assert {"mcp", "metacortex"} <= {name.partition(".")[0] for name in ours}
    assert sum(ours.values()) < 6 * framework, worst(ours)


def imports_of_a_listing() -> dict[str, int]:
    """The modules imported, in their order, and the microseconds that each took itself."""
    _, told = probe(gemini(GCLOUD_PROJECT="demo-cold"), python=("-X", "importtime"))
    lines = [
        line.removeprefix("import time:").split("|") for line in told.splitlines() if line.startswith("import time:")
    ]
    return {name.strip(): int(own) for own, _, name in lines if own.strip().isdecimal()}


def worst(imports: Mapping[str, int]) -> str:
    """The packages that take longest, with their slowest modules."""
    packages: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for name, time in imports.items():
        packages[name.partition(".")[0]][name] = time
    by_time = sorted(packages.items(), key=lambda item: -sum(item[1].values()))
    return "\n".join(
        f"{sum(modules.values()) / 1000:.0f} ms {package}, most of it {', '.join(nlargest(3, modules, key=modules.__getitem__))}"
        for package, modules in by_time[:5]
    )
