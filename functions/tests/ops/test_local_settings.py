"""The settings of a checkout, and the tokens it makes for itself."""

import json
import stat
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from metacortex.settings import load
from ops.local_settings import generate_missing, locked, read_file, read_settings, write
from ops.processes import OpsError


@pytest.fixture
def secrets_file(tmp_path: Path) -> Path:
    return tmp_path / ".secret.local"


def read(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    return read_settings(environment, env_file=folder / ".env", secrets_file=folder / ".secret.local")


def test_the_environment_wins_over_secrets_and_secrets_over_env(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=env\nB=env\nC=env\n")
    (tmp_path / ".secret.local").write_text("B=secret\nC=secret\n")
    assert read(tmp_path, {"C": "environment"}) == {"A": "env", "B": "secret", "C": "environment"}


def test_an_empty_value_in_the_environment_wins_too_but_an_empty_token_is_none(tmp_path: Path) -> None:
    (tmp_path / ".secret.local").write_text("MODEL_PROVIDER=gemini\nMCP_ADMIN_TOKEN=stored-stored-stored\n")
    settings = read(tmp_path, {"MODEL_PROVIDER": "", "MCP_ADMIN_TOKEN": ""})
    assert settings == {"MODEL_PROVIDER": "", "MCP_ADMIN_TOKEN": "stored-stored-stored"}


def test_nothing_in_a_value_is_expanded(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text('TOKEN="pa$HOME${HOME}"\nNAME_ONLY\n')
    assert read(tmp_path, {}) == {"TOKEN": "pa$HOME${HOME}"}


@pytest.mark.parametrize("name", [".env", ".secret.local"])
@pytest.mark.parametrize("bad", ['MCP_CLIENT_PROFILES_JSON=\'[{"id": "mine"}]', 'A="x"y', "=value"])
def test_a_line_that_is_no_setting_is_told_with_its_place(tmp_path: Path, name: str, bad: str) -> None:
    (tmp_path / name).write_text(f"# mine\nMCP_ADMIN_TOKEN=stored-stored-stored\n{bad}\nB=b\n")
    with pytest.raises(OpsError) as raised:
        read(tmp_path, {})
    assert str(raised.value) == f"1 fault in {tmp_path / name}:\n  Line 3 is not NAME=value; look for a missing quote."


def test_nothing_is_made_beside_a_line_that_is_no_setting(secrets_file: Path) -> None:
    text = "MCP_CLIENT_PROFILES_JSON='[]\n"
    secrets_file.write_text(text)
    with pytest.raises(OpsError, match="Line 1 is not NAME=value"):
        generate_missing({}, secrets_file=secrets_file)
    assert secrets_file.read_text() == text


def test_a_file_that_is_no_text_is_told(secrets_file: Path) -> None:
    secrets_file.write_bytes(b"MCP_ADMIN_TOKEN=\xff\n")
    with pytest.raises(OpsError, match=r"\.secret\.local is not UTF-8 text"):
        read_file(secrets_file)


def test_the_mark_that_some_editors_put_first_is_no_part_of_a_name(secrets_file: Path) -> None:
    secrets_file.write_bytes(b"\xef\xbb\xbfNAME=before\n")
    write(secrets_file, {"NAME": "value"})
    assert secrets_file.read_text() == "NAME=value\n"


def test_missing_tokens_are_made_once_for_the_owner_alone(secrets_file: Path) -> None:
    first = generate_missing({}, secrets_file=secrets_file)
    assert stat.S_IMODE(secrets_file.stat().st_mode) == 0o600
    assert read_file(secrets_file) == first
    assert generate_missing(read_file(secrets_file), secrets_file=secrets_file) == first
    assert generate_missing({}, secrets_file=secrets_file) == first


def test_what_is_made_is_a_valid_installation_with_one_agent(secrets_file: Path) -> None:
    settings = load(generate_missing({}, secrets_file=secrets_file))
    assert list(settings.profiles) == ["default", "agent"]
    assert settings.profiles["agent"].tools == ("save_context", "search_context", "fetch_context")


def test_tokens_without_a_file_are_written_nowhere(secrets_file: Path) -> None:
    settings = generate_missing({"MCP_CLIENT_PROFILES_JSON": "[]"}, secrets_file=None)
    assert settings["MCP_CLIENT_PROFILES_JSON"] == "[]"
    assert len(settings["MCP_ADMIN_TOKEN"]) >= 32
    assert not secrets_file.exists()


def test_other_lines_of_the_file_stay_as_they_are(secrets_file: Path) -> None:
    kept = "# mine\nGEMINI_API_KEY='a b'\n\nexport OTHER=\"x\\ny\""
    secrets_file.write_text(f"MCP_ADMIN_TOKEN=\n{kept}")
    secrets_file.chmod(0o644)
    generate_missing({}, secrets_file=secrets_file)
    assert kept in secrets_file.read_text()
    assert stat.S_IMODE(secrets_file.stat().st_mode) == 0o600
    assert secrets_file.read_text().count("MCP_ADMIN_TOKEN=") == 1
    assert [path.name for path in secrets_file.parent.iterdir()] == [secrets_file.name]


@pytest.mark.parametrize("value", ["plain-token_1", "with space", "it's", "a\\b", '[{"id": "x"}]', "a$b#c", "ü"])
def test_any_value_is_read_as_it_was_stored(secrets_file: Path, value: str) -> None:
    write(secrets_file, {"NAME": "before"})
    write(secrets_file, {"NAME": value})
    assert read_file(secrets_file) == {"NAME": value}


def test_a_link_stays_a_link(tmp_path: Path, secrets_file: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    secrets_file.symlink_to(tmp_path / "elsewhere/secrets")
    write(secrets_file, {"NAME": "value"})
    assert secrets_file.is_symlink()
    assert read_file(tmp_path / "elsewhere/secrets") == {"NAME": "value"}


def test_two_that_store_at_once_both_leave_what_they_stored(secrets_file: Path) -> None:
    def add(number: int) -> None:
        with locked(secrets_file):
            write(secrets_file, {f"NAME_{number}": str(number)})

    with ThreadPoolExecutor() as pool:
        list(pool.map(add, range(20)))
    assert len(read_file(secrets_file)) == 20


def test_two_first_starts_at_once_agree_on_the_tokens(secrets_file: Path) -> None:
    with ThreadPoolExecutor() as pool:
        made = list(pool.map(lambda _: generate_missing({}, secrets_file=secrets_file), range(8)))
    assert all(settings == made[0] for settings in made)
    assert json.loads(made[0]["MCP_CLIENT_PROFILES_JSON"])[0]["id"] == "agent"
