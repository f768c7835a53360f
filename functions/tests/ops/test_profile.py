"""`metacortex profile` as an operator runs it, and what the service makes of what it leaves behind."""

import asyncio
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from builders import ADMIN_TOKEN, JSON_HEADERS, Service, environment
from metacortex.memory import BranchState
from metacortex.profiles import Profile
from metacortex.settings import load
from ops.checkout import ROOT
from ops.cli import app
from ops.local_settings import generate_missing, read_file

NAME = "MCP_CLIENT_PROFILES_JSON"
SETTINGS = (NAME, "MCP_ADMIN_TOKEN", "DEFAULT_FILTER_STATE", "PUBLIC_BASE_URL", "MCP_URL_TOKENS")
PLAIN: dict[str, Any] = {"id": "plain", "token": "a-token-that-is-kept-as-it-is", "allowedTools": ["fetch_context"]}
DIGEST = "0123456789abcdef" * 4
HASHED: dict[str, Any] = {
    "id": "hashed",
    "tokenSha256": DIGEST,
    "allowedTools": ["search_context"],
    "allowUrlToken": False,
}
FAULTY: dict[str, Any] = {"id": "faulty", "token": "short", "allowedTools": []}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / ".secret.local"


def profile(*arguments: str | Path, stdin: str | None = None, **env: str) -> Result:
    unset: dict[str, str | None] = dict.fromkeys(SETTINGS)
    command = ["profile", *(str(argument) for argument in arguments)]
    return CliRunner().invoke(app, command, input=stdin, env={**unset, **env}, catch_exceptions=False)


def succeed(*arguments: str | Path, stdin: str | None = None, **env: str) -> str:
    result = profile(*arguments, stdin=stdin, **env)
    assert result.exit_code == 0, result.output
    return result.stdout


def fail(*arguments: str | Path, status: int = 1, stdin: str | None = None, **env: str) -> str:
    """What is said where a command fails; nothing is printed beside it."""
    result = profile(*arguments, stdin=stdin, **env)
    assert (result.exit_code, result.stdout) == (status, "")
    return " ".join(result.stderr.split())


def token_in(output: str) -> str:
    """The token that was printed, once."""
    [token] = re.findall(r"^  token     (\S+)$", output, re.MULTILINE)
    assert output.count(token) == 1
    return token


def store(file: Path, *documents: Mapping[str, Any]) -> str:
    text = f"# kept\nMCP_ADMIN_TOKEN={ADMIN_TOKEN}\n{NAME}='{json.dumps(documents)}'\nOTHER=\"a b\"\n"
    file.write_text(text)
    return text


def stored(file: Path) -> list[dict[str, Any]]:
    return json.loads(read_file(file)[NAME])


def serviced(file: Path) -> dict[str, Profile]:
    """The profiles as the service reads them."""
    return dict(load({**read_file(file), "MCP_ADMIN_TOKEN": ADMIN_TOKEN}).profiles)


# --- add ---


def test_a_new_profile_is_what_the_service_lets_in_with_its_token(file: Path) -> None:
    token = token_in(succeed("add", "claude-web", "--file", file))
    added = serviced(file)["claude-web"]
    assert added.accepts(token)
    assert added.tools == ("save_context", "search_context", "fetch_context")
    assert added.readable_states == (BranchState.ACTIVE,)
    assert added.writable_states == (BranchState.ACTIVE, BranchState.WIP)
    assert added.origins == ()
    assert not added.url_token_allowed


def test_every_option_reaches_the_profile(file: Path) -> None:
    options = ["--tools", "search_context, list_context", "--read-states", "wip,active", "--write-states", "wip"]
    origins = ["--origin", "https://claude.ai", "--origin", "http://localhost:6274"]
    output = succeed("add", "a", *options, *origins, "--url-token", "--file", file)
    added = serviced(file)["a"]
    assert added.tools == ("search_context", "list_context")
    assert added.readable_states == (BranchState.WIP, BranchState.ACTIVE)
    assert added.writable_states == (BranchState.WIP,)
    assert added.origins == ("https://claude.ai", "http://localhost:6274")
    assert added.url_token_allowed
    token_in(output)


def test_the_token_is_printed_with_what_to_do_and_only_its_hash_is_stored(file: Path) -> None:
    output = succeed("add", "claude-web", "--file", file)
    token = token_in(output)
    assert len(token) >= 43
    assert "  endpoint  http://127.0.0.1:5001/clients/claude-web/mcp\n" in output
    assert "not shown again" in output
    assert "A running ./scripts/dev picks it up at its next start." in output
    assert token not in file.read_text()
    assert "token" not in stored(file)[0]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def ways_in(output: str) -> list[str]:
    """What is said of signing in, of the header, and of the token in the URL."""
    return re.findall(r"^  [123]\. (.+)$", output, re.MULTILINE)


def test_three_ways_in_are_told_and_the_one_in_the_url_as_discouraged(file: Path) -> None:
    signing_in, header, url = ways_in(succeed("add", "a", "--file", file))
    assert "the endpoint alone; you sign in in your browser" in signing_in
    assert header.endswith("the header Authorization: Bearer TOKEN")
    assert "not this profile, for it was made without --url-token; discouraged" in url
    *_, url = ways_in(succeed("add", "b", "--url-token", "--file", file))
    assert "ENDPOINT?auth_token=TOKEN: discouraged" in url
    assert url.endswith("closed unless MCP_URL_TOKENS=true")
    *_, url = ways_in(succeed("add", "c", "--url-token", "--file", file, MCP_URL_TOKENS="true"))
    assert url.endswith("since URLs end up in logs")


def test_the_endpoint_is_below_the_origin_that_the_settings_name(file: Path) -> None:
    file.with_name(".env").write_text("PUBLIC_BASE_URL=http://localhost:7001\n")
    assert "  endpoint  http://localhost:7001/clients/a/mcp\n" in succeed("add", "a", "--file", file)


def test_the_ways_into_a_deployed_service_are_told_beside_the_list_that_is_printed(file: Path) -> None:
    result = profile("add", "a", "--print-json", "--file", "-", stdin="[]", PUBLIC_BASE_URL="http://localhost:7001")
    assert [each["id"] for each in json.loads(result.stdout)] == ["a"]
    assert "  endpoint  BASE/clients/a/mcp, where BASE is PUBLIC_BASE_URL" in result.stderr
    assert "where PUBLIC_BASE_URL is set, the endpoint alone" in ways_in(result.stderr)[0]
    assert "localhost" not in result.output


def test_a_client_calls_with_the_token_by_header_and_only_where_granted_by_url(file: Path) -> None:
    by_header = token_in(succeed("add", "by-header", "--file", file))
    by_url = token_in(succeed("add", "by-url", "--url-token", "--file", file))
    service = Service(settings=environment(MCP_URL_TOKENS="true", **read_file(file)))

    async def status(path: str, headers: Mapping[str, str]) -> int:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        return (await service.http.post(path, json=message, headers={**JSON_HEADERS, **headers})).status_code

    async def statuses() -> list[int]:
        return [
            await status("/clients/by-header/mcp", {"authorization": f"Bearer {by_header}"}),
            await status(f"/clients/by-header/mcp?auth_token={by_header}", {}),
            await status(f"/clients/by-url/mcp?auth_token={by_url}", {}),
            await status("/clients/by-url/mcp", {"authorization": f"Bearer {by_header}"}),
        ]

    assert asyncio.run(statuses()) == [200, 401, 200, 401]


def test_everything_else_in_the_file_stays(file: Path) -> None:
    store(file, PLAIN, HASHED)
    succeed("add", "new", "--file", file)
    assert stored(file)[:2] == [PLAIN, HASHED]
    assert file.read_text().startswith(f"# kept\nMCP_ADMIN_TOKEN={ADMIN_TOKEN}\n")
    assert read_file(file)["OTHER"] == "a b"


def test_what_dev_would_generate_is_not_made_beside_the_first_profile(file: Path) -> None:
    succeed("add", "mine", "--file", file)
    settings = load(generate_missing(read_file(file), secrets_file=file))
    assert list(settings.profiles) == ["default", "mine"]


@pytest.mark.slow
def test_of_profiles_added_at_once_none_is_lost(file: Path) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "scripts"), str(ROOT / "functions")])}
    names = [f"client-{number}" for number in range(6)]
    commands = [[sys.executable, "-P", "-m", "ops", "profile", "add", name, "--file", str(file)] for name in names]
    processes = [subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL) for command in commands]
    assert [process.wait(60) for process in processes] == [0] * len(names)
    assert sorted(serviced(file)) == sorted(["default", *names])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["default"], "ID must not be default, which is the admin endpoint's own."),
        (["a/b"], "ID must be 1 to 64 letters, digits, - or _."),
        (["a", "--tools", "save_context,save"], "--tools (entry 2) is not one of save_context, search_context,"),
        (["a", "--tools", " , "], "--tools must be a non-empty list"),
        (["a", "--read-states", "done"], "--read-states (entry 1) is not one of active, merged"),
        (["a", "--write-states", ""], "--write-states must be a non-empty list"),
        (["a", "--origin", "https://a.example/path"], "--origin (entry 1) must be an origin such as https://claude.ai"),
        (["a", "--origin", "*", "--origin", "claude.ai"], "--origin (entry 2) must be an origin"),
        (["--tools", "save_context"], "Missing argument"),
    ],
)
def test_what_no_profile_may_hold_is_a_usage_error(file: Path, arguments: list[str], says: str) -> None:
    assert says in fail("add", *arguments, "--file", file, status=2)
    assert not file.exists()


def test_several_faults_of_an_option_are_told_at_once(file: Path) -> None:
    says = fail("add", "a b", "--tools", "x", "--origin", "y", "--file", file, status=2)
    assert all(option in says for option in ("ID must", "--tools (entry 1)", "--origin (entry 1)"))


def test_an_id_that_exists_is_refused(file: Path) -> None:
    text = store(file, PLAIN)
    assert "There is a profile plain already" in fail("add", "plain", "--file", file)
    assert file.read_text() == text


def test_a_list_with_faults_is_not_added_to_and_every_fault_is_told(file: Path) -> None:
    text = store(file, PLAIN, FAULTY, {**PLAIN, "id": "twin"})
    says = fail("add", "new", "--file", file)
    assert f"3 faults in {file}:" in says
    assert f"{NAME}[1].token must have at least 16 characters." in says
    assert f"{NAME}[1].allowedTools must be a non-empty list" in says
    assert f"{NAME}[2] has the same token as {NAME}[0]" in says
    assert not any(secret in says for secret in (PLAIN["token"], "short"))
    assert file.read_text() == text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f'{NAME}=\'[{{"id": "a",}}]\'', "is not valid JSON at line 1 column"),
        (f"{NAME}='{{}}'", "must be a JSON list of profiles"),
        (f"{NAME}='[7]'", f"{NAME}[0] must be a JSON object"),
        (f"{NAME}='{'[' * 50_000}'", "is not valid JSON"),
        (f"A=1\n{NAME}='[{{", "Line 2 is not NAME=value; look for a missing quote."),
    ],
)
def test_a_file_that_cannot_be_understood_is_left_alone(file: Path, text: str, says: str) -> None:
    file.write_text(text)
    assert says in fail("add", "new", "--file", file)
    assert file.read_text() == text


def test_a_file_that_is_no_text_or_no_file_is_refused(tmp_path: Path, file: Path) -> None:
    file.write_bytes(b"\xff\xfe\x00")
    assert "is not UTF-8 text" in fail("add", "new", "--file", file)
    assert "cannot be read: Is a directory" in fail("add", "new", "--file", tmp_path)
    assert "The folder of" in fail("add", "new", "--file", tmp_path / "missing" / ".secret.local")


def test_profiles_in_the_env_file_beside_it_are_not_hidden_by_a_new_one(tmp_path: Path, file: Path) -> None:
    (tmp_path / ".env").write_text(f"{NAME}='{json.dumps([HASHED])}'\n")
    assert "move that line into" in fail("add", "new", "--file", file)
    assert not file.exists()


def test_profiles_in_the_environment_which_win_are_pointed_out(file: Path) -> None:
    result = profile("add", "new", "--file", file, **{NAME: json.dumps([HASHED])})
    assert result.exit_code == 0
    assert "is set in this environment too" in result.stderr
    assert [document["id"] for document in stored(file)] == ["new"]


# --- add --print-json ---


def test_the_list_for_secret_manager_is_all_of_standard_output_and_nothing_is_written(file: Path) -> None:
    text = store(file, PLAIN)
    result = profile("add", "new", "--print-json", "--file", file)
    assert result.exit_code == 0
    old, new = json.loads(result.stdout)
    assert old == PLAIN
    assert file.read_text() == text
    token = token_in(result.stderr)
    assert token not in result.stdout
    assert load({NAME: result.stdout, "MCP_ADMIN_TOKEN": ADMIN_TOKEN}).profiles[new["id"]].accepts(token)
    assert f"firebase functions:secrets:set {NAME}" in result.stderr


@pytest.mark.parametrize("given", [json.dumps([HASHED]), f"{NAME}='{json.dumps([HASHED])}'\n"])
def test_a_list_is_taken_from_standard_input_and_from_a_file_of_json(tmp_path: Path, given: str) -> None:
    file = tmp_path / "profiles.json"
    file.write_text(given)
    for source, stdin in (("-", given), (file, None)):
        printed = json.loads(succeed("add", "new", "--print-json", "--file", source, stdin=stdin))
        assert [document["id"] for document in printed] == ["hashed", "new"]
    assert file.read_text() == given


def test_standard_input_and_a_file_of_json_are_not_written_to(tmp_path: Path) -> None:
    file = tmp_path / "profiles.json"
    file.write_text("[]")
    assert "--print-json" in fail("add", "new", "--file", "-", stdin="[]", status=2)
    assert "add --print-json to see the changed list" in fail("add", "new", "--file", file)
    assert file.read_text() == "[]"


def test_an_empty_standard_input_is_no_empty_list(file: Path) -> None:
    assert "Standard input holds no" in fail("add", "new", "--print-json", "--file", "-", stdin="\n")


# --- list ---


def test_the_list_shows_what_each_may_and_no_credential(file: Path) -> None:
    store(file, PLAIN, {**HASHED, "allowedOrigins": ["https://claude.ai"]})
    output = succeed("list", "--file", file)
    assert output.split("\n") == [
        "plain",
        "  tools       fetch_context",
        "  reads       active",
        "  writes      active, wip",
        "  origins     none",
        "  URL token   yes",
        "  credential  plain",
        "hashed",
        "  tools       search_context",
        "  reads       active",
        "  writes      active, wip",
        "  origins     https://claude.ai",
        "  URL token   no",
        "  credential  hash",
        "",
    ]


def test_the_list_as_json_says_the_same(file: Path) -> None:
    store(file, PLAIN)
    [described] = json.loads(succeed("list", "--json", "--file", file, DEFAULT_FILTER_STATE="wip"))
    assert described == {
        "id": "plain",
        "allowedTools": ["fetch_context"],
        "allowedFilterStates": ["wip"],
        "allowedWriteStates": ["active", "wip"],
        "allowedOrigins": [],
        "allowUrlToken": True,
        "credential": "plain",
    }


def test_no_profiles_are_told_with_how_to_make_one(file: Path) -> None:
    assert "There are no profiles" in succeed("list", "--file", file)
    assert json.loads(succeed("list", "--json", "--file", file)) == []


def test_a_list_with_faults_is_told_instead(file: Path) -> None:
    store(file, FAULTY)
    assert "2 faults in" in fail("list", "--file", file)


# --- rotate ---


def test_a_rotated_token_replaces_the_old_one_and_nothing_else(file: Path) -> None:
    first = token_in(succeed("add", "a", "--origin", "https://claude.ai", "--url-token", "--file", file))
    [before] = stored(file)
    second = token_in(succeed("rotate", "a", "--file", file))
    [after] = stored(file)
    assert {**before, "tokenSha256": None} == {**after, "tokenSha256": None}
    assert serviced(file)["a"].accepts(second)
    assert not serviced(file)["a"].accepts(first)


def test_rotating_turns_a_plain_token_into_a_hash_and_mends_a_faulty_one(file: Path) -> None:
    store(file, {**PLAIN, "token": "short"}, HASHED)
    token = token_in(succeed("rotate", "plain", "--file", file))
    assert "token" not in stored(file)[0]
    assert [document["id"] for document in stored(file)] == ["plain", "hashed"]
    assert serviced(file)["plain"].accepts(token)


def test_rotating_for_secret_manager_writes_nothing(file: Path) -> None:
    text = store(file, HASHED)
    result = profile("rotate", "hashed", "--print-json", "--file", file)
    [document] = json.loads(result.stdout)
    assert document["tokenSha256"] != DIGEST
    assert file.read_text() == text
    token_in(result.stderr)


def test_an_unknown_profile_is_told_with_those_there_are(file: Path) -> None:
    store(file, PLAIN, HASHED)
    for command in ("rotate", "remove"):
        assert "There is no profile nobody; there are: plain, hashed." in fail(command, "nobody", "--file", file)


# --- remove ---


def test_a_profile_is_removed_when_that_is_confirmed(file: Path) -> None:
    text = store(file, PLAIN, HASHED)
    refused = profile("remove", "plain", "--file", file, stdin="n\n")
    assert refused.exit_code == 1
    assert file.read_text() == text
    succeed("remove", "plain", "--file", file, stdin="y\n")
    assert stored(file) == [HASHED]


def test_yes_removes_without_asking_down_to_the_last(file: Path) -> None:
    store(file, PLAIN)
    assert "The profile plain is removed" in succeed("remove", "plain", "--yes", "--file", file)
    assert stored(file) == []
    assert serviced(file).keys() == {"default"}


def test_nobody_to_ask_removes_nothing(file: Path) -> None:
    text = store(file, PLAIN)
    assert profile("remove", "plain", "--file", file).exit_code == 1
    assert file.read_text() == text


def test_removing_from_standard_input_cannot_ask() -> None:
    given = json.dumps([PLAIN, HASHED])
    assert "--yes" in fail("remove", "plain", "--print-json", "--file", "-", stdin=given, status=2)
    assert json.loads(succeed("remove", "plain", "--print-json", "--yes", "--file", "-", stdin=given)) == [HASHED]


def test_the_only_profile_with_faults_can_be_removed_and_one_of_several_not(file: Path) -> None:
    store(file, PLAIN, FAULTY)
    succeed("remove", "faulty", "--yes", "--file", file)
    assert stored(file) == [PLAIN]
    text = store(file, PLAIN, FAULTY)
    assert f"{NAME}[1].token" in fail("remove", "plain", "--yes", "--file", file)
    assert file.read_text() == text


# --- validate ---


def test_profiles_without_faults_are_counted(tmp_path: Path, file: Path) -> None:
    assert succeed("validate", "--file", file) == "0 profiles, no faults\n"
    store(file, PLAIN)
    assert succeed("validate", "--file", file) == "1 profile, no faults\n"
    given = json.dumps([PLAIN, HASHED])
    (tmp_path / "profiles.json").write_text(given)
    assert succeed("validate", "--file", tmp_path / "profiles.json") == "2 profiles, no faults\n"
    assert succeed("validate", "--file", "-", stdin=given) == "2 profiles, no faults\n"
    assert succeed("validate", "--env", **{NAME: given}) == "2 profiles, no faults\n"


def test_every_fault_is_told_with_its_place_and_without_a_secret() -> None:
    documents = [
        PLAIN,
        {**HASHED, "extra": 1, "allowedOrigins": ["https://claude.ai/"]},
        {**PLAIN, "token": "change-me-change-me"},
    ]
    says = fail("validate", "--file", "-", stdin=json.dumps(documents))
    assert "4 faults in standard input:" in says
    assert f"{NAME}[1].extra is not a field of a profile" in says
    assert f"{NAME}[1].allowedOrigins[0] must be an origin" in says
    assert f"{NAME}[2].token is a placeholder" in says
    assert f"{NAME}[2].id is also the id of {NAME}[0]" in says
    assert not any(secret in says for secret in (PLAIN["token"], DIGEST, "change-me"))


def test_a_token_shared_with_the_admin_is_a_fault(file: Path) -> None:
    store(file, {**PLAIN, "token": ADMIN_TOKEN})
    says = fail("validate", "--file", file)
    assert f"{NAME}[0] has the same token as MCP_ADMIN_TOKEN" in says
    assert ADMIN_TOKEN not in says


def test_faults_of_other_settings_are_not_the_profiles_own(file: Path) -> None:
    file.write_text(f"MCP_ADMIN_TOKEN=short\nDEFAULT_FILTER_STATE=none\n{NAME}='{json.dumps([HASHED])}'\n")
    assert succeed("validate", "--file", file) == "1 profile, no faults\n"


def test_an_environment_or_an_input_without_profiles_is_told() -> None:
    assert f"The environment holds no {NAME}" in fail("validate", "--env")
    assert "Standard input holds no" in fail("validate", "--file", "-", stdin="")
    assert "Line 1 is not NAME=value" in fail("validate", "--file", "-", stdin="A='[]")
    assert "leave out one of the two" in fail("validate", "--env", "--file", "-", stdin="[]", status=2)


@pytest.mark.parametrize("command", ["add", "list", "rotate", "remove", "validate"])
def test_every_command_teaches_by_an_example(command: str) -> None:
    assert f"./scripts/metacortex profile {command}" in succeed(command, "--help")
