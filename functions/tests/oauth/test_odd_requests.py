"""What nobody should send, and how exactly it is answered (RFC 6749, RFC 7009, RFC 7591)."""

import asyncio
import base64
import re
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import quote, urlencode

import httpx2
import pytest
from google.cloud.firestore_v1.async_client import AsyncClient

from metacortex.web.oauth import bodies
from signing import (
    BASE,
    FORM,
    REDIRECT,
    RESOURCE,
    VERIFIER,
    Browser,
    Signing,
    error_of,
    refused_on,
    said_on,
)

FOR_CLIENTS = ["/oauth/register", "/oauth/token", "/oauth/revoke"]
FOR_PEOPLE = ["/oauth/authorize", "/oauth/sign-in", "/oauth/google", "/oauth/google/callback", "/oauth/consent"]
DOCUMENTS = [
    "/.well-known/oauth-protected-resource",
    "/.well-known/oauth-protected-resource/clients/agent/mcp",
    "/.well-known/oauth-authorization-server",
    "/.well-known/openid-configuration/clients/agent/mcp",
]
DESCRIPTION = re.compile(r"[ !#-\[\]-~]+")
"""What RFC 6749 lets error_description hold."""


@pytest.fixture
def signing(emulator_host: str, project: str, monkeypatch: pytest.MonkeyPatch) -> Signing:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", emulator_host)
    return Signing(project)


async def posted(signing: Signing, fields: dict[str, str], **headers: str) -> httpx2.Response:
    return await signing.http.post("/oauth/token", content=urlencode(fields), headers=FORM | headers)


async def redeeming(signing: Signing) -> dict[str, str]:
    """A good request for tokens."""
    client = (await signing.register())["client_id"]
    code = (await Browser(signing).approve(signing.authorize_url(client)))["code"]
    return {
        "grant_type": "authorization_code",
        "client_id": client,
        "code": code,
        "redirect_uri": REDIRECT,
        "code_verifier": VERIFIER,
    }


# --- Methods and paths ---


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("path", FOR_CLIENTS)
async def test_clients_post_and_nothing_else(signing: Signing, path: str, method: str) -> None:
    response = await signing.http.request(method, path)
    assert response.status_code == 405
    assert {"POST", "OPTIONS"} == set(response.headers["allow"].split(", "))
    assert response.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", FOR_PEOPLE)
async def test_browsers_get_and_post(signing: Signing, path: str, method: str) -> None:
    response = await signing.http.request(method, path)
    assert response.status_code == 405
    assert set(response.headers["allow"].split(", ")) <= {"GET", "HEAD", "POST"}
    assert response.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize("path", DOCUMENTS)
async def test_documents_are_read_only(signing: Signing, path: str, method: str) -> None:
    response = await signing.http.request(method, path)
    assert response.status_code == 405
    assert set(response.headers["allow"].split(", ")) == {"GET", "HEAD", "OPTIONS"}


@pytest.mark.parametrize("path", DOCUMENTS)
async def test_the_head_of_a_document_is_that_of_its_answer(signing: Signing, path: str) -> None:
    head, whole = await signing.http.head(path), await signing.http.get(path)
    assert (head.status_code, head.headers) == (200, whole.headers)


async def test_options_alone_do_nothing(signing: Signing, firestore: AsyncClient) -> None:
    for path in FOR_CLIENTS:
        response = await signing.http.request("OPTIONS", path, json={"redirect_uris": [REDIRECT]})
        assert (response.status_code, response.headers["allow"], response.content) == (204, "POST, OPTIONS", b"")
    assert not await firestore.collection("oauth_clients").get()
    response = await signing.http.options(DOCUMENTS[0])
    assert (response.status_code, response.headers["allow"]) == (204, "GET, OPTIONS")


async def test_a_page_of_any_origin_may_ask_for_tokens_and_read_why_it_gets_none(signing: Signing) -> None:
    origin = "https://inspector.example.org"
    asked = {"origin": origin, "access-control-request-method": "POST", "access-control-request-headers": "x-odd"}
    preflight = await signing.http.options("/oauth/token", headers=asked)
    assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (200, "*")
    assert preflight.headers["access-control-allow-headers"] == "x-odd"
    response = await posted(signing, {"client_id": "unheard-of"}, origin=origin)
    assert (response.status_code, response.headers["access-control-allow-origin"]) == (401, "*")
    assert "access-control-allow-credentials" not in response.headers


async def test_the_head_of_the_page_that_asks_answers_nothing(signing: Signing) -> None:
    client = (await signing.register())["client_id"]
    browser = Browser(signing)
    request = await browser.sign_in(signing.authorize_url(client))
    cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    head = await signing.http.head(f"/oauth/consent?request={request}", headers={"cookie": cookie, "origin": BASE})
    assert head.status_code == 200
    assert (await browser.answer(request, "approve"))["code"]


@pytest.mark.parametrize(
    "path",
    [
        "/oauth",
        "/oauth/",
        "/oauth/token/",
        "/oauth//token",
        "/oauth/x%2f..%2ftoken",
        "/oauth/TOKEN",
        "/oauth/token%0a",
        "/oauth/token%00",
        "/.well-known/",
        "/.well-known/oauth-protected-resource/",
        "/.well-known/oauth-protected-resource/clients/%2e%2e/mcp",
        "/.well-known/oauth-protected-resource/clients/agent/mcp/",
        "/.well-known/oauth-protected-resource/clients/Agent/mcp",
        "/.well-known/oauth-protected-resource/clients//mcp",
        "/.well-known/oauth-protected-resource/clients/agent%00/mcp",
        "/.well-known/oauth-protected-resource/clients/agent/mcp%0a",
        "/.well-known/oauth-protected-resource/mcp",
        "/metaCortexMcp/oauth/token",
    ],
)
async def test_a_path_that_is_nearly_one_of_ours_is_none(signing: Signing, path: str) -> None:
    response = await signing.http.request("POST" if "token" in path else "GET", path)
    assert (response.status_code, response.json()) == (404, {"error": "Not found"})


@pytest.mark.parametrize("path", ["/oauth/unheard-of", "/.well-known/oauth-protected-resource/clients/unheard/mcp"])
async def test_what_is_not_there_is_not_remembered_as_that(signing: Signing, path: str) -> None:
    response = await signing.http.get(path)
    assert (response.status_code, response.headers["cache-control"]) == (404, "no-store")


# --- Bodies ---


@pytest.mark.parametrize(
    "content_type",
    [
        "application/x-www-form-urlencoded",
        "application/x-www-form-urlencoded;charset=UTF-8",
        "application/x-www-form-urlencoded; charset=utf-8",
        "Application/X-WWW-Form-URLEncoded ; charset=iso-8859-1",
    ],
)
async def test_a_form_is_one_whatever_its_type_says_beside(signing: Signing, content_type: str) -> None:
    assert (await posted(signing, await redeeming(signing), **{"content-type": content_type})).status_code == 200


@pytest.mark.parametrize(
    "content_type", ["", "application/json", "text/plain", "multipart/form-data; boundary=x", "x-www-form-urlencoded"]
)
@pytest.mark.parametrize("path", ["/oauth/token", "/oauth/revoke"])
async def test_what_is_no_form_is_refused(signing: Signing, path: str, content_type: str) -> None:
    body = urlencode({"client_id": "unheard-of", "grant_type": "refresh_token", "refresh_token": "x"})
    headers = {"content-type": content_type} if content_type else {}
    response = await signing.http.post(path, content=body, headers=headers)
    assert error_of(response) == (400, "invalid_request")


async def test_parameters_in_the_address_count_for_nothing(signing: Signing) -> None:
    fields = await redeeming(signing)
    response = await signing.http.post(f"/oauth/token?{urlencode(fields)}", content=b"", headers=FORM)
    assert error_of(response) == (401, "invalid_client")
    assert (await posted(signing, fields)).status_code == 200


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ("code=x", "invalid_request"),
        ("client_id=", "invalid_request"),
        ("unheard=1&unheard=2", "invalid_request"),
        (f"resource={quote(RESOURCE)}&resource={quote(BASE)}", "invalid_target"),
        ("&".join(f"p{number}=1" for number in range(50)), "invalid_request"),
    ],
)
async def test_a_field_that_is_there_twice_or_too_many_are_refused_and_the_code_stays_good(
    signing: Signing, more: str, error: str
) -> None:
    fields = await redeeming(signing)
    response = await signing.http.post("/oauth/token", content=f"{urlencode(fields)}&{more}", headers=FORM)
    assert error_of(response) == (400, error)
    assert (await posted(signing, fields)).status_code == 200


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"%", b"%zz=%", b"client_id=%ff%00", b"&&&===", b"=" * 1_000, b"\x00"]
)
async def test_a_form_of_garbage_is_refused(signing: Signing, content: bytes) -> None:
    for path in ("/oauth/token", "/oauth/revoke"):
        response = await signing.http.post(path, content=content, headers=FORM)
        assert error_of(response)[0] in {400, 401}


@pytest.mark.parametrize("name", ["code", "code_verifier", "redirect_uri", "resource", "client_id", "refresh_token"])
async def test_huge_fields_are_refused_as_small_ones_are(signing: Signing, name: str) -> None:
    fields = await redeeming(signing)
    if name == "refresh_token":
        fields = {"grant_type": "refresh_token", "client_id": fields["client_id"]}
    for size in (1_501, 60_000, 70_000):
        status, error = error_of(await posted(signing, {**fields, name: "x" * size}))
        assert (status, error) in {
            (400, "invalid_grant"),
            (400, "invalid_target"),
            (400, "invalid_request"),
            (401, "invalid_client"),
        }


async def test_a_body_that_never_ends_is_given_up(signing: Signing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.1)

    async def body() -> AsyncGenerator[bytes]:
        yield b"client_id="
        await asyncio.Event().wait()

    for path in FOR_CLIENTS:
        response = await signing.http.post(path, content=body(), headers=FORM)
        assert error_of(response) == (400, "invalid_request")


# --- Clients ---


@pytest.mark.parametrize(
    "grant_type", ["password", "client_credentials", "implicit", "AUTHORIZATION_CODE", "refresh_token "]
)
async def test_an_unknown_grant_type_is_called_that(signing: Signing, grant_type: str) -> None:
    fields = await redeeming(signing)
    assert error_of(await posted(signing, {**fields, "grant_type": grant_type})) == (400, "unsupported_grant_type")


async def test_a_secret_that_nobody_asked_for_is_not_looked_at(signing: Signing) -> None:
    fields = await redeeming(signing)
    assert (await posted(signing, {**fields, "client_secret": "a secret"})).status_code == 200


def basic(client_id: str, secret: str = "") -> str:
    return "Basic " + base64.b64encode(f"{client_id}:{secret}".encode()).decode()


async def test_a_client_that_authenticates_in_the_header_is_told_so_in_its_own_way(signing: Signing) -> None:
    fields = await redeeming(signing)
    unnamed = {name: value for name, value in fields.items() if name != "client_id"}
    for sent, header in (
        (unnamed, basic(fields["client_id"])),
        ({**fields, "client_id": "unheard-of"}, basic("x", "y")),
    ):
        response = await posted(signing, sent, authorization=header)
        assert error_of(response) == (401, "invalid_client")
        assert response.headers["www-authenticate"] == 'Basic realm="metacortex"'
    for header in ('"odd', "", "x" * 30):
        response = await posted(signing, unnamed, authorization=header)
        assert (response.status_code, "www-authenticate" in response.headers) == (401, False)
    assert (await posted(signing, fields, authorization=basic(fields["client_id"]))).status_code == 200


async def test_a_client_that_is_not_known_revokes_nothing(signing: Signing) -> None:
    tokens = await signing.connected()
    for client in ("unheard-of", "x" * 5_000, "", None):
        sent = {"token": tokens["refresh_token"]} | ({} if client is None else {"client_id": client})
        response = await signing.http.post("/oauth/revoke", data=sent)
        assert error_of(response) == (401, "invalid_client")
    response = await signing.http.post("/oauth/revoke", data={"client_id": tokens["client_id"]})
    assert error_of(response) == (400, "invalid_request")
    assert (await signing.call(tokens["access_token"])).status_code == 200


@pytest.mark.parametrize(
    "client_id", ["HTTPS://app.example.com/c", "https%3A%2F%2Fapp.example.com%2Fc", "%2e%2e", "a%2fb"]
)
async def test_an_id_is_undone_once_and_not_again(signing: Signing, client_id: str) -> None:
    response = await signing.http.get(signing.authorize_url(client_id))
    assert (response.status_code, "add it again" in said_on(response)) == (400, True)
    refused = await posted(signing, {"grant_type": "refresh_token", "client_id": client_id, "refresh_token": "x"})
    assert error_of(refused) == (401, "invalid_client")


async def test_every_refusal_is_described_in_the_characters_that_are_allowed(signing: Signing) -> None:
    fields = await redeeming(signing)
    refusals = [
        await posted(signing, {**fields, "client_id": "unheard-of"}),
        await posted(signing, {**fields, "grant_type": '"\\é'}),
        await posted(signing, {**fields, "resource": "é"}),
        await posted(signing, {**fields, "code": '"'}),
        await posted(signing, {**fields, "code_verifier": "x"}),
        await posted(signing, {**fields, "redirect_uri": "x"}),
        await signing.http.post("/oauth/register", content=b"{"),
        await signing.http.post("/oauth/register", json={"redirect_uris": ["javascript:1"]}),
        await signing.http.post("/oauth/register", json={"redirect_uris": []}),
        await signing.http.post("/oauth/token", content=b"x" * 70_000, headers=FORM),
    ]
    for refusal in refusals:
        assert refusal.status_code in {400, 401}
        assert DESCRIPTION.fullmatch(refusal.json()["error_description"]), refusal.text
        assert (refusal.headers["cache-control"], refusal.headers["pragma"]) == ("no-store", "no-cache")
    for changes in ({"response_type": '"'}, {"code_challenge": None}, {"resource": "é"}, {"state": "x" * 2_001}):
        _, returned = refused_on(await signing.http.get(signing.authorize_url(fields["client_id"], **changes)))
        assert DESCRIPTION.fullmatch(returned["error_description"])
        assert (returned["iss"], "state" in returned) == (BASE, True)


# --- Registration ---


@pytest.mark.parametrize(
    "metadata",
    [
        {"contacts": [[["nested"]]]},
        {"number": 2**80, "negative": -(2**70), "real": 1e300},
        {"": "no name", "__x__": 1, "a.b": {"c`d": None}},
        {"x" * 2_000: 1, "long": "x" * 30_000},
        {f"field{number}": number for number in range(3_000)},
        {"client_id": "mine", "client_secret": "mine", "client_id_issued_at": 1, "client_secret_expires_at": 1},
        {"application_type": "native", "jwks": {"keys": [{"kty": "EC"}]}, "scope": None},
        {"redirect_uris": [REDIRECT, REDIRECT]},
    ],
)
async def test_whatever_else_a_client_registers_is_told_again_and_does_no_harm(
    signing: Signing, metadata: dict[str, Any]
) -> None:
    told = await signing.register(**{"client_name": "A client", **metadata})
    ours = {"client_id", "client_secret", "client_id_issued_at", "client_secret_expires_at"}
    assert {name: told[name] for name in metadata if name not in ours} == {
        name: value for name, value in metadata.items() if name not in ours
    }
    assert told["client_id"] != "mine"
    assert "client_secret" not in told
    assert (await signing.connected(told["client_id"]))["access_token"]


async def test_numbers_and_depths_beyond_all_measure_are_refused(signing: Signing) -> None:
    for odd in (b"9" * 6_000, b"1e999", b"NaN", b"[" * 5_000 + b"]" * 5_000):
        body = b'{"redirect_uris": ["' + REDIRECT.encode() + b'"], "odd": ' + odd + b"}"
        assert error_of(await signing.http.post("/oauth/register", content=body)) == (400, "invalid_client_metadata")
