"""./scripts/dev as a person meets it: real processes, real signals."""

import json
import re
import shutil
import signal
import socket
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ops.cli import app
from ops.processes import free_port
from running import DevRun, call_tool, eventually

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("emulator_host")]

StartDev = Callable[..., DevRun]
MEMORY = "The spare key hangs behind the blue door."


def on_free_port() -> tuple[str, str]:
    return "--port", str(free_port())


def saved_exports(checkout: Path) -> list[Path]:
    return sorted((checkout / ".metacortex").glob("export-*"))


def newest_export(checkout: Path) -> str:
    """What the newest export holds, as far as it is text. One may be replaced while it is read."""
    try:
        return "".join(
            data.read_text(errors="replace")
            for export in saved_exports(checkout)[-1:]
            for data in export.rglob("output-*")
        )
    except FileNotFoundError:
        return ""


def test_it_tells_all_a_client_needs_and_keeps_data_and_tokens_for_the_next_run(
    start_dev: StartDev, checkout: Path
) -> None:
    port = str(free_port())
    dev = start_dev("--port", port).ready()
    base = f"http://127.0.0.1:{port}"
    prefixed = f"{base}/demo-metacortex/us-central1/metaCortexMcp"
    assert dev.url_of("admin") == f"{prefixed}/mcp"
    assert dev.url_of("agent") == f"{prefixed}/clients/agent/mcp"
    assert dev.lines()[-1].startswith("ready")
    assert "\033" not in dev.out.read_text()

    secrets_file = checkout / "functions/.secret.local"
    assert stat.S_IMODE(secrets_file.stat().st_mode) == 0o600
    assert dev.token_of("admin") in secrets_file.read_text()
    assert dev.token_of("agent") in secrets_file.read_text()

    memory_id = dev.call("save_context", content=MEMORY)["item"]["id"]
    bare = call_tool(f"{base}/clients/agent/mcp", dev.token_of("agent"), "search_context", {"query": "spare key"})
    assert [match["id"] for match in bare["matches"]] == [memory_id]
    eventually(lambda: "save_context" in dev.err.read_text())

    if shutil.which("curl"):
        command = next(line for line in dev.lines() if line.startswith("curl "))
        answer = subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout
        assert json.loads(answer)["result"]["structuredContent"]["matches"][0]["id"] == memory_id

    second = start_dev(*on_free_port())
    assert second.process.wait(30) == 1
    assert second.err.read_text().startswith("Another ./scripts/dev is running in this checkout")

    same_port = start_dev("--port", port, "--ephemeral")
    assert same_port.process.wait(30) == 1
    assert f"Port {port} is taken by another program" in same_port.err.read_text()
    assert "--port" in same_port.err.read_text()

    dev.look()
    assert dev.stop(signal.SIGINT) == 0
    dev.leaves_nothing()

    again = start_dev("--port", port).ready()
    assert again.token_of("agent") == dev.token_of("agent")
    assert again.call("fetch_context", id=memory_id)["item"]["content"] == MEMORY
    assert again.stop(signal.SIGTERM, signal.SIGINT, signal.SIGINT) == 0
    again.leaves_nothing()
    assert len(saved_exports(checkout)) == 2


def how_to_sign_in(dev: DevRun) -> str:
    return next(line for line in dev.lines() if line.startswith("  sign-in"))


def test_a_client_is_let_in_by_signing_in_with_a_passphrase_that_is_told_or_as_is_set_up(start_dev: StartDev) -> None:
    port = str(free_port())
    dev = start_dev("--port", port, "--ephemeral").ready()
    base = f"http://127.0.0.1:{port}"
    assert re.search(rf"{base}/clients/ID/mcp alone; the owner's passphrase .* is [a-z-]{{23}}$", how_to_sign_in(dev))
    checked = CliRunner().invoke(app, ["smoke", "--mode", "sign-in", "--client", "agent", "--url", base])
    assert checked.exit_code == 0, checked.output
    assert dev.stop(signal.SIGINT) == 0

    google = {"GOOGLE_SIGN_IN_CLIENT_ID": "an-id", "GOOGLE_SIGN_IN_CLIENT_SECRET": "a-secret", "OWNER_SUBJECT": "1"}
    other = start_dev(*on_free_port(), "--ephemeral", OWNER_SIGN_IN="google", **google).ready()
    assert how_to_sign_in(other).endswith("sign in as you have set up")


def test_what_was_saved_survives_kill_9_and_a_damaged_export(start_dev: StartDev, checkout: Path) -> None:
    dev = start_dev(*on_free_port(), "--save-every", "0.2").ready()
    memory_id = dev.call("save_context", content=MEMORY)["item"]["id"]
    eventually(lambda: MEMORY in newest_export(checkout))
    dev.look()
    assert dev.stop(signal.SIGKILL) == -signal.SIGKILL
    dev.leaves_nothing()

    second = start_dev(*on_free_port()).ready()
    assert second.call("fetch_context", id=memory_id)["item"]["content"] == MEMORY
    assert second.stop(signal.SIGHUP) == 0

    newest = saved_exports(checkout)[-1]
    data = next(newest.rglob("output-0"))
    data.write_bytes(data.read_bytes()[:-10])
    third = start_dev(*on_free_port()).ready()
    assert f"The Firestore emulator cannot import {newest}" in third.err.read_text()
    assert third.call("fetch_context", id=memory_id)["item"]["content"] == MEMORY
    assert (newest.parent / f"unreadable-{newest.name}").is_dir()
    assert third.stop(signal.SIGINT) == 0
    third.leaves_nothing()


@pytest.mark.parametrize(
    ("part", "named", "kept"),
    [("CloudFirestore", "The Firestore emulator", 0), ("functions_framework", "The function", 1)],
)
def test_a_crash_of_one_part_stops_all_parts(
    start_dev: StartDev, checkout: Path, part: str, named: str, kept: int
) -> None:
    dev = start_dev(*on_free_port()).ready()
    crashed = dev.part(part)
    subprocess.run(["kill", "-9", str(crashed)], check=True)
    assert dev.process.wait(30) == 1
    dev.leaves_nothing()
    assert f"{named} was killed by signal 9. Its last words:" in dev.err.read_text()
    assert len(saved_exports(checkout)) == kept
    assert ("is lost" in dev.err.read_text()) == (kept == 0)


def test_a_worker_that_is_killed_is_replaced_and_the_next_call_answered(start_dev: StartDev) -> None:
    dev = start_dev(*on_free_port(), "--ephemeral").ready()
    memory_id = dev.call("save_context", content=MEMORY)["item"]["id"]
    worker = dev.worker()
    subprocess.run(["kill", "-9", str(worker)], check=True)
    assert dev.call("fetch_context", id=memory_id)["item"]["content"] == MEMORY
    assert dev.process.poll() is None
    assert dev.worker() != worker
    assert dev.stop(signal.SIGINT) == 0
    dev.leaves_nothing()


def test_a_signal_while_it_starts_leaves_nothing(start_dev: StartDev, checkout: Path) -> None:
    dev = start_dev(*on_free_port())
    dev.says("Starting the function ...")
    dev.look()
    assert dev.stop(signal.SIGINT, signal.SIGINT) == 0
    dev.leaves_nothing()
    assert saved_exports(checkout) == []


def test_ephemeral_keeps_only_the_tokens(start_dev: StartDev, checkout: Path) -> None:
    dev = start_dev(*on_free_port(), "--ephemeral", MCP_ADMIN_TOKEN="an-admin-token-of-the-environment").ready()
    assert dev.token_of("admin") == "an-admin-token-of-the-environment"
    dev.call("save_context", content=MEMORY)
    assert dev.stop(signal.SIGTERM) == 0
    dev.leaves_nothing()
    assert not (checkout / ".metacortex").exists()
    assert "MCP_ADMIN_TOKEN" not in (checkout / "functions/.secret.local").read_text()


def test_the_check_passes_and_leaves_nothing(start_dev: StartDev, checkout: Path) -> None:
    nowhere = {"GOOGLE_APPLICATION_CREDENTIALS": "/nowhere.json", "HTTP_PROXY": "http://127.0.0.1:9", "K_SERVICE": "x"}
    dev = start_dev("--check", **nowhere, http_proxy="http://127.0.0.1:9", DEBUG="1", WORKERS="2")
    eventually(lambda: dev.look() or any("fetched" in line for line in dev.lines()) or dev.process.poll() is not None)
    assert dev.process.wait(30) == 0, dev.err.read_text()
    dev.leaves_nothing()
    assert dev.lines()[-1] == "check passed"
    assert len([line for line in dev.lines() if re.fullmatch(r"  fetched  .+", line)]) == 4
    assert not (checkout / "functions/.secret.local").exists()
    assert not (checkout / ".metacortex").exists()


def test_the_check_fails_where_the_service_cannot_answer(start_dev: StartDev, checkout: Path) -> None:
    (checkout / "functions/metacortex/tools/search_context.py").write_text("raise ImportError('broken on purpose')")
    dev = start_dev("--check")
    assert dev.process.wait(30) == 1
    dev.leaves_nothing()
    assert "broken on purpose" in dev.err.read_text()


def test_every_fault_of_the_settings_is_told_before_anything_starts(start_dev: StartDev, checkout: Path) -> None:
    (checkout / "functions/.env").write_text("SEARCH_RESULT_LIMIT=1000\nMODEL_PROVIDER=oracle\n")
    dev = start_dev(*on_free_port(), MCP_ADMIN_TOKEN="short")
    assert dev.process.wait(30) == 1
    for name in ("SEARCH_RESULT_LIMIT", "MODEL_PROVIDER", "MCP_ADMIN_TOKEN"):
        assert f"  {name} " in dev.err.read_text()
    assert "Starting" not in dev.err.read_text()


@pytest.mark.parametrize("name", [".env", ".secret.local"])
def test_a_broken_quote_is_told_before_anything_is_made(start_dev: StartDev, checkout: Path, name: str) -> None:
    text = "MCP_ADMIN_TOKEN=stored-stored-stored\nMCP_CLIENT_PROFILES_JSON='[]\n"
    (checkout / "functions" / name).write_text(text)
    for arguments in (on_free_port(), ("--check",)):
        dev = start_dev(*arguments)
        assert dev.process.wait(30) == 1
        told = f"1 fault in functions/{name}:\n  Line 2 is not NAME=value; look for a missing quote.\n"
        assert dev.err.read_text() == told
    assert [path.name for path in (checkout / "functions").glob(".*")] == [name]
    assert (checkout / "functions" / name).read_text() == text


@pytest.mark.parametrize(
    ("settings", "secrets", "model"),
    [
        ({}, "", "local: static embeddings on this machine, no account"),
        ({"GEMINI_API_KEY": "a-key"}, "", "gemini: the Gemini API, by GEMINI_API_KEY"),
        ({}, "GEMINI_API_KEY=a-key\n", "gemini: the Gemini API, by GEMINI_API_KEY"),
        ({"MODEL_PROVIDER": "local"}, "GEMINI_API_KEY=a-key\n", "local: static embeddings on this machine, no account"),
    ],
)
def test_it_tells_the_route_by_which_models_are_reached(
    start_dev: StartDev, checkout: Path, settings: dict[str, str], secrets: str, model: str
) -> None:
    (checkout / "functions/.secret.local").write_text(secrets)
    dev = start_dev(*on_free_port(), "--ephemeral", **settings).ready()
    assert f"  model    {model}" in dev.lines()
    assert "a-key" not in dev.out.read_text()
    assert dev.stop(signal.SIGINT) == 0


@pytest.mark.parametrize(
    ("provider", "says"),
    [
        ("gemini", "GEMINI_API_KEY is not set, and MODEL_PROVIDER=gemini needs it"),
        ("vertex", "MODEL_PROVIDER=vertex needs a Google project"),
    ],
)
def test_a_route_that_cannot_be_taken_is_told_before_anything_starts(
    start_dev: StartDev, provider: str, says: str
) -> None:
    dev = start_dev(*on_free_port(), MODEL_PROVIDER=provider)
    assert dev.process.wait(30) == 1
    assert says in dev.err.read_text()
    assert "Starting" not in dev.err.read_text()


@pytest.mark.parametrize("seconds", ["nan", "0", "-1", "inf", "often", ""])
def test_what_is_no_time_between_saves_is_a_usage_error(start_dev: StartDev, seconds: str) -> None:
    dev = start_dev(f"--save-every={seconds}")
    assert dev.process.wait(30) == 2
    assert "argument --save-every: seconds are a number above 0, such as 45 or 0.5" in dev.err.read_text()


def test_a_missing_jar_is_a_sentence(start_dev: StartDev) -> None:
    dev = start_dev(*on_free_port(), "--ephemeral", FIRESTORE_EMULATOR_JAR="/nowhere/emulator.jar")
    assert dev.process.wait(30) == 1
    assert "FIRESTORE_EMULATOR_JAR names /nowhere/emulator.jar, which is no file." in dev.err.read_text()
    assert "Traceback" not in dev.err.read_text()


def test_a_port_that_another_program_has_is_a_sentence(start_dev: StartDev) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        dev = start_dev("--port", str(port), "--ephemeral")
        assert dev.process.wait(30) == 1
    assert dev.err.read_text() == (
        f"Port {port} is taken by another program. Stop that one, or choose another port with --port.\n"
    )
