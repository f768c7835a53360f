"""What a checkout configures for the service of a project."""

import json
from pathlib import Path

import pytest

from metacortex.settings import ModelProvider
from ops.model_settings import model_settings, read_checkout
from ops.processes import OpsError

NAMES = ("GEMINI_EMBEDDING_MODEL", "MODEL_PROVIDER", "GEMINI_API_KEY", "MCP_CLIENT_PROFILES_JSON")


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the function in a checkout that calls a project prod and also staging."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("ops.model_settings.ROOT", tmp_path)
    projects = {"prod": "some-project", "staging": "some-project", "other": "other-project"}
    (tmp_path / ".firebaserc").write_text(json.dumps({"projects": projects}))
    folder = tmp_path / "functions"
    folder.mkdir()
    return folder


def write(folder: Path, name: str, model: str) -> None:
    (folder / name).write_text(f"GEMINI_EMBEDDING_MODEL={model}\n")


def test_the_file_of_the_project_outdoes_that_of_all_and_is_outdone_by_secrets_and_environment(
    functions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def model() -> str:
        return read_checkout("some-project")["GEMINI_EMBEDDING_MODEL"]

    write(functions, ".env", "of-all")
    write(functions, ".env.other", "of-another")
    assert model() == "of-all"
    write(functions, ".env.prod", "of-the-project")
    assert model() == "of-the-project"
    write(functions, ".secret.local", "secret")
    assert model() == "secret"
    monkeypatch.setenv("GEMINI_EMBEDDING_MODEL", "of-the-environment")
    assert model() == "of-the-environment"


def test_without_a_project_its_files_are_left_out(functions: Path) -> None:
    write(functions, ".env", "of-all")
    write(functions, ".env.prod", "of-the-project")
    assert read_checkout(None)["GEMINI_EMBEDDING_MODEL"] == "of-all"


def test_a_project_s_file_may_have_its_id(functions: Path) -> None:
    write(functions, ".env.some-project", "of-the-project")
    assert read_checkout("some-project")["GEMINI_EMBEDDING_MODEL"] == "of-the-project"


def test_two_files_of_one_project_are_refused(functions: Path) -> None:
    write(functions, ".env.prod", "one")
    write(functions, ".env.staging", "other")
    with pytest.raises(OpsError, match=r"\.env\.prod and .*\.env\.staging are both of some-project; keep one"):
        read_checkout("some-project")


def test_a_checkout_without_aliases_has_settings_too(functions: Path) -> None:
    (functions.parent / ".firebaserc").unlink()
    write(functions, ".env", "of-all")
    assert read_checkout("some-project")["GEMINI_EMBEDDING_MODEL"] == "of-all"


def test_settings_of_clients_need_not_be_valid_and_those_of_models_must() -> None:
    settings = model_settings({"MODEL_PROVIDER": "local", "MCP_CLIENT_PROFILES_JSON": "[{", "MCP_ADMIN_TOKEN": "x"})
    assert settings.provider is ModelProvider.LOCAL
    with pytest.raises(OpsError, match="GEMINI_EMBEDDING_DIMENSIONS") as raised:
        model_settings({"GEMINI_EMBEDDING_DIMENSIONS": "many"})
    assert "MCP" not in str(raised.value)
