"""A client that is described by a document: which documents are believed, and what their fetching cannot be made to do."""

import asyncio
import gzip
import json
import socket
import ssl
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from document_host import CALLBACK, NAME, URL, Authority, DocumentHost, answer, document, served
from logged import logged
from metacortex import logs
from metacortex.adapters import client_documents
from metacortex.adapters.client_documents import FetchedDocuments, Place, addresses, is_public
from metacortex.oauth.clients import Client
from metacortex.oauth.errors import OAuthError
from signing import FORBIDDEN_REDIRECTS, Browser, Signing, error_of, said_on

INSIDE = [
    "0.0.0.0",
    "10.1.2.3",
    "100.64.0.1",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.9",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",
    "::ffff:10.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:93.184.216.34",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::5db8:d822",
    "64:ff9b:1::7f00:1",
    "100::1",
    "2001::7f00:1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:20::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:5db8:d822::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd20:ce::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
    "not an address",
    "",
]
PUBLIC = ["93.184.216.34", "104.18.32.47", "172.15.0.1", "172.32.0.1", "100.63.255.255", "2606:4700::6812:202f"]


@dataclass
class Names:
    """A resolver that answers what a test says next, and at last again and again."""

    answers: list[Sequence[Place]]
    asked: list[str] = field(default_factory=list[str])

    async def __call__(self, host: str) -> Sequence[Place]:
        self.asked.append(host)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@dataclass
class Ticks:
    """Seconds that pass only when a test says so."""

    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Fetching:
    """Documents as they are fetched from a host on this machine, which the name resolves to."""

    documents: FetchedDocuments
    host: DocumentHost
    names: Names
    ticks: Ticks

    async def read(self, url: str = URL) -> Client:
        return await self.documents.read(url)

    async def refused(self, url: str = URL) -> tuple[int, str, str]:
        return await refused_by(self.documents, url)

    async def refused_as(self, body: Any, **headers: Any) -> str:
        """Why a document is refused that is served as JSON, or as these bytes."""
        self.host.says = answer(body if isinstance(body, bytes) else json.dumps(body).encode(), **headers)
        status, code, description = await self.refused()
        assert (status, code) == (400, "invalid_client"), description
        self.ticks.now += 1_000
        return description


async def refused_by(documents: FetchedDocuments, url: str = URL) -> tuple[int, str, str]:
    """How a document is refused: status, code and sentence."""
    with pytest.raises(OAuthError) as refusal:
        await documents.read(url)
    return refusal.value.status_code, refusal.value.code, refusal.value.description


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def fetching_from(host: DocumentHost, tls: ssl.SSLContext) -> Fetching:
    names, ticks = Names([[("127.0.0.1", host.port)]]), Ticks()
    # The one address of this machine stands for a public one.
    documents = FetchedDocuments(names, tls, ticks, lambda address: address == "127.0.0.1")
    return Fetching(documents, host, names, ticks)


@pytest.fixture
async def fetching(authority: Authority) -> AsyncGenerator[Fetching]:
    async with DocumentHost().serving(authority.server(NAME)) as host:
        yield fetching_from(host, authority.trusting)


# --- What is asked, and of whom ---


async def test_a_document_is_asked_for_once_without_anything_of_ours(fetching: Fetching) -> None:
    client = await fetching.read()
    assert client == Client(id=URL, name="An application", redirect_uris=(CALLBACK,))
    assert (client.is_described, client.host) == (True, NAME)
    [head] = fetching.host.asked
    request, *headers = head.rstrip().split("\r\n")
    assert request == "GET /oauth/client.json HTTP/1.1"
    assert sorted(header.lower() for header in headers) == [
        "accept-encoding: identity",
        "accept: application/json",
        "connection: keep-alive",
        f"host: {NAME}",
        "user-agent: metacortex",
    ]


async def test_the_connection_goes_to_the_address_that_was_checked_and_nothing_is_resolved_again(
    fetching: Fetching,
) -> None:
    fetching.names.answers.append([("10.0.0.1", 443)])
    await fetching.read()
    assert (fetching.names.asked, fetching.host.names) == ([NAME], [NAME])
    fetching.ticks.now += client_documents.UNSAID_SECONDS
    assert "not public" in (await fetching.refused())[2]
    assert (fetching.names.asked, fetching.host.connections) == ([NAME, NAME], 1)


async def test_a_way_by_ipv4_is_taken_before_one_by_ipv6(fetching: Fetching, authority: Authority) -> None:
    names = Names([[("::1", 1), ("127.0.0.1", fetching.host.port)]])
    documents = FetchedDocuments(names, authority.trusting, may_reach=lambda _: True)
    assert (await documents.read(URL)).id == URL


@pytest.mark.parametrize(
    "path", ["/c", "/c?a=b&c=d%20e", "/~a/(b)'!*;,:@&=+$/c.json", "/a%7Eb%2Fc", "/a//b", "/a...b/..c/.well-known/d"]
)
async def test_what_is_asked_for_is_the_id_to_the_letter(fetching: Fetching, path: str) -> None:
    url = f"https://{NAME}{path}"
    fetching.host.says = served(document(url))
    assert (await fetching.read(url)).id == url
    assert fetching.host.asked[0].startswith(f"GET {path} HTTP/1.1\r\n")


async def test_the_default_port_may_be_written(fetching: Fetching) -> None:
    url = f"https://{NAME}:443/c"
    fetching.host.says = served(document(url))
    assert (await fetching.read(url)).id == url


@pytest.mark.parametrize("address", INSIDE)
async def test_no_address_inside_a_network_is_reached(fetching: Fetching, address: str) -> None:
    assert not is_public(address)
    port = fetching.host.port
    for found in ([(address, port)], [("93.184.216.34", port), (address, port)], [(address, port), ("::1", port)]):
        assert "not public" in (await refused_by(FetchedDocuments(Names([found]))))[2]
    assert fetching.host.connections == 0


@pytest.mark.parametrize("address", PUBLIC)
def test_other_addresses_are_public(address: str) -> None:
    assert is_public(address)


async def test_a_host_without_an_address_is_refused() -> None:
    assert "no address" in (await refused_by(FetchedDocuments(Names([[]]))))[2]


async def test_a_name_that_does_not_resolve_is_refused_for_now() -> None:
    async def unknown(host: str) -> Sequence[Place]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    assert (await refused_by(FetchedDocuments(unknown)))[:2] == (503, "temporarily_unavailable")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.1"])
async def test_the_system_takes_these_for_this_machine_and_the_rule_does_too(host: str) -> None:
    found = await addresses(host)
    assert found
    assert {port for _, port in found} == {443}
    assert not any(is_public(address) for address, _ in found)


@pytest.mark.parametrize(
    "url",
    [
        f"http://{NAME}/c",
        f"HTTPS://{NAME}/c",
        f"https://{NAME}",
        f"https://{NAME}/",
        f"https://{NAME}/?c=d",
        f"https://{NAME}?c=d",
        f"https://{NAME}/c#d",
        f"https://{NAME}/c#",
        f"https://user@{NAME}/c",
        f"https://user:word@{NAME}/c",
        f"https://@{NAME}/c",
        f"https://{NAME}@127.0.0.1/c",
        f"https://{NAME}\\@127.0.0.1/c",
        f"https://{NAME}:22/c",
        f"https://{NAME}:8443/c",
        f"https://{NAME}:0443/c",
        f"https://{NAME}:/c",
        f"https://{NAME}:443:443/c",
        f"https://{NAME}./c",
        f"https://{NAME.upper()}/c",
        f"https://App.{NAME}/c",
        f"https://{NAME}/a/../c",
        f"https://{NAME}/a/./c",
        f"https://{NAME}/..",
        f"https://{NAME}/a/%2e%2E/c",
        f"https://{NAME}/a/.%2e/c",
        f"https://{NAME}/a%2f..%2fc",
        f"https://{NAME}/a%2/c",
        f"https://{NAME}/a%zz/c",
        f"https://{NAME}/a\\b",
        f"https://{NAME}/a b",
        f"https://{NAME}/a\r\nX-Header: b",
        f"https://{NAME}/a\n",
        f"https://{NAME}/é",
        f"https://{NAME}/" + "a" * 2_000,
        "https://exämple.com/c",
        "https://app。example.com/c",
        "https://localhost/c",
        "https://localhost./c",
        "https://metadata/c",
        "https://127.0.0.1/c",
        "https://93.184.216.34/c",
        "https://2130706433/c",
        "https://0x7f000001/c",
        "https://0x7f.0.0.0x1/c",
        "https://0177.0.0.1/c",
        "https://127.1/c",
        "https://127.0.0.1./c",
        "https://[::1]/c",
        "https://[::ffff:127.0.0.1]/c",
        "https://[fe80::1%25eth0]/c",
        "https://-app.example.com/c",
        "https://app..example.com/c",
        "https://.example.com/c",
        "https://" + "a" * 64 + ".example.com/c",
        "https:///c",
        "https:/c",
        "https:c",
        "https://",
    ],
)
async def test_an_id_that_is_no_plain_https_address_of_a_named_host_is_not_even_resolved(
    fetching: Fetching, url: str
) -> None:
    assert (await fetching.refused(url))[:2] == (400, "invalid_client")
    assert (fetching.names.asked, fetching.host.connections) == ([], 0)


# --- The certificate ---


@pytest.mark.parametrize(
    ("names", "days"), [(["other.example.com"], 1), (["127.0.0.1"], 1), (["example.com"], 1), ([NAME], -1)]
)
async def test_a_certificate_for_another_name_or_for_the_address_or_of_yesterday_is_refused(
    authority: Authority, names: list[str], days: int
) -> None:
    async with DocumentHost().serving(authority.server(*names, days=days)) as host:
        assert (await fetching_from(host, authority.trusting).refused())[:2] == (503, "temporarily_unavailable")
        assert (host.names, host.asked) == ([NAME], [])


async def test_a_certificate_of_an_authority_that_nobody_trusts_is_refused(authority: Authority) -> None:
    async with DocumentHost().serving(authority.server(NAME)) as host:
        names = Names([[("127.0.0.1", host.port)]])
        assert "did not answer" in (await refused_by(FetchedDocuments(names, may_reach=lambda _: True)))[2]
        assert host.asked == []


async def test_a_host_without_tls_is_refused(authority: Authority) -> None:
    async with DocumentHost().serving(None) as host:
        assert (await fetching_from(host, authority.trusting).refused())[:2] == (503, "temporarily_unavailable")


@pytest.mark.slow
async def test_a_host_that_never_greets_is_left(authority: Authority) -> None:
    ended = asyncio.Event()

    async def mute(writer: asyncio.StreamWriter) -> None:
        await ended.wait()

    async with DocumentHost(mute).serving(None) as host:
        assert (await fetching_from(host, authority.trusting).refused())[:2] == (503, "temporarily_unavailable")
        ended.set()


# --- The answer ---


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
async def test_no_redirect_is_followed(fetching: Fetching, status: str) -> None:
    there = f"Location: https://{NAME}/elsewhere.json"
    fetching.host.says = answer(json.dumps(document()).encode(), there, status=status)
    assert "answered 30" in (await fetching.refused())[2]
    assert fetching.host.connections == 1


@pytest.mark.parametrize(
    ("status", "refusal"),
    [
        ("201 Created", (400, "invalid_client")),
        ("204 No Content", (400, "invalid_client")),
        ("404 Not Found", (400, "invalid_client")),
        ("500 Internal Server Error", (503, "temporarily_unavailable")),
        ("503 Service Unavailable", (503, "temporarily_unavailable")),
    ],
)
async def test_only_200_will_do(fetching: Fetching, status: str, refusal: tuple[int, str]) -> None:
    fetching.host.says = answer(json.dumps(document()).encode(), status=status)
    assert (await fetching.refused())[:2] == refusal


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "application/json; charset=utf-8", "Application/JSON", "application/oauth-client+json"],
)
async def test_any_json_type_of_an_application_will_do(fetching: Fetching, content_type: str) -> None:
    fetching.host.says = answer(json.dumps(document()).encode(), content_type=content_type)
    assert (await fetching.read()).id == URL


@pytest.mark.parametrize(
    "content_type",
    [None, "text/html", "text/plain", "text/json", "text/vendor+json", "image/svg+json", "application/jsonp", "json"],
)
async def test_no_other_type_will_do(fetching: Fetching, content_type: str | None) -> None:
    assert "type" in await fetching.refused_as(document(), content_type=content_type)


async def test_5_kilobytes_are_taken_and_not_one_byte_more_however_they_come(fetching: Fetching) -> None:
    body = json.dumps(document()).encode().ljust(5 * 1024)
    for says in (answer(body), unmeasured(body), answer(chunked(body, 1000), "Transfer-Encoding: chunked")):
        fetching.host.says = says
        assert (await fetching.read()).id == URL
        fetching.ticks.now += client_documents.UNSAID_SECONDS
    more = body + b" "
    for says in (answer(more), unmeasured(more), answer(chunked(more, 1000), "Transfer-Encoding: chunked")):
        fetching.host.says = says
        assert "5,120 bytes" in (await fetching.refused())[2]
        fetching.ticks.now += client_documents.UNSAID_SECONDS


def unmeasured(body: bytes) -> bytes:
    """An answer that ends where the connection does."""
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" + body


def chunked(body: bytes, size: int) -> bytes:
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in [*parts, b""])


async def test_an_endless_answer_is_left(fetching: Fetching) -> None:
    left = asyncio.Event()

    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(unmeasured(b""))
        try:
            while True:
                writer.write(b" " * 65_536)
                await writer.drain()
        finally:
            left.set()

    fetching.host.says = endless
    assert "5,120 bytes" in (await fetching.refused())[2]
    await asyncio.wait_for(left.wait(), 5)


@pytest.mark.parametrize("coding", ["gzip", "br", "identity"])
async def test_nothing_is_unpacked(fetching: Fetching, coding: str) -> None:
    packed = gzip.compress(json.dumps(document()).encode())
    fetching.host.says = answer(packed, f"Content-Encoding: {coding}")
    assert "compressed" in (await fetching.refused())[2]


@pytest.mark.slow
async def test_a_host_that_answers_byte_by_byte_has_five_seconds_in_all(fetching: Fetching) -> None:
    ended = asyncio.Event()

    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(unmeasured(b""))
        while not ended.is_set():
            writer.write(b" ")
            await writer.drain()
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), 0.2)

    fetching.host.says = drip
    began = time.monotonic()
    assert (await fetching.refused())[:2] == (503, "temporarily_unavailable")
    ended.set()
    assert 4.5 < time.monotonic() - began < 7


@pytest.mark.parametrize(
    "says",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{",
        b"this is no HTTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 300_000 + b"\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
async def test_an_answer_that_is_broken_off_or_no_answer_is_refused_for_now(fetching: Fetching, says: bytes) -> None:
    fetching.host.says = says
    assert (await fetching.refused())[:2] == (503, "temporarily_unavailable")


# --- The document ---


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[" * 5_000,
        b'{"a":' * 800,
        b"<html></html>",
        b"\xff\xfe{\x00}\x00",
        b'{"client_id": NaN}',
        b'{"client_id": Infinity}',
        b'{"client_name": "\\ud800"}',
        b"[]",
        b'"a text"',
        b"null",
        b"5",
    ],
)
async def test_what_is_no_json_object_is_refused(fetching: Fetching, body: bytes) -> None:
    assert "JSON" in await fetching.refused_as(body)


async def test_members_that_nobody_asked_for_do_no_harm(fetching: Fetching) -> None:
    deep: Any = 0
    for _ in range(100):
        deep = [deep]
    odd = {"logo_uri": 5, "number": 10**4_000, "deep": deep, "jwks": {}, "scope": None, "contacts": [[]]}
    fetching.host.says = served({**document(), **odd})
    assert await fetching.read() == Client(id=URL, name="An application", redirect_uris=(CALLBACK,))


@pytest.mark.parametrize(
    "client_id", [f"{URL}/", URL[:-1], f"{URL}?", URL.replace("https", "http"), URL.upper(), "", 5, None, [URL]]
)
async def test_a_document_that_names_another_id_is_refused(fetching: Fetching, client_id: Any) -> None:
    assert "client_id" in await fetching.refused_as(document(client_id=client_id))


@pytest.mark.parametrize("spelling", [f"{URL}/", f"{URL}?a=b", URL.replace("oauth", "%6Fauth")])
async def test_an_id_that_leads_to_the_same_document_by_another_spelling_is_refused(
    fetching: Fetching, spelling: str
) -> None:
    assert "client_id" in (await fetching.refused(spelling))[2]


@pytest.mark.parametrize(
    "redirects",
    [
        None,
        [],
        CALLBACK,
        [5],
        [[]],
        [CALLBACK, None],
        ["/callback"],
        ["http://app.example.com/callback"],
        [f"{CALLBACK}#fragment"],
        *([uri] for uri in FORBIDDEN_REDIRECTS),
        [f"{CALLBACK}/{number}" for number in range(21)],
    ],
)
async def test_a_document_without_addresses_that_are_allowed_is_refused(fetching: Fetching, redirects: Any) -> None:
    assert "to return to" in await fetching.refused_as(document(redirect_uris=redirects))


@pytest.mark.parametrize(
    ("one", "several"),
    [
        ("none", None),
        (None, ["none"]),
        (None, ["private_key_jwt", "none"]),
        ("private_key_jwt", ["none", "private_key_jwt"]),
        ("none", ["private_key_jwt"]),
        (None, None),
    ],
)
async def test_a_client_that_can_do_without_a_secret_is_welcome_in_either_spelling(
    fetching: Fetching, one: Any, several: Any
) -> None:
    methods = {"token_endpoint_auth_method": one, "token_endpoint_auth_methods_supported": several}
    fetching.host.says = served(document(**methods))
    assert (await fetching.read()).id == URL


@pytest.mark.parametrize(
    ("one", "several"),
    [
        ("private_key_jwt", None),
        ("private_key_jwt", ["private_key_jwt"]),
        (None, ["private_key_jwt"]),
        ("client_secret_basic", None),
        ("client_secret_post", ["none"]),
        ("None", None),
        (["none"], None),
        ("private_key_jwt", "none"),
        (5, {"none": 1}),
    ],
)
async def test_a_client_that_cannot_is_refused(fetching: Fetching, one: Any, several: Any) -> None:
    methods = {"token_endpoint_auth_method": one, "token_endpoint_auth_methods_supported": several}
    assert "authenticate" in await fetching.refused_as(document(**methods))


@pytest.mark.parametrize("member", ["client_secret", "client_secret_expires_at"])
async def test_a_document_that_speaks_of_a_secret_is_refused(fetching: Fetching, member: str) -> None:
    assert "secret" in await fetching.refused_as({**document(), member: 0})


@pytest.mark.parametrize("name", [None, "", "   ", 5, "\u200b", ["A name"]])
async def test_a_client_without_a_name_is_called_by_its_host(fetching: Fetching, name: Any) -> None:
    fetching.host.says = served(document(client_name=name))
    assert (await fetching.read()).name == NAME


# As they were served at their addresses in August to October 2026, by what public repositories recorded of them.
CHATGPT = {
    "client_id": "https://chatgpt.com/oauth/client.json",
    "client_uri": "https://chatgpt.com/",
    "redirect_uris": ["https://chatgpt.com/connector_platform_oauth_redirect"],
    "token_endpoint_auth_method": "private_key_jwt",
    "token_endpoint_auth_methods_supported": ["none", "private_key_jwt"],
    "grant_types": ["authorization_code", "refresh_token"],
    "response_types": ["code"],
    "client_name": "ChatGPT",
    "logo_uri": "https://persistent.oaistatic.com/sonic/misc/openai-logo.png",
    "token_endpoint_auth_signing_alg": "RS256",
    "jwks_uri": "https://chatgpt.com/oauth/jwks.json",
}
CHATGPT_OF_ONE_CONNECTOR = {
    **CHATGPT,
    "client_id": "https://chatgpt.com/oauth/aaaaaaaaaaaa/client.json",
    "redirect_uris": ["https://chatgpt.com/connector/oauth/aaaaaaaaaaaa"],
}
CLAUDE = {
    "client_id": "https://claude.ai/oauth/mcp-oauth-client-metadata",
    "client_name": "Claude",
    "client_uri": "https://claude.ai",
    "redirect_uris": ["https://claude.ai/api/mcp/auth_callback"],
    "grant_types": ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:jwt-bearer"],
    "response_types": ["code"],
    "token_endpoint_auth_method": "none",
}
CLAUDE_CODE = {
    "client_id": "https://claude.ai/oauth/claude-code-client-metadata",
    "client_name": "Claude Code",
    "client_uri": "https://claude.ai",
    "redirect_uris": ["http://localhost/callback", "http://127.0.0.1/callback"],
    "grant_types": ["authorization_code", "refresh_token"],
    "response_types": ["code"],
    "token_endpoint_auth_method": "none",
}
VISUAL_STUDIO_CODE = {
    "application_type": "native",
    "client_id": "https://vscode.dev/oauth/client-metadata.json",
    "client_name": "Visual Studio Code",
    "client_uri": "https://vscode.dev/product",
    "grant_types": ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"],
    "response_types": ["code"],
    "redirect_uris": ["https://vscode.dev/redirect", "http://127.0.0.1:33418/"],
    "token_endpoint_auth_method": "none",
}


@pytest.mark.parametrize(
    ("recorded", "asks_for"),
    [
        (CHATGPT, "https://chatgpt.com/connector_platform_oauth_redirect"),
        (CHATGPT_OF_ONE_CONNECTOR, "https://chatgpt.com/connector/oauth/aaaaaaaaaaaa"),
        (CLAUDE, "https://claude.ai/api/mcp/auth_callback"),
        (CLAUDE_CODE, "http://localhost:54321/callback"),
        (VISUAL_STUDIO_CODE, "http://127.0.0.1:50123/"),
    ],
)
async def test_the_documents_of_known_clients_are_accepted_as_they_were_recorded(
    authority: Authority, recorded: dict[str, Any], asks_for: str
) -> None:
    name = recorded["client_id"].split("/")[2]
    async with DocumentHost(served(recorded)).serving(authority.server(name)) as host:
        client = await fetching_from(host, authority.trusting).read(recorded["client_id"])
    assert (client.name, client.host) == (recorded["client_name"], name)
    assert client.redirect(asks_for) == asks_for


# --- How often ---


async def test_twenty_who_ask_at_once_fetch_a_document_once(fetching: Fetching) -> None:
    clients = await asyncio.gather(*(fetching.read() for _ in range(20)))
    assert len({client.id for client in clients}) == 1
    assert (fetching.host.connections, fetching.names.asked) == (1, [NAME])


async def test_twenty_who_ask_at_once_for_a_bad_document_fetch_it_once(fetching: Fetching) -> None:
    fetching.host.says = answer(b"", status="404 Not Found")
    refusals = await asyncio.gather(*(fetching.refused() for _ in range(20)))
    assert (len(set(refusals)), fetching.host.connections) == (1, 1)


async def test_one_who_goes_away_leaves_the_others_their_answer(fetching: Fetching) -> None:
    going_on = asyncio.Event()

    async def held(writer: asyncio.StreamWriter) -> None:
        await going_on.wait()
        writer.write(served(document()))

    fetching.host.says = held
    first, second = asyncio.create_task(fetching.read()), asyncio.create_task(fetching.read())
    await fetching.host.has_been_asked(1)
    first.cancel()
    going_on.set()
    assert (await second).id == URL


DATE = "Date: Tue, 01 Dec 2026 12:00:00 GMT"
IN_AN_HOUR = "Expires: Tue, 01 Dec 2026 13:00:00 GMT"
A_MINUTE = 60
A_DAY = 24 * 60 * 60


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ([], 600),
        (["Cache-Control: must-revalidate, unheard-of=5"], 600),
        (["Cache-Control: ,=,;"], 600),
        (["Cache-Control: max-age=300"], 300),
        (["Cache-Control: public, Max-Age=300 , immutable"], 300),
        (['Cache-Control: max-age="300"'], 300),
        (["Cache-Control: public", "Cache-Control: max-age=300"], 300),
        (["Cache-Control: max-age=300, max-age=900"], 300),
        (['Cache-Control: extension="no-store, max-age=900", max-age=300'], 300),
        # This is a cache that many share.
        (["Cache-Control: max-age=300, s-maxage=900"], 900),
        (["Cache-Control: max-age=300", "Age: 100"], 200),
        (["Cache-Control: max-age=300", "Age: nonsense"], 300),
        (["Cache-Control: max-age=300", DATE, IN_AN_HOUR], 300),
        ([DATE, IN_AN_HOUR], 3_600),
        ([DATE, IN_AN_HOUR, "Age: 600"], 3_000),
        # Expires is by a clock that may not be ours.
        ([IN_AN_HOUR], 600),
        (["Cache-Control: no-store"], A_MINUTE),
        (["Cache-Control: no-cache, max-age=300"], A_MINUTE),
        (['Cache-Control: no-cache="set-cookie", max-age=300'], A_MINUTE),
        (["Cache-Control: private, max-age=300"], A_MINUTE),
        (["Cache-Control: max-age=0", DATE, IN_AN_HOUR], A_MINUTE),
        (["Cache-Control: max-age=300", "Age: 1000"], A_MINUTE),
        (["Cache-Control: max-age=-300"], A_MINUTE),
        (["Cache-Control: max-age=3e5"], A_MINUTE),
        (["Cache-Control: max-age"], A_MINUTE),
        ([DATE, "Expires: 0"], A_MINUTE),
        ([DATE, "Expires: Tue, 01 Dec 2026 11:00:00 GMT"], A_MINUTE),
        (["Date: today", IN_AN_HOUR], A_MINUTE),
        (["Cache-Control: public, max-age=31536000, immutable"], A_DAY),
        (["Cache-Control: max-age=" + "9" * 5_000], A_DAY),
        ([DATE, "Expires: Fri, 31 Dec 9999 23:59:59 GMT"], A_DAY),
    ],
)
async def test_a_document_is_kept_for_as_long_as_its_host_says_within_bounds(
    fetching: Fetching, headers: list[str], seconds: int
) -> None:
    fetching.host.says = answer(json.dumps(document()).encode(), *headers)
    await fetching.read()
    fetching.ticks.now += seconds - 1
    await fetching.read()
    assert fetching.host.connections == 1
    fetching.ticks.now += 1
    await fetching.read()
    assert fetching.host.connections == 2


async def test_once_its_time_is_over_the_new_addresses_of_a_document_hold(fetching: Fetching) -> None:
    await fetching.read()
    moved = f"https://{NAME}/moved"
    fetching.host.says = served(document(redirect_uris=[moved]))
    fetching.ticks.now += client_documents.UNSAID_SECONDS - 1
    assert (await fetching.read()).redirect(CALLBACK) == CALLBACK
    fetching.ticks.now += 1
    client = await fetching.read()
    assert (client.redirect(CALLBACK), client.redirect(moved)) == (None, moved)


async def test_a_document_that_is_gone_once_its_time_is_over_is_believed_no_longer(fetching: Fetching) -> None:
    await fetching.read()
    fetching.host.says = answer(b"", status="404 Not Found")
    fetching.ticks.now += client_documents.UNSAID_SECONDS
    assert (await fetching.refused())[:2] == (400, "invalid_client")


@pytest.mark.parametrize("caching", ["max-age=86400", "no-store"])
@pytest.mark.parametrize(
    ("status", "body"), [("500 Internal Server Error", b""), ("404 Not Found", b""), ("200 OK", b"{}"), ("200 OK", b"")]
)
async def test_a_failure_is_remembered_for_a_minute_whatever_its_host_says(
    fetching: Fetching, status: str, body: bytes, caching: str
) -> None:
    fetching.host.says = answer(body, f"Cache-Control: {caching}", status=status)
    refused = await fetching.refused()
    fetching.host.says = served(document())
    fetching.ticks.now += 59
    assert await fetching.refused() == refused
    fetching.ticks.now += 1
    assert (await fetching.read()).id == URL
    assert fetching.host.connections == 2


BUSY = (429, "temporarily_unavailable")


async def test_a_flood_of_ids_makes_thirty_fetches_in_any_minute_and_harms_no_document_that_is_known(
    fetching: Fetching,
) -> None:
    await fetching.read()
    fetching.ticks.now += 30
    for number in range(29):
        assert (await fetching.refused(f"{URL}?{number}"))[0] == 400
    fetching.ticks.now += 29
    for number in range(500):
        assert (await fetching.refused(f"{URL}?more{number}"))[:2] == BUSY
    assert fetching.host.connections == 30
    assert (await fetching.read()).id == URL
    # The first fetch was a minute ago, and its place alone is free.
    fetching.ticks.now += 1
    fetching.host.says = served(document(f"{URL}?more1"))
    assert (await fetching.read(f"{URL}?more1")).id == f"{URL}?more1"
    assert (await fetching.refused(f"{URL}?more2"))[:2] == BUSY
    assert fetching.host.connections == 31


async def test_four_are_fetched_at_once_and_a_fifth_does_not_wait(fetching: Fetching) -> None:
    going_on = asyncio.Event()

    async def held(writer: asyncio.StreamWriter) -> None:
        await going_on.wait()
        writer.write(served(document()))

    fetching.host.says = held
    under_way = [asyncio.create_task(fetching.refused(f"{URL}?{number}")) for number in range(4)]
    await fetching.host.has_been_asked(4)
    assert (await fetching.refused())[:2] == BUSY
    going_on.set()
    await asyncio.gather(*under_way)
    assert (await fetching.read()).id == URL


async def test_two_hundred_documents_are_remembered(fetching: Fetching) -> None:
    for number in range(200):
        url = f"{URL}?{number}"
        fetching.host.says = served(document(url))
        await fetching.read(url)
        fetching.ticks.now += 2
    await fetching.read(f"{URL}?0")
    assert fetching.host.connections == 200
    fetching.host.says = served(document())
    await fetching.read()
    fetching.ticks.now += 60
    await fetching.refused(f"{URL}?0")
    await fetching.read(f"{URL}?2")
    assert fetching.host.connections == 202


async def test_the_log_says_that_a_document_could_not_be_read_and_nothing_of_its_id(fetching: Fetching) -> None:
    fetching.host.says = b""
    with logged() as log:
        logs.configure(project=None, readable=False)
        await fetching.refused(f"{URL}?secret=word")
        fetching.host.says = served(document())
        await fetching.read()
    [line] = log.lines
    assert (line["severity"], line["logger"]) == ("WARNING", "metacortex.adapters.client_documents")
    assert "secret" not in log.text


# --- The whole flow ---


@pytest.fixture
def signing(fetching: Fetching, emulator_host: str, project: str, monkeypatch: pytest.MonkeyPatch) -> Signing:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", emulator_host)
    return Signing(project, documents=fetching.documents)


async def test_a_described_client_is_approved_and_gets_tokens_and_new_ones(
    signing: Signing, fetching: Fetching
) -> None:
    browser = Browser(signing)
    request = await browser.sign_in(signing.authorize_url(URL, redirect_uri=CALLBACK))
    page = said_on(await browser.open(f"/oauth/consent?request={request}"))
    assert "An application" in page
    assert NAME in page
    code = (await browser.answer(request, "approve"))["code"]
    tokens = (await signing.redeem(URL, code, redirect_uri=CALLBACK)).json()
    assert (await signing.call(tokens["access_token"])).status_code == 200
    fresh = (await signing.refresh(URL, tokens["refresh_token"])).json()
    assert (await signing.call(fresh["access_token"])).status_code == 200
    assert fetching.host.connections == 1


async def test_a_described_client_is_sent_nowhere_but_where_its_document_says_now(
    signing: Signing, fetching: Fetching
) -> None:
    browser = Browser(signing)
    asked = signing.authorize_url(URL, redirect_uri=CALLBACK)
    await browser.sign_in(asked)
    fetching.host.says = served(document(redirect_uris=[f"https://{NAME}/moved"]))
    fetching.ticks.now += client_documents.UNSAID_SECONDS
    response = await browser.open(asked)
    assert (response.status_code, response.headers.get("location")) == (400, None)
    assert "return to" in said_on(response)


async def test_a_client_whose_document_is_of_no_use_is_told_to_the_owner_and_sent_nowhere(
    signing: Signing, fetching: Fetching
) -> None:
    fetching.host.says = served(document(client_id="https://other.example.com/c"))
    response = await Browser(signing).open(signing.authorize_url(URL, redirect_uri=CALLBACK))
    assert (response.status_code, response.headers.get("location")) == (400, None)
    assert "its client_id is not its address" in said_on(response)


async def test_one_described_client_cannot_use_what_another_was_given(signing: Signing, fetching: Fetching) -> None:
    other = f"{URL}?other"
    code = (await Browser(signing).approve(signing.authorize_url(URL, redirect_uri=CALLBACK)))["code"]
    assert error_of(await signing.redeem(other, code, redirect_uri=CALLBACK)) == (400, "invalid_grant")
    tokens = (await signing.redeem(URL, code, redirect_uri=CALLBACK)).json()
    assert error_of(await signing.refresh(other, tokens["refresh_token"])) == (400, "invalid_grant")
    assert (await signing.refresh(URL, tokens["refresh_token"])).status_code == 200


async def test_a_described_client_keeps_its_grant_while_its_document_cannot_be_read(
    signing: Signing, fetching: Fetching
) -> None:
    code = (await Browser(signing).approve(signing.authorize_url(URL, redirect_uri=CALLBACK)))["code"]
    tokens = (await signing.redeem(URL, code, redirect_uri=CALLBACK)).json()
    fetching.host.says = answer(b"", status="503 Service Unavailable")
    fetching.ticks.now += client_documents.UNSAID_SECONDS
    assert (await signing.refresh(URL, tokens["refresh_token"])).status_code == 200


async def test_asking_for_tokens_fetches_nothing(signing: Signing, fetching: Fetching) -> None:
    assert error_of(await signing.redeem(URL, "a code", redirect_uri=CALLBACK)) == (400, "invalid_grant")
    assert error_of(await signing.refresh(URL, "a token")) == (400, "invalid_grant")
    assert (fetching.names.asked, fetching.host.connections) == ([], 0)


async def test_a_document_that_cannot_be_read_now_is_told_as_that(signing: Signing, fetching: Fetching) -> None:
    fetching.host.says = answer(b"", status="503 Service Unavailable")
    response = await Browser(signing).open(signing.authorize_url(URL, redirect_uri=CALLBACK))
    assert (response.status_code, response.headers.get("location")) == (503, None)
    assert "Try again in a minute" in said_on(response)
