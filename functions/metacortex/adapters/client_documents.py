"""Client ID metadata documents: what a client's id says of it, fetched so that nobody is reached or flooded who must not be.

After draft-ietf-oauth-client-id-metadata-document. What the draft leaves open is closed here: a document stands at a DNS
name on port 443, at the very spelling that names it.
"""

import asyncio
import ipaddress
import logging
import re
import socket
import ssl
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any
from urllib.parse import unquote
from weakref import WeakValueDictionary

import httpx2
from pydantic_core import from_json

from metacortex.adapters.freshness import seconds_fresh
from metacortex.oauth.clients import REDIRECT_URIS, Client, shown_name
from metacortex.oauth.errors import OAuthError
from metacortex.oauth.urls import LONGEST_URL, is_redirect, shown_host

BYTES = 5 * 1024
SECONDS = 5.0
# Less than half of it: a handshake that is cut off from without leaves its socket behind.
CONNECT_SECONDS = 2.0
# A document is kept for as long as its host says, within these bounds: a host that forbids it would have one fetched for every
# request, which anybody can make.
LEAST_SECONDS = 60.0
MOST_SECONDS = 24 * 60 * 60.0
UNSAID_SECONDS = 600.0
FAILURE_SECONDS = 60.0
CACHED = 200
AT_ONCE = 4
FETCHES_A_MINUTE = 30
PORT = 443

# A name, and nothing that a resolver takes for an address: no bare number, no `localhost`, no last dot.
_URL = re.compile(
    r"https://(?P<host>(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9])(?::443)?"
    r"(?P<path>/(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)"
)
_JSON = re.compile(r"application/(?:[a-z0-9!#$&^_.-]+\+)?json")
_GLOBAL_V6 = ipaddress.ip_network("2000::/3")
# Beside what `ipaddress` knows, which depends on Python's patch release: addresses of protocols, and those that carry another.
_SPECIAL = tuple(
    map(
        ipaddress.ip_network,
        ("192.0.0.0/24", "192.88.99.0/24", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
    )
)
# Of their own: a name server that never answers must not hold the threads in which passphrases are checked.
_RESOLVERS = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="resolver")

Place = tuple[str, int]
"""An address, and a port of it."""
Resolve = Callable[[str], Awaitable[Sequence[Place]]]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Known:
    found: Client | OAuthError
    until: float


class FetchedDocuments:
    """The ClientDocuments port. What was read, a refusal too, is remembered for a while by this instance."""

    def __init__(
        self,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.monotonic,
        may_reach: Callable[[str], bool] | None = None,
    ) -> None:
        self._resolve = resolve or addresses
        self._given_tls = tls
        self._clock = clock
        self._may_reach = may_reach or is_public
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._under_way = asyncio.Semaphore(AT_ONCE)
        self._fetched_at: deque[float] = deque(maxlen=FETCHES_A_MINUTE)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return self._given_tls or httpx2.create_ssl_context(trust_env=False)

    async def read(self, url: str) -> Client:
        host, path = _parts(url)
        lock = self._asking.setdefault(url, asyncio.Lock())
        async with lock:
            known = self._known.get(url)
            if known is None or known.until <= self._clock():
                known = await self._fetch(url, host, path)
        if isinstance(known.found, OAuthError):
            raise replace(known.found)
        return known.found

    async def _fetch(self, url: str, host: str, path: str) -> _Known:
        self._require_turn()
        try:
            document, seconds = await self._document(host, path)
            found = described(url, document)
        except OAuthError as error:
            found, seconds = replace(error), FAILURE_SECONDS
        known = self._known[url] = _Known(found, self._clock() + seconds)
        self._known.move_to_end(url)
        if len(self._known) > CACHED:
            self._known.popitem(last=False)
        return known

    def _require_turn(self) -> None:
        """Refuses what would be too much, and remembers nothing of it: neither is the document's fault."""
        now = self._clock()
        is_full = len(self._fetched_at) == FETCHES_A_MINUTE and now < self._fetched_at[0] + 60
        if is_full or self._under_way.locked():
            raise OAuthError(
                "temporarily_unavailable", "Too many applications ask at the moment; try again in a minute.", 429
            )
        self._fetched_at.append(now)

    async def _document(self, host: str, path: str) -> tuple[Mapping[str, Any], float]:
        """A document, and for how many seconds it may be kept."""
        try:
            async with self._under_way, asyncio.timeout(SECONDS):
                body, seconds = await self._get(host, path, await self._place_of(host))
        except (TimeoutError, httpx2.HTTPError, OSError) as error:
            logger.warning("A client's document cannot be read: %s", type(error).__name__)
            raise _unavailable("its host did not answer with it in time") from None
        try:
            document = from_json(body, allow_inf_nan=False)
        except ValueError:
            raise _unusable("it is not JSON") from None
        if not isinstance(document, dict):
            raise _unusable("it is not a JSON object")
        return document, seconds

    async def _place_of(self, host: str) -> Place:
        """Where a host is that has no address inside any network. The connection goes there, and nothing is resolved again."""
        found = await self._resolve(host)
        if not found or not all(self._may_reach(address) for address, _ in found):
            raise _unusable("its host has no address, or one that is not public")
        # A function has no way out by IPv6, whatever its resolver says.
        return min(found, key=lambda place: ":" in place[0])

    async def _get(self, host: str, path: str, place: Place) -> tuple[bytes, float]:
        address, port = place
        shown = f"[{address}]" if ":" in address else address
        headers = {
            "Host": host,
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "MetaCortex",
        }
        timeout = httpx2.Timeout(SECONDS, connect=CONNECT_SECONDS)
        body = bytearray()
        async with (
            httpx2.AsyncClient(verify=self._tls, trust_env=False, follow_redirects=False, timeout=timeout) as client,
            # The certificate is checked against the name, not against the address.
            client.stream(
                "GET", f"https://{shown}:{port}{path}", headers=headers, extensions={"sni_hostname": host}
            ) as answer,
        ):
            _require_json(answer)
            # As it came: what unfolds could be of any size.
            async for chunk in answer.aiter_raw():
                body += chunk
                if len(body) > BYTES:
                    raise _unusable(f"it has more than {BYTES:,} bytes")
            return bytes(body), _seconds_kept(answer.headers)


def _seconds_kept(headers: Mapping[str, str]) -> float:
    said = seconds_fresh(headers)
    return UNSAID_SECONDS if said is None else min(max(said, LEAST_SECONDS), MOST_SECONDS)


def _require_json(answer: httpx2.Response) -> None:
    if answer.status_code >= 500:
        raise _unavailable(f"its host answered {answer.status_code}")
    if answer.status_code != 200:
        raise _unusable(f"its host answered {answer.status_code}")
    if not _JSON.fullmatch(answer.headers.get("content-type", "").partition(";")[0].strip().lower()):
        raise _unusable("its type is not application/json")
    if "content-encoding" in answer.headers:
        raise _unusable("it is compressed")


async def addresses(host: str) -> Sequence[Place]:
    """Every address of a host, as the system knows it."""
    asked = partial(socket.getaddrinfo, host, PORT, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_RESOLVERS, asked)
    return [(str(place[0]), PORT) for *_, place in found]


def is_public(address: str) -> bool:
    """Whether an address is one of the internet's, for one host, that carries no other address within it."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if parsed.version == 6 and parsed not in _GLOBAL_V6:
        return False
    return parsed.is_global and not parsed.is_multicast and not any(parsed in network for network in _SPECIAL)


def _parts(url: str) -> tuple[str, str]:
    """Host and path of an id that may be fetched. Raises OAuthError."""
    found = _URL.fullmatch(url) if len(url) <= LONGEST_URL else None
    if found is None:
        raise _unusable(
            "its address must be https at a host's name in small letters, on port 443, and without a user or a fragment"
        )
    path = found["path"].partition("?")[0]
    if path == "/" or {".", ".."} & set(unquote(path).split("/")):
        raise _unusable("its address must have a path, without dots that lead elsewhere")
    return found["host"], found["path"]


def described(url: str, document: Mapping[str, Any]) -> Client:
    """The client of a document. Raises OAuthError where that does not describe a client of ours."""
    if document.get("client_id") != url:
        raise _unusable("its client_id is not its address")
    redirects = document.get("redirect_uris")
    if not isinstance(redirects, list) or not 1 <= len(redirects) <= REDIRECT_URIS:
        raise _unusable("it names no addresses to return to, or too many")
    if not all(isinstance(uri, str) and is_redirect(uri) for uri in redirects):
        raise _unusable("it names an address to return to that is not allowed")
    if "client_secret" in document or "client_secret_expires_at" in document:
        raise _unusable("it speaks of a secret, which a public document cannot hold")
    if not _can_do_without_secret(document):
        raise _unusable("it asks for a way to authenticate that is not offered here")
    return Client(id=url, name=shown_name(document.get("client_name"), shown_host(url)), redirect_uris=tuple(redirects))


def _can_do_without_secret(document: Mapping[str, Any]) -> bool:
    """Whether `none` is among its ways to authenticate, in either spelling; a document that names none can do so too."""
    one, several = document.get("token_endpoint_auth_method"), document.get("token_endpoint_auth_methods_supported")
    named = [one, *(several if isinstance(several, list) else [])] if one or several else ["none"]
    return "none" in named and not str(one).startswith("client_secret")


def _unusable(says: str) -> OAuthError:
    return OAuthError("invalid_client", f"The document at the client's id cannot be used: {says}.", 400)


def _unavailable(says: str) -> OAuthError:
    return OAuthError(
        "temporarily_unavailable",
        f"The document at the client's id cannot be read: {says}. Try again in a minute.",
        503,
    )
