"""The conformance suite of the MCP project, against the function: what fails is exactly what is expected, with its reason."""

import json
import re
import subprocess
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from builders import PROFILES, TOKENS, environment, path_of
from hosts.credential_proxy import CredentialProxy
from ops.function import running_function
from ops.hosts import HostTools
from web.wire import serving

pytestmark = [pytest.mark.hosts, pytest.mark.slow]

EXPECTED = Path(__file__).with_name("expected_failures.yaml")
REVISIONS = ("2025-11-25", "2026-07-28")
# Of both revisions; that they are among what passed shows that the suite spoke to the service at all.
CERTAIN = {
    "2025-11-25": {"server-initialize", "ping", "tools-list"},
    "2026-07-28": {"server-stateless", "tools-list", "http-header-validation", "caching"},
}


@dataclass(frozen=True)
class Verdict:
    """What the suite found: every check as scenario:check."""

    passed: frozenset[str]
    failed: Mapping[str, str]
    """With what the suite says about it."""


@pytest.fixture(scope="module")
def url(emulator_host: str) -> Generator[str]:
    """The agent's endpoint behind a proxy that adds its token; pages of the proxy's own origin may call."""
    proxy = CredentialProxy(TOKENS["agent"])
    with serving(proxy.app) as wire:
        origins = [f"http://{host}:{wire.port}" for host in ("127.0.0.1", "localhost")]
        profiles = json.dumps([{**profile, "allowedOrigins": origins} for profile in PROFILES])
        settings = environment(FIRESTORE_EMULATOR_HOST=emulator_host, GCLOUD_PROJECT="demo-conformance")
        with running_function(settings | {"MCP_CLIENT_PROFILES_JSON": profiles}) as function:
            proxy.endpoint = f"{function.url}{path_of('agent')}"
            yield f"http://127.0.0.1:{wire.port}/mcp"


@pytest.mark.parametrize("revision", REVISIONS)
def test_only_what_is_expected_fails_and_all_of_it(
    tools: HostTools, home: Path, tmp_path: Path, url: str, revision: str
) -> None:
    verdict = run_suite(tools, home, tmp_path, url, revision)
    assert {check.partition(":")[0] for check in verdict.passed} >= CERTAIN[revision]
    expected = expected_failures(revision)
    unexpected = [f"{check}: {says}" for check, says in sorted(verdict.failed.items()) if check not in expected]
    assert unexpected == [], f"not in {EXPECTED.name}"
    assert sorted(expected - verdict.failed.keys()) == [], f"in {EXPECTED.name}, and no longer failing"


def run_suite(tools: HostTools, home: Path, results: Path, url: str, revision: str) -> Verdict:
    conformance = tools.command("@modelcontextprotocol/conformance", "conformance")
    arguments = ["server", "--url", url, "--requirements", revision, "--output-dir", str(results)]
    answer = subprocess.run(
        [*conformance, *arguments],
        env=tools.environment(home),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    found = list(checks_in(results))
    assert found, f"{answer.stdout[-2000:]}\n{answer.stderr[-2000:]}"
    failed = {name: str(check.get("errorMessage", "")) for name, check in found if check["status"] == "FAILURE"}
    # A check may be made several times; it passed if it never failed.
    passed = frozenset(name for name, check in found if check["status"] == "SUCCESS" and name not in failed)
    return Verdict(passed, failed)


def checks_in(results: Path) -> Iterable[tuple[str, Mapping[str, Any]]]:
    for file in results.glob("server-*/checks.json"):
        named = re.fullmatch(r"server-(.+)-\d{4}-\d\d-\d\dT.*", file.parent.name)
        assert named, file
        for check in json.loads(file.read_text()):
            yield f"{named[1]}:{check['id']}", check


def expected_failures(revision: str) -> set[str]:
    """The checks that may fail, by the reasons given for them."""
    found: list[str] = []
    for entry in yaml.safe_load(EXPECTED.read_text()):
        assert len(entry["reason"].split()) > 5, "a reason is a sentence"
        assert entry.keys() <= {"reason", "both", *REVISIONS}
        found += [*entry.get("both", []), *entry.get(revision, [])]
    assert len(found) == len(set(found)), "every check has one reason"
    return set(found)
