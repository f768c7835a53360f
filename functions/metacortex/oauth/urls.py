"""Which addresses are the same: resources by their canonical form, redirects to the letter, and on loopback at any port."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
DEFAULT_PORTS = {"http": 80, "https": 443}
LONGEST_URL = 1_400
"""Firestore indexes a text of 1,500 bytes."""

# RFC 3986 §2: other characters would change on the way.
_CHARACTERS = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
# As browsers read it: they would undo a percent sign, and the person who reads it would not.
_HOST = re.compile(r"[a-z0-9._:-]+")
# A domain name turned round (RFC 8252 §7.1). None of the schemes that browsers and systems run, read or pass on has a dot.
_OWN_SCHEME = re.compile(r"[a-z][a-z0-9-]*(?:\.[a-z0-9-]+)+")
# Without a dot, and needed: Cursor registers all its addresses at once, also where it then uses another.
_KNOWN_REDIRECTS = frozenset({"cursor://anysphere.cursor-mcp/oauth/callback"})


@dataclass(frozen=True, slots=True)
class _Parts:
    scheme: str
    host: str
    port: int | None
    rest: str


def _parts(url: str) -> _Parts | None:
    """The parts of an absolute URL, its host in lower case; None where it is not one, or carries a user or a fragment."""
    if len(url) > LONGEST_URL or not _CHARACTERS.fullmatch(url):
        return None
    try:
        split = urlsplit(url)
        port = split.port
    except ValueError:
        return None
    scheme = split.scheme.lower()
    if not _SCHEME.fullmatch(scheme) or "@" in split.netloc or "#" in url:
        return None
    rest = split.path + (f"?{split.query}" if "?" in url else "")
    return _Parts(scheme, (split.hostname or "").lower(), port, rest)


def is_same_resource(one: str, other: str) -> bool:
    """Whether two resource indicators name one endpoint: whatever the case of scheme and host, the default port, a last slash."""
    first, second = _parts(one), _parts(other)
    return first is not None and second is not None and _canonical(first) == _canonical(second)


def _canonical(parts: _Parts) -> tuple[str, str, int | None, str]:
    port = DEFAULT_PORTS.get(parts.scheme) if parts.port is None else parts.port
    return parts.scheme, parts.host, port, parts.rest.removesuffix("/")


def is_redirect(url: str) -> bool:
    """Whether a client may name this as where its answers go: https, http on loopback, or an application's own scheme."""
    parts = _parts(url)
    if parts is None:
        return False
    if parts.scheme == "https":
        return _HOST.fullmatch(parts.host) is not None
    if parts.scheme == "http":
        return parts.host in LOOPBACK
    return url in _KNOWN_REDIRECTS or _OWN_SCHEME.fullmatch(parts.scheme) is not None


def is_loopback(url: str) -> bool:
    """Whether a redirect goes to a program on the machine of whoever opens it: any program there."""
    parts = _parts(url)
    return parts is not None and parts.scheme in DEFAULT_PORTS and parts.host in LOOPBACK


def is_same_redirect(registered: str, asked: str) -> bool:
    """To the letter; on loopback the port is free (RFC 8252 §7.3), and its names count as one."""
    if registered == asked:
        return True
    if not (is_loopback(registered) and is_loopback(asked)):
        return False
    one, other = _parts(registered), _parts(asked)
    return one is not None and other is not None and (one.scheme, one.rest) == (other.scheme, other.rest)


def shown_host(url: str) -> str:
    """What a person is told of an address: its host and port, or the scheme of an application's own one."""
    parts = _parts(url)
    if parts is None:
        return ""
    if parts.scheme not in DEFAULT_PORTS:
        return f"{parts.scheme}:"
    host = f"[{parts.host}]" if ":" in parts.host else parts.host
    return host if parts.port is None else f"{host}:{parts.port}"
