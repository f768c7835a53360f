"""The servers of a benchmark: an emulator, a stand-in for the model, the function, and the same server with nothing in it."""

import http.client
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal

from metacortex.settings import RetrievalMode
from ops.bench_plan import Plan
from ops.checkout import FUNCTIONS, ROOT
from ops.emulator import running_emulator
from ops.function import Function, running_function
from ops.place import EMULATOR
from ops.processes import OpsError, Server, scratch_folder, serve
from ops.progress import Tell

EMPTY = Path(__file__).with_name("bench_empty.py")
API_KEY = "the-stand-in-takes-any"
LOOPBACK = "127.0.0.1,localhost"


@dataclass(frozen=True)
class ModelServer:
    """The stand-in for the model; `bench_model.py` says what it does."""

    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def control(self, *, delay_ms: int, keep: bool = False) -> None:
        """Sets how long it takes from now on, and begins a new count."""
        self._ask("PUT", {"delay_ms": delay_ms, "keep": keep})

    def calls(self) -> int:
        """How often it was called since it was told something."""
        return self._ask("GET")["calls"]

    def kept(self) -> list[dict[str, Any]]:
        """Those calls, if it was told to keep them."""
        return self._ask("GET")["kept"]

    def _ask(self, method: str, body: object = None) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, "/control", json.dumps(body), {"Content-Type": "application/json"})
            return json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException) as error:
            raise OpsError(f"The stand-in for the model does not answer ({type(error).__name__}).") from error
        finally:
            connection.close()


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What every part measures with."""

    plan: Plan
    emulator: str
    """The host and port of the emulator, in which every part has a project of its own."""
    model: ModelServer
    portal: BlockingPortal
    """The one event loop of this process, in a thread: gRPC's poller belongs to one, and Ctrl-C must not wait for it."""
    tell: Tell
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    def environment(
        self, project: str, *, store: str | None = None, retrieval: RetrievalMode = RetrievalMode.HYBRID
    ) -> Mapping[str, str]:
        """What the function is told: which project's database, behind which host, and how to search it."""
        return {
            "GCLOUD_PROJECT": project,
            EMULATOR: store or self.emulator,
            "MCP_ADMIN_TOKEN": self.token,
            "MODEL_PROVIDER": "gemini",
            "GEMINI_API_KEY": API_KEY,
            "GOOGLE_GEMINI_BASE_URL": self.model.url,
            "RETRIEVAL_MODE": retrieval.value,
        }


@contextmanager
def running_bench(plan: Plan, tell: Tell) -> Generator[Bench]:
    """The emulator, the stand-in and this process's event loop, until the block ends. Raises OpsError."""
    with running_emulator() as emulator, _running_model() as model, _surroundings(emulator.host):
        model.control(delay_ms=plan.delay_ms)
        with start_blocking_portal() as portal:
            yield Bench(plan=plan, emulator=emulator.host, model=model, portal=portal, tell=tell)


@contextmanager
def running_empty(port: int | None = None) -> Generator[Function]:
    """The server of the function, with an app that does nothing."""
    with running_function({}, port=port, source=EMPTY) as function:
        yield function


@contextmanager
def _running_model() -> Generator[ModelServer]:
    served = [sys.executable, "-P", "-m", "uvicorn", "ops.bench_model:create_app", "--factory"]
    with scratch_folder() as scratch:
        server = Server(
            name="The stand-in for the model",
            command=lambda port: [
                *served,
                "--host=127.0.0.1",
                f"--port={port}",
                "--no-access-log",
                "--log-level=warning",
                # The bare clients would meet a connection that is closed while they reuse it.
                "--timeout-keep-alive=3600",
            ],
            answers_at="/healthz",
            log=scratch / "model.log",
            env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "scripts", FUNCTIONS)))},
        )
        port, process = serve(server)
        try:
            yield ModelServer(port)
        finally:
            process.stop()


@contextmanager
def _surroundings(emulator: str) -> Generator[None]:
    """Lets Google's clients in this process find the emulator, past any proxy."""
    ours = {EMULATOR: emulator, "NO_PROXY": LOOPBACK, "no_proxy": LOOPBACK}
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def resident_mb(pid: int) -> float:
    """The memory that a process holds, in MiB."""
    listing = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    if not listing.strip():
        raise OpsError("The function that is measured is gone.")
    return int(listing) / 1024
