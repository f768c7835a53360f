"""Client profiles: which credential opens which tools, lifecycle states and origins."""

import difflib
import hashlib
import hmac
import json
import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard, TypeVar

from metacortex.errors import Forbidden
from metacortex.memory import BranchState, Origin

ADMIN_ID = "default"
TOOL_NAMES = (
    "save_context",
    "search_context",
    "fetch_context",
    "list_context",
    "deprecate_context",
    "consolidate_context",
)
STATES = tuple(BranchState)
SCOPED_WRITE_STATES = (BranchState.ACTIVE, BranchState.WIP)
TOKEN_CHARACTERS = 16

_Name = TypeVar("_Name", bound=str)

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_TOKEN = re.compile(r"[!-~]+")
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
# As browsers send it, in lower case: any other form would be compared and never match.
_ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://[a-z0-9._:\[\]-]+")
_PLACEHOLDER = re.compile(
    r"change[-_ ]?me|replace[-_ ]?(me|with|this)|your[-_ ].*(token|secret)|placeholder|example", re.I
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One client: its credential's digest, and what that credential opens."""

    id: str
    token_digest: bytes = field(repr=False)
    tools: tuple[str, ...]
    readable_states: tuple[BranchState, ...]
    writable_states: tuple[BranchState, ...]
    default_state: BranchState
    origins: tuple[str, ...] = ()
    url_token_allowed: bool = True
    is_admin: bool = False

    def accepts(self, token: str) -> bool:
        """Whether a presented token is this profile's, compared in constant time."""
        return hmac.compare_digest(token_digest(token), self.token_digest)

    def allows_origin(self, origin: str) -> bool:
        return "*" in self.origins or origin in self.origins

    def require_tool(self, name: str) -> None:
        if name not in self.tools:
            raise Forbidden(f"This client may not use {name}; ask the owner to grant it.")

    def readable(self, state: BranchState | None) -> BranchState:
        """The state to read: the given one if this client may read it, or its default where none is given."""
        if state is None:
            return self.default_state
        if state not in self.readable_states:
            raise Forbidden(
                f"This client may not read {state} memories; it may read: {', '.join(self.readable_states)}."
            )
        return state

    def require_writable(self, state: BranchState) -> None:
        if state not in self.writable_states:
            raise Forbidden(
                f"This client may not write {state} memories; it may write: {', '.join(self.writable_states)}."
            )

    def require_origin(self, origin: Origin) -> None:
        if origin is Origin.LEGACY_IMPORT and not self.is_admin:
            raise Forbidden(
                "Only the admin endpoint may save with origin legacy_import; use user_asserted or agent_inferred."
            )


def token_digest(token: str) -> bytes:
    """SHA-256 of a token. White space around it is not part of it: secrets are often stored with a trailing newline."""
    return hashlib.sha256(token.strip().encode("utf-8", "surrogatepass")).digest()


_NO_TOKEN = token_digest("")
PLACEHOLDER_DIGEST = "0" * 64
"""What documents show in place of a digest: no profile may keep it."""


def token_fault(token: str) -> str | None:
    """What is wrong with a token to be configured, as the end of a sentence that names its place; None if nothing is."""
    text = token.strip()
    if len(text) < TOKEN_CHARACTERS:
        return f"must have at least {TOKEN_CHARACTERS} characters"
    if not _TOKEN.fullmatch(text):
        return "must be printable ASCII without spaces"
    if _PLACEHOLDER.search(text) or len(set(text)) < 4:
        return "is a placeholder; generate a random one, for instance with `openssl rand -base64 32`"
    return None


def default_state(preferred: BranchState, readable: Sequence[BranchState]) -> BranchState:
    return preferred if preferred in readable else readable[0]


# --- MCP_CLIENT_PROFILES_JSON ---


class _Object(dict[str, Any]):
    """A JSON object that knows which of its keys stand in it twice; of those the last counts for a plain dict."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.repeated = [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]


class _Reader:
    """Reads one JSON object strictly and collects faults with their place; never puts a value into a fault."""

    def __init__(self, place: str, document: _Object, faults: list[str]) -> None:
        self.place = place
        self.document = document
        self.faults = faults

    def fault(self, key: str, says: str) -> None:
        self.faults.append(f"{self.place}.{key} {says}.")

    def only_keys(self, known: Sequence[str]) -> None:
        for key in self.document.repeated:
            self.fault(key if key in known else "(a key)", "stands there twice")
        for key in self.document:
            if key in known:
                continue
            # A key of a token's length may be one in the wrong place, unless it is nearly a field's name.
            short = len(key) < TOKEN_CHARACTERS and key.isidentifier()
            shown = key if short or difflib.get_close_matches(key, known, 1, cutoff=0.8) else "(a key)"
            self.faults.append(f"{self.place}.{shown} is not a field of a profile; the fields are {', '.join(known)}.")

    def names(self, key: str, allowed: Sequence[_Name], default: Sequence[_Name] | None) -> tuple[_Name, ...]:
        """A non-empty list of distinct names out of `allowed`; `default` None means that the key is required."""
        if default is not None and key not in self.document:
            return tuple(default)
        value = self.document.get(key)
        if not _is_text_list(value) or not value:
            self.fault(key, f"must be a non-empty list of names out of {', '.join(allowed)}")
            return ()
        by_name = {str(name): name for name in allowed}
        unknown = [position for position, name in enumerate(value) if name not in by_name]
        for position in unknown:
            self.fault(f"{key}[{position}]", f"is not one of {', '.join(allowed)}")
        return tuple(dict.fromkeys(by_name[name] for name in value if name in by_name))


def _is_text_list(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


PROFILE_FIELDS = (
    "id",
    "token",
    "tokenSha256",
    "allowedTools",
    "allowedFilterStates",
    "allowedWriteStates",
    "allowedOrigins",
    "allowUrlToken",
)


def parse_profiles(text: str, preferred_state: BranchState, place: str) -> tuple[dict[str, Profile], list[str]]:
    """The scoped profiles in a JSON list by their place, and every fault found, each naming its place and none holding a token.

    A profile with a fault is among the profiles too, so that what it shares with others can be told as well.
    """
    try:
        documents = json.loads(text, object_pairs_hook=_Object) if text.strip() else []
    except (ValueError, RecursionError) as error:
        where = f" at line {error.lineno} column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        return {}, [f"{place} is not valid JSON{where}; check for a missing quote or a trailing comma."]
    if not isinstance(documents, list):
        return {}, [f"{place} must be a JSON list of profiles."]
    faults: list[str] = []
    profiles: dict[str, Profile] = {}
    for position, document in enumerate(documents):
        where = f"{place}[{position}]"
        if not isinstance(document, _Object):
            faults.append(f"{where} must be a JSON object.")
            continue
        profiles[where] = _parse_profile(_Reader(where, document, faults), preferred_state)
    ids = {where: profile.id for where, profile in profiles.items() if profile.id}
    faults += [f"{where}.id is also the id of {earlier}." for where, earlier in _repeats(ids)]
    return profiles, faults


def _parse_profile(reader: _Reader, preferred_state: BranchState) -> Profile:
    reader.only_keys(PROFILE_FIELDS)
    readable = reader.names("allowedFilterStates", STATES, (preferred_state,))
    return Profile(
        id=_parse_id(reader),
        token_digest=_parse_digest(reader),
        tools=reader.names("allowedTools", TOOL_NAMES, None),
        readable_states=readable,
        writable_states=reader.names("allowedWriteStates", STATES, SCOPED_WRITE_STATES),
        default_state=default_state(preferred_state, readable or STATES),
        origins=parse_origins(
            reader.document.get("allowedOrigins", []), reader.place + ".allowedOrigins", reader.faults
        ),
        url_token_allowed=_parse_flag(reader, "allowUrlToken", default=True),
    )


def _parse_id(reader: _Reader) -> str:
    value = reader.document.get("id")
    if not isinstance(value, str) or not _ID.fullmatch(value):
        reader.fault("id", "must be 1 to 64 letters, digits, - or _")
        return ""
    if value == ADMIN_ID:
        reader.fault("id", f"must not be {ADMIN_ID}, which is the admin endpoint's own")
    return value


def _parse_digest(reader: _Reader) -> bytes:
    token, digest = reader.document.get("token"), reader.document.get("tokenSha256")
    if (token is None) == (digest is None):
        reader.fault("token", "or tokenSha256 is needed, and not both")
        return b""
    if token is not None:
        says = token_fault(token) if isinstance(token, str) else "must be a text"
        if says:
            reader.fault("token", says)
        return token_digest(str(token))
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest.strip()):
        reader.fault("tokenSha256", "must be 64 hexadecimal digits")
        return b""
    parsed = bytes.fromhex(digest.strip())
    if parsed == _NO_TOKEN:
        reader.fault("tokenSha256", "is the digest of an empty token")
    if digest.strip() == PLACEHOLDER_DIGEST:
        reader.fault("tokenSha256", "is a placeholder; ./scripts/metacortex profile add makes a token and its digest")
    return parsed


def _parse_flag(reader: _Reader, key: str, *, default: bool) -> bool:
    value = reader.document.get(key, default)
    if not isinstance(value, bool):
        reader.fault(key, "must be true or false")
    return bool(value)


def parse_origins(value: object, place: str, faults: list[str]) -> tuple[str, ...]:
    """Exact browser origins such as https://claude.ai, or `*` for any."""
    if not _is_text_list(value):
        faults.append(f"{place} must be a list of origins such as https://claude.ai.")
        return ()
    wrong = [position for position, origin in enumerate(value) if not _ORIGIN.fullmatch(origin)]
    faults += [
        f"{place}[{position}] must be an origin such as https://claude.ai, without a path, or *." for position in wrong
    ]
    return tuple(dict.fromkeys(value))


def shared_token_faults(profiles: Mapping[str, Profile]) -> list[str]:
    """A fault for every profile, by its place, that has the token of an earlier one."""
    digests = {
        where: profile.token_digest
        for where, profile in profiles.items()
        if profile.token_digest not in {b"", _NO_TOKEN}
    }
    return [f"{where} has the same token as {earlier}; give each its own." for where, earlier in _repeats(digests)]


def _repeats(values: Mapping[str, Hashable]) -> list[tuple[str, str]]:
    """Every place whose value an earlier place has, and that place."""
    first: dict[Hashable, str] = {}
    return [(where, first[value]) for where, value in values.items() if first.setdefault(value, where) != where]
