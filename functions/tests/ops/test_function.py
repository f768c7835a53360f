"""The function served as production serves it."""

import http.client
import json
import os
from pathlib import Path
from typing import Any

import pytest

from ops.function import Function, running_function
from ops.processes import OpsError
from running import alive, eventually

pytestmark = pytest.mark.slow

MAIN = """
import os, sys
import functions_framework.aio
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

async def health(request):
    print("asked for its health", flush=True)
    return JSONResponse({"pid": os.getpid(), "env": dict(os.environ), "argv0": os.path.basename(sys.argv[0])})

app = Starlette(routes=[Route("/healthz", health)])

@functions_framework.aio.http
async def metaCortexMcp(request):
    return app
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "main.py"
    path.write_text(MAIN)
    return path


def health(function: Function) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", function.port, timeout=10)
    connection.request("GET", "/healthz")
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def test_it_sees_what_it_is_given_and_nothing_else_of_ours(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "of-the-developer")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    with running_function({"SETTING": "given", "no_proxy": "intranet"}, source=source) as function:
        env = health(function)["env"]
        assert env["SETTING"] == "given"
        assert env["no_proxy"] == env["NO_PROXY"] == "intranet,127.0.0.1,localhost"
        assert "GEMINI_API_KEY" not in env
        assert "PYTHONPATH" not in env


def test_its_worker_is_a_process_of_its_own_and_all_end_together(source: Path) -> None:
    with running_function({}, source=source) as one, running_function({}, source=source) as two:
        worker = health(one)["pid"]
        assert one.worker_pid() == worker != one.process.pid
        assert os.getpgid(worker) == one.process.pid != os.getpgid(0)
        assert health(two)["pid"] != worker
        before = one.log_size()
        health(one)
        eventually(lambda: one.log_size() > before)
        assert one.process.tail().endswith("asked for its health")
    eventually(lambda: not alive(worker) and not alive(one.process.pid))


def test_one_that_cannot_start_says_why(source: Path) -> None:
    source.write_text("raise ImportError('no cheese')")
    with pytest.raises(OpsError, match=r"The function stopped with exit status 1 while starting[^$]*no cheese"):
        running_function({}, source=source).__enter__()
