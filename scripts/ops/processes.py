"""Child processes that never outlive the command that started them."""

import atexit
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

GUARDIAN = Path(__file__).with_name("guardian.py")

# The child names itself to the guardian before it becomes the program, so no moment exists in which it is unknown.
ANNOUNCE = 'echo "start $$" >&0; exec "$@" </dev/null'


class OpsError(Exception):
    """What stopped a command, as sentences for the person who ran it."""


@dataclass(frozen=True)
class Process:
    """A running program that leads a session and process group of its own and writes to a log file."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        """The id of the process, and of its group."""
        return self.popen.pid

    def exit_code(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        return self.popen.poll()

    def tail(self, lines: int = 30) -> str:
        """The last lines of its log."""
        with suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        return ""

    def stop(self, grace: float = 5) -> None:
        """End the whole group: politely, and after `grace` seconds by force."""
        if self.exit_code() is None:
            self._signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.popen.wait(grace)
        self._signal(signal.SIGKILL)
        self.popen.wait()
        tell_guardian(f"end {self.pid}")

    def _signal(self, number: signal.Signals) -> None:
        # macOS answers «not permitted» for a group of which only unreaped processes are left.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


@dataclass(frozen=True)
class Server:
    """How to start a program that serves HTTP on a port of 127.0.0.1."""

    name: str
    command: Callable[[int], Sequence[str | Path]]
    """The command line for a port."""
    answers_at: str
    """A path that answers 200 as soon as it serves."""
    log: Path
    env: Mapping[str, str] | None = None
    cwd: Path | None = None
    seconds: float = 30
    """How long it may take until it answers."""


def start(
    name: str,
    command: Sequence[str | Path],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Process:
    """Start a program in its own session: a Ctrl-C at the terminal does not reach it, and it ends with this process."""
    with log.open("wb") as output:
        popen = subprocess.Popen(
            ["/bin/sh", "-c", ANNOUNCE, "sh", *command],
            stdin=_guardian().stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
    return Process(name, popen, log)


@contextmanager
def scratch_folder() -> Generator[Path]:
    """A temporary folder that is removed even if this process is killed. Its path is short enough for a socket."""
    path = tempfile.mkdtemp(prefix="metacortex-")
    tell_guardian(f"scratch {path}")
    try:
        yield Path(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)


def serve(server: Server, *, port: int | None = None) -> tuple[int, Process]:
    """Start a server and wait until it answers; returns its port too. Raises OpsError with the log's end.

    Without a port a free one is chosen, and another one if that was taken meanwhile.
    """
    for attempts_left in (2, 1, 0):
        chosen = port or free_port()
        process = start(server.name, server.command(chosen), log=server.log, env=server.env, cwd=server.cwd)
        try:
            _wait_until_it_answers(process, chosen, server)
        except OpsError:
            process.stop(grace=0)
            if port is None and attempts_left and "already in use" in process.tail():
                continue
            raise
        except BaseException:
            process.stop(grace=0)
            raise
        return chosen, process
    raise AssertionError("the last attempt returns or raises")


def _wait_until_it_answers(process: Process, port: int, server: Server) -> None:
    deadline = time.monotonic() + server.seconds
    while not _answers(port, server.answers_at):
        if process.exit_code() is not None:
            raise OpsError(
                f"{process.name} {ending(process.exit_code())} while starting. Its last words:\n{process.tail()}"
            )
        if time.monotonic() > deadline:
            raise OpsError(
                f"{process.name} was not ready after {server.seconds:.0f} seconds. Its last words:\n{process.tail()}"
            )
        time.sleep(0.05)


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def ending(exit_code: int | None) -> str:
    """How a process ended, as the verb of a sentence."""
    if exit_code is None:
        return "is running"
    if exit_code < 0:
        return f"was killed by signal {-exit_code}"
    return f"stopped with exit status {exit_code}"


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now. Another program may take it a moment later."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def port_is_free(port: int) -> bool:
    """Whether a server could listen on this port of 127.0.0.1."""
    with socket.socket() as probe:
        # As servers do: a port whose last connections are still closing is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


@cache
def _guardian() -> subprocess.Popen[bytes]:
    guardian = subprocess.Popen(
        [sys.executable, "-I", "-S", GUARDIAN],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    atexit.register(_dismiss, guardian)
    return guardian


def _dismiss(guardian: subprocess.Popen[bytes]) -> None:
    assert guardian.stdin is not None
    guardian.stdin.close()
    guardian.wait()


def tell_guardian(line: str) -> None:
    """One line in the guardian\'s language: what to end, or no longer, once this process is gone."""
    stdin = _guardian().stdin
    assert stdin is not None
    # One small write to a pipe arrives whole, also beside those of the children.
    with suppress(BrokenPipeError):
        os.write(stdin.fileno(), f"{line}\n".encode())
