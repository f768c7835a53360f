"""What Firebase discovers in main.py, as its command line does it: with an empty environment."""

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from metacortex.settings import FUNCTION_NAME, REGION
from metacortex.web.limits import CALLS_AT_ONCE
from ops.checkout import FUNCTIONS

pytestmark = pytest.mark.slow

DISCOVER = (
    "from firebase_functions.private.serving import functions_as_yaml, get_functions; "
    "print(functions_as_yaml(get_functions()))"
)


@pytest.fixture(scope="module")
def declared() -> Mapping[str, Any]:
    found = subprocess.run(
        [sys.executable, "-c", DISCOVER], cwd=FUNCTIONS, env={}, capture_output=True, text=True, check=True
    )
    return yaml.safe_load(found.stdout)["endpoints"]


def test_there_is_one_public_function(declared: Mapping[str, Any]) -> None:
    assert list(declared) == [FUNCTION_NAME]
    assert declared[FUNCTION_NAME]["entryPoint"] == FUNCTION_NAME
    assert declared[FUNCTION_NAME]["region"] == [REGION]
    assert declared[FUNCTION_NAME]["httpsTrigger"] == {"invoker": ["public"]}


def test_the_platform_sends_an_instance_no_more_than_it_serves_at_once(declared: Mapping[str, Any]) -> None:
    assert declared[FUNCTION_NAME]["concurrency"] == CALLS_AT_ONCE
    assert declared[FUNCTION_NAME]["availableMemoryMb"] == 512
    assert declared[FUNCTION_NAME]["timeoutSeconds"] == 300
    assert declared[FUNCTION_NAME]["maxInstances"] == 5


def test_credentials_come_from_secret_manager(declared: Mapping[str, Any]) -> None:
    secrets = [secret["key"] for secret in declared[FUNCTION_NAME]["secretEnvironmentVariables"]]
    assert secrets == ["MCP_ADMIN_TOKEN", "MCP_CLIENT_PROFILES_JSON"]
