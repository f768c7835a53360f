"""Every setting in one table: its name, default, meaning and how it is read. The environment is read nowhere else."""

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from metacortex.errors import ConfigurationError
from metacortex.memory import BranchState
from metacortex.profiles import (
    ADMIN_ID,
    STATES,
    TOOL_NAMES,
    Profile,
    default_state,
    parse_origins,
    parse_profiles,
    shared_token_faults,
    token_digest,
    token_fault,
)
from metacortex.rules import SEARCH_RESULTS

FUNCTION_NAME = "metaCortexMcp"
REGION = "us-central1"
VERSION = "0.4.0"

T = TypeVar("T")
Parse = Callable[[str], T]


class ModelProvider(StrEnum):
    VERTEX = "vertex"
    GEMINI = "gemini"
    LOCAL = "local"


class SignInWay(StrEnum):
    PASSPHRASE = "passphrase"  # noqa: S105 - a way, not one
    GOOGLE = "google"


class RetrievalMode(StrEnum):
    HYBRID = "hybrid"
    VECTOR = "vector"


# --- How values are read: each raises ValueError with the end of a sentence that begins with the setting's name ---


def _text(value: str) -> str:
    return value


def _flag(value: str) -> bool:
    if value.lower() not in {"true", "false"}:
        raise ValueError("must be true or false")
    return value.lower() == "true"


def _whole(low: int, high: int) -> Parse[int]:
    def parse(value: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", value) or not low <= int(value) <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return int(value)

    return parse


def _fraction(value: str) -> float:
    if not re.fullmatch(r"0|1|[01]?\.[0-9]{1,9}", value) or float(value) > 1:
        raise ValueError("must be a number from 0 to 1")
    return float(value)


def _one_of(*allowed: Any) -> Parse[Any]:
    def parse(value: str) -> Any:
        if value not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}")
        return next(name for name in allowed if name == value)

    return parse


def _several_of(*allowed: Any) -> Parse[tuple[Any, ...]]:
    def parse(value: str) -> tuple[Any, ...]:
        names = _list(value)
        if not names or any(name not in allowed for name in names):
            raise ValueError(f"must be a list, separated by commas, of names out of {', '.join(allowed)}")
        return tuple(name for name in allowed if name in names)

    return parse


def _list(value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


def _origins(value: str) -> tuple[str, ...]:
    faults: list[str] = []
    origins = parse_origins(_list(value), "entry", faults)
    if faults:
        raise ValueError("must be a list, separated by commas, of origins such as https://claude.ai, without paths")
    return origins


def _collection(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,99}", value):
        raise ValueError("must be the name of a Firestore collection: a letter, then letters, digits, - or _")
    return value


def _server_origin(value: str) -> str:
    found = re.fullmatch(
        rf"(https://{_LABEL}(?:\.{_LABEL})*|http://(?:localhost|127\.0\.0\.1))(?::([0-9]{{1,5}}))?", value
    )
    if not found or (found[2] and not _is_told_port(found[1], found[2])):
        raise ValueError(
            "must be an origin in lower case without a path, a slash at its end or the port that goes without saying, "
            "such as https://memory.example.org; http only on localhost or 127.0.0.1"
        )
    return value


_LABEL = "[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"


def _is_told_port(server: str, port: str) -> bool:
    """Whether browsers name a port as it is written here."""
    usual = "443" if server.startswith("https:") else "80"
    return port != usual and not port.startswith("0") and int(port) < 65_536


def _passphrase_hash(value: str) -> str:
    if not re.fullmatch(r"\$argon2id\$[!-~]{20,300}", value):
        raise ValueError("must be what `./scripts/metacortex owner passphrase` prints")
    return value


def _email(value: str) -> str:
    if not re.fullmatch(r"[!-?A-~]+@[a-zA-Z0-9.-]+", value):
        raise ValueError("must be an e-mail address")
    return value


def _admin_token(value: str) -> str:
    if fault := token_fault(value):
        raise ValueError(fault)
    return value


def _setting(name: str, parse: Parse[T], default: T, says: str, *, shown: str = "", secret: bool = False) -> T:
    """A field of Settings read from the environment variable `name`. `shown` is its default in words, for the docs."""
    metadata = {"name": name, "parse": parse, "help": says, "shown": shown, "secret": secret}
    return dataclasses.field(default=default, metadata=metadata, repr=not secret)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The whole configuration. One field per environment variable of the table, and what follows from several of them."""

    admin_token: str = _setting(
        "MCP_ADMIN_TOKEN",
        _admin_token,
        "",
        "The credential of the admin endpoint `/mcp`: at least 16 characters, random.",
        shown="required",
        secret=True,
    )
    allowed_origins: tuple[str, ...] = _setting(
        "MCP_ALLOWED_ORIGINS",
        _origins,
        (),
        "Browser origins that may call the admin endpoint, separated by commas; `*` for any.",
        shown="none",
    )
    allowed_tools: tuple[str, ...] = _setting(
        "MCP_ALLOWED_TOOLS",
        _several_of(*TOOL_NAMES),
        TOOL_NAMES,
        "The tools of the admin endpoint, separated by commas.",
        shown="all",
    )
    allowed_filter_states: tuple[BranchState, ...] = _setting(
        "MCP_ALLOWED_FILTER_STATES",
        _several_of(*STATES),
        STATES,
        "The lifecycle states the admin endpoint may read, separated by commas.",
        shown="all",
    )
    client_profiles_json: str = _setting(
        "MCP_CLIENT_PROFILES_JSON",
        _text,
        "[]",
        "The scoped clients as a JSON list of profiles; `./scripts/metacortex profile add` writes it.",
        shown="`[]`",
        secret=True,
    )
    url_tokens: bool = _setting(
        "MCP_URL_TOKENS",
        _flag,
        False,
        "Whether scoped endpoints accept `?auth_token=…`, for clients that can only enter a URL.",
    )
    public_base_url: str = _setting(
        "PUBLIC_BASE_URL",
        _server_origin,
        "",
        "The origin that clients reach the scoped endpoints by; it turns signing in on.",
        shown="none: clients need a token",
    )
    owner_sign_in: tuple[SignInWay, ...] = _setting(
        "OWNER_SIGN_IN",
        _several_of(*SignInWay),
        (),
        "How the owner signs in: `passphrase`, `google`, or both, separated by a comma.",
        shown="deployed `google` if GOOGLE_SIGN_IN_CLIENT_ID is set, else `passphrase`; elsewhere what is set up",
    )
    owner_passphrase_hash: str = _setting(
        "OWNER_PASSPHRASE_HASH",
        _passphrase_hash,
        "",
        "The owner's passphrase, hashed; `./scripts/metacortex owner passphrase` makes it.",
        shown="none",
        secret=True,
    )
    google_sign_in_client_id: str = _setting(
        "GOOGLE_SIGN_IN_CLIENT_ID", _text, "", "The OAuth client by which the owner signs in with Google.", shown="none"
    )
    google_sign_in_client_secret: str = _setting(
        "GOOGLE_SIGN_IN_CLIENT_SECRET", _text, "", "Its secret.", shown="none", secret=True
    )
    google_sign_in_issuer: str = _setting(
        "GOOGLE_SIGN_IN_ISSUER",
        _server_origin,
        "https://accounts.google.com",
        "The OpenID provider that signs the owner in.",
    )
    owner_email: str = _setting(
        "OWNER_EMAIL", _email, "", "The owner's verified e-mail address at Google.", shown="none"
    )
    owner_subject: str = _setting(
        "OWNER_SUBJECT", _text, "", "The owner's subject at Google, a number that never changes.", shown="none"
    )
    model_provider: ModelProvider | None = _setting(
        "MODEL_PROVIDER",
        _one_of(*ModelProvider),
        None,
        "Where models are: `local` on this machine without an account, `gemini` by key, `vertex` on Vertex AI by identity.",
        shown="in the emulator `gemini` if GEMINI_API_KEY is set, else `local`; deployed `vertex`",
    )
    gemini_api_key: str = _setting(
        "GEMINI_API_KEY", _text, "", "The key of the `gemini` route.", shown="none", secret=True
    )
    gemini_embedding_model: str = _setting(
        "GEMINI_EMBEDDING_MODEL",
        _text,
        "gemini-embedding-2",
        "The embedding model of both Gemini routes; part of the embedding space.",
    )
    gemini_embedding_dimensions: int = _setting(
        "GEMINI_EMBEDDING_DIMENSIONS", _whole(128, 2048), 768, "The size of its vectors; part of the embedding space."
    )
    gemini_multimodal_model: str = _setting(
        "GEMINI_MULTIMODAL_MODEL", _text, "gemini-3.5-flash-lite", "The model that describes images for retrieval."
    )
    gemini_merge_model: str = _setting(
        "GEMINI_MERGE_MODEL", _text, "gemini-3.5-flash-lite", "The model that merges memories."
    )
    gemini_vertex_location: str = _setting("GEMINI_VERTEX_LOCATION", _text, REGION, "Where Vertex AI embeds.")
    gemini_generation_vertex_location: str = _setting(
        "GEMINI_GENERATION_VERTEX_LOCATION", _text, "global", "Where Vertex AI describes images and merges memories."
    )
    memory_collection: str = _setting(
        "MEMORY_COLLECTION", _collection, "memory_vectors", "The Firestore collection that holds the memories."
    )
    retrieval_event_logging_enabled: bool = _setting(
        "RETRIEVAL_EVENT_LOGGING_ENABLED",
        _flag,
        False,
        "Whether searches and fetches are also recorded with their full queries, for evaluation.",
    )
    retrieval_eval_memory_collection: str = _setting(
        "RETRIEVAL_EVAL_MEMORY_COLLECTION",
        _collection,
        "memory_vectors_eval",
        "The isolated collection that evaluation uses; never MEMORY_COLLECTION.",
    )
    search_result_limit: int = _setting(
        "SEARCH_RESULT_LIMIT", _whole(1, SEARCH_RESULTS), 5, "How many matches a search returns when it does not say."
    )
    retrieval_mode: RetrievalMode = _setting(
        "RETRIEVAL_MODE",
        _one_of(*RetrievalMode),
        RetrievalMode.HYBRID,
        "How memories are found: `vector` by meaning alone, `hybrid` also by the rare words of the query.",
    )
    retrieval_lexical_weight: float = _setting(
        "RETRIEVAL_LEXICAL_WEIGHT",
        _fraction,
        0.7,
        "The share of the words in a hybrid ranking, from 0 to 1; the rest is that of the meaning.",
    )
    retrieval_candidates: int = _setting(
        "RETRIEVAL_CANDIDATES",
        _whole(1, 1000),
        50,
        "How many nearest memories, and parts of long ones, are ranked with the words, or narrowed down by `valid_at`.",
    )
    search_min_score: float | None = _setting(
        "SEARCH_MIN_SCORE",
        _fraction,
        None,
        "The least score of a match, unless it holds every word of the query; what is left out is counted.",
        shown="none",
    )
    consolidation_batch_limit: int = _setting(
        "CONSOLIDATION_BATCH_LIMIT", _whole(2, 100), 20, "How many memories one consolidation merges at most."
    )
    default_filter_state: BranchState = _setting(
        "DEFAULT_FILTER_STATE",
        _one_of(*STATES),
        BranchState.ACTIVE,
        "The lifecycle state that is read when a call does not say.",
    )
    service_name: str = _setting("SERVICE_NAME", _text, "metacortex", "The name the service gives itself.")
    service_version: str = _setting("SERVICE_VERSION", _text, VERSION, "The version the service gives itself.")

    profiles: Mapping[str, Profile] = dataclasses.field(default_factory=dict[str, Profile])
    """Every profile by its id, the admin's included."""

    in_emulator: bool = False

    @property
    def has_passphrase(self) -> bool:
        """Whether the owner may sign in with a passphrase."""
        return bool(self.owner_passphrase_hash) and SignInWay.PASSPHRASE in (self.owner_sign_in or SignInWay)

    @property
    def has_google(self) -> bool:
        """Whether the owner may sign in with Google."""
        return bool(self.google_sign_in_client_id) and SignInWay.GOOGLE in (self.owner_sign_in or SignInWay)

    @property
    def provider(self) -> ModelProvider:
        """The route models are reached by: the configured one, or what the surroundings suggest. Nothing is probed."""
        if self.model_provider is not None:
            return self.model_provider
        if not self.in_emulator:
            return ModelProvider.VERTEX
        return ModelProvider.GEMINI if self.gemini_api_key else ModelProvider.LOCAL


@dataclass(frozen=True)
class Setting:
    """One row of the table, as the docs and `.env.example` are checked against it."""

    field: str
    name: str
    parse: Parse[Any]
    default: Any
    help: str
    shown: str
    secret: bool


TABLE: tuple[Setting, ...] = tuple(
    Setting(
        field.name,
        default=field.default,
        **{key: field.metadata[key] for key in ("name", "parse", "shown", "secret", "help")},
    )
    for field in dataclasses.fields(Settings)
    if field.metadata
)


def in_emulator(environment: Mapping[str, str]) -> bool:
    return bool(environment.get("FIRESTORE_EMULATOR_HOST")) or environment.get("FUNCTIONS_EMULATOR") == "true"


def project_id(environment: Mapping[str, str]) -> str | None:
    """The Google Cloud project this process belongs to, by any of the names the platforms give it."""
    for name in ("GCLOUD_PROJECT", "GOOGLE_CLOUD_PROJECT", "GCP_PROJECT"):
        if environment.get(name):
            return environment[name]
    return _project_in_firebase_config(environment.get("FIREBASE_CONFIG", ""))


def service_name(environment: Mapping[str, str]) -> str:
    """SERVICE_NAME alone, for answers that need no valid configuration."""
    return environment.get("SERVICE_NAME", "").strip() or Settings.service_name


def _project_in_firebase_config(text: str) -> str | None:
    try:
        return json.loads(text)["projectId"]
    except (ValueError, KeyError, TypeError):
        return None


def load(environment: Mapping[str, str]) -> Settings:
    """Reads every setting. An empty value means the default. Raises ConfigurationError with every fault at once."""
    faults: list[str] = []
    values: dict[str, Any] = {}
    for setting in TABLE:
        text = environment.get(setting.name, "").strip()
        if not text:
            continue
        try:
            values[setting.field] = setting.parse(text)
        except ValueError as error:
            faults.append(f"{setting.name} {error}.")
    if not environment.get("MCP_ADMIN_TOKEN", "").strip():
        faults.append("MCP_ADMIN_TOKEN is not set; generate one, for instance with `openssl rand -base64 32`.")
    settings = Settings(**values, in_emulator=in_emulator(environment))
    if settings.memory_collection == settings.retrieval_eval_memory_collection:
        faults.append(
            "RETRIEVAL_EVAL_MEMORY_COLLECTION must not be MEMORY_COLLECTION; evaluation would mix with memories."
        )
    if settings.provider is ModelProvider.GEMINI and not settings.gemini_api_key:
        faults.append(
            "GEMINI_API_KEY is not set, and MODEL_PROVIDER=gemini needs it; set it, or choose vertex or local."
        )
    faults += _sign_in_faults(settings)
    scoped, profile_faults = parse_profiles(
        settings.client_profiles_json, settings.default_filter_state, "MCP_CLIENT_PROFILES_JSON"
    )
    profiles = {"MCP_ADMIN_TOKEN": _admin(settings), **scoped}
    faults += [*profile_faults, *shared_token_faults(profiles)]
    if faults:
        raise ConfigurationError(faults)
    return dataclasses.replace(settings, profiles={profile.id: profile for profile in profiles.values()})


def _sign_in_faults(settings: Settings) -> list[str]:
    """What is missing of the ways in which the owner signs in."""
    google = {
        "GOOGLE_SIGN_IN_CLIENT_ID": settings.google_sign_in_client_id,
        "GOOGLE_SIGN_IN_CLIENT_SECRET": settings.google_sign_in_client_secret,
        "OWNER_EMAIL or OWNER_SUBJECT": settings.owner_email or settings.owner_subject,
    }
    missing = [name for name, value in google.items() if not value]
    ways = settings.owner_sign_in
    faults: list[str] = []
    if missing and (SignInWay.GOOGLE in ways if ways else len(missing) < len(google)):
        faults.append(f"{missing[0]} is not set, and signing in with Google needs it.")
    if settings.owner_passphrase_hash:
        return faults
    if SignInWay.PASSPHRASE in ways:
        faults.append(
            "OWNER_PASSPHRASE_HASH is not set, and OWNER_SIGN_IN names the passphrase: make one with "
            "`./scripts/metacortex owner passphrase`."
        )
    elif settings.public_base_url and missing and not ways:
        faults.append(
            "OWNER_PASSPHRASE_HASH is not set, and PUBLIC_BASE_URL needs a way for the owner to sign in: make one with "
            "`./scripts/metacortex owner passphrase`, or set up Google's."
        )
    return faults


def _admin(settings: Settings) -> Profile:
    return Profile(
        id=ADMIN_ID,
        token_digest=token_digest(settings.admin_token),
        tools=settings.allowed_tools,
        readable_states=settings.allowed_filter_states,
        writable_states=STATES,
        default_state=default_state(settings.default_filter_state, settings.allowed_filter_states),
        origins=settings.allowed_origins,
        url_token_allowed=False,
        is_admin=True,
    )
