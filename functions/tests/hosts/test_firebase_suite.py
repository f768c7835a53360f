"""The function in the Firebase emulator suite, through the URL that the platform gives it."""

import json
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from builders import TOKENS, environment
from gemini_api import GeminiApi, surroundings
from hosts.firebase_suite import Suite, running_suite
from images import PNG
from ops.checkout import ROOT
from ops.endpoints import PROJECT
from ops.hosts import HostTools
from running import alive, descendants, eventually
from web.wire import serving

pytestmark = [pytest.mark.hosts, pytest.mark.slow]

# Of three programs at once on a machine that runs other tests: the first call loads the model too.
SECONDS = "90"
RUN_UNTIL_KILLED = """
import signal
from builders import environment
from hosts.firebase_suite import running_suite
from ops.hosts import provide
with running_suite(provide(), environment()):
    print("ready", flush=True)
    signal.pause()
"""


@pytest.fixture(scope="module")
def suite(tools: HostTools) -> Generator[Suite]:
    with running_suite(tools, environment()) as running:
        yield running


@pytest.mark.parametrize(
    ("mode", "client", "steps"),
    [
        ("admin-read-write", None, {"health", "connect", "tools", "save", "search", "fetch"}),
        ("search-only", "reader", {"health", "connect", "tools", "search"}),
        ("browser-read-write", "agent", {"health", "preflight", "connect", "tools", "save", "search", "fetch", "cors"}),
    ],
)
def test_a_smoke_run_passes_in_every_mode(suite: Suite, mode: str, client: str | None, steps: set[str]) -> None:
    chosen = ["--client", client] if client else []
    report = smoke("--url", suite.url, "--mode", mode, *chosen, token=TOKENS[client or "default"])
    passed = {step["name"] for step in report["steps"] if step["status"] == "ok"}
    assert report["ok"], f"{report['error']}\n{suite.process.tail(40)}"
    assert steps <= passed


@pytest.mark.parametrize("route", ["gemini", "vertex"])
def test_a_text_and_an_image_are_saved_found_and_fetched_on_both_gemini_routes(
    tools: HostTools, tmp_path: Path, route: str
) -> None:
    image = tmp_path / "image.png"
    image.write_bytes(PNG)
    api = GeminiApi()
    with serving(api.app) as wire:
        base = f"http://127.0.0.1:{wire.port}"
        # The key is there on either route: where it is not asked for, it must change nothing.
        settings = environment(MODEL_PROVIDER=route, GEMINI_API_KEY="a-gemini-key", **surroundings(base, tmp_path))
        with running_suite(tools, settings) as suite:
            report = smoke("--url", suite.url, "--image-file", str(image), token=TOKENS["default"])
            assert report["ok"], f"{report['error']}\n{suite.process.tail(40)}"
    asked = {path.split("/models/")[0] for path, _ in api.asked}
    places = ("us-central1", "global")
    vertex = {f"/v1beta1/projects/{PROJECT}/locations/{place}/publishers/google" for place in places}
    assert asked == {"gemini": {"/v1"}, "vertex": vertex}[route]


def smoke(*arguments: str, token: str) -> dict[str, Any]:
    python_path = os.pathsep.join([str(ROOT / "scripts"), str(ROOT / "functions")])
    answer = subprocess.run(
        [sys.executable, "-P", "-m", "ops", "smoke", *arguments, "--timeout", SECONDS, "--json"],
        env={**os.environ, "PYTHONPATH": python_path, "MCP_ADMIN_TOKEN": token, "MCP_SMOKE_TOKEN": token},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.stdout, answer.stderr
    return json.loads(answer.stdout)


def test_nothing_of_the_suite_is_left(tools: HostTools) -> None:
    with running_suite(tools, environment()) as suite:
        smoke("--url", suite.url, token=TOKENS["default"])
        seen = descendants(suite.process.pid)
        assert any("java" in command for command in seen.values())
        assert any("functions_framework" in command or "functions-framework" in command for command in seen.values())
    eventually(lambda: not [command for pid, command in seen.items() if alive(pid)], seconds=10)


def test_nothing_of_the_suite_outlives_a_killed_run(tools: HostTools) -> None:
    python_path = os.pathsep.join(str(ROOT / folder) for folder in ("scripts", "functions", "functions/tests"))
    with subprocess.Popen(
        [sys.executable, "-P", "-c", RUN_UNTIL_KILLED],
        env={**os.environ, "PYTHONPATH": python_path},
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "ready\n"
        seen = descendants(run.pid)
        run.kill()
    assert any("java" in command for command in seen.values())
    eventually(lambda: not [command for pid, command in seen.items() if alive(pid)], seconds=10)
