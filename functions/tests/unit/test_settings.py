"""Every setting is read strictly, and every fault is told at once, by its place and without a secret."""

import json
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import PROFILES, TOKENS, environment
from metacortex.errors import ConfigurationError
from metacortex.memory import BranchState
from metacortex.profiles import STATES, TOOL_NAMES
from metacortex.settings import TABLE, ModelProvider, Settings, load, project_id, service_name

A_TOKEN = "k9Xw2TqLr7VbNc4Z"
ANYTHING = "gemini-embedding-2"
NAMES = {setting.name: setting for setting in TABLE}

HASH = "$argon2id$v=19$m=65536,t=3,p=4$c29tZXNhbHQ$" + "A" * 43
ORIGINS = ["https://memory.example.org", "https://memory.example.org:8443", "http://127.0.0.1:5001", "http://localhost"]
NO_ORIGINS = [
    "memory.example.org",
    "http://memory.example.org",
    "https://memory.example.org/",
    "https://Memory.example.org",
]
# A way of signing in that is whole, so that a single setting of it is no fault.
GOOGLE = {
    "GOOGLE_SIGN_IN_CLIENT_ID": ANYTHING,
    "GOOGLE_SIGN_IN_CLIENT_SECRET": ANYTHING,
    "OWNER_EMAIL": "owner@example.org",
}
VALID: dict[str, list[tuple[str, Any]]] = {
    "MCP_ADMIN_TOKEN": [(A_TOKEN, A_TOKEN), (f" {A_TOKEN}\n", A_TOKEN)],
    "MCP_ALLOWED_ORIGINS": [
        ("https://claude.ai", ("https://claude.ai",)),
        ("https://claude.ai, http://localhost:6274,", ("https://claude.ai", "http://localhost:6274")),
        ("vscode-webview://1a2b", ("vscode-webview://1a2b",)),
        ("*", ("*",)),
    ],
    "MCP_ALLOWED_TOOLS": [
        ("search_context", ("search_context",)),
        ("fetch_context , save_context", ("save_context", "fetch_context")),
        (",".join(TOOL_NAMES), TOOL_NAMES),
    ],
    "MCP_ALLOWED_FILTER_STATES": [("wip,active", ("active", "wip")), (",".join(STATES), STATES)],
    "MCP_CLIENT_PROFILES_JSON": [("[]", "[]")],
    "MCP_URL_TOKENS": [("true", True), ("FALSE", False)],
    "PUBLIC_BASE_URL": [(url, url) for url in ORIGINS],
    "OWNER_SIGN_IN": [("google", ("google",)), (" google ,", ("google",))],
    "OWNER_PASSPHRASE_HASH": [(HASH, HASH)],
    "GOOGLE_SIGN_IN_CLIENT_ID": [(ANYTHING, ANYTHING)],
    "GOOGLE_SIGN_IN_CLIENT_SECRET": [(ANYTHING, ANYTHING)],
    "GOOGLE_SIGN_IN_ISSUER": [(url, url) for url in ORIGINS],
    "OWNER_EMAIL": [("owner@example.org", "owner@example.org")],
    "OWNER_SUBJECT": [("1234567890", "1234567890")],
    "MODEL_PROVIDER": [(provider, provider) for provider in ("vertex", "gemini", "local")],
    "GEMINI_API_KEY": [(ANYTHING, ANYTHING)],
    "GEMINI_EMBEDDING_MODEL": [(ANYTHING, ANYTHING)],
    "GEMINI_EMBEDDING_DIMENSIONS": [("128", 128), ("2048", 2048)],
    "GEMINI_MULTIMODAL_MODEL": [(ANYTHING, ANYTHING)],
    "GEMINI_MERGE_MODEL": [(ANYTHING, ANYTHING)],
    "GEMINI_VERTEX_LOCATION": [(ANYTHING, ANYTHING)],
    "GEMINI_GENERATION_VERTEX_LOCATION": [(ANYTHING, ANYTHING)],
    "MEMORY_COLLECTION": [("my-memories_2", "my-memories_2")],
    "RETRIEVAL_EVENT_LOGGING_ENABLED": [("true", True), ("False", False)],
    "RETRIEVAL_EVAL_MEMORY_COLLECTION": [("other", "other")],
    "SEARCH_RESULT_LIMIT": [("1", 1), ("020", 20)],
    "RETRIEVAL_MODE": [("vector", "vector"), ("hybrid", "hybrid")],
    "RETRIEVAL_LEXICAL_WEIGHT": [("0", 0), ("1.0", 1), (".25", 0.25)],
    "RETRIEVAL_CANDIDATES": [("1", 1), ("1000", 1000)],
    "SEARCH_MIN_SCORE": [("0.35", 0.35), ("1", 1)],
    "CONSOLIDATION_BATCH_LIMIT": [("2", 2), ("100", 100)],
    "DEFAULT_FILTER_STATE": [(state, state) for state in STATES],
    "SERVICE_NAME": [("my memory", "my memory")],
    "SERVICE_VERSION": [("1.2.3", "1.2.3")],
}
FLAGS = ["yes", "1", "0", "on", "truefalse"]
COLLECTIONS = ["a/b", "__x__", "1a", "a.b", "-", "é", "a" * 101, "a b"]
INVALID: dict[str, list[str]] = {
    "MCP_ADMIN_TOKEN": [
        "short",
        "a" * 15,
        "a" * 40,
        "two words in one token",
        "ключ-из-букв-кириллицы",
        "change-me-change-me",
    ],
    "MCP_ALLOWED_ORIGINS": [
        "claude.ai",
        "https://claude.ai/",
        "https://claude.ai/path",
        "https://claude.ai?x",
        "https://user@claude.ai",
        "https://*.claude.ai",
        "https://Claude.ai",
        "HTTPS://claude.ai",
        "https://",
        "null",
        "https://claude.ai http://x",
        "https://claude.ai,**",
    ],
    "MCP_ALLOWED_TOOLS": ["*", "all", ",", "save_context;fetch_context", "Save_Context", "save_context,unknown"],
    "MCP_ALLOWED_FILTER_STATES": ["draft", "*", ",,", "Active", "active,none"],
    "MCP_CLIENT_PROFILES_JSON": ["{}", "null", "1", '"x"', "[1]", "[", "x", "[" * 100_000],
    "MCP_URL_TOKENS": FLAGS,
    "PUBLIC_BASE_URL": NO_ORIGINS,
    "GOOGLE_SIGN_IN_ISSUER": NO_ORIGINS,
    "OWNER_PASSPHRASE_HASH": ["correct horse battery staple", "$2b$12$abcdefghijklmnopqrstuv", "$argon2id$short"],
    "OWNER_SIGN_IN": ["Google", "passphrase;google", ",", "passphrase,none"],
    "OWNER_EMAIL": ["owner", "owner@", "@example.org", "two words@example.org"],
    "MODEL_PROVIDER": ["openai", "Local", "vertex,local"],
    "GEMINI_EMBEDDING_DIMENSIONS": ["127", "2049", "-768", "768.0", "7e2", "٧٦٨", "1_000", "0x100", "9" * 5_000],
    "MEMORY_COLLECTION": COLLECTIONS,
    "RETRIEVAL_EVENT_LOGGING_ENABLED": FLAGS,
    "RETRIEVAL_EVAL_MEMORY_COLLECTION": COLLECTIONS,
    "SEARCH_RESULT_LIMIT": ["0", "21", "five", "+5", "5 5"],
    "RETRIEVAL_MODE": ["lexical", "HYBRID"],
    "RETRIEVAL_LEXICAL_WEIGHT": ["1.1", "-0.1", "nan", "inf", "1e-1", "half", ".", "½"],
    "RETRIEVAL_CANDIDATES": ["0", "1001"],
    "SEARCH_MIN_SCORE": ["2", "-1", "0,5", "NaN"],
    "CONSOLIDATION_BATCH_LIMIT": ["1", "101"],
    "DEFAULT_FILTER_STATE": ["draft", "ACTIVE", "active,wip"],
}


def faults(settings: dict[str, str]) -> list[str]:
    """What is wrong with an environment, one sentence each."""
    with pytest.raises(ConfigurationError) as raised:
        load(settings)
    return list(raised.value.faults)


def test_every_setting_of_the_table_is_tested_here() -> None:
    assert VALID.keys() == NAMES.keys()
    assert INVALID.keys() <= NAMES.keys()


@pytest.mark.parametrize(("name", "text", "value"), [(name, *pair) for name, pairs in VALID.items() for pair in pairs])
def test_a_valid_value_is_read(name: str, text: str, value: object) -> None:
    # With a key, so that the gemini route is whole.
    assert getattr(load(environment(GEMINI_API_KEY="k", **GOOGLE) | {name: text}), NAMES[name].field) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [(name, text) for name, texts in INVALID.items() for text in texts],
    ids=lambda value: str(value)[:40],
)
def test_an_invalid_value_is_one_fault_that_begins_with_its_name(name: str, text: str) -> None:
    [fault] = faults(environment(**{name: text}))
    assert fault.startswith(name)
    assert fault.endswith(".")


@pytest.mark.parametrize("name", sorted(NAMES.keys() - INVALID.keys()))
def test_a_setting_without_invalid_values_takes_any_text(name: str) -> None:
    assert getattr(load(environment(**GOOGLE) | {name: "any text: {}"}), NAMES[name].field) == "any text: {}"


@pytest.mark.parametrize("name", [name for name in NAMES if name != "MCP_ADMIN_TOKEN"])
@pytest.mark.parametrize("blank", ["", " \n"])
def test_a_blank_value_means_the_default(name: str, blank: str) -> None:
    minimal = {"MCP_ADMIN_TOKEN": A_TOKEN}
    assert load(minimal | {name: blank}) == load(minimal)


@pytest.mark.parametrize("blank", [{}, {"MCP_ADMIN_TOKEN": ""}, {"MCP_ADMIN_TOKEN": " "}])
def test_the_admin_token_alone_is_required(blank: dict[str, str]) -> None:
    [fault] = faults(blank)
    assert fault.startswith("MCP_ADMIN_TOKEN is not set")


def test_all_faults_are_told_at_once() -> None:
    wrong = {name: texts[0] for name, texts in INVALID.items()}
    found = faults(wrong)
    assert len(found) == len(wrong)
    assert all(any(fault.startswith(name) for fault in found) for name in wrong)


def test_evaluation_never_uses_the_collection_of_the_memories() -> None:
    [fault] = faults(environment(MEMORY_COLLECTION="same", RETRIEVAL_EVAL_MEMORY_COLLECTION="same"))
    assert fault.startswith("RETRIEVAL_EVAL_MEMORY_COLLECTION")


# Tokens as people make them: base64, hexadecimal, letters, and letters with every mark there is on a keyboard.
ENCODINGS = [
    string.ascii_letters + string.digits + "+/",
    "0123456789abcdef",
    string.ascii_letters,
    string.printable[:94],
]
SECRETS = st.builds(
    lambda data, letters: "".join(letters[byte % len(letters)] for byte in data),
    st.binary(min_size=16, max_size=64),
    st.sampled_from(ENCODINGS),
)


@given(secret=SECRETS)
def test_no_fault_holds_a_secret(secret: str) -> None:
    profiles = [{**PROFILES[0], "token": secret}, {"token": secret, "id": 7}, {"tokenSha256": secret, "x": secret}]
    for wrong in (
        {"MCP_CLIENT_PROFILES_JSON": json.dumps(profiles), "MCP_ADMIN_TOKEN": "x"},
        {"MCP_CLIENT_PROFILES_JSON": json.dumps({secret: secret}), "GEMINI_API_KEY": secret},
        {"MCP_CLIENT_PROFILES_JSON": json.dumps([{secret: secret}, secret])},
        {"MCP_CLIENT_PROFILES_JSON": f'[{{"token": "{secret}",}}]', "MCP_URL_TOKENS": secret},
        {"MCP_CLIENT_PROFILES_JSON": secret + "{"},
    ):
        assert secret not in str(ConfigurationError(faults(environment(**wrong))))


# --- What follows from several settings ---


@pytest.mark.parametrize(
    ("settings", "provider"),
    [
        ({}, ModelProvider.VERTEX),
        ({"GEMINI_API_KEY": "k"}, ModelProvider.VERTEX),
        ({"FIRESTORE_EMULATOR_HOST": "127.0.0.1:1"}, ModelProvider.LOCAL),
        ({"FUNCTIONS_EMULATOR": "true"}, ModelProvider.LOCAL),
        ({"FUNCTIONS_EMULATOR": "false"}, ModelProvider.VERTEX),
        ({"FIRESTORE_EMULATOR_HOST": "127.0.0.1:1", "GEMINI_API_KEY": "k"}, ModelProvider.GEMINI),
        ({"FIRESTORE_EMULATOR_HOST": "127.0.0.1:1", "GEMINI_API_KEY": " "}, ModelProvider.LOCAL),
        ({"FIRESTORE_EMULATOR_HOST": "127.0.0.1:1", "MODEL_PROVIDER": "vertex"}, ModelProvider.VERTEX),
        ({"FUNCTIONS_EMULATOR": "true", "GEMINI_API_KEY": "k", "MODEL_PROVIDER": "local"}, ModelProvider.LOCAL),
        ({"MODEL_PROVIDER": "gemini", "GEMINI_API_KEY": "k"}, ModelProvider.GEMINI),
    ],
)
def test_the_provider_is_the_configured_one_or_follows_from_the_surroundings(
    settings: dict[str, str], provider: ModelProvider
) -> None:
    assert load({"MCP_ADMIN_TOKEN": A_TOKEN} | settings).provider is provider


def test_the_gemini_route_without_its_key_is_a_fault() -> None:
    [fault] = faults(environment(MODEL_PROVIDER="gemini"))
    assert fault.startswith("GEMINI_API_KEY is not set")


BASE = {"PUBLIC_BASE_URL": "https://memory.example.org"}
BOTH = {**BASE, **GOOGLE, "OWNER_PASSPHRASE_HASH": HASH}


@pytest.mark.parametrize(
    ("settings", "ways"),
    [
        ({**BASE, "OWNER_PASSPHRASE_HASH": HASH}, {"passphrase"}),
        ({**BASE, **GOOGLE}, {"google"}),
        (BOTH, {"passphrase", "google"}),
        ({**BOTH, "OWNER_SIGN_IN": "passphrase,google"}, {"passphrase", "google"}),
        ({**BOTH, "OWNER_SIGN_IN": "passphrase"}, {"passphrase"}),
        ({**BOTH, "OWNER_SIGN_IN": "google"}, {"google"}),
    ],
)
def test_the_owner_signs_in_as_the_settings_say_or_in_every_way_that_is_set_up(
    settings: dict[str, str], ways: set[str]
) -> None:
    loaded = load(environment(**settings))
    offered = {"passphrase": loaded.has_passphrase, "google": loaded.has_google}
    assert {way for way, is_offered in offered.items() if is_offered} == ways


@pytest.mark.parametrize(
    ("settings", "lacking"),
    [
        (BASE, ["OWNER_PASSPHRASE_HASH"]),
        ({**BASE, "OWNER_SIGN_IN": "passphrase,google"}, ["GOOGLE_SIGN_IN_CLIENT_ID", "OWNER_PASSPHRASE_HASH"]),
        ({**BASE, **GOOGLE, "OWNER_SIGN_IN": "google,passphrase"}, ["OWNER_PASSPHRASE_HASH"]),
        ({**BASE, "OWNER_PASSPHRASE_HASH": HASH, "OWNER_SIGN_IN": "google"}, ["GOOGLE_SIGN_IN_CLIENT_ID"]),
        ({**BOTH, "OWNER_EMAIL": "", "OWNER_SIGN_IN": "google"}, ["OWNER_EMAIL or OWNER_SUBJECT"]),
        ({**BOTH, "OWNER_EMAIL": "", "OWNER_SIGN_IN": "passphrase"}, []),
        ({**BASE, "OWNER_PASSPHRASE_HASH": HASH, "OWNER_EMAIL": "me@example.org"}, ["GOOGLE_SIGN_IN_CLIENT_ID"]),
    ],
)
def test_a_way_of_signing_in_that_is_not_whole_is_a_fault(settings: dict[str, str], lacking: list[str]) -> None:
    try:
        load(environment(**settings))
        found: list[str] = []
    except ConfigurationError as error:
        found = list(error.faults)
    assert [fault.partition(" is not set")[0] for fault in found] == lacking


def admin(**settings: str) -> Any:
    return load({"MCP_ADMIN_TOKEN": A_TOKEN} | settings).profiles["default"]


def test_the_admin_may_do_everything_by_default() -> None:
    profile = admin()
    assert profile.is_admin
    assert (profile.tools, profile.readable_states, profile.writable_states) == (TOOL_NAMES, STATES, STATES)
    assert (profile.default_state, profile.origins, profile.url_token_allowed) == ("active", (), False)
    assert profile.accepts(A_TOKEN)


def test_the_admin_may_be_narrowed() -> None:
    profile = admin(
        MCP_ALLOWED_TOOLS="search_context",
        MCP_ALLOWED_FILTER_STATES="wip,merged",
        MCP_ALLOWED_ORIGINS="https://x.example",
    )
    assert profile.tools == ("search_context",)
    assert profile.readable_states == (BranchState.MERGED, BranchState.WIP)
    assert profile.default_state is BranchState.MERGED
    assert profile.origins == ("https://x.example",)


def test_settings_show_no_secret() -> None:
    settings = load(environment(GEMINI_API_KEY="a-gemini-key-of-the-tests"))
    shown = f"{settings}"
    assert not any(secret in shown for secret in (*TOKENS.values(), "a-gemini-key-of-the-tests"))
    assert "digest" not in shown
    assert "memory_vectors" in shown


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, None),
        ({"GCLOUD_PROJECT": "one", "GOOGLE_CLOUD_PROJECT": "two"}, "one"),
        ({"GCLOUD_PROJECT": "", "GOOGLE_CLOUD_PROJECT": "two"}, "two"),
        ({"GCP_PROJECT": "three"}, "three"),
        ({"FIREBASE_CONFIG": '{"projectId": "four"}'}, "four"),
        ({"FIREBASE_CONFIG": "{}"}, None),
        ({"FIREBASE_CONFIG": "[]"}, None),
        ({"FIREBASE_CONFIG": "/a/file.json"}, None),
    ],
)
def test_the_project_is_known_by_any_of_its_names(settings: dict[str, str], expected: str | None) -> None:
    assert project_id(settings) == expected


def test_the_service_name_needs_no_valid_settings() -> None:
    assert service_name({"SERVICE_NAME": "mine", "SEARCH_RESULT_LIMIT": "x"}) == "mine"
    assert service_name({}) == Settings.service_name
