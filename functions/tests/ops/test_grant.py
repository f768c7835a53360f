"""`metacortex grant` and `metacortex owner`, run as a person would, against what a client and the owner left."""

import json
import subprocess
import sys

import pytest
from argon2 import PasswordHasher

from builders import FakeClock
from metacortex.events import now_ms
from ops.checkout import FUNCTIONS, ROOT
from signing import Browser, Signing

pytestmark = pytest.mark.slow


@pytest.fixture
def signing(emulator_host: str, project: str, monkeypatch: pytest.MonkeyPatch) -> Signing:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", emulator_host)
    # The command goes by this machine's clock.
    return Signing(project, clock=FakeClock(now_ms()))


def run(*arguments: str, emulator: str = "", text: str | None = None) -> subprocess.CompletedProcess[str]:
    path = f"{ROOT / 'scripts'}:{FUNCTIONS}"
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": path, "NO_COLOR": "1"}
    if emulator:
        environment |= {"FIRESTORE_EMULATOR_HOST": emulator, "no_proxy": "127.0.0.1"}
    return subprocess.run(
        [sys.executable, "-P", "-m", "ops", *arguments],
        env=environment,
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )


async def test_the_owner_sees_a_grant_and_ends_it(signing: Signing, emulator_host: str) -> None:
    tokens = await signing.connected()
    listed = run("grant", "list", "--project", signing.project, "--json", emulator=emulator_host)
    [grant] = json.loads(listed.stdout)
    assert (grant["application"], grant["client"]) == ("A client", "agent")
    assert grant["returns_to"] == "claude.ai"
    assert set(grant) == {
        *("id", "application", "application_id", "returns_to", "client"),
        *("created_at", "used_at", "ends_at"),
    }
    shown = run("grant", "list", "--project", signing.project, emulator=emulator_host)
    assert grant["id"] in shown.stdout
    ended = run("grant", "revoke", grant["id"], "--project", signing.project, emulator=emulator_host)
    assert (ended.returncode, "has to ask again" in ended.stderr) == (0, True)
    signing.clock.advance(minutes=1.1)
    assert (await signing.call(tokens["access_token"])).status_code == 401
    assert (await signing.refresh(tokens["client_id"], tokens["refresh_token"])).json()["error"] == "invalid_grant"
    again = run("grant", "revoke", grant["id"], "--project", signing.project, emulator=emulator_host)
    assert (again.returncode, "There is no grant" in again.stderr) == (1, True)
    left = run("grant", "list", "--project", signing.project, "--json", emulator=emulator_host)
    assert json.loads(left.stdout) == []


@pytest.mark.parametrize("grant_id", ["unheard-of", "..", "a/b", "__x__", "x" * 2000])
def test_a_grant_that_is_none_is_told(signing: Signing, emulator_host: str, grant_id: str) -> None:
    done = run("grant", "revoke", grant_id, "--project", signing.project, emulator=emulator_host)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


async def test_the_owner_signs_out_everywhere(signing: Signing, emulator_host: str) -> None:
    client = (await signing.register())["client_id"]
    browser = Browser(signing)
    request = await browser.sign_in(signing.authorize_url(client))
    done = run("owner", "sign-out", "--project", signing.project, emulator=emulator_host)
    assert (done.returncode, "1 browser" in done.stderr) == (0, True)
    response = await browser.send("/oauth/consent", request=request, answer="approve")
    assert response.status_code == 401


def test_a_passphrase_is_printed_as_its_hash_alone() -> None:
    done = run("owner", "passphrase", "--print", text="correct horse battery staple\n")
    [line] = done.stdout.splitlines()
    assert PasswordHasher().verify(line, "correct horse battery staple")
    assert "correct horse" not in done.stdout + done.stderr


def test_a_short_passphrase_is_refused() -> None:
    done = run("owner", "passphrase", "--print", text="short\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert "at least 12 characters" in done.stderr
