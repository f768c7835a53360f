"""Processes that never outlive the command that started them."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ops.processes import OpsError, Process, Server, free_port, port_is_free, scratch_folder, serve, start
from running import alive, eventually

STUBBORN = ["sh", "-c", "trap '' TERM; sleep 1000 & echo $!; while :; do wait; done"]

OWNER = """
import sys, time
from pathlib import Path
from ops.processes import scratch_folder, start
with scratch_folder() as scratch:
    process = start("stubborn", {command!r}, log=Path({log!r}))
    print(process.pid, scratch, flush=True)
    time.sleep(1000)
"""


def grandchild(process: Process) -> int:
    return int(eventually(process.tail))


def test_a_process_runs_in_a_group_of_its_own_and_logs_to_its_file(tmp_path: Path) -> None:
    process = start("greeter", ["sh", "-c", "echo hello; cat; exit 3"], log=tmp_path / "log")
    assert process.popen.wait(10) == 3
    assert process.tail() == "hello"
    process.stop()


def test_stopping_ends_the_whole_group_also_one_that_does_not_listen(tmp_path: Path) -> None:
    process = start("stubborn", STUBBORN, log=tmp_path / "log")
    child = grandchild(process)
    assert os.getpgid(child) == process.pid != os.getpgid(0)
    process.stop(grace=0.1)
    assert process.exit_code() == -signal.SIGKILL
    eventually(lambda: not alive(child))


def test_a_leader_that_is_gone_leaves_no_child_behind(tmp_path: Path) -> None:
    process = start("stubborn", STUBBORN, log=tmp_path / "log")
    child = grandchild(process)
    os.kill(process.pid, signal.SIGKILL)
    process.stop()
    eventually(lambda: not alive(child))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_an_owner_that_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    code = OWNER.format(command=STUBBORN, log=str(tmp_path / "log"))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env) as owner:
        assert owner.stdout
        pid, scratch = owner.stdout.readline().split()
        child = int(eventually((tmp_path / "log").read_text))
        owner.send_signal(number)
    eventually(lambda: not alive(int(pid)) and not alive(child) and not Path(scratch).exists())


def test_a_server_that_fails_says_its_last_words(tmp_path: Path) -> None:
    server = Server("The demo", lambda _: ["sh", "-c", "echo out of cheese; exit 7"], "/", tmp_path / "log")
    with pytest.raises(OpsError, match=r"The demo stopped with exit status 7 while starting[^$]*out of cheese"):
        serve(server)


def test_a_server_that_never_answers_is_given_up_and_ended(tmp_path: Path) -> None:
    server = Server("The demo", lambda _: STUBBORN, "/", tmp_path / "log", seconds=0.3)
    with pytest.raises(OpsError, match="was not ready after 0 seconds"):
        serve(server)
    eventually(lambda: not alive(int((tmp_path / "log").read_text())))


def test_a_chosen_port_that_was_taken_meanwhile_is_replaced(tmp_path: Path) -> None:
    asked: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as taken:

        def command(port: int) -> list[str]:
            asked.append(port)
            port = port if len(asked) > 1 else taken.getsockname()[1]
            return [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)]

        port, process = serve(Server("The demo", command, "/", tmp_path / "log"))
        process.stop()
    assert len(asked) == 2
    assert port == asked[1]


def test_a_given_port_that_is_taken_is_not_replaced(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert not port_is_free(port)
        command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)]
        with pytest.raises(OpsError, match="already in use"):
            serve(Server("The demo", lambda _: command, "/", tmp_path / "log"), port=port)
    assert port_is_free(port)
    assert port_is_free(free_port())


def test_a_scratch_folder_is_private_and_goes_away() -> None:
    with scratch_folder() as folder:
        assert folder.stat().st_mode & 0o077 == 0
        (folder / "file").touch()
    assert not folder.exists()
