"""The function, served on this machine as production serves it: functions-framework, gunicorn, one uvicorn worker."""

import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from metacortex.settings import FUNCTION_NAME
from ops.checkout import FUNCTIONS
from ops.processes import Process, Server, scratch_folder, serve

# What a process needs from the machine. Everything else the function sees is what the caller gives it.
INHERITED = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR")


@dataclass(frozen=True)
class Function:
    """The served function."""

    port: int
    process: Process

    @property
    def url(self) -> str:
        """Its base URL, without a path."""
        return f"http://127.0.0.1:{self.port}"

    def log_size(self) -> int:
        """The bytes it has logged so far: every call adds to them."""
        return self.process.log.stat().st_size

    def worker_pid(self) -> int:
        """The process that answers requests; the leader of the group only watches over it."""
        listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        pairs = (line.split() for line in listing.splitlines())
        return next(int(pid) for pid, parent in pairs if int(parent) == self.process.pid)


@contextmanager
def running_function(
    env: Mapping[str, str], *, port: int | None = None, source: Path = FUNCTIONS / "main.py", log: Path | None = None
) -> Generator[Function]:
    """Serve `source` on 127.0.0.1 until the block ends; on a free port unless one is given.

    `env` is all the function sees, but for PATH and its like. Raises OpsError with the log's end if it does not start.
    """
    framework = [sys.executable, "-P", "-m", "functions_framework", f"--target={FUNCTION_NAME}", f"--source={source}"]
    with scratch_folder() as scratch:
        server = Server(
            name="The function",
            command=lambda port: [*framework, "--host=127.0.0.1", f"--port={port}"],
            answers_at="/healthz",
            log=log or scratch / "function.log",
            env=_surroundings(env, scratch),
            cwd=source.parent,
        )
        chosen, process = serve(server, port=port)
        try:
            yield Function(chosen, process)
        finally:
            process.stop()


def _surroundings(env: Mapping[str, str], scratch: Path) -> dict[str, str]:
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    unproxied = ",".join(filter(None, [env.get("no_proxy") or env.get("NO_PROXY"), "127.0.0.1", "localhost"]))
    return {
        **inherited,
        **env,
        # Log lines arrive as they are written.
        "PYTHONUNBUFFERED": "1",
        # gRPC and HTTP clients would ask a proxy for the emulator otherwise.
        "no_proxy": unproxied,
        "NO_PROXY": unproxied,
        # gunicorn makes its control socket here: one per server, and gone with it.
        "XDG_RUNTIME_DIR": str(scratch),
    }
