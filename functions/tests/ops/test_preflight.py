"""`metacortex preflight`: each check in a copy of this checkout, and the whole command as an owner runs it."""

import asyncio
import json
import os
import shutil
import subprocess
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.cloud.firestore_v1.async_client import AsyncClient
from typer.testing import CliRunner, Result

from archives import memory, write_archive
from builders import TOKENS
from deployable import (
    ALIAS,
    NOT_LOGGED_IN,
    NOT_PERMITTED,
    RUNTIME,
    SECRETS,
    SWITCHED_OFF,
    UNHEARD_OF,
    UNREACHABLE,
    Gcloud,
    commit,
    git,
    make_deployable,
    name_alias,
)
from ops import preflight_checkout, preflight_corpus, preflight_dotenv, preflight_secrets, preflight_settings, tested
from ops.cli import app
from ops.endpoints import PROJECT
from ops.indexes import needed
from ops.preflight_plan import Deployment
from ops.preflight_report import Finding, Status, check
from ops.processes import free_port
from running import alive, eventually

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
KEY = "a-key-of-the-tests-for-gemini"
PASSPHRASE_HASH = "$argon2id$v=19$m=65536,t=3,p=4$c2FsdA$aGFzaA"
SET = "firebase functions:secrets:set"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_deployable(tmp_path_factory.mktemp("template"))


@pytest.fixture
def deployment(template: Path, tmp_path: Path, project: str) -> Deployment:
    """A deployment of a checkout of its own, to a project that has the alias prod."""
    root = tmp_path / "checkout"
    shutil.copytree(template, root, symlinks=True)
    name_alias(root, **{ALIAS: project})
    return Deployment(root=root, project=project, alias=ALIAS, archive=None, now=NOW, seconds=30)


@pytest.fixture
def gcloud(tmp_path: Path, project: str, monkeypatch: pytest.MonkeyPatch) -> Gcloud:
    """Stands in for gcloud on PATH, with every secret that is needed."""
    stand_in = Gcloud(tmp_path / "bin", project)
    stand_in.store(SECRETS)
    monkeypatch.setenv("PATH", f"{stand_in.folder}{os.pathsep}{os.environ['PATH']}")
    return stand_in


def write(deployment: Deployment, name: str, text: str) -> None:
    (deployment.functions / name).write_text(text)


def well(finding: Finding) -> str:
    """What is said of a check that found nothing wrong."""
    assert finding.status is Status.OK, finding.detail
    return finding.detail


def wrong(finding: Finding) -> str:
    """What is said of a check that failed: on one line, and with no secret in it."""
    assert finding.status is Status.FAILED, finding.detail
    assert "\n" not in finding.detail
    assert not [secret for secret in (*TOKENS.values(), KEY) if secret in finding.detail]
    return finding.detail


# --- The checkout ---


async def test_a_committed_tree_is_named_by_its_commit(deployment: Deployment) -> None:
    assert tested.commit(deployment.root)[:12] in well(await preflight_checkout.clean_tree(deployment))


async def test_what_is_changed_new_or_renamed_is_named(deployment: Deployment) -> None:
    (deployment.root / "new file").touch()
    (deployment.root / "firestore.rules").write_text("")
    (deployment.root / "firebase.json").rename(deployment.root / "moved.json")
    assert "firebase.json, firestore.rules, moved.json and 1 more" in wrong(
        await preflight_checkout.clean_tree(deployment)
    )


async def test_a_renamed_file_that_is_staged_counts_once(deployment: Deployment) -> None:
    git(deployment.root, "mv", "firebase.json", "moved.json")
    assert "committed: moved.json. Commit it" in wrong(await preflight_checkout.clean_tree(deployment))


async def test_a_folder_without_a_repository_is_no_checkout(deployment: Deployment, tmp_path: Path) -> None:
    bare = replace(deployment, root=tmp_path)
    assert "deploy from a clone" in wrong(await preflight_checkout.clean_tree(bare))


async def test_git_may_be_missing(deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "git is not installed" in wrong(await preflight_checkout.clean_tree(deployment))


async def test_tests_count_for_the_commit_they_passed_for(deployment: Deployment) -> None:
    assert "run ./scripts/test on the committed tree" in wrong(await preflight_checkout.tests_passed(deployment))
    tested.record(deployment.root, tested.commit(deployment.root), "tests")
    assert well(await preflight_checkout.tests_passed(deployment)).startswith("./scripts/test passed for")
    tested.record(deployment.root, tested.commit(deployment.root), "hosts")
    assert well(await preflight_checkout.tests_passed(deployment)).startswith("./scripts/test --hosts passed for")
    (deployment.root / "firebase.json").write_text("{}")
    commit(deployment.root)
    assert "the last were for" in wrong(await preflight_checkout.tests_passed(deployment))


async def test_a_record_that_cannot_be_understood_counts_for_nothing(deployment: Deployment) -> None:
    tested.record(deployment.root, tested.commit(deployment.root), "tests")
    (deployment.root / tested.RECORD).write_text('{"commit": 1')
    wrong(await preflight_checkout.tests_passed(deployment))


@pytest.mark.slow
async def test_fresh_locks_pass_and_writing_nothing_is_part_of_it(deployment: Deployment) -> None:
    well(await preflight_checkout.fresh_locks(deployment))
    well(await preflight_checkout.clean_tree(deployment))


@pytest.mark.slow
async def test_a_dependency_that_the_locks_do_not_have_is_found(deployment: Deployment) -> None:
    described = deployment.root / "pyproject.toml"
    described.write_text(described.read_text().replace('"starlette>=1.10,<2"', '"starlette>=99"'))
    assert "run ./scripts/lock" in wrong(await preflight_checkout.fresh_locks(deployment))


@pytest.mark.slow
async def test_locks_that_cannot_be_checked_are_not_taken_for_fresh(deployment: Deployment) -> None:
    (deployment.root / "functions/tests/docs/test_locks.py").unlink()
    assert "could not be checked" in wrong(await preflight_checkout.fresh_locks(deployment))


async def test_the_rules_of_this_repository_let_no_client_in(deployment: Deployment) -> None:
    well(await preflight_checkout.closed_rules(deployment))


CLOSED = "service cloud.firestore {\n  match /databases/{database}/documents {\n    RULE\n  }\n}\n"


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "/* allow read; */",
        "// allow write: if true;",
        "allow get,list :if  false ;",
        "match /a/{b} {allow read: if false;}",
    ],
)
async def test_rules_that_deny_are_closed_however_they_are_written(deployment: Deployment, rule: str) -> None:
    (deployment.root / "firestore.rules").write_text(CLOSED.replace("RULE", rule))
    well(await preflight_checkout.closed_rules(deployment))


@pytest.mark.parametrize(
    "rule",
    [
        "allow read;",
        "allow read: if true;",
        "allow read: if false || true;",
        "allow read: if request.auth != null;",
        "function open() { return true; }",
        "allow /* so */ read: if false;",
        "/* allow read: if false;",
    ],
)
async def test_rules_that_are_not_plainly_closed_are_named_by_their_line(deployment: Deployment, rule: str) -> None:
    (deployment.root / "firestore.rules").write_text(CLOSED.replace("RULE", rule))
    assert "may let somebody in by line 3;" in wrong(await preflight_checkout.closed_rules(deployment))


async def test_rules_that_are_not_deployed_protect_nothing(deployment: Deployment) -> None:
    (deployment.root / "firestore.rules").unlink()
    assert "firestore.rules is missing" in wrong(await preflight_checkout.closed_rules(deployment))
    (deployment.root / "firebase.json").write_text('{"firestore": {}}')
    assert "names no rules" in wrong(await preflight_checkout.closed_rules(deployment))
    (deployment.root / "firebase.json").write_text("[]")
    assert "firebase.json is not a JSON object" in wrong(await preflight_checkout.closed_rules(deployment))


async def test_a_runtime_with_a_future_and_its_python_is_well(deployment: Deployment) -> None:
    assert f"{RUNTIME}, supported until 20" in well(await preflight_checkout.supported_runtime(deployment))


@pytest.mark.parametrize("runtime", ["python310", "python399", "nodejs24"])
async def test_a_runtime_that_is_not_supported_is_told_with_those_that_are(
    deployment: Deployment, runtime: str
) -> None:
    (deployment.root / "firebase.json").write_text(
        json.dumps({"functions": {"source": "functions", "runtime": runtime}})
    )
    said = wrong(await preflight_checkout.supported_runtime(deployment))
    assert f"the runtime {runtime}" in said
    assert "one of python311, python312, python313, python314" in said


async def test_a_runtime_ends_on_its_day(deployment: Deployment) -> None:
    (deployment.root / "firebase.json").write_text('{"functions": [{"source": "functions", "runtime": "python311"}]}')
    last, first = datetime(2027, 10, 23, tzinfo=UTC), datetime(2027, 10, 24, tzinfo=UTC)
    before = await preflight_checkout.supported_runtime(replace(deployment, now=last))
    assert "does not support" not in before.detail
    after = await preflight_checkout.supported_runtime(replace(deployment, now=first))
    assert "does not support, or no longer; name one of python312" in wrong(after)


async def test_the_virtual_environment_needs_the_python_of_the_runtime(deployment: Deployment) -> None:
    configuration = deployment.root / "firebase.json"
    configuration.write_text(configuration.read_text().replace(RUNTIME, "python314"))
    assert "again with PYTHON=python3.14" in wrong(await preflight_checkout.supported_runtime(deployment))
    (deployment.functions / "venv").unlink()
    assert "functions/venv has no python3.14" in wrong(await preflight_checkout.supported_runtime(deployment))


# --- The alias and the dotenv files ---


async def test_the_files_of_a_deployment_are_those_of_its_alias_or_project(deployment: Deployment) -> None:
    assert "settings are the defaults" in well(await preflight_dotenv.alias(deployment))
    write(deployment, ".env", "")
    write(deployment, ".env.prod", "")
    write(deployment, ".env.local", "")
    said = well(await preflight_dotenv.alias(deployment))
    assert "functions/.env and functions/.env.prod. Deploy with `firebase deploy --project prod`" in said
    (deployment.functions / ".env.prod").rename(deployment.functions / f".env.{deployment.project}")
    assert f"functions/.env.{deployment.project}" in well(await preflight_dotenv.alias(deployment))


async def test_both_files_at_once_are_what_firebase_refuses(deployment: Deployment) -> None:
    write(deployment, ".env.prod", "")
    write(deployment, f".env.{deployment.project}", "")
    assert "keep one" in wrong(await preflight_dotenv.alias(deployment))


async def test_a_file_of_another_alias_is_right_and_of_none_is_misspelt(deployment: Deployment) -> None:
    name_alias(deployment.root, prod=deployment.project, staging="demo-staging")
    write(deployment, ".env.staging", "")
    write(deployment, ".env.demo-staging", "")
    well(await preflight_dotenv.alias(deployment))
    write(deployment, ".env.produ", "")
    assert "functions/.env.produ is read for no deployment" in wrong(await preflight_dotenv.alias(deployment))


async def test_an_alias_that_firebase_does_not_know_is_told_with_how_to_make_it(deployment: Deployment) -> None:
    (deployment.root / ".firebaserc").unlink()
    said = wrong(await preflight_dotenv.alias(deployment))
    assert f"`firebase use {deployment.project} --alias prod`" in said
    well(await preflight_dotenv.alias(replace(deployment, alias=deployment.project)))


async def test_an_alias_of_another_project_is_not_taken(deployment: Deployment) -> None:
    name_alias(deployment.root, prod="demo-other")
    assert "maps prod to demo-other" in wrong(await preflight_dotenv.alias(deployment))


@pytest.mark.parametrize("text", ["[]", "{"])
async def test_aliases_that_cannot_be_read_are_told(deployment: Deployment, text: str) -> None:
    (deployment.root / ".firebaserc").write_text(text)
    assert ".firebaserc is not a JSON object" in wrong(await preflight_dotenv.alias(deployment))


# --- The secrets ---


async def secrets(deployment: Deployment) -> Finding:
    values = asyncio.create_task(preflight_dotenv.read_deployed(deployment))
    return await preflight_secrets.secrets(deployment, preflight_secrets.newest_versions(deployment, values))


async def test_secrets_that_are_enabled_are_well(deployment: Deployment, gcloud: Gcloud) -> None:
    assert "MCP_ADMIN_TOKEN and MCP_CLIENT_PROFILES_JSON are in" in well(await secrets(deployment))


async def test_a_missing_secret_is_told_with_the_command_that_stores_it(deployment: Deployment, gcloud: Gcloud) -> None:
    gcloud.remove("MCP_ADMIN_TOKEN")
    gcloud.have("MCP_CLIENT_PROFILES_JSON")
    said = wrong(await secrets(deployment))
    assert f"`{SET} MCP_ADMIN_TOKEN --project {deployment.project}`" in said
    assert f"`{SET} MCP_CLIENT_PROFILES_JSON --project {deployment.project} --data-file profiles.json`" in said


async def test_only_the_gemini_route_needs_a_key(deployment: Deployment, gcloud: Gcloud) -> None:
    write(deployment, ".env.prod", "MODEL_PROVIDER=gemini\n")
    assert f"{SET} GEMINI_API_KEY" in wrong(await secrets(deployment))
    gcloud.store({"GEMINI_API_KEY": KEY})
    assert "GEMINI_API_KEY are in" in well(await secrets(deployment))


async def test_signing_in_needs_the_secret_of_the_way_in(deployment: Deployment, gcloud: Gcloud) -> None:
    write(deployment, ".env.prod", "PUBLIC_BASE_URL=https://memory.example.org\n")
    assert f"{SET} OWNER_PASSPHRASE_HASH" in wrong(await secrets(deployment))
    assert "All but OWNER_PASSPHRASE_HASH is valid" in wrong(await configuration(deployment))
    gcloud.store({"OWNER_PASSPHRASE_HASH": PASSPHRASE_HASH})
    well(await secrets(deployment))
    well(await configuration(deployment))
    write(deployment, ".env.prod", "GOOGLE_SIGN_IN_CLIENT_ID=an-id\nOWNER_EMAIL=owner@example.org\n")
    assert f"{SET} GOOGLE_SIGN_IN_CLIENT_SECRET" in wrong(await secrets(deployment))
    gcloud.store({"GOOGLE_SIGN_IN_CLIENT_SECRET": KEY})
    well(await configuration(deployment))


async def test_both_ways_of_signing_in_need_both_secrets(deployment: Deployment, gcloud: Gcloud) -> None:
    both = "PUBLIC_BASE_URL=https://memory.example.org\nOWNER_SIGN_IN=passphrase,google\n"
    write(deployment, ".env.prod", f"{both}GOOGLE_SIGN_IN_CLIENT_ID=an-id\nOWNER_EMAIL=owner@example.org\n")
    said = wrong(await secrets(deployment))
    assert f"{SET} OWNER_PASSPHRASE_HASH" in said
    assert f"{SET} GOOGLE_SIGN_IN_CLIENT_SECRET" in said
    gcloud.store({"OWNER_PASSPHRASE_HASH": PASSPHRASE_HASH, "GOOGLE_SIGN_IN_CLIENT_SECRET": KEY})
    assert "OWNER_PASSPHRASE_HASH and GOOGLE_SIGN_IN_CLIENT_SECRET are in" in well(await secrets(deployment))
    well(await configuration(deployment))
    write(deployment, ".env.prod", both)
    assert "GOOGLE_SIGN_IN_CLIENT_ID is not set" in wrong(await configuration(deployment))


async def test_the_newest_version_is_the_one_that_counts(deployment: Deployment, gcloud: Gcloud) -> None:
    gcloud.have("MCP_ADMIN_TOKEN", *["DISABLED"] * 9, "ENABLED")
    well(await secrets(deployment))
    gcloud.have("MCP_ADMIN_TOKEN", "ENABLED", "DISABLED")
    assert "`gcloud secrets versions enable 2 --secret MCP_ADMIN_TOKEN" in wrong(await secrets(deployment))
    gcloud.have("MCP_ADMIN_TOKEN", "ENABLED", "DESTROYED")
    said = wrong(await secrets(deployment))
    assert "is destroyed" in said
    assert "enable" not in said


@pytest.mark.parametrize("file", [".env", ".env.prod"])
async def test_a_secret_in_a_file_that_is_deployed_is_found(deployment: Deployment, gcloud: Gcloud, file: str) -> None:
    write(deployment, file, f"GEMINI_API_KEY={KEY}\n")
    assert f"GEMINI_API_KEY stands in functions/{file}" in wrong(await secrets(deployment))


@pytest.mark.parametrize("file", [".env.local", ".secret.local", ".env.example", ".env.staging"])
async def test_a_file_that_is_not_deployed_may_hold_secrets(deployment: Deployment, gcloud: Gcloud, file: str) -> None:
    write(deployment, file, f"MCP_ADMIN_TOKEN={TOKENS['default']}\n")
    well(await secrets(deployment))


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (NOT_LOGGED_IN, "gcloud auth login"),
        (NOT_PERMITTED, "roles/secretmanager.viewer"),
        (SWITCHED_OFF, "gcloud services enable secretmanager.googleapis.com"),
        (UNREACHABLE, "check the network"),
        (UNHEARD_OF, "(ERROR: (gcloud.secrets.versions.list) ABORTED: The moon is full.)"),
        ("", "it did not say why"),
    ],
)
async def test_what_keeps_gcloud_from_telling_is_told_with_its_remedy(
    deployment: Deployment, gcloud: Gcloud, words: str, remedy: str
) -> None:
    gcloud.refuse(words)
    assert remedy in wrong(await secrets(deployment))


async def test_what_stands_in_files_is_told_even_where_gcloud_tells_nothing(
    deployment: Deployment, gcloud: Gcloud
) -> None:
    gcloud.refuse(NOT_LOGGED_IN)
    write(deployment, ".env", "GEMINI_API_KEY=\n")
    said = wrong(await secrets(deployment))
    assert "GEMINI_API_KEY stands in functions/.env" in said
    assert "gcloud auth login" in said


async def test_gcloud_may_be_missing(deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "gcloud is not installed" in wrong(await secrets(deployment))


@pytest.mark.slow
async def test_a_gcloud_that_hangs_is_ended_with_all_it_started(deployment: Deployment, gcloud: Gcloud) -> None:
    gcloud.hang()
    began = time.monotonic()
    assert "within 3 seconds" in wrong(await secrets(replace(deployment, seconds=3)))
    assert time.monotonic() - began < 20
    assert gcloud.hung()
    eventually(lambda: not [pid for pid in gcloud.hung() if alive(pid)], seconds=5)


async def test_a_gcloud_that_answers_something_else_is_told(deployment: Deployment, gcloud: Gcloud) -> None:
    (gcloud.folder / "MCP_ADMIN_TOKEN").write_text('[{"name": 1}]')
    assert "gcloud components update" in wrong(await secrets(deployment))


# --- The configuration ---


async def configuration(deployment: Deployment) -> Finding:
    values = asyncio.create_task(preflight_dotenv.read_deployed(deployment))
    versions = asyncio.create_task(preflight_secrets.newest_versions(deployment, values))
    payloads = asyncio.create_task(preflight_secrets.read_secrets(deployment, versions))
    found = await preflight_settings.configuration(values, versions, payloads)
    await asyncio.gather(values, versions, payloads, return_exceptions=True)
    return found


async def test_a_valid_configuration_tells_how_many_clients_it_has(deployment: Deployment, gcloud: Gcloud) -> None:
    assert well(await configuration(deployment)) == "Valid, with 2 client profiles."
    gcloud.store({"MCP_CLIENT_PROFILES_JSON": json.dumps(json.loads(SECRETS["MCP_CLIENT_PROFILES_JSON"])[:1])})
    assert well(await configuration(deployment)) == "Valid, with 1 client profile."


async def test_every_fault_in_files_and_secrets_is_told_at_once(deployment: Deployment, gcloud: Gcloud) -> None:
    write(deployment, ".env", "SEARCH_RESULT_LIMIT=5\nMEMORY_COLECTION=mine\nSOMEBODYS_OWN=1\n")
    write(deployment, ".env.prod", "SEARCH_RESULT_LIMIT=many\n")
    gcloud.store({"MCP_ADMIN_TOKEN": "short", "MCP_CLIENT_PROFILES_JSON": f'[{{"token": "{TOKENS["agent"]}"'})
    said = wrong(await configuration(deployment))
    for fault in (
        "MEMORY_COLECTION is no setting; did you mean MEMORY_COLLECTION?",
        "SEARCH_RESULT_LIMIT must be a whole number",
        "MCP_ADMIN_TOKEN must have at least 16 characters",
        "MCP_CLIENT_PROFILES_JSON is not valid JSON at line 1",
    ):
        assert fault in said
    assert "SOMEBODYS_OWN" not in said


async def test_tokens_are_compared_across_secrets(deployment: Deployment, gcloud: Gcloud) -> None:
    gcloud.store({"MCP_ADMIN_TOKEN": TOKENS["agent"]})
    assert "the same token as MCP_ADMIN_TOKEN" in wrong(await configuration(deployment))


async def test_the_file_of_the_alias_wins_over_that_of_all(deployment: Deployment, gcloud: Gcloud) -> None:
    write(deployment, ".env", "MODEL_PROVIDER=local\n")
    assert "MODEL_PROVIDER=local works on your own machine only" in wrong(await configuration(deployment))
    write(deployment, ".env.prod", "export MODEL_PROVIDER='vertex' # not local\n")
    well(await configuration(deployment))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("PUBLIC_BASE_URL=http://127.0.0.1:5001", "PUBLIC_BASE_URL is an origin without TLS"),
        ("PUBLIC_BASE_URL=https://us-central1-mine.cloudfunctions.net", "name the origin of its URL on run.app"),
        ("PUBLIC_BASE_URL=https://us-central1-mine.cloudfunctions.net/metaCortexMcp", "without a path"),
        ("GOOGLE_SIGN_IN_ISSUER=http://localhost:9000", "GOOGLE_SIGN_IN_ISSUER is an origin without TLS"),
    ],
)
async def test_an_origin_that_a_deployed_function_cannot_go_by_is_told(
    deployment: Deployment, gcloud: Gcloud, line: str, says: str
) -> None:
    gcloud.store({"OWNER_PASSPHRASE_HASH": PASSPHRASE_HASH})
    write(deployment, ".env.prod", f"{line}\n")
    assert says in wrong(await configuration(deployment))


@pytest.mark.parametrize("line", ["FIRESTORE_EMULATOR_HOST=127.0.0.1:8080", "FUNCTIONS_EMULATOR=true"])
async def test_an_emulator_is_nothing_to_deploy_with(deployment: Deployment, gcloud: Gcloud, line: str) -> None:
    write(deployment, ".env", f"{line}\n")
    assert "names an emulator" in wrong(await configuration(deployment))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("no value", "is not a plain NAME=value"),
        ("SERVICE_NAME", "is not a plain NAME=value"),
        ("SERVICE_NAME=a#b", "is not a plain NAME=value"),
        ("SERVICE_NAME='a\\'b'", "is not a plain NAME=value"),
        ("SERVICE_NAME='a\nb'", "is not a plain NAME=value"),
        ("export # nothing", "is not a plain NAME=value"),
        ("service_name=a", "has a name that the Firebase CLI refuses"),
        ("PORT=1", "sets PORT, which is reserved"),
        ("FIREBASE_ANYTHING=1", "sets FIREBASE_ANYTHING, which is reserved"),
    ],
)
async def test_a_line_that_firebase_would_refuse_or_read_differently_is_named(
    deployment: Deployment, gcloud: Gcloud, line: str, says: str
) -> None:
    write(deployment, ".env.prod", f"# first\n\n\n{line}\n")
    assert f"1 fault in functions/.env.prod: Line 4 {says}" in wrong(await configuration(deployment))


async def test_secrets_that_are_not_there_leave_the_rest_to_be_checked(deployment: Deployment, gcloud: Gcloud) -> None:
    gcloud.remove("MCP_CLIENT_PROFILES_JSON")
    assert "All but MCP_CLIENT_PROFILES_JSON is valid" in wrong(await configuration(deployment))
    write(deployment, ".env", "MCP_URL_TOKENS=perhaps\n")
    assert "MCP_URL_TOKENS must be true or false" in wrong(await configuration(deployment))


async def test_secrets_that_may_not_be_read_are_not_taken_for_valid(deployment: Deployment, gcloud: Gcloud) -> None:
    gcloud.refuse(NOT_PERMITTED, "access")
    said = wrong(await configuration(deployment))
    assert "The dotenv files are valid" in said
    assert "roles/secretmanager.secretAccessor" in said


async def test_a_secret_that_goes_meanwhile_is_told(deployment: Deployment, gcloud: Gcloud) -> None:
    gcloud.remove("MCP_ADMIN_TOKEN.1")
    assert "MCP_ADMIN_TOKEN has just been deleted" in wrong(await configuration(deployment))


# --- The live collection ---


async def dimensions(deployment: Deployment) -> Finding:
    values = asyncio.create_task(preflight_dotenv.read_deployed(deployment))
    settings = asyncio.create_task(preflight_settings.read_settings(values))
    live = asyncio.create_task(preflight_corpus.read_collection(deployment, settings))
    found = await preflight_corpus.dimensions(deployment, settings, live)
    await asyncio.gather(values, settings, live, return_exceptions=True)
    return found


async def archive(deployment: Deployment) -> Finding:
    settings = asyncio.create_task(preflight_settings.read_settings(preflight_dotenv.read_deployed(deployment)))
    live = asyncio.create_task(preflight_corpus.read_collection(deployment, settings))
    found = await preflight_corpus.archived(deployment, settings, live)
    await asyncio.gather(settings, live, return_exceptions=True)
    return found


async def remember(firestore: AsyncClient, *spaces: str, collection: str = "memory_vectors") -> None:
    """A collection with a memory, which names these spaces, each in a vector field of its own."""
    fields = {space: "embedding" if i == 0 else f"embedding_{i + 1}" for i, space in enumerate(spaces)}
    await firestore.collection(collection).document("one").set({"content": "x"})
    if spaces:
        await (
            firestore.collection(f"{collection}_meta").document("space").set({"current": spaces[-1], "spaces": fields})
        )


def write_indexes(deployment: Deployment, content: Mapping[str, Any]) -> None:
    (deployment.root / "firestore.indexes.json").write_text(json.dumps(content))


async def test_a_collection_that_does_not_exist_yet_is_well(deployment: Deployment, firestore: AsyncClient) -> None:
    said = well(await dimensions(deployment))
    assert (
        "memory_vectors does not exist yet; its first memory will name the space gemini-embedding-2@768/prefix-dated"
        in said
    )


async def test_a_collection_of_the_configured_space_is_well(deployment: Deployment, firestore: AsyncClient) -> None:
    await remember(firestore, "gemini-embedding-2@768/plain")
    assert "memory_vectors is in the space gemini-embedding-2@768/plain" in well(await dimensions(deployment))


async def test_a_collection_of_another_space_is_told_with_both(deployment: Deployment, firestore: AsyncClient) -> None:
    await remember(firestore, "text-embedding-004@768/plain")
    said = wrong(await dimensions(deployment))
    assert "in the space text-embedding-004@768/plain" in said
    assert "configured for gemini-embedding-2@768" in said


async def test_memories_of_an_unnamed_space_are_told_with_how_to_name_it(
    deployment: Deployment, firestore: AsyncClient
) -> None:
    await remember(firestore)
    assert "`metacortex upgrade --space" in wrong(await dimensions(deployment))


async def test_indexes_of_another_size_than_is_configured_are_told_with_both(
    deployment: Deployment, firestore: AsyncClient
) -> None:
    write(deployment, ".env", "GEMINI_EMBEDDING_DIMENSIONS=1536\n")
    said = wrong(await dimensions(deployment))
    assert "indexes 768 where 1536 are configured" in said
    assert "indexes --collection memory_vectors --dimensions 1536 --field embedding`" in said
    write_indexes(deployment, needed("memory_vectors", 1536, "embedding"))
    well(await dimensions(deployment))


async def test_the_vector_field_that_the_live_collection_uses_is_the_one_that_needs_indexes(
    deployment: Deployment, firestore: AsyncClient
) -> None:
    await remember(firestore, "text-embedding-004@768/plain", "gemini-embedding-2@768/prefix")
    assert "--field embedding_2`" in wrong(await dimensions(deployment))
    write_indexes(deployment, needed("memory_vectors", 768, "embedding_2"))
    well(await dimensions(deployment))


@pytest.mark.parametrize("kind", ["indexes", "fieldOverrides"])
async def test_a_single_entry_that_lacks_is_found(deployment: Deployment, firestore: AsyncClient, kind: str) -> None:
    complete = needed("memory_vectors", 768, "embedding")
    write_indexes(deployment, {**complete, kind: complete[kind][1:]})
    assert "lacks 1 entry for memory_vectors" in wrong(await dimensions(deployment))


async def test_what_signing_in_needs_of_the_index_file_is_looked_for_too(
    deployment: Deployment, firestore: AsyncClient
) -> None:
    complete = needed("memory_vectors", 768, "embedding")
    lacking = {
        kind: [entry for entry in entries if not entry["collectionGroup"].startswith(("oauth_", "owner_"))]
        for kind, entries in complete.items()
    }
    write_indexes(deployment, lacking)
    assert "lacks 5 entries for memory_vectors" in wrong(await dimensions(deployment))


async def test_what_firebase_adds_to_an_index_does_not_matter(deployment: Deployment, firestore: AsyncClient) -> None:
    complete = needed("memory_vectors", 768, "embedding")
    write_indexes(
        deployment, {kind: [{**each, "density": "SPARSE_ALL"} for each in all_] for kind, all_ in complete.items()}
    )
    well(await dimensions(deployment))


@pytest.mark.slow
async def test_indexes_are_checked_even_where_the_collection_cannot_be_read(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", f"127.0.0.1:{free_port()}")
    write_indexes(deployment, {})
    said = wrong(await dimensions(deployment))
    assert "Firestore could not be read." in said
    assert "firestore.indexes.json lacks" in said


async def test_without_credentials_the_way_to_log_in_is_told(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FIRESTORE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    assert "gcloud auth application-default login" in wrong(await dimensions(deployment))


async def test_a_configuration_with_faults_leaves_nothing_to_compare_with(deployment: Deployment) -> None:
    write(deployment, ".env", "MODEL_PROVIDER=local\n")
    assert "has to be valid first" in wrong(await dimensions(deployment))


@asynccontextmanager
async def refusing(code: grpc.StatusCode, details: str) -> AsyncGenerator[str]:
    """The address of a Firestore that refuses every call."""

    async def abort(_: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        await context.abort(code, details)
        raise AssertionError("an aborted call goes no further")

    class Refusal(grpc.GenericRpcHandler):
        def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes]":
            return grpc.unary_unary_rpc_method_handler(abort)  # pyright: ignore[reportArgumentType]

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Refusal(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


@pytest.mark.parametrize(
    ("code", "details", "remedy"),
    [
        (grpc.StatusCode.PERMISSION_DENIED, "Missing or insufficient permissions.", "roles/datastore.viewer"),
        (
            grpc.StatusCode.PERMISSION_DENIED,
            "Cloud Firestore API has not been used in project 1 before or it is disabled.",
            "gcloud services enable firestore.googleapis.com",
        ),
        (
            grpc.StatusCode.NOT_FOUND,
            "The database (default) does not exist for project p",
            'firebase firestore:databases:create "(default)" --location us-central1',
        ),
        (
            grpc.StatusCode.UNAUTHENTICATED,
            "Request had invalid authentication credentials.",
            "gcloud auth application-default login",
        ),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "Quota exceeded.", "asks for fewer requests"),
    ],
)
async def test_what_keeps_firestore_from_telling_is_told_with_its_remedy(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, code: grpc.StatusCode, details: str, remedy: str
) -> None:
    async with refusing(code, details) as host:
        monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", host)
        assert remedy in wrong(await dimensions(deployment))


# --- The archive ---


def make_archive(deployment: Deployment, folder: Path, **source: Any) -> Deployment:
    """The deployment with an archive of its live collection, made in the emulator if there is one."""
    emulator = os.environ.get("FIRESTORE_EMULATOR_HOST")
    about: dict[str, Any] = {"created_at": NOW, "project": deployment.project, "emulator": emulator}
    write_archive(folder, dict([memory(1)]), **(about | source))
    return replace(deployment, archive=folder)


async def test_without_memories_there_is_nothing_to_archive(deployment: Deployment, firestore: AsyncClient) -> None:
    assert "memory_vectors holds no memories" in well(await archive(deployment))
    assert "nothing to archive" in well(await archive(replace(deployment, archive=deployment.root)))


async def test_memories_need_an_archive_which_a_command_makes_as_it_stands(
    deployment: Deployment, firestore: AsyncClient
) -> None:
    await remember(firestore)
    command = f"./scripts/metacortex archive export DIR --project {deployment.project}"
    assert f"Make one with `{command}`," in wrong(await archive(deployment))
    write(deployment, ".env.prod", "MEMORY_COLLECTION=mine\n")
    await remember(firestore, collection="mine")
    assert f"Make one with `{command} --collection mine`," in wrong(await archive(deployment))


async def test_an_archive_of_three_days_is_young_enough(
    deployment: Deployment, firestore: AsyncClient, tmp_path: Path
) -> None:
    await remember(firestore)
    young = make_archive(deployment, tmp_path / "young", created_at=NOW - timedelta(days=3))
    assert "is whole, and of 2026-11-27 12:00 UTC" in well(await archive(young))
    old = make_archive(deployment, tmp_path / "old", created_at=NOW - timedelta(days=5))
    assert "is 5 days old" in wrong(await archive(old))


@pytest.mark.parametrize("created_at", [None, 5, "yesterday", "2026-11-30T11:00:00", "2026-11-30T12:00:00.001Z"])
async def test_an_archive_whose_time_cannot_be_right_is_none(
    deployment: Deployment, firestore: AsyncClient, tmp_path: Path, created_at: object
) -> None:
    await remember(firestore)
    strange = make_archive(deployment, tmp_path / "strange")
    manifest = tmp_path / "strange/manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "created_at": created_at}))
    assert "archive export DIR" in wrong(await archive(strange))


@pytest.mark.parametrize(
    "source",
    [{"project": "demo-another"}, {"collection": "another"}, {"emulator": None}],
    ids=lambda source: next(iter(source)),
)
async def test_an_archive_of_something_else_is_none_of_the_live_collection(
    deployment: Deployment, firestore: AsyncClient, tmp_path: Path, source: dict[str, Any]
) -> None:
    await remember(firestore)
    found = wrong(await archive(make_archive(deployment, tmp_path / "archive", **source)))
    assert f"not of memory_vectors of {deployment.project} in the emulator" in found


async def test_an_archive_that_is_damaged_is_none(
    deployment: Deployment, firestore: AsyncClient, tmp_path: Path
) -> None:
    await remember(firestore)
    damaged = make_archive(deployment, tmp_path / "archive")
    with (tmp_path / "archive/memories.jsonl").open("a") as file:
        file.write("{}\n")
    found = wrong(await archive(damaged))
    assert "is no whole archive. Line 2 of memories.jsonl does not hold a memory." in found


async def test_a_folder_without_a_manifest_is_no_whole_archive(deployment: Deployment, firestore: AsyncClient) -> None:
    await remember(firestore)
    assert "manifest.json is missing" in wrong(await archive(replace(deployment, archive=deployment.root)))


async def test_a_fresh_archive_is_enough_where_the_collection_cannot_be_read(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FIRESTORE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    well(await archive(make_archive(deployment, tmp_path / "fresh")))
    assert "memories need an archive" in wrong(await archive(deployment))


async def test_an_archive_of_an_emulator_is_none_of_a_project(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FIRESTORE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    found = wrong(await archive(make_archive(deployment, tmp_path / "archive", emulator="127.0.0.1:8080")))
    place = f"memory_vectors of {deployment.project}"
    assert f"is of {place} in the emulator at 127.0.0.1:8080, not of {place}. Make one" in found


# --- Any check ---


@pytest.mark.parametrize(
    ("raised", "says"),
    [
        (PermissionError(13, "Permission denied", "file"), "file cannot be read: Permission denied."),
        (KeyError("a-secret"), "This check broke (KeyError)"),
    ],
)
async def test_a_check_that_breaks_is_a_finding_too(raised: Exception, says: str) -> None:
    @check("any")
    async def broken() -> str:
        raise raised

    finding = await broken()
    assert says in wrong(finding)
    assert "a-secret" not in finding.detail


# --- The whole command ---

CHECKS = (
    "tree",
    "tests",
    "locks",
    "rules",
    "runtime",
    "alias",
    "secrets",
    "configuration",
    "dimensions",
    "archive",
)


def preflight(deployment: Deployment, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """One run of the real command, in the checkout of a deployment."""
    return subprocess.run(
        [deployment.root / "scripts/metacortex", "preflight", "--project", deployment.project, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        timeout=120,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.usefixtures("firestore", "gcloud")
def test_where_all_is_well_every_check_says_so_and_the_last_line_deploys(deployment: Deployment) -> None:
    tested.record(deployment.root, tested.commit(deployment.root), "tests")
    run = preflight(deployment, "--alias", ALIAS)
    *checks, last = run.stdout.splitlines()
    assert sorted(line.split()[1] for line in checks if line.startswith("✓ ")) == sorted(CHECKS), (
        run.stdout + run.stderr
    )
    assert last == f"preflight passed for {deployment.project}: firebase deploy --project prod"
    assert run.returncode == 0
    assert not [token for token in TOKENS.values() if token in run.stdout + run.stderr]


@pytest.mark.slow
@pytest.mark.usefixtures("firestore")
def test_what_fails_keeps_nothing_else_from_being_checked(deployment: Deployment, gcloud: Gcloud) -> None:
    gcloud.refuse(NOT_LOGGED_IN)
    run = preflight(deployment, "--alias", ALIAS, "--json")
    [told] = [json.loads(line) for line in run.stdout.splitlines()]
    assert (run.returncode, run.stderr, told["ok"]) == (1, "", False)
    assert (told["project"], told["alias"]) == (deployment.project, ALIAS)
    assert [each["name"] for each in told["checks"]] == list(CHECKS)
    failed = {each["name"] for each in told["checks"] if each["status"] == "failed"}
    assert failed == {"tests", "secrets", "configuration"}


@pytest.mark.slow
def test_a_file_that_cannot_be_read_fails_whatever_depends_on_it(
    deployment: Deployment, gcloud: Gcloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(deployment, ".env.prod", "no value\n")
    monkeypatch.setattr("ops.preflight.ROOT", deployment.root)
    env = {"FIRESTORE_EMULATOR_HOST": "127.0.0.1:1"}
    told = invoke("--project", deployment.project, "--alias", ALIAS, **env)
    assert told.exit_code == 1
    lines = {line.split()[1]: line for line in told.stdout.splitlines()[:-1]}
    for name in ("secrets", "configuration", "dimensions", "archive"):
        assert "functions/.env.prod: Line 1 is not a plain NAME=value" in lines[name]
    assert told.stdout.splitlines()[-1] == f"preflight failed for {deployment.project}: 5 of 10 checks", told.stdout


def invoke(*arguments: str, **env: str) -> Result:
    given: dict[str, str | None] = {"FIRESTORE_EMULATOR_HOST": None, **env}
    return CliRunner().invoke(app, ["preflight", *arguments], env=given, catch_exceptions=False)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--alias", "prod"), "Missing option '--project'"),
        (("--project", "some-project"), "Missing option '--alias'"),
        (("--project", "Some Project", "--alias", "prod"), "must be a project's id"),
        (("--project", "123456", "--alias", "prod"), "must be a project's id"),
        (("--project", PROJECT, "--alias", "prod"), "is that of ./scripts/dev"),
        (("--project", "demo-other", "--alias", "prod"), "exist in emulators only"),
        (("--project", "some-project", "--alias", "../prod"), "must be an alias"),
        (("--project", "some-project", "--alias", "local"), "must be an alias"),
        (("--project", "some-project", "--alias", "example"), "must be an alias"),
        (("--project", "some-project", "--alias", "prod", "--archive", "/none/such"), "does not exist"),
    ],
)
def test_a_command_that_is_wrong_checks_nothing(arguments: tuple[str, ...], says: str) -> None:
    result = invoke(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in " ".join(result.stderr.replace("│", " ").split())


def test_a_real_project_is_not_judged_by_an_emulator() -> None:
    result = invoke("--project", "some-project", "--alias", "prod", FIRESTORE_EMULATOR_HOST="127.0.0.1:8080")
    assert result.exit_code == 2
    assert "unset that first" in " ".join(result.stderr.split())


@pytest.mark.slow
def test_help_says_what_is_checked_and_gives_an_example(deployment: Deployment) -> None:
    run = preflight(deployment, "--help")
    assert run.returncode == 0
    assert "./scripts/metacortex preflight --project PROJECT --alias prod --archive DIR" in run.stdout
