"""`metacortex eval run`: figures for a terminal, as JSON and as a page, against a baseline and against a running service."""

import asyncio
import json
import re
from collections.abc import Generator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from google.cloud.firestore_v1.async_client import AsyncClient

from builders import TOKENS, environment, path_of
from evaluation import (
    BIRDS,
    HERON,
    OFF_TOPIC,
    OWL,
    SWIFT,
    Document,
    Evaluation,
    case,
    invoke,
    memory,
    said,
    use_the_loop_of_the_test,
)
from metacortex.events import now_ms
from metacortex.memory import BranchState
from ops.eval_cases import Case, CaseSet, CaseStore
from ops.eval_plan import Partition
from ops.function import Function, running_function
from ops.processes import free_port
from running import call_tool

HOSTILE = 'night <script>alert("x")</script> & https://example.org/?a=1'


@pytest.fixture
async def evaluation(
    firestore: AsyncClient, project: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Evaluation:
    use_the_loop_of_the_test(monkeypatch)
    return Evaluation(project, tmp_path)


# --- Figures ---


async def test_every_case_is_asked_and_told_with_what_its_figures_depend_on(evaluation: Evaluation) -> None:
    await evaluation.load(BIRDS)
    report = await evaluation.run("--cutoffs", "5, 1", "--retrieval", "vector")
    assert report["ok"] is True
    assert (report["mode"], report["source"], report["half"]) == ("isolated", "birds", "all")
    assert report["searched"] == {"retrieval": "vector", "model": "wordllama-l2-supercat@256/dated"}
    assert (report["limit"], report["cutoffs"], report["baseline"]) == (5, [1, 5], None)
    assert report["overall"]["hit"] == {"1": 1.0, "5": 1.0}
    assert report["overall"]["recall"] == {"1": 0.8333, "5": 1.0}
    assert report["categories"]["several"] == {
        "cases": 1,
        "errors": 0,
        "empty": 0,
        "hit": {"1": 1.0, "5": 1.0},
        "recall": {"1": 0.5, "5": 1.0},
        "mrr": 1.0,
        "latency_ms": report["categories"]["several"]["latency_ms"],
    }
    [owl, heron, both] = report["cases"]
    assert (owl["query"], owl["category"], owl["filters"]) == ("which bird hunts mice at night", "plain", {})
    assert (owl["ranks"], heron["ranks"]) == ([1], [1])
    assert (both["positives"], both["ranks"][0], len(both["ranks"]), both["results"]) == (2, 1, 2, 3)


async def test_the_filters_of_a_case_are_applied(evaluation: Evaluation) -> None:
    pack = {
        "name": "filters",
        "memories": [
            memory("ended", "The bridge is closed.", valid_from="2024-01-01", valid_until="2025-01-01"),
            memory("now", "The bridge is closed again.", valid_from="2025-01-01"),
            memory("said", "The bridge is closed, he said.", origin="user_asserted", valid_from="2030-01-01"),
            memory("draft", "The bridge is closed?", branch_state="wip"),
            memory("other", "The bridge is closed.", topic="boats"),
        ],
        "cases": [
            case("is the bridge closed", "ended", valid_at="2024-12-31T23:59:59.999Z", filter_topic="birds"),
            case("is the bridge closed", "now", valid_at="2025-01-01", filter_topic="birds"),
            case("is the bridge closed", "said", filter_origin="user_asserted"),
            case("is the bridge closed", "draft", filter_state="wip"),
            case("is the bridge closed", "other", filter_topic="boats"),
        ],
    }
    await evaluation.load(pack)
    assert [(each["ranks"], each["results"]) for each in (await evaluation.run())["cases"]] == [([1], 1)] * 5


async def test_a_case_that_finds_nothing_is_empty_and_no_error(evaluation: Evaluation) -> None:
    await evaluation.load({**BIRDS, "cases": [*BIRDS["cases"], case("owls", "owl", filter_topic="boats")]})
    overall = (await evaluation.run())["overall"]
    assert (overall["cases"], overall["empty"], overall["errors"]) == (4, 1, 0)
    assert overall["hit"]["10"] == 0.75


async def test_a_case_without_an_answer_is_told_apart_and_counts_in_no_share(
    evaluation: Evaluation, tmp_path: Path
) -> None:
    await evaluation.load({**BIRDS, "cases": [*BIRDS["cases"], OFF_TOPIC]})
    report = await evaluation.run()
    *answerable, unanswerable = report["cases"]
    assert (unanswerable["positives"], unanswerable["ranks"], unanswerable["results"]) == (0, [], 3)
    scores = [each["best_score"] for each in answerable]
    assert 0 < unanswerable["best_score"] < min(scores) <= max(scores) <= 1
    floor = report["off_topic"]["floor"]
    assert unanswerable["best_score"] < floor <= min(scores)
    assert report["off_topic"] == {"cases": 1, "auc": 1.0, "floor": floor, "hidden": 1}
    assert (report["overall"]["cases"], report["overall"]["hit"]["1"], report["overall"]["mrr"]) == (4, 1.0, 1.0)
    assert report["categories"]["off-topic"]["hit"] == {"1": None, "5": None, "10": None}
    told = (
        f"off-topic AUC 1.000; the floor {floor} keeps 95% of the answerable cases"
        " and hides 1 of 1 case that nothing answers"
    )
    page = tmp_path / "page.html"
    assert told in (await evaluation("run", "--model", "local", "--html", str(page))).stdout
    assert told in Page(page.read_text()).text
    assert OFF_TOPIC["query"] not in page.read_text()


async def test_a_floor_leaves_a_case_without_an_answer_nothing_and_its_score_is_0(evaluation: Evaluation) -> None:
    await evaluation.load({**BIRDS, "cases": [*BIRDS["cases"], OFF_TOPIC]})
    floor = (await evaluation.run())["off_topic"]["floor"]
    report = await evaluation.run(SEARCH_MIN_SCORE=str(floor))
    assert (report["cases"][-1]["results"], report["cases"][-1]["best_score"]) == (0, 0.0)
    assert report["off_topic"]["auc"] == 1.0
    assert report["overall"]["empty"] == 0


async def test_a_pack_of_nothing_but_cases_without_an_answer_has_no_shares(
    evaluation: Evaluation, tmp_path: Path
) -> None:
    await evaluation.load({**BIRDS, "cases": [OFF_TOPIC]})
    report = await evaluation.run("--html", str(tmp_path / "page.html"))
    assert report["ok"] is True
    assert report["off_topic"] == {"cases": 1, "auc": None, "floor": None, "hidden": None}
    assert report["overall"]["mrr"] is None
    page = Page((tmp_path / "page.html").read_text())
    assert page.tags.count("svg") == 1
    assert "off-topic AUC" not in page.text


@pytest.mark.parametrize(("half", "kept"), [("even", [0, 2]), ("odd", [1]), ("all", [0, 1, 2])])
async def test_one_half_of_the_cases_can_be_asked_alone(evaluation: Evaluation, half: str, kept: list[int]) -> None:
    await evaluation.load(BIRDS)
    asked = [each["query"] for each in (await evaluation.run("--half", half))["cases"]]
    assert asked == [BIRDS["cases"][place]["query"] for place in kept]


async def test_the_table_has_a_row_for_all_and_for_each_category(evaluation: Evaluation) -> None:
    await evaluation.load(BIRDS)
    result = await evaluation("run", "--model", "local", "--cutoffs", "1,3")
    lines = result.stdout.splitlines()
    assert lines[0] == "birds: retrieval vector, model wordllama-l2-supercat@256/dated, 3 results a case"
    heads, *rows = [re.findall(r"[^\s│┃]+(?: ms)?", line) for line in lines if line.startswith(("│", "┃"))]
    assert heads == [
        "category", "cases", "errors", "empty", "hit@1", "hit@3", "recall@1", "recall@3", "MRR", "p50 ms", "p95 ms",
    ]  # fmt: skip
    assert [row[:9] for row in rows] == [
        ["overall", "3", "0", "0", "1.000", "1.000", "0.833", "1.000", "1.000"],
        ["plain", "2", "0", "0", "1.000", "1.000", "1.000", "1.000", "1.000"],
        ["several", "1", "0", "0", "1.000", "1.000", "0.500", "1.000", "1.000"],
    ]


# --- Refusals ---


async def test_without_a_corpus_it_is_said_how_to_make_one(evaluation: Evaluation) -> None:
    sentence = said(await evaluation("run", "--model", "local", status=1))
    assert (
        "holds no whole corpus that the isolated cases are about; make one with `./scripts/metacortex eval" in sentence
    )


async def test_a_corpus_of_another_model_is_not_searched(firestore: AsyncClient, evaluation: Evaluation) -> None:
    await evaluation.load(BIRDS)
    other = {"current": "other@2/plain", "spaces": {"other@2/plain": "embedding"}}
    await firestore.collection("memory_vectors_eval_meta").document("space").set(other)
    sentence = said(await evaluation("run", "--model", "local", status=1))
    assert "The isolated corpus was loaded with another model; load it again with this one." in sentence


async def test_a_refused_run_is_one_json_object_too(evaluation: Evaluation) -> None:
    answer = await evaluation.run(status=1)
    assert answer["ok"] is False
    assert "eval load" in answer["error"]


@pytest.mark.parametrize("cutoffs", ["", "0", "21", "1;5", "five", "5,", "-1"])
def test_cutoffs_that_no_search_could_have_are_refused(cutoffs: str) -> None:
    result = invoke("run", "--project", "demo-nowhere", "--cutoffs", cutoffs)
    assert result.exit_code == 2
    assert "must be numbers from 1 to 20, separated by commas" in " ".join(result.stderr.split())


@pytest.mark.parametrize("command", [["run"], ["generate"], ["import", "--lookback-hours", "1"]])
@pytest.mark.parametrize("project", ["--json", "My Project", ""])
def test_what_is_no_project_s_id_is_a_usage_error(command: list[str], project: str) -> None:
    result = invoke(*command, "--project", project)
    assert result.exit_code == 2
    assert "is not a project's id" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "--url"),
        (("--url", "ftp://example.org"), "must be a URL such as"),
        (("--url", "https://example.org"), "is needed, or MCP_ADMIN_TOKEN in the environment"),
        (("--url", "https://example.org", "--retrieval", "vector"), "has no place in --mode production"),
    ],
)
def test_a_production_run_needs_to_know_whom_to_ask(arguments: tuple[str, ...], says: str) -> None:
    result = invoke("run", "--mode", "production", "--project", "demo-nowhere", *arguments)
    assert result.exit_code == 2
    assert says in " ".join(result.stderr.replace("│", " ").split())


# --- Against a baseline ---


async def test_the_same_run_again_is_no_worse(evaluation: Evaluation) -> None:
    await evaluation.load(BIRDS)
    baseline = evaluation.file(await evaluation.run(), "baseline.json")
    await evaluation.load(BIRDS)
    assert (await evaluation.run("--baseline", baseline))["baseline"] == {"compared": 3, "better": 0, "worse": []}


async def test_every_case_that_got_worse_is_listed_and_the_status_is_2(evaluation: Evaluation) -> None:
    await evaluation.load(BIRDS)
    baseline = evaluation.file(await evaluation.run(), "baseline.json")
    rival = memory("rival", "The bird that hunts mice at night is asked for: which bird hunts mice at night?")
    await evaluation.load({**BIRDS, "memories": [OWL, HERON, SWIFT, rival]})
    report = await evaluation.run("--baseline", baseline, status=2)
    [worse] = [each for each in report["baseline"]["worse"] if each["query"] == "which bird hunts mice at night"]
    assert report["ok"] is False
    assert worse["says"] == "first right result at 1 before, at 2 now; recall@10 1.00 before, 1.00 now"
    told = await evaluation("run", "--model", "local", "--baseline", baseline, status=2)
    assert f"  {worse['query']}: {worse['says']}" in told.stdout


async def test_a_baseline_of_other_cases_or_no_baseline_at_all_is_refused(evaluation: Evaluation) -> None:
    await evaluation.load(BIRDS)
    report = await evaluation.run()
    other = evaluation.file({**report, "cases": [{**report["cases"][0], "key": "0" * 16}]}, "other.json")
    for baseline, says in (
        (other, "no case in common"),
        (evaluation.file({}, "no.json"), "is not what `eval run --json`"),
    ):
        result = await evaluation("run", "--model", "local", "--baseline", baseline, status=1)
        assert says in said(result)


# --- The page ---


class Page(HTMLParser):
    """A page whose elements are all closed, and what it holds."""

    VOID = ("meta", "line", "rect", "polyline")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


async def test_the_page_is_whole_and_asks_nobody_for_anything(evaluation: Evaluation, tmp_path: Path) -> None:
    await evaluation.load({**BIRDS, "cases": [*BIRDS["cases"], case(HOSTILE, "swift", category="<b>odd</b>")]})
    await evaluation.run("--html", str(tmp_path / "page.html"), "--cutoffs", "1")
    text = (tmp_path / "page.html").read_text()
    page = Page(text)
    assert page.tags.count("svg") == 3
    assert not {"script", "link", "img", "iframe", "b"} & set(page.tags)
    assert not {"src", "href", "srcset", "data"} & {name for name, _ in page.attributes}
    assert "url(" not in text
    assert "@import" not in text
    assert "prefers-color-scheme: dark" in text
    assert "default-src 'none'" in text
    assert "Retrieval evaluation: birds" in page.text
    assert "<b>odd</b>" in page.text


async def test_the_page_lists_what_was_not_found_and_what_got_worse(evaluation: Evaluation, tmp_path: Path) -> None:
    await evaluation.load({**BIRDS, "cases": [case(HOSTILE, "owl", "heron", filter_topic="birds")]})
    report = await evaluation.run("--cutoffs", "1")
    [before] = report["cases"]
    better = {**report, "limit": 2, "cases": [{**before, "ranks": [1, 2]}]}
    baseline = evaluation.file(better, "baseline.json")
    out = tmp_path / "page.html"
    # One result cannot hold two answers, and of the two the first is the owl.
    await evaluation.run("--cutoffs", "1", "--html", str(out), "--baseline", baseline)
    page = Page(out.read_text())
    assert "Not everything found: 1 of 1" in page.text
    assert "1 of 2, at 1" in page.text
    assert HOSTILE in page.text
    assert "filter_topic birds" in page.text
    assert "Worse than in the baseline: 0 of 1" in page.text
    await evaluation.load({**BIRDS, "cases": [case(HOSTILE, "swift", filter_topic="birds")]})
    await evaluation.run("--cutoffs", "1", "--html", str(out), "--baseline", baseline, status=2)
    page = Page(out.read_text())
    assert "Worse than in the baseline: 1 of 1" in page.text
    assert "first right result at 1 before, nowhere now" in page.text


async def test_a_page_that_cannot_be_written_is_told(evaluation: Evaluation, tmp_path: Path) -> None:
    await evaluation.load(BIRDS)
    result = await evaluation("run", "--model", "local", "--html", str(tmp_path / "no" / "page.html"), status=1)
    assert "page.html cannot be written: No such file or directory." in said(result)


# --- A running service ---


@pytest.fixture
def function(emulator_host: str, project: str) -> Generator[Function]:
    with running_function(environment(FIRESTORE_EMULATOR_HOST=emulator_host, GCLOUD_PROJECT=project)) as function:
        yield function


async def production(firestore: AsyncClient, *cases: Case) -> None:
    await CaseStore(firestore).replace(Partition.PRODUCTION, CaseSet(source="by hand", cases=cases), now_ms())


async def call(function: Function, tool: str, **arguments: Any) -> Document:
    url, token = f"{function.url}{path_of('default')}", TOKENS["default"]
    return await asyncio.to_thread(call_tool, url, token, tool, arguments)


@pytest.mark.slow
async def test_production_cases_are_asked_of_the_running_service(
    function: Function, firestore: AsyncClient, evaluation: Evaluation
) -> None:
    ids = [
        (await call(function, "save_context", **fields))["item"]["id"]
        for fields in (
            {"content": "Owls hunt at night.", "topic": "birds"},
            {"content": "Owls hunt at night, it seems.", "topic": "birds", "draft": True},
        )
    ]
    active = Case(query="night hunters", positive_ids=(ids[0],), category="production", topic="birds")
    draft = Case(query="night hunters", positive_ids=(ids[1],), category="production", state=BranchState.WIP)
    nothing = Case(query="contesting a will in court", positive_ids=(), category="off-topic")
    await production(firestore, active, draft, nothing)
    arguments = ("--mode", "production", "--url", function.url)
    report = await evaluation.run(*arguments, MCP_ADMIN_TOKEN=TOKENS["default"])
    assert [each["ranks"] for each in report["cases"]] == [[1], [1], []]
    assert report["off_topic"]["auc"] == 1.0
    assert report["cases"][0]["best_score"] > report["cases"][-1]["best_score"] > 0
    assert report["searched"] == {"service": f"{function.url}/mcp"}
    assert report["overall"]["latency_ms"]["p50"] > 0
    # A client that may not read drafts: that case fails, and the other one does not.
    url = f"{function.url}{path_of('agent')}"
    report = await evaluation.run("--mode", "production", "--url", url, "--token", TOKENS["agent"], status=1)
    assert (report["ok"], report["overall"]["errors"], report["overall"]["hit"]["1"]) == (False, 1, 1.0)
    [failed] = [each["error"] for each in report["cases"] if each["error"]]
    assert failed.startswith("forbidden: This client may not read wip memories")
    told = await evaluation("run", "--mode", "production", "--url", url, "--token", TOKENS["agent"], status=1)
    assert "1 case failed and counts in no share:" in told.stdout
    refused = await evaluation("run", *arguments, "--token", "not-the-token-of-anybody", status=1)
    assert "The token was refused (401)" in said(refused)
    assert "not-the-token" not in refused.output


async def test_a_service_that_does_not_run_is_told(firestore: AsyncClient, evaluation: Evaluation) -> None:
    await production(firestore, Case(query="night", positive_ids=("x",), category="production"))
    arguments = ("--mode", "production", "--url", f"http://127.0.0.1:{free_port()}", "--token", TOKENS["default"])
    assert "Nothing listens at 127.0.0.1:" in said(await evaluation("run", *arguments, status=1))


async def test_without_production_cases_it_is_said_how_to_make_some(evaluation: Evaluation) -> None:
    arguments = ("--mode", "production", "--url", "http://127.0.0.1:1", "--token", TOKENS["default"])
    assert "make some with `./scripts/metacortex eval import`" in said(await evaluation("run", *arguments, status=1))


# --- In one command ---


@pytest.mark.slow
async def test_a_pack_is_loaded_and_asked_in_an_emulator_of_its_own(
    emulator_host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_the_loop_of_the_test(monkeypatch)
    file = tmp_path / "pack.json"
    file.write_text(json.dumps(BIRDS))
    run = ("run", "--pack", str(file), "--model", "local", "--json")
    result = await asyncio.to_thread(invoke, *run, FIRESTORE_EMULATOR_HOST=None)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["overall"]["hit"]["1"] == 1.0


async def test_a_pack_is_loaded_into_the_emulator_there_is(firestore: AsyncClient, evaluation: Evaluation) -> None:
    report = await evaluation.run("--pack", evaluation.file(BIRDS))
    assert report["source"] == "birds"
    assert len(await firestore.collection("memory_vectors_eval").get()) == 3
