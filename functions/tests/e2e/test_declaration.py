"""What Firebase discovers in main.py, from the server that its command line starts and asks."""

import shutil
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from firebase_functions.private import serving

from metacortex.settings import FUNCTION_NAME, REGION
from metacortex.web.limits import CALLS_AT_ONCE
from ops.checkout import FUNCTIONS
from ops.processes import free_port, port_is_free, start
from running import eventually

pytestmark = pytest.mark.slow

ALWAYS = ["MCP_ADMIN_TOKEN", "MCP_CLIENT_PROFILES_JSON"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of what is deployed."""
    copy = tmp_path / "functions"
    shutil.copytree(FUNCTIONS / "metacortex", copy / "metacortex", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(FUNCTIONS / "main.py", copy / "main.py")
    return copy


def discovered(source: Path, **environment: str) -> dict[str, Any]:
    """The answer to the one question that is asked: main.py is not made to be loaded twice."""
    port = free_port()
    asked = {**environment, "ADMIN_PORT": str(port)}
    log = source.parent / "discovery.log"
    process = start("The discovery", [sys.executable, serving.__file__], log=log, env=asked, cwd=source)
    try:
        eventually(lambda: not port_is_free(port) or process.exit_code() is not None)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/__/functions.yaml") as answer:
            return yaml.safe_load(answer.read())
    finally:
        process.stop()


def bound(found: dict[str, Any]) -> list[str]:
    """The secrets that are bound. Each must also be a parameter: for those the command line sees to a value."""
    secrets = [secret["key"] for secret in found["endpoints"][FUNCTION_NAME]["secretEnvironmentVariables"]]
    assert [(each["name"], each["type"]) for each in found["params"]] == [(name, "secret") for name in secrets]
    return secrets


def test_with_an_empty_environment_there_is_one_public_function_and_all_that_is_said_of_it(source: Path) -> None:
    assert discovered(source) == {
        "specVersion": "v1alpha1",
        "requiredAPIs": [],
        "params": [{"name": name, "type": "secret"} for name in ALWAYS],
        "endpoints": {
            FUNCTION_NAME: {
                "entryPoint": FUNCTION_NAME,
                "platform": "gcfv2",
                "region": [REGION],
                "httpsTrigger": {"invoker": ["public"]},
                "availableMemoryMb": 512,
                "timeoutSeconds": 300,
                "concurrency": CALLS_AT_ONCE,
                "maxInstances": 5,
                "secretEnvironmentVariables": [{"key": name} for name in ALWAYS],
                "labels": {},
                # Asked to be as the platform has it, whatever was deployed before.
                "minInstances": None,
                "ingressSettings": None,
                "serviceAccountEmail": None,
            }
        },
    }


def test_the_key_is_bound_where_the_settings_of_the_installation_choose_its_route(source: Path) -> None:
    (source.parent / ".firebaserc").write_text('{"projects": {"production": "demo-mine", "spare": "demo-other"}}')
    (source / ".env").write_text("MODEL_PROVIDER=local\n")
    (source / ".env.production").write_text("MODEL_PROVIDER='gemini'\n")
    (source / ".env.spare").write_text("#MODEL_PROVIDER=gemini\n")
    assert bound(discovered(source, GCLOUD_PROJECT="demo-mine")) == [*ALWAYS, "GEMINI_API_KEY"]
    assert bound(discovered(source, GCLOUD_PROJECT="demo-other")) == ALWAYS
