"""`metacortex bench`: every figure of a short run, what it judges by them, and that nothing is left of it."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ops.bench_burst import Burst
from ops.bench_calls import QUERY_WORDS
from ops.bench_load import Timing
from ops.bench_plan import Part, Plan
from ops.bench_report import Report, to_text
from ops.bench_run import Results
from ops.checkout import ROOT
from ops.cli import app
from running import alive, descendants, eventually

SHORT = ("--calls", "40", "--starts", "1", "--memories", "200,50", "--delay", "5")
TIMING = {"callers", "calls", "errors", "p50_ms", "p95_ms", "per_second", "seconds"}


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", *arguments])


# --- A short run of everything ---


@dataclass(frozen=True)
class Run:
    status: int
    report: dict[str, Any]
    page: str


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    page = tmp_path_factory.mktemp("bench") / "page.html"
    result = invoke(*SHORT, "--json", "--html", str(page))
    assert result.stdout, result.output
    assert result.stderr == ""
    return Run(result.exit_code, json.loads(result.stdout), page.read_text())


def figures(report: dict[str, Any], callers: int) -> dict[str, dict[str, Any]]:
    return {figure["call"]: figure for figure in report["load"] if figure["callers"] == callers}


@pytest.mark.slow
def test_the_status_is_0_only_if_every_target_is_met(run: Run) -> None:
    met = [target["met"] for target in run.report["targets"]]
    assert met == [target["found"] <= target["limit"] for target in run.report["targets"]]
    assert len(met) == 9
    assert run.report["ok"] is all(met)
    assert run.status == (0 if all(met) else 1)


@pytest.mark.slow
def test_nothing_fails_and_the_machine_is_named(run: Run) -> None:
    assert run.report["first_error"] is None
    assert run.report["targets"][-1]["found"] == 0
    assert run.report["parts"] == [*Part]
    assert {"processor", "memory", "system", "Python", "mcp", "grpcio"} <= run.report["machine"].keys()


@pytest.mark.slow
def test_a_cold_start_is_compared_with_that_of_the_empty_server(run: Run) -> None:
    cold = run.report["cold"]
    [function], [empty] = cold["function"], cold["empty"]
    assert cold["ratio"] == pytest.approx(function["listed_s"] / empty["listed_s"], abs=0.05)
    # Its model took 5 ms, which are not ours.
    assert cold["first_search_s"] == pytest.approx(function["searched_s"] - 0.005, abs=0.002)
    assert function["resident_mb"] > empty["resident_mb"] > 10


@pytest.mark.slow
@pytest.mark.parametrize("callers", [1, 8, 32])
def test_each_call_is_measured_beside_its_floors(run: Run, callers: int) -> None:
    found = figures(run.report, callers)
    assert [*found] == ["tools/list", "save", "search", "fetch"]
    for name, figure in found.items():
        assert figure["service"].keys() == figure["empty"].keys() == TIMING
        assert figure["service"]["calls"] == figure["empty"]["calls"] >= callers
        floor = figure["empty"] if name == "tools/list" else figure["bare"]
        assert figure["own_ms"] == pytest.approx(figure["service"]["p50_ms"] - floor["p50_ms"], abs=0.01)
        assert (figure["wire"] is not None) == (callers == 1 and name != "tools/list")
        assert figure["service"]["p95_ms"] >= figure["service"]["p50_ms"] > 0
    # The floor of what calls the model has the model's delay in it.
    assert found["save"]["bare"]["p50_ms"] > 5
    assert found["fetch"]["service"]["p50_ms"] < found["search"]["service"]["p50_ms"]


@pytest.mark.slow
def test_the_bare_calls_are_those_of_the_service_in_its_steps(run: Run) -> None:
    found = figures(run.report, 1)
    assert found["save"]["steps"] == [["BatchGetDocuments"], ["model"], ["Commit", "RunQuery"]]
    counted, asked, kept = found["search"]["steps"]
    assert counted == [*["RunAggregationQuery"] * QUERY_WORDS, "model"]
    assert (set(asked), kept) == ({"RunQuery"}, ["Commit"])
    assert found["fetch"]["steps"] == [["BatchGetDocuments"], ["Commit"]]


@pytest.mark.slow
def test_round_trips_and_reads_of_each_call_are_counted_on_the_wire(run: Run) -> None:
    hybrid, vector = run.report["trips"]["hybrid"], run.report["trips"]["vector"]
    for trips in (hybrid, vector):
        assert trips["save"]["firestore"] == {"BatchGetDocuments": 1, "Commit": 1, "RunQuery": 1}
        assert (trips["save"]["model"], trips["save"]["reads"]) == (1, 1 + 4)
        assert trips["save again"]["firestore"] == {"BatchGetDocuments": 2, "Commit": 1}
        assert (trips["save again"]["model"], trips["save again"]["reads"]) == (0, 2)
        assert trips["fetch"] == {"firestore": {"BatchGetDocuments": 1, "Commit": 1}, "model": 0, "reads": 1}
    # The nearest memories, of whom there are 5 results, and the nearest parts, of which there are none.
    assert vector["search"] == {"firestore": {"Commit": 1, "RunQuery": 2}, "model": 1, "reads": 5 + 1}
    # Three rare words are looked for beside them.
    asked = {"Commit": 1, "RunAggregationQuery": QUERY_WORDS, "RunQuery": 2 + 3}
    assert (hybrid["search"]["firestore"], hybrid["search"]["model"]) == (asked, 1)
    assert hybrid["search"]["reads"] > 50 + 1 + QUERY_WORDS


@pytest.mark.slow
def test_saves_at_once_wait_for_a_slow_model_together(run: Run) -> None:
    for burst in run.report["burst"]:
        assert (burst["callers"], burst["calls"], burst["errors"]) == (40, 40, 0)
        assert 0.5 < burst["seconds"] < 40 * 0.5


@pytest.mark.slow
def test_memory_is_read_all_along_the_calls(run: Run) -> None:
    memory = run.report["memory"]
    assert len(memory["resident_mb"]) == 21
    assert memory["resident_mb"][-1] > memory["resident_mb"][0] > 10
    assert memory["growth"] == pytest.approx(memory["resident_mb"][-1] / memory["resident_mb"][5] - 1, abs=0.002)


@pytest.mark.slow
def test_reads_of_a_search_are_measured_as_memories_grow_and_projected_beyond(run: Run) -> None:
    small, large, *beyond = run.report["growth"]
    assert (small["memories"], large["memories"]) == (50, 200)
    assert small["search"].keys() == TIMING
    # One read for each hundred entries of the vector index, begun ones too.
    assert (small["reads"], large["reads"]) == (small["reads_seen"] + 1, large["reads_seen"] + 2)
    assert large["reads_seen"] > small["reads_seen"] > 50
    assert [size["memories"] for size in beyond] == [1_000, 10_000, 100_000, 1_000_000]
    assert all(size["search"] is None for size in beyond)
    assert [size["reads"] for size in beyond] == sorted(size["reads"] for size in beyond)
    assert beyond[-1]["dollars_a_thousand"] > 1


@pytest.mark.slow
def test_the_page_has_every_table_and_asks_nobody_for_anything(run: Run) -> None:
    titles = re.findall("<h2>([^<]*)</h2>", run.page)
    assert len(titles) == 10
    assert (run.page.count("<table>"), run.page.count("<svg")) == (8, 2)
    assert "default-src 'none'" in run.page
    assert not re.search(r"<(script|link|img|iframe)|\b(src|href)=|url\(|@import|https?://", run.page)


# --- What it says ---


def timing(seconds: float, *errors: str) -> Timing:
    return Timing(callers=40, latencies=(seconds * 1000,) * 40, seconds=seconds, errors=errors)


def report(*bursts: Timing) -> Report:
    plan = Plan(parts=(Part.BURST,), calls=40, starts=1, delay_ms=0, sizes=(100,))
    return Report(plan=plan, machine={"processor": "two of them"}, began_at=0, results=Results(burst=Burst(bursts)))


def test_the_slowest_burst_is_judged() -> None:
    assert report(timing(1.4), timing(1.5)).is_well
    assert not report(timing(1.6), timing(1.4)).is_well


def test_one_failed_call_misses_a_target_and_is_told() -> None:
    failed = report(timing(1.0, "503 try again", "504 too slow"))
    assert not failed.is_well
    text = "\n".join(to_text(failed))
    assert re.search(r"calls that failed +\| +0 \| +2 \| MISSED", text)
    assert text.endswith("The first error: 503 try again")


def test_its_tables_are_markdown() -> None:
    lines = [line for line in to_text(report(timing(1.0))) if line.startswith("|")]
    assert len({line.count("|") for line in lines[:4]}) == 1
    assert len({len(line) for line in lines[:4]}) == 1
    assert re.fullmatch(r"\|-+\|-+:\|-+:\|-+\|", lines[1])


# --- How it is asked ---


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--only", "everything"), "--only"),
        (("--calls", "3"), "--calls"),
        (("--starts", "0"), "--starts"),
        (("--delay", "-1"), "--delay"),
        (("--memories", "10,none"), "must be numbers from 1 to 100000"),
        (("--memories", "0"), "must be numbers from 1 to 100000"),
    ],
)
def test_a_wrong_option_is_a_wrong_command(arguments: tuple[str, ...], says: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert says in result.stderr


def test_a_page_without_a_folder_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    result = invoke("--html", str(tmp_path / "no" / "page.html"))
    assert result.exit_code == 1
    assert "page.html cannot be written: there is no folder" in result.stderr


# --- Ctrl-C ---


@contextmanager
def running(part: str, temporary: Path) -> Generator[subprocess.Popen[str]]:
    """A run in a process of its own, whose temporary files are in a folder of the test's."""
    path = os.pathsep.join([str(ROOT / "scripts"), str(ROOT / "functions")])
    inherited = ("PATH", "HOME", "JAVA_HOME", "FIRESTORE_EMULATOR_JAR")
    surroundings = {name: os.environ[name] for name in inherited if name in os.environ}
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "ops", "bench", "--only", part],
        env={**surroundings, "PYTHONPATH": path, "TMPDIR": str(temporary)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize(("part", "begun"), [("cold", "Cold starts"), ("load", "Recording"), ("load", "at once")])
def test_ctrl_c_stops_everything_and_leaves_nothing(part: str, begun: str, short_temporary: Path) -> None:
    with running(part, short_temporary) as bench:
        assert bench.stderr is not None
        assert next(line for line in bench.stderr if begun in line)
        # The guardian, the emulator, the stand-in for the model, and what serves.
        below = eventually(lambda: found if len(found := descendants(bench.pid)) > 4 else {})
        bench.send_signal(signal.SIGINT)
        out, err = bench.communicate(timeout=20)
    assert (bench.returncode, out) == (1, "")
    assert err.splitlines()[-1] == "Stopped; what was measured is dropped, and every server is gone."
    assert "Traceback" not in err
    eventually(lambda: not [command for pid, command in below.items() if alive(pid)], seconds=5)
    eventually(lambda: not list(short_temporary.glob("metacortex-*")), seconds=5)
