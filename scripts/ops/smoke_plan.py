"""What a smoke run is to do: at which endpoint, with which credential, and what it saves there.

Everything is checked before anything is sent. What is wrong is a usage error, and never repeats a token or a URL.
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NoReturn
from urllib.parse import quote, urlsplit

import typer

from metacortex import rules
from metacortex.errors import MetaCortexError
from metacortex.profiles import parse_origins

DEFAULT_TOPIC = "smoke-test"
DEFAULT_ORIGIN = "https://claude.ai"
IMAGE_BYTES = 750_000
"""What still fits into one request of 1,048,576 bytes as base64, with the rest of a save beside it."""

_ENDPOINT = re.compile(r"(?P<base>.*?)(?:/clients/(?P<client>[^/]+))?/mcp")
_TOKEN = re.compile(r"[!-~]+")


class Mode(StrEnum):
    """How much of the service a run uses, and in whose name."""

    ADMIN = "admin-read-write"
    BROWSER = "browser-read-write"
    SEARCH = "search-only"
    SIGN_IN = "sign-in"

    @property
    def writes(self) -> bool:
        return self in {Mode.ADMIN, Mode.BROWSER}

    @property
    def token_name(self) -> str:
        """The environment variable that holds the token where --token does not."""
        return "MCP_ADMIN_TOKEN" if self is Mode.ADMIN else "MCP_SMOKE_TOKEN"


@dataclass(frozen=True)
class Endpoint:
    """One MCP endpoint of a service."""

    base: str
    """The service's URL, without a slash at its end."""
    client: str | None
    """The client id of a scoped endpoint as it stands in the URL; None for the admin endpoint."""

    @property
    def url(self) -> str:
        return f"{self.base}/clients/{self.client}/mcp" if self.client else f"{self.base}/mcp"

    @property
    def health_url(self) -> str:
        # Never /healthz: run.app answers every path that ends in z itself.
        return f"{self.base}/health"

    @property
    def host(self) -> str:
        return urlsplit(self.base).netloc

    @property
    def is_local(self) -> bool:
        return urlsplit(self.base).hostname in {"127.0.0.1", "localhost", "::1"}


@dataclass(frozen=True)
class Image:
    """An image to save beside the text."""

    base64: str
    mime_type: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything a run needs to know."""

    mode: Mode
    endpoint: Endpoint
    token: str = field(repr=False)
    topic: str
    origin: str | None
    """The Origin to call with, as a browser does; None to call as other programs do."""
    image: Image | None
    artifact_refs: tuple[str, ...]
    timeout: float
    """Seconds that one answer may take."""


def read_endpoint(url: str, mode: Mode, client: str | None) -> Endpoint:
    """The endpoint a mode uses, from the service's base URL or from an endpoint's full one."""
    text = url.strip().rstrip("/")
    _require_plain_url(text)
    full = _ENDPOINT.fullmatch(text)
    named = full["client"] if full else client
    if full and client:
        _misused("--client", "is not needed beside the full URL of an endpoint; leave out one of the two.")
    if mode is Mode.ADMIN and named:
        _misused(
            "--mode",
            f"{mode} uses the admin endpoint; for a client's own use --mode {Mode.BROWSER} or --mode {Mode.SEARCH}.",
        )
    if mode is Mode.SIGN_IN and full and not named:
        _misused("--mode", f"{mode} is for the endpoint of a client; the admin endpoint knows no signing in.")
    base = full["base"] if full else text
    if mode is Mode.SIGN_IN and urlsplit(base).path:
        _misused("--url", f"must be the origin alone for {mode}, as PUBLIC_BASE_URL names it.")
    if full:
        return Endpoint(base, named)
    if mode is not Mode.ADMIN and not named:
        _misused("--client", f"is needed for {mode}, or the full URL of an endpoint, such as BASE/clients/ID/mcp.")
    return Endpoint(text, quote(named, safe="") if named else None)


def _require_plain_url(text: str) -> None:
    try:
        parts = urlsplit(text)
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or not text.isprintable() or " " in text:
        _misused("--url", "must be a URL such as http://127.0.0.1:5001/demo-metacortex/us-central1/metaCortexMcp.")
    if "?" in text or "#" in text or "@" in text:
        _misused("--url", "must not hold a credential, a query or a fragment; the token goes into --token.")


def read_token(given: str | None, mode: Mode, environment: Mapping[str, str]) -> str:
    """The token given, or the one the environment holds for the mode. Signing in is looked at without one."""
    if mode is Mode.SIGN_IN:
        if given:
            _misused("--token", f"has no place in {mode}, which calls as a client without one.")
        return ""
    token = (given or environment.get(mode.token_name) or "").strip()
    if not token:
        _misused(
            "--token", f"is needed, or {mode.token_name} in the environment, which keeps it out of shell histories."
        )
    if not _TOKEN.fullmatch(token):
        _misused("--token", "must be printable ASCII without spaces; copy the token again.")
    return token


def read_origin(given: str | None, mode: Mode) -> str | None:
    if mode is not Mode.BROWSER:
        if given is not None:
            _misused("--origin", f"is sent by --mode {Mode.BROWSER} alone; leave it out.")
        return None
    origin = (given or DEFAULT_ORIGIN).strip()
    faults: list[str] = []
    parse_origins([origin], "--origin", faults)
    if faults or origin == "*" or not origin.isascii():
        _misused("--origin", "must be one origin such as https://claude.ai, without a path.")
    return origin


def read_topic(given: str) -> str:
    try:
        return rules.topic(given)
    except MetaCortexError as error:
        _misused("--topic", error.message)


def read_artifact_refs(given: list[str], mode: Mode) -> tuple[str, ...]:
    if given and not mode.writes:
        _misused("--artifact-ref", f"has no place in {mode}, which saves nothing.")
    try:
        return rules.artifact_refs(given)
    except MetaCortexError as error:
        _misused("--artifact-ref", error.message)


def read_image(path: Path | None, mode: Mode) -> Image | None:
    """The image in a file, whose name tells its type. What the file holds is for the service to judge."""
    if path is None:
        return None
    if not mode.writes:
        _misused("--image-file", f"has no place in {mode}, which saves nothing.")
    suffix = path.suffix.lower().removeprefix(".")
    mime_type = f"image/{'jpeg' if suffix == 'jpg' else suffix}"
    if mime_type not in rules.IMAGE_MIME_TYPES:
        _misused("--image-file", f"must have a name that tells its type, one of {', '.join(rules.IMAGE_MIME_TYPES)}.")
    try:
        data = path.read_bytes()
    except OSError as error:
        _misused("--image-file", f"cannot be read: {error.strerror}.")
    if len(data) > IMAGE_BYTES:
        _misused(
            "--image-file", f"has {len(data):,} bytes and a request has room for {IMAGE_BYTES:,}; make it smaller."
        )
    return Image(base64.b64encode(data).decode(), mime_type)


def _misused(option: str, says: str) -> NoReturn:
    raise typer.BadParameter(says, param_hint=option)
