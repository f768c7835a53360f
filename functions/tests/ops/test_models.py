"""`metacortex models` as an owner runs it: on every route, against a real server that speaks the API's shapes."""

import base64
import json
import os
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse
from typer.testing import CliRunner

from gemini_api import GeminiApi, failure, generated, never, surroundings
from metacortex import rules
from metacortex.adapters import gemini_embedder
from metacortex.settings import TABLE
from ops.cli import app
from ops.retired_models import RETIREMENTS
from web.wire import serving

KEY = "a-gemini-key-of-the-tests"
PROJECT = "demo-models"
SPACE = "gemini-embedding-2@768/prefix-dated"
# Empty, they mean the default and outdo what stands in the files of whoever runs the tests.
UNSET = dict.fromkeys(
    [
        *(setting.name for setting in TABLE),
        *("GCLOUD_PROJECT", "GOOGLE_CLOUD_PROJECT", "GCP_PROJECT", "FIREBASE_CONFIG"),
        *("FIRESTORE_EMULATOR_HOST", "FUNCTIONS_EMULATOR", "GOOGLE_API_KEY"),
    ],
    "",
)


class Run:
    """What one run of the command left: its exit status and all it printed, which never holds the key."""

    def __init__(self, *arguments: str, **env: str) -> None:
        result = CliRunner().invoke(app, ["models", *arguments], env={**UNSET, **env}, catch_exceptions=False)
        self.exit_code = result.exit_code
        self.lines = result.stdout.splitlines()
        self.progress = result.stderr.splitlines()
        self.errors = " ".join(result.stderr.split())
        assert KEY not in result.output

    def statuses(self) -> dict[str, str]:
        """How each check ended, by its name."""
        return {name: status for status, name, *_ in (line.split() for line in self.lines[:-1])}

    def line(self, name: str) -> str:
        return next(line for line in self.lines if line.split()[1] == name)

    def json(self) -> dict[str, Any]:
        [line] = self.lines
        assert self.progress == []
        return json.loads(line)


ROUTES: dict[str, dict[str, str]] = {
    "gemini": {"MODEL_PROVIDER": "gemini", "GEMINI_API_KEY": KEY},
    "vertex": {"MODEL_PROVIDER": "vertex", "GCLOUD_PROJECT": PROJECT},
}


@pytest.fixture(params=ROUTES)
def route(request: pytest.FixtureRequest, api: GeminiApi) -> dict[str, str]:
    """The settings of a route that reaches the API of the tests."""
    return ROUTES[request.param]


# --- What works ---


def test_every_model_of_a_gemini_route_is_tried_and_told_with_its_time(route: dict[str, str], api: GeminiApi) -> None:
    run = Run(**route)
    assert run.exit_code == 0
    assert run.statuses() == {"embedding": "ok", "image": "ok", "merge": "ok"}
    assert all(" ms  " in line for line in run.lines[:-1])
    assert "gemini-embedding-2 " in run.line("embedding")
    assert run.line("embedding").endswith(f"768 dimensions, space {SPACE}")
    assert run.lines[-1].endswith(": all well")
    assert len(api.asked) == 3


def test_the_vertex_route_tells_where_each_model_is(api: GeminiApi) -> None:
    run = Run(**ROUTES["vertex"], GEMINI_VERTEX_LOCATION="europe-west4", GEMINI_GENERATION_VERTEX_LOCATION="eu")
    assert "gemini-embedding-2 in europe-west4: " in run.line("embedding")
    assert "gemini-3.5-flash-lite in eu: " in run.line("merge")
    assert run.lines[-1] == f"vertex in {PROJECT}: all well"


def test_the_embedding_is_of_a_document_and_the_image_is_one_that_the_service_would_take(
    route: dict[str, str], api: GeminiApi
) -> None:
    assert Run(**route).exit_code == 0
    (_, embedded), (_, described), (_, merged) = api.asked
    assert "title: " in json.dumps(embedded)
    [picture] = [part["inlineData"] for part in described["contents"][0]["parts"] if "inlineData" in part]
    data = base64.b64encode(base64.urlsafe_b64decode(picture["data"])).decode()
    assert rules.image(data, "image/png") is not None
    assert json.loads(merged["contents"][0]["parts"][0]["text"])["count"] == 2


def test_each_model_is_the_configured_one(route: dict[str, str], api: GeminiApi) -> None:
    models = {
        "GEMINI_EMBEDDING_MODEL": "embedding-of-tests",
        "GEMINI_MULTIMODAL_MODEL": "eyes-of-tests",
        "GEMINI_MERGE_MODEL": "pen-of-tests",
    }
    assert Run(**route, **models).exit_code == 0
    assert [path.rpartition("/")[2].partition(":")[0] for path, _ in api.asked] == list(models.values())


def test_progress_is_told_beside_the_answer(route: dict[str, str]) -> None:
    run = Run(**route)
    assert run.progress == [f"Asking for the {name} ..." for name in ("embedding", "image", "merge")]


def test_the_local_route_embeds_says_that_it_cannot_see_and_merges_by_rule() -> None:
    run = Run(MODEL_PROVIDER="local")
    assert run.exit_code == 0
    assert run.statuses() == {"embedding": "ok", "image": "skipped", "merge": "ok"}
    assert "256 dimensions" in run.line("embedding")
    assert "cannot see" in run.line("image")
    assert "a rule" in run.line("merge")
    assert run.lines[-1] == "local: all well"


def test_json_holds_everything_and_nothing_else_is_printed(api: GeminiApi) -> None:
    answer = Run("--json", **ROUTES["vertex"]).json()
    assert {name: value for name, value in answer.items() if name != "checks"} == {
        "ok": True,
        "provider": "vertex",
        "project": PROJECT,
        "embedding_space": {"id": SPACE, "dimensions": 768},
    }
    assert [check["name"] for check in answer["checks"]] == ["embedding", "image", "merge"]
    embedding, *_ = answer["checks"]
    assert embedding.pop("latency_ms") > 0
    assert embedding == {
        "name": "embedding",
        "model": "gemini-embedding-2",
        "place": "in us-central1",
        "status": "ok",
        "detail": f"768 dimensions, space {SPACE}",
        "warning": None,
    }


def test_json_of_a_failure_is_whole_too(api: GeminiApi) -> None:
    api.unknown_models = {"gemini-9"}
    run = Run("--json", **ROUTES["gemini"], GEMINI_MERGE_MODEL="gemini-9")
    assert run.exit_code == 1
    answer = run.json()
    assert (answer["ok"], answer["project"]) == (False, None)
    assert [check["status"] for check in answer["checks"]] == ["ok", "ok", "failed"]


# --- What does not ---


def test_a_model_that_is_missing_is_named_with_its_setting_and_the_others_are_tried_all_the_same(
    route: dict[str, str], api: GeminiApi
) -> None:
    api.unknown_models = {"gemini-9"}
    run = Run(**route, GEMINI_MULTIMODAL_MODEL="gemini-9")
    assert run.exit_code == 1
    assert run.statuses() == {"embedding": "ok", "image": "failed", "merge": "ok"}
    assert "gemini-9 " in run.line("image")
    assert "no such model" in run.line("image")
    assert "The settings are GEMINI_MULTIMODAL_MODEL and " in run.line("image")
    assert run.lines[-1].endswith(": 1 of 3 checks failed")


def test_a_model_of_another_size_is_told_with_both_sizes(api: GeminiApi) -> None:
    api.next = [JSONResponse({"embeddings": [{"values": [1.0] * 767}]})]
    run = Run(**ROUTES["gemini"])
    assert run.exit_code == 1
    assert "767 dimensions instead of 768" in run.line("embedding")
    assert "GEMINI_EMBEDDING_DIMENSIONS" in run.line("embedding")


def test_a_model_that_was_shut_down_is_told_with_the_day_and_what_to_use(route: dict[str, str], api: GeminiApi) -> None:
    api.unknown_models = {"text-embedding-004"}
    run = Run(**route, GEMINI_EMBEDDING_MODEL="text-embedding-004")
    assert run.exit_code == 1
    line = run.line("embedding")
    assert "text-embedding-004 was shut down on 2026-01-14; set GEMINI_EMBEDDING_MODEL to gemini-embedding-2" in line
    assert "memories must be embedded anew" in line


def test_a_model_whose_days_are_counted_works_with_a_warning(route: dict[str, str]) -> None:
    run = Run(**route, GEMINI_MERGE_MODEL="gemini-2.5-flash")
    assert run.exit_code == 0
    assert run.line("merge").startswith("ok")
    assert run.line("merge").endswith("on 2026-12-01; set GEMINI_MERGE_MODEL to gemini-3.5-flash-lite.")


def test_a_warning_tells_what_is_to_come_from_what_has_been() -> None:
    end = RETIREMENTS["gemini-2.5-flash"]
    assert end.told("it", date(2026, 11, 30)) == "it will be shut down on 2026-12-01"
    assert end.told("it", date(2026, 12, 1)) == "it was shut down on 2026-12-01"


def test_no_default_is_a_model_whose_end_is_known() -> None:
    assert RETIREMENTS.keys().isdisjoint(str(setting.default) for setting in TABLE)
    assert RETIREMENTS.keys().isdisjoint(end.instead for end in RETIREMENTS.values())


KEY_INVALID = {"details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]}


@pytest.mark.parametrize("answer", [failure(400, "INVALID_ARGUMENT", **KEY_INVALID), failure(403)], ids=["400", "403"])
def test_a_wrong_key_is_told_without_the_key(api: GeminiApi, answer: JSONResponse) -> None:
    api.next = [answer] * 3
    run = Run(**ROUTES["gemini"])
    assert run.exit_code == 1
    assert set(run.statuses().values()) == {"failed"}
    assert "must check GEMINI_API_KEY" in run.line("merge")
    assert "quoted here" not in run.line("merge") + run.errors


def test_an_identity_that_is_refused_is_told_with_the_command_that_changes_it(api: GeminiApi) -> None:
    api.next = [failure(403)] * 3
    run = Run(**ROUTES["vertex"])
    assert run.exit_code == 1
    assert "may use Vertex AI in this project" in run.line("embedding")
    assert "gcloud auth application-default login" in run.line("embedding")


def test_a_merge_that_is_cut_off_fails(route: dict[str, str], api: GeminiApi) -> None:
    api.next = [failure(404), generated(), generated("The owl", finish="MAX_TOKENS")]
    run = Run(**route)
    assert run.statuses()["merge"] == "failed"
    assert "cut off" in run.line("merge")


@pytest.mark.slow
def test_a_service_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    run = Run(**ROUTES["gemini"], GOOGLE_GEMINI_BASE_URL="http://127.0.0.1:1")
    assert run.exit_code == 1
    assert "cannot be reached" in run.line("embedding")


def test_a_service_that_does_not_answer_is_given_up(api: GeminiApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemini_embedder, "SECONDS", 0.3)
    api.next = [never]
    run = Run(**ROUTES["gemini"])
    assert run.exit_code == 1
    assert "did not answer in time" in run.line("embedding")


@pytest.mark.parametrize("name", ["gemini?2", "../gemini"])
def test_a_name_that_is_none_is_told(api: GeminiApi, name: str) -> None:
    run = Run(**ROUTES["gemini"], GEMINI_MERGE_MODEL=name)
    assert run.exit_code == 1
    assert "cannot be sent" in run.line("merge")


# --- What is not configured ---


def refusal(*arguments: str, **env: str) -> str:
    run = Run(*arguments, **env)
    assert (run.exit_code, run.lines) == (2, [])
    return run.errors


def test_without_any_setting_it_asks_for_the_project_that_a_deployed_function_would_have() -> None:
    said = refusal()
    assert "--project: is needed, or GCLOUD_PROJECT" in said
    assert "MODEL_PROVIDER is not set, which means vertex for a deployed function" in said
    assert "MODEL_PROVIDER is vertex" in refusal(MODEL_PROVIDER="vertex")


@pytest.mark.parametrize("setting", ["GCLOUD_PROJECT", "GOOGLE_CLOUD_PROJECT", None])
def test_an_unset_provider_is_vertex_in_the_named_project(api: GeminiApi, setting: str | None) -> None:
    run = Run(**{setting: PROJECT}) if setting else Run("--project", PROJECT, GCLOUD_PROJECT="another-project")
    assert run.lines[-1] == f"vertex in {PROJECT}: all well"
    assert all(path.startswith(f"/v1beta1/projects/{PROJECT}/") for path, _ in api.asked)


def test_dev_means_what_dev_would_use(api: GeminiApi) -> None:
    assert Run("--dev").lines[-1] == "local: all well"
    assert Run("--dev", GEMINI_API_KEY=KEY).lines[-1] == "gemini: all well"
    assert "leave out --dev" in refusal("--dev", MODEL_PROVIDER="vertex")


def test_every_fault_of_the_settings_of_models_is_told_at_once_and_no_other() -> None:
    said = refusal(
        MODEL_PROVIDER="gemini", GEMINI_EMBEDDING_DIMENSIONS="many", MCP_ADMIN_TOKEN="short", SEARCH_RESULT_LIMIT="x"
    )
    assert (
        "2 faults in functions/.env, the file of the project beside it, functions/.secret.local or the environment:"
        in said
    )
    assert "GEMINI_API_KEY is not set" in said
    assert "GEMINI_EMBEDDING_DIMENSIONS must be" in said


# --- As a process of its own, in a checkout of its own ---


def in_checkout(checkout: Path, *arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    python_path = os.pathsep.join([str(checkout / "scripts"), str(checkout / "functions")])
    return subprocess.run(
        [sys.executable, "-P", "-m", "ops", "models", *arguments],
        env={"PATH": "/usr/bin:/bin", "HOME": str(checkout), "PYTHONPATH": python_path, **env},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_the_settings_are_those_of_the_checkout_and_the_environment_wins(checkout: Path, tmp_path: Path) -> None:
    (checkout / "functions/.env").write_text("MODEL_PROVIDER=gemini\nGEMINI_EMBEDDING_DIMENSIONS=256\n")
    (checkout / "functions/.secret.local").write_text(f"GEMINI_API_KEY={KEY}\n")
    api = GeminiApi()
    with serving(api.app) as wire:
        where = surroundings(f"http://127.0.0.1:{wire.port}", tmp_path)
        done = in_checkout(checkout, "--json", **where, GEMINI_EMBEDDING_DIMENSIONS="1536")
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert (answer["provider"], answer["embedding_space"]["dimensions"]) == ("gemini", 1536)
    assert {headers["x-goog-api-key"] for headers in api.headers} == {KEY}


@pytest.mark.slow
def test_the_local_route_needs_nothing_but_the_checkout(checkout: Path) -> None:
    done = in_checkout(checkout, "--dev")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "local: all well"


@pytest.mark.slow
def test_an_env_file_that_is_none_is_told_with_its_line(checkout: Path) -> None:
    (checkout / "functions/.env").write_text("MODEL_PROVIDER=local\nwhat is this\n'\n")
    done = in_checkout(checkout)
    assert (done.returncode, done.stdout) == (2, "")
    assert "functions/.env" in done.stderr
