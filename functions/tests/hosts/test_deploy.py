"""`firebase deploy` from this checkout: what is uploaded, created, bound and set, and what stops it."""

import json
import subprocess
from importlib.util import MAGIC_NUMBER, cache_from_source, source_from_cache, source_hash
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from dotenvs import CHOOSING, OTHERS
from hosts.deployment import PROJECT, SECRETS, Deployment, deploy
from hosts.google_api import NUMBER, UPLOADS
from metacortex.settings import FUNCTION_NAME, REGION
from metacortex.web.limits import CALLS_AT_ONCE
from ops.checkout import FUNCTIONS, ROOT
from ops.cli import app
from ops.hosts import HostTools

pytestmark = [pytest.mark.hosts, pytest.mark.slow]

KEY = "GEMINI_API_KEY"
SETTINGS = {"functions/.env": "MODEL_PROVIDER=gemini\n", "functions/.env.production": "MODEL_PROVIDER=vertex\n"}
# What lies about in the folder of a function, and must never leave the machine.
TEMPTATIONS = dict.fromkeys(
    (
        "functions/.env.example",
        "functions/.env.local",
        "functions/.env.spare",
        "functions/.secret.local",
        "functions/.secret.local.bak",
        "functions/.git/config",
        "functions/.coverage",
        "functions/.pytest_cache/v/cache/lastfailed",
        "functions/__pycache__/main.cpython-311.pyc",
        "functions/debug.log",
        "functions/key.json",
        "functions/main.py~",
        "functions/notes.txt",
        "functions/scratch.py",
        "functions/tests/test_more.py",
        "functions/metacortex/.env",
        "functions/metacortex/__pycache__/memory.cpython-310.pyc",
        "functions/metacortex/adapters/__pycache__/gemini.cpython-311.pyc",
        "functions/metacortex/adapters/.secret.local",
        "functions/metacortex/memory.py.orig",
        "functions/metacortex/web/debug.log",
    ),
    "",
)


@pytest.fixture(scope="module")
def deployment(tools: HostTools) -> Deployment:
    """Everything, as it is deployed first."""
    done = deploy(tools, files=SETTINGS | TEMPTATIONS)
    assert done.exit_status == 0, done.output
    return done


def printed_indexes(*arguments: str) -> dict[str, Any]:
    return json.loads(CliRunner().invoke(app, ["indexes", *arguments]).output)


def by_place(fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(fields, key=lambda each: (each["collectionGroup"], each["fieldPath"]))


# --- The function ---


def test_the_function_is_created_as_main_py_declares_it(deployment: Deployment) -> None:
    function = deployment.google.function
    assert function["name"] == f"projects/{PROJECT}/locations/{REGION}/functions/{FUNCTION_NAME}"
    assert function["buildConfig"]["entryPoint"] == FUNCTION_NAME
    config = function["serviceConfig"]
    asked = {name: value for name, value in config.items() if value is not None and "nvironment" not in name}
    assert asked == {
        "availableCpu": "1",
        "availableMemory": "512Mi",
        "maxInstanceCount": 5,
        "maxInstanceRequestConcurrency": CALLS_AT_ONCE,
        "timeoutSeconds": 300,
    }


def test_everyone_may_call_it(deployment: Deployment) -> None:
    [allowed] = deployment.google.changes(f".*/services/{FUNCTION_NAME.lower()}:setIamPolicy")
    assert allowed.json()["policy"]["bindings"] == [{"role": "roles/run.invoker", "members": ["allUsers"]}]


def test_its_settings_are_those_of_the_installation_over_the_common_ones(deployment: Deployment) -> None:
    assert deployment.google.function["serviceConfig"]["environmentVariables"]["MODEL_PROVIDER"] == "vertex"


def test_its_account_may_read_the_secrets_that_are_bound_and_no_other(deployment: Deployment) -> None:
    assert set(deployment.secrets) == SECRETS
    granted = {asked.path.rpartition("/")[2]: asked.json() for asked in deployment.google.changes(r".*/secrets/[^/]+")}
    assert set(granted) == {f"{name}:setIamPolicy" for name in SECRETS}
    reader = f"serviceAccount:{NUMBER}-compute@developer.gserviceaccount.com"
    binding = {"role": "roles/secretmanager.secretAccessor", "members": [reader]}
    assert [policy["policy"]["bindings"] for policy in granted.values()] == [[binding]] * len(SECRETS)


def test_the_code_and_its_lock_are_uploaded_and_nothing_that_lies_beside_them(deployment: Deployment) -> None:
    package = [str(path.relative_to(FUNCTIONS)) for path in FUNCTIONS.rglob("metacortex/**/*.py")]
    bytecode = [cache_from_source(path) for path in package]
    templates = FUNCTIONS / "metacortex/web/oauth/templates"
    pages = [str(path.relative_to(FUNCTIONS)) for path in templates.iterdir() if path.suffix in {".html", ".css"}]
    assert pages
    assert deployment.uploaded == sorted(["main.py", "requirements.txt", *package, *bytecode, *pages])


def test_the_bytecode_that_is_uploaded_is_of_this_code_whenever_it_was_written(deployment: Deployment) -> None:
    for name, content in deployment.bytecode.items():
        source = (FUNCTIONS / source_from_cache(name)).read_bytes()
        # PEP 552: what made it, that it is known by a hash to be checked, and the hash.
        assert content[:16] == MAGIC_NUMBER + (0b11).to_bytes(4, "little") + source_hash(source), name


def test_its_lock_was_checked_first(deployment: Deployment) -> None:
    command = json.loads((ROOT / "firebase.json").read_text())["functions"][0]["predeploy"]
    assert f"Running command: {command}" in deployment.output
    assert "Finished running predeploy script" in deployment.output


def test_a_stale_lock_is_not_deployed(tools: HostTools) -> None:
    lock = (FUNCTIONS / "requirements.txt").read_text().replace("\nstarlette==", "\nstarlette-more==")
    done = deploy(tools, "--only", "functions", files={"functions/requirements.txt": lock})
    assert done.exit_status == 1
    assert "the lock is stale; run ./scripts/lock" in done.output
    assert done.google.changes(".*:generateUploadUrl") == []


# --- Gemini by key ---


def test_the_key_is_bound_for_the_route_that_needs_it(tools: HostTools) -> None:
    settings = {"functions/.env": "MODEL_PROVIDER=local\n", "functions/.env.production": 'MODEL_PROVIDER="gemini"\n'}
    done = deploy(tools, "--only", "functions", files=settings, secrets=SECRETS | {KEY})
    assert done.exit_status == 0, done.output
    assert set(done.secrets) == SECRETS | {KEY}


def test_without_the_key_that_route_is_not_deployed_and_the_secret_is_named(tools: HostTools) -> None:
    done = deploy(tools, "--only", "functions", files={"functions/.env": "MODEL_PROVIDER=gemini\n"})
    assert done.exit_status == 1
    assert KEY in done.output
    assert done.google.changes(UPLOADS) == []


def test_the_secrets_of_both_ways_in_which_the_owner_signs_in_are_bound_where_the_settings_name_both(
    tools: HostTools,
) -> None:
    settings = {
        "functions/.env.production": (
            "PUBLIC_BASE_URL=https://memory.example.org\nOWNER_SIGN_IN=passphrase,google\n"
            "GOOGLE_SIGN_IN_CLIENT_ID=an-id\nOWNER_EMAIL=owner@example.org\n"
        )
    }
    both = {"OWNER_PASSPHRASE_HASH", "GOOGLE_SIGN_IN_CLIENT_SECRET"}
    done = deploy(tools, "--only", "functions", files=settings, secrets=SECRETS | both)
    assert done.exit_status == 0, done.output
    assert set(done.secrets) == SECRETS | both


def test_dotenv_files_are_read_as_the_command_line_reads_them(tools: HostTools) -> None:
    script = (
        "const { parse } = require(process.argv[1]);"
        "console.log(JSON.stringify(JSON.parse(process.argv[2]).map((text) => parse(text).envs.MODEL_PROVIDER ?? null)))"
    )
    module = tools.folder / "node_modules/firebase-tools/lib/functions/env.js"
    command = [tools.node, "-e", script, module, json.dumps(CHOOSING + OTHERS)]
    read = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert read[: len(CHOOSING)] == ["gemini"] * len(CHOOSING)
    assert "gemini" not in read[len(CHOOSING) :]


# --- The database ---


def test_the_rules_are_those_of_the_file(deployment: Deployment) -> None:
    [created] = deployment.google.changes(f"/v1/projects/{PROJECT}/rulesets")
    [rules] = created.json()["source"]["files"]
    assert rules == {"name": "firestore.rules", "content": (ROOT / "firestore.rules").read_text()}


def test_every_index_exemption_and_policy_of_the_file_is_created(deployment: Deployment) -> None:
    wanted = json.loads((ROOT / "firestore.indexes.json").read_text())
    assert deployment.created_indexes() == wanted["indexes"]
    assert by_place(deployment.changed_fields()) == by_place(wanted["fieldOverrides"])


def test_what_is_printed_for_another_collection_is_created_beside_it(tools: HostTools) -> None:
    ours = json.loads((ROOT / "firestore.indexes.json").read_text())
    printed = printed_indexes("--collection", "work_memories", "--dimensions", "1536", "--field", "embedding_2")
    joined = {name: [*ours[name], *(each for each in printed[name] if each not in ours[name])] for name in ours}
    done = deploy(tools, "--only", "firestore", files={"firestore.indexes.json": json.dumps(joined)})
    assert done.exit_status == 0, done.output
    assert done.created_indexes() == joined["indexes"]
    assert by_place(done.changed_fields()) == by_place(joined["fieldOverrides"])


def test_a_wrong_index_file_is_refused_and_nothing_of_it_created(tools: HostTools) -> None:
    wrong = (ROOT / "firestore.indexes.json").read_text().replace('"flat": {}', '"tree": {}', 1)
    done = deploy(tools, "--only", "firestore:indexes", files={"firestore.indexes.json": wrong})
    assert (done.exit_status, done.created_indexes()) == (1, [])
    assert 'Must contain "flat"' in done.output


# --- The configuration ---


def test_the_configuration_is_what_the_command_line_documents(tools: HostTools) -> None:
    schema = json.loads((tools.folder / "node_modules/firebase-tools/schema/firebase-config.json").read_text())
    jsonschema.validate(json.loads((ROOT / "firebase.json").read_text()), schema)
