"""./scripts/dev in a checkout of its own, as a person would run it, and what is left of it afterwards."""

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ops.checkout import ROOT

T = TypeVar("T")


def eventually(look: Callable[[], T], *, seconds: float = 30) -> T:
    """The first true thing `look` returns; fails when the time is over."""
    deadline = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < deadline, f"not within {seconds} seconds"
        time.sleep(0.02)
    return seen


def executable(path: Path, script: str) -> Path:
    """A program that stands in for another: a shell script at a path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def alive(pid: int) -> bool:
    """Whether a process runs; one that is dead but not yet reaped does not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.strip().startswith("Z")


def descendants(pid: int) -> dict[int, str]:
    """Every process below this one, with its command line."""
    listing = subprocess.run(["ps", "-A", "-ww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True)
    rows = [line.split(None, 2) for line in listing.stdout.splitlines()]
    found: dict[int, str] = {}
    parents = {pid}
    while parents:
        below = {int(row[0]): row[2] for row in rows if int(row[1]) in parents and "ps -A" not in row[2]}
        found |= below
        parents = set(below)
    return found


def make_checkout(folder: Path) -> Path:
    """A copy of what ./scripts/dev needs, so that a test never touches the data and tokens of this checkout."""
    shutil.copytree(ROOT / "scripts", folder / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(
        ROOT / "functions/metacortex", folder / "functions/metacortex", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(ROOT / "functions/main.py", folder / "functions/main.py")
    return folder


class DevRun:
    """One run of ./scripts/dev, without the set-up."""

    def __init__(self, checkout: Path, temporary: Path, arguments: tuple[str, ...], env: Mapping[str, str]) -> None:
        self.out = temporary / f"out-{time.monotonic_ns()}"
        self.err = self.out.with_suffix(".err")
        inherited = ("PATH", "HOME", "JAVA_HOME", "FIRESTORE_EMULATOR_JAR")
        surroundings = {name: os.environ[name] for name in inherited if name in os.environ}
        python_path = os.pathsep.join([str(checkout / "scripts"), str(checkout / "functions")])
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "ops.dev", *arguments],
                cwd=temporary,
                env={**surroundings, "PYTHONPATH": python_path, "TMPDIR": str(temporary), **env},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self.seen: dict[int, str] = {}

    def ready(self) -> "DevRun":
        """Wait until the last line says ready, and remember every process by then."""
        eventually(
            lambda: (self.lines()[-1:] and self.lines()[-1].startswith("ready")) or self.process.poll() is not None
        )
        assert self.process.poll() is None, self.err.read_text()
        self.look()
        return self

    def look(self) -> None:
        """Remember the processes there are now."""
        self.seen |= descendants(self.process.pid)

    def part(self, word: str) -> int:
        """The process, of those directly below, whose command line holds a word."""
        self.look()
        return min(pid for pid, command in self.seen.items() if word in command)

    def worker(self) -> int:
        """The process that answers requests: the one below the function's own."""
        leader = self.part("functions_framework")
        return next(iter(eventually(lambda: descendants(leader))))

    def lines(self) -> list[str]:
        """What it printed, up to now."""
        return self.out.read_text().splitlines()

    def says(self, text: str) -> None:
        """Wait until standard error holds a text."""
        eventually(lambda: text in self.err.read_text() or self.process.poll() is not None)
        assert text in self.err.read_text()

    def stop(self, *numbers: signal.Signals) -> int:
        """Send signals, wait, and return the exit status."""
        for number in numbers:
            self.process.send_signal(number)
        return self.process.wait(30)

    def leaves_nothing(self) -> None:
        """Fails unless every process and every temporary folder of this run is gone, at once or in a moment."""
        assert self.process.poll() is not None
        eventually(lambda: not [command for pid, command in self.seen.items() if alive(pid)], seconds=5)
        eventually(lambda: not list(self.out.parent.glob("metacortex-*")), seconds=5)

    def url_of(self, endpoint: str) -> str:
        """The URL printed for an endpoint."""
        return self.lines()[self.lines().index(f"{endpoint} endpoint") + 1].strip()

    def token_of(self, endpoint: str) -> str:
        """The token printed for an endpoint."""
        return self.lines()[self.lines().index(f"{endpoint} endpoint") + 2].split()[-1]

    def call(self, tool: str, **arguments: object) -> dict[str, Any]:
        """Call a tool through the agent's endpoint, over HTTP."""
        return call_tool(self.url_of("agent"), self.token_of("agent"), tool, arguments)


def call_tool(url: str, token: str, tool: str, arguments: Mapping[str, object]) -> dict[str, Any]:
    """Call a tool with one plain HTTP request; returns its structured result."""
    address = urlsplit(url)
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    }
    connection = http.client.HTTPConnection(address.netloc, timeout=30)
    try:
        connection.request("POST", address.path, json.dumps(request), headers)
        response = connection.getresponse()
        assert response.status == 200, response.read()
        result = json.loads(response.read())["result"]
    finally:
        connection.close()
    assert not result.get("isError"), result
    return result["structuredContent"]
