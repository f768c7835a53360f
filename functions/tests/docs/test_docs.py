"""Documentation that lies fails the build.

Tables between `<!-- made from … -->` marks are written by `functions/venv/bin/python -m pytest functions/tests/docs --golden`.
"""

import json
import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from metacortex import errors
from metacortex.errors import ConfigurationError, MetaCortexError
from metacortex.profiles import PLACEHOLDER_DIGEST, PROFILE_FIELDS, TOOL_NAMES, token_digest
from metacortex.settings import FUNCTION_NAME, REGION, TABLE, Setting, load
from metacortex.tools.payloads import STATUS_CODES, status_code
from metacortex.tools.schema import arguments_schema
from metacortex.tools.server import TOOLS
from ops.checkout import ROOT
from ops.cli import app
from ops.endpoints import PREFIX, Endpoint, client_lines

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
MADE = re.compile(r"(<!-- made from (?P<source>[^>]+) -->\n)(?P<made>.*?)(<!-- end -->)", re.DOTALL)


def shown_default(setting: Setting) -> str:
    if setting.shown:
        return setting.shown
    value = setting.default
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def settings_table() -> str:
    rows = [f"| `{setting.name}` | {shown_default(setting)} | {setting.help} |" for setting in TABLE]
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *rows]) + "\n"


def arguments_table(tool: str) -> str:
    schema = arguments_schema(TOOLS[tool].arguments)
    required = schema.get("required", [])
    rows = [
        f"| `{name}`{' (required)' if name in required else ''} | {kind(described)} | {described['description']} |"
        for name, described in schema["properties"].items()
    ]
    return "\n".join(["| argument | type | meaning |", "|---|---|---|", *rows]) + "\n"


def kind(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(part["type"] for part in schema["anyOf"])
    if "enum" in schema:
        return " · ".join(schema["enum"])
    return f"list of {schema['items']['type']}s" if schema["type"] == "array" else schema["type"]


def errors_table() -> str:
    kinds = sorted(STATUS_CODES, key=lambda error: (STATUS_CODES[error], error.code))
    rows = [f"| {STATUS_CODES[error]} | `{error.code}` |" for error in kinds]
    return "\n".join(["| status | code |", "|---|---|", *rows, f"| 500 | `{MetaCortexError.code}` |"]) + "\n"


SOURCES: dict[str, Callable[[], str]] = {
    "the table of settings": settings_table,
    "the table of errors": errors_table,
    **{f"the arguments of {tool}": lambda tool=tool: arguments_table(tool) for tool in TOOLS},
}
READERS: dict[str, Callable[[str], object]] = {"json": json.loads, "toml": tomllib.loads}
# The clients of the guide whose lines ./scripts/dev prints too, and the profiles that they have there.
SHOWN_CLIENTS = {
    "Claude Code": "claude-code",
    "Codex, in ~/.codex/config.toml": "codex",
    "Codex, in the shell that starts it": "codex",
    "VS Code, in .vscode/mcp.json": "vscode",
    "Cursor, in .cursor/mcp.json": "cursor",
    "curl": "scripts",
}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_tables_are_what_the_code_says(document: Path, pytestconfig: pytest.Config) -> None:
    text = document.read_text()
    right = MADE.sub(lambda mark: mark[1] + SOURCES[mark["source"]]() + mark[4], text)
    if pytestconfig.getoption("golden"):
        document.write_text(right)
    assert text == right or pytestconfig.getoption("golden")


def test_every_table_is_in_some_document() -> None:
    marks = [mark["source"] for document in DOCUMENTS for mark in MADE.finditer(document.read_text())]
    assert sorted(marks) == sorted(SOURCES)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", document.read_text())
    missing = [link for link in links if not (document.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_into_a_page_lead_to_a_heading(document: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", document.read_text())
    missing = [
        f"{page}#{anchor}"
        for page, anchor in links
        if anchor not in anchors(document.parent / page if page else document)
    ]
    assert missing == []


def anchors(document: Path) -> set[str]:
    """What the headings of a page can be linked by."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_examples_can_be_read(document: Path) -> None:
    for language, example in re.findall(r"^```(json|toml)\n(.*?)^```", document.read_text(), re.DOTALL | re.MULTILINE):
        READERS[language](example)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_paths_that_are_named_exist(document: Path) -> None:
    named = set(re.findall(r"`((?:functions|scripts|docs)/[\w./-]+)`", document.read_text()))
    local_only = {"functions/.env", "functions/.env.production", "functions/.secret.local", "functions/venv"}
    missing = [path for path in named - local_only if not (ROOT / path).exists()]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_tests_that_are_named_exist(document: Path) -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", document.read_text())
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not re.search(rf"^(?:async )?def {name}\(", (ROOT / "functions/tests" / file).read_text(), re.MULTILINE)
    ]
    assert missing == []


def test_the_example_file_names_every_setting_that_is_no_secret() -> None:
    lines = (ROOT / "functions/.env.example").read_text().splitlines()
    named = [line.removeprefix("#").partition("=")[0] for line in lines if re.match(r"#?[A-Z_]+=", line)]
    assert named == [setting.name for setting in TABLE if not setting.secret]


def test_the_example_file_is_a_valid_configuration() -> None:
    lines = (ROOT / "functions/.env.example").read_text().splitlines()
    pairs = [line.removeprefix("#").partition("=") for line in lines if re.match(r"#?[A-Z_]+=", line)]
    load({name: value for name, _, value in pairs} | {"MCP_ADMIN_TOKEN": "a-token-that-is-long-enough"})


def test_the_profile_in_the_configuration_guide_is_valid_and_shows_every_field() -> None:
    text = (ROOT / "docs/CONFIGURATION.md").read_text()
    [example] = re.findall(r"```json\n(\[.*?\])\n```", text, re.DOTALL)
    with pytest.raises(ConfigurationError, match=r"tokenSha256 is a placeholder"):
        load({"MCP_ADMIN_TOKEN": "a-token-that-is-long-enough", "MCP_CLIENT_PROFILES_JSON": example})
    filled = example.replace(PLACEHOLDER_DIGEST, token_digest("another-token-that-is-long").hex())
    settings = load({"MCP_ADMIN_TOKEN": "a-token-that-is-long-enough", "MCP_CLIENT_PROFILES_JSON": filled})
    assert set(settings.profiles) == {"default", "claude-web"}
    [profile] = json.loads(example)
    assert set(profile) == set(PROFILE_FIELDS) - {"token"}


def test_the_clients_guide_shows_the_lines_that_dev_prints() -> None:
    text = (ROOT / "docs/CLIENTS.md").read_text()
    shown = {name: lines_of(name, client) for name, client in SHOWN_CLIENTS.items()}
    assert [name for name, lines in shown.items() if lines not in text] == []
    assert set(shown) == set(client_lines(Endpoint("any", "/mcp", None, ()), ""))


def lines_of(name: str, client: str) -> str:
    """What ./scripts/dev prints for a client, with the URL that a deployed function has."""
    printed = client_lines(Endpoint(client, f"/clients/{client}/mcp", None, ()), "")[name]
    return printed.replace(PREFIX, f"https://{REGION}-PROJECT.cloudfunctions.net/{FUNCTION_NAME}")


def test_every_profile_in_the_clients_guide_can_be_made() -> None:
    stored = "[]"
    for line in re.findall(
        r"^\./scripts/metacortex (profile add .*)$", (ROOT / "docs/CLIENTS.md").read_text(), re.MULTILINE
    ):
        made = CliRunner().invoke(app, [*shlex.split(line), "--print-json", "--file", "-"], input=stored)
        assert made.exit_code == 0, f"{line}: {made.output}"
        stored = made.stdout
    settings = load({"MCP_ADMIN_TOKEN": "a-token-that-is-long-enough", "MCP_CLIENT_PROFILES_JSON": stored})
    assert set(settings.profiles) >= set(SHOWN_CLIENTS.values())
    assert {profile.id for profile in settings.profiles.values() if profile.url_token_allowed} == {
        "chatgpt-url",
        "claude-web-url",
    }


def test_every_kind_of_error_has_a_status() -> None:
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, MetaCortexError)}
    internal = {kind for kind in kinds if status_code(kind.__new__(kind)) == 500}
    assert internal == {MetaCortexError, errors.ConfigurationError}


def test_the_tools_that_exist_are_tools_a_profile_may_name() -> None:
    assert set(TOOLS) <= set(TOOL_NAMES)
