"""A secret is bound where the dotenv files that are deployed need it, as Firebase's command line reads them."""

import json
from pathlib import Path

import pytest

from dotenvs import CHOOSING, OTHERS
from metacortex.declaration import secrets

ALWAYS = ("MCP_ADMIN_TOKEN", "MCP_CLIENT_PROFILES_JSON")
DEPLOYED = {"GCLOUD_PROJECT": "demo-mine"}
EMULATED = DEPLOYED | {"FUNCTIONS_EMULATOR": "true"}
ALIASES = json.dumps({"projects": {"production": "demo-mine", "spare": "demo-other"}})


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """An empty folder of the function, in a checkout that names two projects."""
    (tmp_path / ".firebaserc").write_text(ALIASES)
    (tmp_path / "functions").mkdir()
    return tmp_path / "functions"


def key_is_bound(source: Path, environment: dict[str, str], **files: str) -> bool:
    for name, text in files.items():
        (source / f".{name.replace('__', '.')}").write_text(text)
    bound = secrets(environment, source)
    assert bound[:2] == ALWAYS
    assert bound[2:] in {(), ("GEMINI_API_KEY",)}
    return len(bound) == 3


def test_without_dotenv_files_two_secrets_are_bound(source: Path) -> None:
    assert secrets({}, source) == ALWAYS
    assert secrets(DEPLOYED, source) == ALWAYS


@pytest.mark.parametrize("text", CHOOSING)
def test_a_file_that_chooses_the_route_binds_the_key(source: Path, text: str) -> None:
    assert key_is_bound(source, {}, env=text)


@pytest.mark.parametrize("text", OTHERS)
def test_any_other_file_does_not(source: Path, text: str) -> None:
    assert not key_is_bound(source, {}, env=text)


@pytest.mark.parametrize("name", ["env__demo-mine", "env__production"])
def test_the_files_of_the_project_and_of_its_alias_override_the_common_one(source: Path, name: str) -> None:
    assert key_is_bound(source, DEPLOYED, env="MODEL_PROVIDER=vertex", **{name: "MODEL_PROVIDER=gemini"})
    assert not key_is_bound(source, DEPLOYED, env="MODEL_PROVIDER=gemini", **{name: "MODEL_PROVIDER=vertex"})
    assert key_is_bound(source, DEPLOYED, env="MODEL_PROVIDER=gemini", **{name: "SEARCH_RESULT_LIMIT=7"})


@pytest.mark.parametrize("name", ["env__demo-other", "env__spare", "env__example", "env__local", "env__unheard-of"])
def test_no_other_file_counts(source: Path, name: str) -> None:
    assert not key_is_bound(source, DEPLOYED, **{name: "MODEL_PROVIDER=gemini"})


@pytest.mark.parametrize("name", ["env__demo-mine", "env__production"])
def test_without_a_project_only_the_common_file_counts(source: Path, name: str) -> None:
    assert not key_is_bound(source, {}, **{name: "MODEL_PROVIDER=gemini"})


def test_the_local_file_counts_in_the_emulator_and_last(source: Path) -> None:
    assert key_is_bound(source, EMULATED, env__production="MODEL_PROVIDER=vertex", env__local="MODEL_PROVIDER=gemini")


def test_what_the_shell_says_is_not_deployed(source: Path) -> None:
    assert not key_is_bound(source, DEPLOYED | {"MODEL_PROVIDER": "gemini"})


@pytest.mark.parametrize(
    "aliases", ["", "{", "[]", "null", "{}", '{"projects": []}', '{"projects": {"production": 7}}', b"\xff"]
)
def test_a_wrong_list_of_aliases_breaks_nothing(source: Path, aliases: str | bytes) -> None:
    broken = aliases if isinstance(aliases, bytes) else aliases.encode()
    (source.parent / ".firebaserc").write_bytes(broken)
    assert key_is_bound(source, DEPLOYED, env="MODEL_PROVIDER=gemini", env__production="MODEL_PROVIDER=vertex")


def test_a_wrong_dotenv_file_breaks_nothing(source: Path) -> None:
    (source / ".env").write_bytes(b"\xff\xfe\nMODEL_PROVIDER=gemini")
    assert key_is_bound(source, DEPLOYED)
    (source / ".env.production").mkdir()
    assert key_is_bound(source, DEPLOYED)


# --- Signing in ---

BASE = "PUBLIC_BASE_URL=https://memory.example.org\n"
GOOGLE = "GOOGLE_SIGN_IN_CLIENT_ID=an-id.apps.example.org\n"
PASSPHRASE_HASH = "OWNER_PASSPHRASE_HASH"
GOOGLE_SECRET = "GOOGLE_SIGN_IN_CLIENT_SECRET"


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        (BASE, [PASSPHRASE_HASH]),
        ('export PUBLIC_BASE_URL = "https://memory.example.org:8443" # here\n', [PASSPHRASE_HASH]),
        (BASE + GOOGLE, [GOOGLE_SECRET]),
        (GOOGLE, [GOOGLE_SECRET]),
        (f"{BASE}GOOGLE_SIGN_IN_CLIENT_ID=\n", [PASSPHRASE_HASH]),
        (f"{BASE}MODEL_PROVIDER=gemini\n", ["GEMINI_API_KEY", PASSPHRASE_HASH]),
        (f"{BASE}PUBLIC_BASE_URL=\n", []),
        (f"#{BASE}#{GOOGLE}", []),
        (f"{BASE}{GOOGLE}OWNER_SIGN_IN=passphrase,google\n", [PASSPHRASE_HASH, GOOGLE_SECRET]),
        (f"{BASE}{GOOGLE}OWNER_SIGN_IN='google, passphrase' # both\n", [PASSPHRASE_HASH, GOOGLE_SECRET]),
        (f"{BASE}{GOOGLE}OWNER_SIGN_IN=passphrase\n", [PASSPHRASE_HASH]),
        (f"{BASE}OWNER_SIGN_IN=google\n", [GOOGLE_SECRET]),
        (f"{BASE}{GOOGLE}OWNER_SIGN_IN=\n", [GOOGLE_SECRET]),
    ],
)
def test_the_secret_of_each_way_in_which_the_owner_signs_in_is_bound(source: Path, text: str, bound: list[str]) -> None:
    (source / ".env").write_text(text)
    assert secrets({}, source) == (*ALWAYS, *bound)


def test_the_file_of_the_project_turns_signing_in_on_off_or_over_to_google(source: Path) -> None:
    (source / ".env.production").write_text(BASE)
    assert secrets({}, source) == ALWAYS
    assert secrets(DEPLOYED, source) == (*ALWAYS, PASSPHRASE_HASH)
    (source / ".env").write_text(GOOGLE)
    assert secrets(DEPLOYED, source) == (*ALWAYS, GOOGLE_SECRET)
    (source / ".env.production").write_text("PUBLIC_BASE_URL=\nGOOGLE_SIGN_IN_CLIENT_ID=\n")
    assert secrets(DEPLOYED, source) == ALWAYS
