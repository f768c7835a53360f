"""The deployment guide: every command in it is tried as it stands, with the real tools, as far as it goes without an account.

And the guide to clients: the lines of those that are installed here.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest
import typer
from typer.core import TyperGroup

from builders import Service
from metacortex.profiles import token_digest, token_fault
from metacortex.settings import FUNCTION_NAME, REGION, TABLE, load
from ops import checks
from ops.checkout import FUNCTIONS, ROOT
from ops.cli import app
from ops.hosts import PINS, HostTools
from ops.processes import free_port
from ops.smoke_plan import Mode
from signing import BASE, HASH, Signing

pytestmark = [pytest.mark.hosts, pytest.mark.slow]

TEXT = (ROOT / "docs/DEPLOYMENT.md").read_text()
ALIAS = "production"
URL = f"https://{REGION}-PROJECT.cloudfunctions.net/{FUNCTION_NAME}"
WORDS = {
    "PROJECT": "a-project-of-nobody",
    "PROJECT_NUMBER": "123456789012",
    "BILLING_ACCOUNT": "000000-000000-000000",
    "REVISION": "metacortexmcp-00001-abc",
    "DIR": ".",
    "GRANT": "a-grant-of-nobody",
    "HOST": urlsplit(BASE).netloc,
}
HOW_EACH_IS_TRIED = {
    "firebase": "run without an account",
    "gcloud": "run without an account",
    "./scripts/metacortex": "its arguments are parsed, and profiles are made for real",
    "./scripts/test": "its arguments are parsed",
    "curl": "the path is asked of the app",
    "openssl": "run; what it prints is a token that the service accepts",
    "npm": "the release is the one that the tests run",
    "git": "run in a clone of a repository of its own",
    "printf": "run with the profiles that it begins",
    "export": "the name is one that a command reads",
    "rm": "the file is one that the guide made",
}
BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)
IN_A_SENTENCE = re.compile(r"`((?:firebase|gcloud|\./scripts/\w+) [^`]+)`")
INNER = re.compile(r"\$\(([^()]*)\)")
ASSIGNMENT = re.compile(r"[A-Z_]+=.*")
BETWEEN = {"|", "&&", ";"}
FILES = {">", "<"}


@dataclass(frozen=True)
class Command:
    """One program with its arguments, and the files that the shell gives it."""

    words: tuple[str, ...]
    variables: tuple[str, ...] = ()
    written: str | None = None

    @property
    def program(self) -> str:
        return self.words[0]

    def __str__(self) -> str:
        return " ".join(self.words)


def lines() -> Iterator[str]:
    """Every line of the guide that a person would paste, in order, with its continuations."""
    for block in BLOCK.findall(TEXT):
        yield from re.sub(r"\s*\\\n\s*", " ", block).strip().splitlines()
    yield from IN_A_SENTENCE.findall(BLOCK.sub("", TEXT))


def commands(line: str) -> Iterator[Command]:
    """The simple commands in a line of shell, those in $() too."""
    for inner in INNER.findall(line):
        yield from commands(inner)
    reader = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    reader.whitespace_split = True
    words: list[str] = []
    for word in [*reader, ";"]:
        if word not in BETWEEN:
            words.append(word)
        elif words:
            yield command(words)
            words = []


def command(words: list[str]) -> Command:
    files = {mark: words[words.index(mark) + 1] for mark in FILES & set(words)}
    end = min((words.index(mark) for mark in files), default=len(words))
    begin = next(position for position, word in enumerate(words) if not ASSIGNMENT.fullmatch(word))
    return Command(tuple(words[begin:end]), tuple(words[:begin]), files.get(">"))


def blocks_of(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


ALL = [found for line in lines() for found in commands(line)]
ALIASES, HOSTING = blocks_of("json")
FIREBASE: dict[str, Any] = json.loads((ROOT / "firebase.json").read_text()) | json.loads(HOSTING)


def each(program: str) -> pytest.MarkDecorator:
    """Runs a test once for every different command of a program."""
    return pytest.mark.parametrize(
        "command", {str(one): one for one in ALL if one.program == program}.values(), ids=str
    )


def filled(text: str) -> str:
    return re.sub(r"\b[A-Z_]+\b", lambda word: WORDS.get(word[0], word[0]), text)


@pytest.fixture(scope="session")
def gcloud() -> str:
    if found := shutil.which("gcloud"):
        return found
    missing = "the Google Cloud SDK is not installed; https://cloud.google.com/sdk/docs/install says how to get it"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


@pytest.fixture
def nowhere(tools: HostTools, home: Path) -> dict[str, str]:
    """An environment without an account, in which nothing can reach Google."""
    proxy = f"http://127.0.0.1:{free_port()}"
    return tools.environment(
        home,
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), proxy),
        CLOUDSDK_CONFIG=str(home),
        CLOUDSDK_CORE_CHECK_GCE_METADATA="false",
        METADATA_SERVER_DETECTION="none",
    )


def said(words: list[str], environment: Mapping[str, str], folder: Path) -> str:
    """What a program that is expected to fail says."""
    answer = subprocess.run(
        words,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    text = f"{answer.stdout}\n{answer.stderr}"
    assert answer.returncode == 1, text
    return text


def helped(words: list[str], environment: Mapping[str, str], folder: Path) -> str:
    """Signing in would open a browser, so that is only looked up."""
    return subprocess.run(
        [*words, "--help"], cwd=folder, env=environment, capture_output=True, text=True, check=True, timeout=60
    ).stdout


def test_there_is_a_rule_for_every_program_in_the_guide_and_no_other() -> None:
    assert {one.program for one in ALL} == set(HOW_EACH_IS_TRIED)


@each("firebase")
def test_firebase_understands_the_command(
    tools: HostTools, home: Path, nowhere: Mapping[str, str], command: Command
) -> None:
    for name in ("firestore.rules", "firestore.indexes.json"):
        shutil.copy(ROOT / name, home / name)
    (home / "public").mkdir()
    (home / "firebase.json").write_text(json.dumps(FIREBASE))
    (home / ".firebaserc").write_text(filled(ALIASES))
    words = [*tools.command("firebase-tools", "firebase"), *map(filled, command.words[1:])]
    if command.words[1] == "login":
        assert "Usage: firebase login" in helped(words, nowhere, home)
    else:
        assert "Failed to authenticate, have you run firebase login?" in said(words, nowhere, home)


@each("gcloud")
def test_gcloud_understands_the_command(gcloud: str, home: Path, nowhere: Mapping[str, str], command: Command) -> None:
    words = [gcloud, *map(filled, command.words[1:])]
    if command.words[1] == "auth":
        assert str(command) in helped(words, nowhere, home)
    else:
        assert "You do not currently have an active account selected" in said(words, nowhere, home)


@each("./scripts/metacortex")
def test_the_command_line_understands_the_command(command: Command) -> None:
    found, arguments = typer.main.get_command(app), [*map(filled, command.words[1:])]
    while isinstance(found, TyperGroup) and arguments[0] in found.commands:
        found = found.commands[arguments.pop(0)]
    if arguments[-1:] == ["--help"]:
        assert len(arguments) == 1
    else:
        assert not isinstance(found, TyperGroup), f"There is no such command: {command}"
        found.make_context("metacortex", arguments)


@each("./scripts/test")
def test_the_test_script_understands_the_command(command: Command) -> None:
    checks.parser().parse_args(command.words[1:])


@each("curl")
async def test_the_app_serves_the_path_that_is_asked_for(
    service: Service, emulator_host: str, project: str, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    *options, url = command.words[1:]
    if url.startswith(f"{URL}/"):
        assert options == ["-sS"]
        answer = await service.http.get(urlsplit(url).path)
        assert answer.json()["ok"] is True
        return
    assert options == ["-sS", "-i"]
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", emulator_host)
    profile = {"id": "claude-code", "tokenSha256": token_digest("another-token-that-is-long").hex()}
    signing = Signing(project, {"MCP_CLIENT_PROFILES_JSON": json.dumps([profile])})
    answer = await signing.http.get(filled(url))
    shown = f"{answer.text}\n" + "\n".join(f"{name}: {value}" for name, value in answer.headers.items())
    status, parts = answers()[url]
    assert answer.status_code == status
    assert parts
    assert [part for part in parts if filled(part) not in shown] == []


def answers() -> dict[str, tuple[int, list[str]]]:
    """What the guide says that each address answers from outside: the status, and parts of the answer."""
    urls = [one.words[-1] for one in ALL if one.program == "curl" and "-i" in one.words]
    rows = re.findall(r"^\| [^|]+ \| (\d{3}) \| (`[^|]+`) \|$", TEXT, re.MULTILINE)
    told = [(int(status), re.findall(r"`([^`]+)`", parts)) for status, parts in rows]
    return dict(zip(urls, told, strict=True))


def test_the_rewrites_of_the_guide_are_what_firebase_reads_and_lead_to_every_path(tools: HostTools) -> None:
    schema = tools.folder / "node_modules/firebase-tools/schema/firebase-config.json"
    jsonschema.validate(FIREBASE, json.loads(schema.read_text()))
    rewrites = FIREBASE["hosting"]["rewrites"]
    assert [rewrite["source"] for rewrite in rewrites] == ["/clients/**", "/oauth/**", "/.well-known/**"]
    for rewrite in rewrites:
        assert rewrite["function"] == {"functionId": FUNCTION_NAME, "region": REGION, "pinTag": False}


@each("openssl")
def test_the_token_that_is_made_is_accepted(command: Command) -> None:
    token = subprocess.run(command.words, capture_output=True, text=True, check=True).stdout
    assert token_fault(token) is None
    load({"MCP_ADMIN_TOKEN": token})


@each("npm")
def test_the_release_that_is_installed_is_the_one_that_is_tested(command: Command) -> None:
    assert command.words[1:] == ("install", "--global", f"firebase-tools@{PINS['firebase-tools']}")


def test_git_follows_and_goes_back(home: Path) -> None:
    def git(*words: str, folder: Path = home) -> str:
        identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org")
        return subprocess.run(
            ["git", *identity, *words], cwd=folder, env={"HOME": str(home), "PATH": os.environ["PATH"]},
            capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip

    git("init", "upstream")
    for message in ("earlier", "later"):
        git("commit", "--allow-empty", "--message", message, folder=home / "upstream")
    git("clone", "upstream", "checkout")
    earlier = git("rev-parse", "HEAD~1", folder=home / "checkout")
    for one in (one for one in ALL if one.program == "git"):
        git(*(earlier if word == "COMMIT" else word for word in one.words[1:]), folder=home / "checkout")
    assert git("log", "-1", "--format=%s", folder=home / "checkout") == "earlier"


def test_the_profiles_that_the_guide_makes_are_valid(home: Path) -> None:
    made = [line for line in lines() if "profile add" in line and "--print-json" in line]
    for line in made:
        # What Secret Manager would give back is what was stored last.
        local = re.sub(r"^firebase functions:secrets:access \S+ --project \S+", "cat stored.json", line)
        local = local.replace("./scripts/", f"{shlex.quote(str(ROOT))}/scripts/")
        subprocess.run(["sh", "-c", local], cwd=home, capture_output=True, check=True)
        (home / "profiles.json").rename(home / "stored.json")
    stored = (home / "stored.json").read_text()
    settings = load({"MCP_ADMIN_TOKEN": "a-token-that-is-long-enough", "MCP_CLIENT_PROFILES_JSON": stored})
    assert set(settings.profiles) == {"default", "claude-code", "cursor"}


def test_a_file_is_written_before_it_is_used_and_removed_after() -> None:
    files: set[str] = set()
    for one in ALL:
        if "--data-file" in one.words:
            named = one.words[one.words.index("--data-file") + 1]
            assert named in {"-", *files}, one
        if one.program == "rm":
            files.remove(one.words[1])
        files |= {one.written} if one.written else set()
    assert files == set()


def test_a_variable_that_is_set_is_one_that_is_read() -> None:
    exported = {one.words[1].partition("=")[0] for one in ALL if one.program == "export"}
    assert exported == {Mode.ADMIN.token_name}
    before_a_command = {variable.partition("=")[0] for one in ALL for variable in one.variables}
    assert before_a_command == {"PYTHON"}
    assert "${PYTHON:-}" in (ROOT / "scripts/ops/setup.sh").read_text()


def test_names_in_the_guide_are_those_of_the_function() -> None:
    assert set(re.findall(r"(?i)\bmetacortexmcp\b", TEXT)) == {FUNCTION_NAME, FUNCTION_NAME.lower()}
    assert set(re.findall(r"--region[= ](\S+)", TEXT)) == {REGION}
    assert set(re.findall(r"functions:secrets:\w+ ([A-Z_]+)", TEXT)) == {each.name for each in TABLE if each.secret}
    targets = {
        one.words[one.words.index("--only") + 1] for one in ALL if one.words[:3] == ("firebase", "deploy", "--only")
    }
    assert targets <= set(FIREBASE)


def test_the_settings_in_the_guide_are_valid() -> None:
    secrets = {
        "MCP_ADMIN_TOKEN": "a-token-that-is-long-enough",
        "OWNER_PASSPHRASE_HASH": HASH,
        "GOOGLE_SIGN_IN_CLIENT_SECRET": "a-secret-of-nobody",
    }
    model, *sign_in = blocks_of("ini")
    assert load(pairs_of(model) | secrets).provider.value in model
    with_passphrase, with_google, both = map(pairs_of, sign_in)
    for chosen in (with_passphrase, with_google, with_google | both):
        assert load(chosen | secrets).public_base_url == BASE
    assert set(with_passphrase | with_google | both) <= {setting.name for setting in TABLE}
    assert json.loads(ALIASES)["projects"] == {ALIAS: "PROJECT"}


def test_files_that_the_guide_has_you_write_leave_the_tree_clean() -> None:
    assert {".firebaserc", "functions/.env.*"} <= set((ROOT / ".gitignore").read_text().splitlines())


def test_messages_in_the_guide_are_ones_that_somebody_says(tools: HostTools) -> None:
    quoted = {
        said for row in re.findall(r"^\| ([^|]+) \|", TEXT, re.MULTILINE) for said in re.findall(r'"([^"{}]+)"', row)
    }
    assert quoted
    sources = [*FUNCTIONS.glob("metacortex/**/*.py"), *tools.folder.glob("node_modules/firebase-tools/lib/**/*.js")]
    unsaid = quoted - {message for source in sources for message in quoted if message in source.read_text()}
    assert unsaid == set()


CLIENTS = {"claude": "@anthropic-ai/claude-code", "gemini": "@google/gemini-cli"}
ADDED = re.findall(r"^((?:claude|gemini) .*)$", (ROOT / "docs/CLIENTS.md").read_text(), re.MULTILINE)


def test_the_guide_to_clients_has_a_line_for_each_that_is_installed() -> None:
    assert {line.split()[0] for line in ADDED} == set(CLIENTS)


@pytest.mark.parametrize("line", ADDED)
def test_an_installed_client_understands_its_line(
    tools: HostTools, home: Path, nowhere: Mapping[str, str], line: str
) -> None:
    program, *words = shlex.split(line)
    if words[1] == "login":
        words.append("--help")  # it would open a browser
    understood = subprocess.run(
        [*tools.command(CLIENTS[program], program), *words],
        cwd=home,
        env=nowhere,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert understood.returncode == 0, understood.stderr


def pairs_of(block: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in block.splitlines())
    return {name: filled(value) for name, _, value in pairs}
