"""What a new process imports, and when: an owner waits for every module before the first answer."""

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from heapq import nlargest

import pytest

from builders import ADMIN_TOKEN, environment
from metacortex.settings import FUNCTION_NAME
from ops.checkout import FUNCTIONS

pytestmark = pytest.mark.slow

HEAVY = (
    "firebase_admin",
    "firebase_functions",
    "google.cloud.firestore_v1",
    "google.genai",
    "grpc",
    "mcp",
    "numpy",
    "wordllama",
)
# Asks the deployed app for one thing after the other, and prints which heavy packages have come along by then.
PROBE = f"""
import functions_framework.aio
import asyncio, json, sys, main

async def ask(method, params):
    body = json.dumps({{"jsonrpc": "2.0", "id": 1, "method": method, "params": params}}).encode()
    messages = [{{"type": "http.request", "body": body, "more_body": False}}]
    headers = {{"authorization": "Bearer {ADMIN_TOKEN}", "content-type": "application/json"}}

    async def receive():
        return messages.pop() if messages else await asyncio.Event().wait()

    async def send(message):
        if message["type"] == "http.response.start":
            assert message["status"] == 200, message

    scope = {{"type": "http", "http_version": "1.1", "method": "POST", "path": "/mcp", "root_path": "", "query_string": b"",
             "headers": [(name.encode(), value.encode()) for name, value in headers.items()]}}
    await main.app(scope, receive, send)

def loaded():
    print(json.dumps([name for name in {HEAVY} if name in sys.modules]))

async def everything():
    loaded()
    await ask("tools/list", {{}})
    loaded()
    for tool, arguments in json.loads(sys.argv[1]):
        await ask("tools/call", {{"name": tool, "arguments": arguments}})
        loaded()

asyncio.run(everything())
"""


def probe(
    settings: dict[str, str], *calls: tuple[str, dict[str, str]], python: tuple[str, ...] = ()
) -> tuple[str, str]:
    """What the probe prints, and what Python says of its imports."""
    done = subprocess.run(
        [sys.executable, *python, "-c", PROBE, json.dumps(calls)],
        cwd=FUNCTIONS,
        env={"FUNCTION_TARGET": FUNCTION_NAME, **settings},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, done.stderr


def gemini(**settings: str) -> dict[str, str]:
    return environment(MODEL_PROVIDER="gemini", GEMINI_API_KEY="a-gemini-key-of-the-tests", **settings)


def test_each_request_imports_only_what_it_needs(emulator_host: str, project: str) -> None:
    settings = gemini(FIRESTORE_EMULATOR_HOST=emulator_host, GCLOUD_PROJECT=project)
    said, _ = probe(settings, ("fetch_context", {"id": "unknown"}), ("search_context", {"query": "owls"}))
    steps = [set(json.loads(line)) for line in said.splitlines() if line.startswith("[")]
    store = {"google.cloud.firestore_v1", "grpc"}
    assert steps == [set[str](), {"mcp"}, {"mcp", *store}, {"mcp", *store, "google.genai"}]


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
