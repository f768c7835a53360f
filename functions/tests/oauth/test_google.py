"""The owner's sign-in with Google: what lets them in, and every lie of a provider that does not."""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass, field
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from google.cloud.firestore_v1.async_client import AsyncClient
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse

from logged import logged
from metacortex import logs
from metacortex.adapters.firestore_oauth import GRANTS, REQUESTS, SESSIONS
from metacortex.adapters.google_sign_in import GoogleOwner, GoogleSignIn
from metacortex.oauth.ports import SignInRefused
from openid_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    EMAIL,
    SUBJECT,
    Claims,
    Lies,
    OpenIdProvider,
    changed,
    key_named,
    providing,
    signed,
    signed_by_text,
    unsigned,
)
from signing import BASE, PASSPHRASE, Browser, Signing, request_on, said_on

AWAY = "The sign-in at Google could not be finished; try it again in a moment."
NOT_THE_OWNER = "This Google account is not the owner's. Sign in with the owner's account."
OTHER = "This sign-in belongs to another attempt; start it again here."
MINUTES = 60


@pytest.fixture
def provider() -> Generator[OpenIdProvider]:
    with providing() as provider:
        yield provider


@dataclass
class SigningIn:
    """An owner on their way in through the provider."""

    project: str
    provider: OpenIdProvider
    firestore: AsyncClient
    settings: dict[str, str] = field(default_factory=dict[str, str])
    is_cold: bool = False

    def __post_init__(self) -> None:
        google = {
            "GOOGLE_SIGN_IN_CLIENT_ID": CLIENT_ID,
            "GOOGLE_SIGN_IN_CLIENT_SECRET": CLIENT_SECRET,
            "GOOGLE_SIGN_IN_ISSUER": self.provider.issuer,
            "OWNER_EMAIL": EMAIL,
        }
        self.signing = Signing(self.project, settings={**google, **self.settings}, is_cold=self.is_cold)
        self.browser = Browser(self.signing)

    def start_anew(self) -> None:
        """In another browser."""
        self.signing.http.cookies.clear()
        self.browser = Browser(self.signing)

    async def page(self) -> str:
        """The page of a new request: it asks to sign in whoever is not signed in."""
        client = await self.signing.register()
        return self.signing.authorize_url(client["client_id"])

    async def link(self) -> str:
        """The link on the sign-in page of a new request, to go to the provider by."""
        page = await self.browser.open(await self.page())
        found = re.search(r'href="(/oauth/google\?request=[^"]+)"', page.text)
        assert found, page.text
        return unescape(found[1])

    async def at_provider(self) -> str:
        """Where the provider asks the owner."""
        response = await self.browser.open(await self.link())
        assert response.status_code == 303, response.text
        return response.headers["location"]

    async def returned(self, **changes: str) -> httpx2.Response:
        """What the owner gets once they come back from the provider."""
        return await self.browser.open(await self.provider.approve(await self.at_provider(), **changes))

    async def actions(self) -> list[str]:
        """What the audit trail says of signing in."""
        found = [event.to_dict() or {} async for event in self.firestore.collection("memory_events").stream()]
        return [event["action"] for event in found if event["event_type"] == "authorization"]

    async def count(self, collection: str) -> int:
        return len([each async for each in self.firestore.collection(collection).stream()])

    async def lets_in(self, **changes: str) -> None:
        response = await self.returned(**changes)
        assert response.status_code == 303, said_on(response)
        assert urlsplit(response.headers["location"]).path == "/oauth/consent"
        assert await self.actions() == ["owner_signed_in"]

    async def refuses(self, says: str, **changes: str) -> None:
        """The owner is told why, nobody is signed in, and nothing that is secret is told or logged."""
        url = await self.at_provider()
        [stored] = [each async for each in self.firestore.collection(REQUESTS).stream()]
        expected = (stored.to_dict() or {})["provider"]
        with logged() as log:
            logs.configure(project=None, readable=False)
            response = await self.browser.open(await self.provider.approve(url, **changes))
        assert (response.status_code, {"location", "set-cookie"} & set(response.headers)) == (401, set())
        assert says in said_on(response)
        assert "Sign in with Google" in said_on(response)
        assert await self.actions() == ["owner_sign_in_refused"]
        secrets = [*expected.values(), *self.provider.given, EMAIL, SUBJECT, CLIENT_SECRET]
        assert not [secret for secret in secrets if secret in log.text]
        assert not [secret for secret in (*self.provider.given, EMAIL, SUBJECT) if secret in response.text]
        await self.is_nobody()

    async def is_nobody(self) -> None:
        """No session has begun, and nothing was given away."""
        assert "Sign in as the owner" in said_on(await self.browser.open(await self.page()))
        assert (await self.count(SESSIONS), await self.count(GRANTS)) == (0, 0)


NewSigningIn = Callable[..., SigningIn]


@pytest.fixture
def with_settings(project: str, provider: OpenIdProvider, firestore: AsyncClient) -> NewSigningIn:
    def made(*, is_cold: bool = False, **settings: str) -> SigningIn:
        return SigningIn(project, provider, firestore, settings, is_cold)

    return made


@pytest.fixture
def owner(with_settings: NewSigningIn) -> SigningIn:
    return with_settings()


# --- The owner ---


@pytest.mark.parametrize("is_cold", [False, True])
async def test_the_owner_goes_to_google_and_back_and_approves(with_settings: NewSigningIn, *, is_cold: bool) -> None:
    owner = with_settings(is_cold=is_cold)
    response = await owner.returned()
    assert response.status_code == 303
    cookie = response.headers["set-cookie"]
    assert {"HttpOnly", "Secure", "SameSite=lax", "Path=/"} <= set(cookie.split("; "))
    assert await owner.count(SESSIONS) == 1
    page = await owner.browser.open(response.headers["location"])
    assert page.status_code == 200
    request = parse_qs(urlsplit(response.headers["location"]).query)["request"][0]
    assert set(await owner.browser.answer(request, "approve")) == {"code", "state", "iss"}
    assert sorted(await owner.actions()) == ["grant_approved", "owner_signed_in"]


async def test_the_owner_is_asked_with_state_nonce_and_pkce_that_are_new_each_time(owner: SigningIn) -> None:
    one, other = (
        parse_qs(urlsplit(await owner.at_provider()).query),
        parse_qs(urlsplit(await owner.at_provider()).query),
    )
    assert one.keys() == {
        "response_type",
        "client_id",
        "redirect_uri",
        "scope",
        "state",
        "nonce",
        "code_challenge",
        "code_challenge_method",
        "prompt",
    }
    assert one["scope"] == ["openid email"]
    assert one["redirect_uri"] == [f"{BASE}/oauth/google/callback"]
    assert one["code_challenge_method"] == ["S256"]
    assert not [name for name in ("state", "nonce", "code_challenge") if one[name] == other[name]]
    assert len(one["nonce"][0]) >= 20


async def test_the_code_is_redeemed_with_the_verifier(owner: SigningIn) -> None:
    url = await owner.at_provider()
    assert (await owner.browser.open(await owner.provider.approve(url))).status_code == 303
    [sent] = owner.provider.sent
    assert sent.keys() == {"grant_type", "code", "redirect_uri", "code_verifier"}
    assert len(sent["code_verifier"]) >= 43


async def test_only_the_way_back_begins_a_session(owner: SigningIn) -> None:
    await owner.provider.approve(await owner.at_provider())
    await owner.is_nobody()
    assert await owner.actions() == []


@pytest.mark.parametrize("email", ["Owner@Example.ORG", "OWNER@EXAMPLE.ORG"])
async def test_the_case_of_an_address_is_no_matter(owner: SigningIn, email: str) -> None:
    owner.provider.lies = Lies(claims=lambda claims: {**claims, "email": email})
    await owner.lets_in()


async def test_the_owner_may_be_known_by_their_subject_alone(with_settings: NewSigningIn) -> None:
    owner = with_settings(OWNER_EMAIL="", OWNER_SUBJECT=SUBJECT)
    owner.provider.lies = Lies(claims=lambda claims: without(claims, "email", "email_verified"))
    await owner.lets_in()


async def test_the_owner_may_be_known_by_both(with_settings: NewSigningIn) -> None:
    await with_settings(OWNER_SUBJECT=SUBJECT).lets_in()


def without(claims: Claims, *names: str) -> Claims:
    return {name: value for name, value in claims.items() if name not in names}


# --- Somebody else ---


@pytest.mark.parametrize(
    "changes",
    [
        {"email": "somebody@example.org"},
        {"email": f"{EMAIL}.example.com"},
        {"email": f" {EMAIL}"},
        {"email": ""},
        {"email": None},
        {"email": [EMAIL]},
        {"email_verified": False},
        {"email_verified": "true"},
        {"email_verified": "false"},
        {"email_verified": 1},
        {"email_verified": None},
    ],
)
async def test_whoever_has_not_proved_the_owners_address_is_not_let_in(owner: SigningIn, changes: Claims) -> None:
    owner.provider.lies = Lies(claims=lambda claims: {**claims, **changes})
    await owner.refuses(NOT_THE_OWNER)


@pytest.mark.parametrize("left_out", ["email", "email_verified"])
async def test_an_account_without_a_verified_address_is_not_let_in(owner: SigningIn, left_out: str) -> None:
    owner.provider.lies = Lies(claims=lambda claims: without(claims, left_out))
    await owner.refuses(NOT_THE_OWNER)


async def test_letters_that_only_look_alike_are_not_the_same(with_settings: NewSigningIn) -> None:
    owner = with_settings(OWNER_EMAIL="kim@example.org")
    owner.provider.lies = Lies(claims=lambda claims: {**claims, "email": "\N{KELVIN SIGN}im@example.org"})
    await owner.refuses(NOT_THE_OWNER)


@pytest.mark.parametrize("subject", ["1100220034", f"{SUBJECT}0", SUBJECT[:-1], ""])
async def test_another_subject_with_the_owners_address_is_not_let_in(with_settings: NewSigningIn, subject: str) -> None:
    owner = with_settings(OWNER_SUBJECT=SUBJECT)
    owner.provider.lies = Lies(claims=lambda claims: {**claims, "sub": subject})
    await owner.refuses(NOT_THE_OWNER)


async def test_the_owners_subject_with_another_address_is_not_let_in(with_settings: NewSigningIn) -> None:
    owner = with_settings(OWNER_SUBJECT=SUBJECT)
    owner.provider.lies = Lies(claims=lambda claims: {**claims, "email": "somebody@example.org"})
    await owner.refuses(NOT_THE_OWNER)


# --- A provider that lies ---


def now() -> int:
    return int(time.time())


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param(lambda claims: {**claims, "nonce": "another"}, id="another nonce"),
        pytest.param(lambda claims: {**claims, "nonce": ""}, id="an empty nonce"),
        pytest.param(lambda claims: {**claims, "nonce": [claims["nonce"]]}, id="a list of nonces"),
        pytest.param(lambda claims: without(claims, "nonce"), id="no nonce"),
        pytest.param(lambda claims: {**claims, "aud": "another"}, id="another audience"),
        pytest.param(lambda claims: {**claims, "aud": []}, id="an empty audience"),
        pytest.param(lambda claims: without(claims, "aud"), id="no audience"),
        pytest.param(lambda claims: {**without(claims, "azp"), "aud": [CLIENT_ID, "another"]}, id="a second audience"),
        pytest.param(lambda claims: {**claims, "aud": [CLIENT_ID, "another"]}, id="a second audience, for us"),
        pytest.param(lambda claims: {**claims, "azp": "another"}, id="for another party"),
        pytest.param(lambda claims: {**claims, "iss": "https://accounts.example.org"}, id="another issuer"),
        pytest.param(lambda claims: {**claims, "iss": f"{claims['iss']}/"}, id="nearly the issuer"),
        pytest.param(lambda claims: without(claims, "iss"), id="no issuer"),
        pytest.param(lambda claims: without(claims, "sub"), id="no subject"),
        pytest.param(lambda claims: {**claims, "exp": now() - 3 * MINUTES}, id="expired"),
        pytest.param(lambda claims: {**claims, "exp": str(now() + 60 * MINUTES)}, id="an expiry in words"),
        pytest.param(lambda claims: without(claims, "exp"), id="no expiry"),
        pytest.param(lambda claims: {**claims, "iat": now() + 3 * MINUTES}, id="issued in the future"),
        pytest.param(lambda claims: {**claims, "nbf": now() + 3 * MINUTES}, id="not yet valid"),
        pytest.param(lambda claims: without(claims, "iat"), id="never issued"),
        pytest.param(lambda claims: {**claims, "at_hash": "another"}, id="for another access token"),
    ],
)
async def test_claims_that_are_not_for_this_sign_in_are_not_believed(
    owner: SigningIn, lie: Callable[[Claims], Claims]
) -> None:
    owner.provider.lies = Lies(claims=lie)
    await owner.refuses(AWAY)


async def test_one_audience_may_stand_in_a_list(owner: SigningIn) -> None:
    owner.provider.lies = Lies(claims=lambda claims: {**claims, "aud": [CLIENT_ID]})
    await owner.lets_in()


def public_pem() -> bytes:
    return key_named("first").as_pem(private=False)


@pytest.mark.parametrize(
    "sign",
    [
        pytest.param(unsigned, id="none"),
        pytest.param(
            lambda claims: signed_by_text(claims, CLIENT_SECRET.encode(), kid="first"),
            id="HS256 by the client's secret",
        ),
        pytest.param(lambda claims: signed_by_text(claims, public_pem(), kid="first"), id="HS256 by the public key"),
        pytest.param(lambda claims: signed(claims, key_named("another"), kid="first"), id="another key"),
        pytest.param(lambda claims: signed(claims, key_named("another")), id="another key, not named"),
        pytest.param(lambda claims: signed(claims, key_named("first"), "RS512", kid="first"), id="another algorithm"),
        pytest.param(
            lambda claims: signed(
                claims, key_named("another"), kid="first", jwk=key_named("another").as_dict(private=False)
            ),
            id="a key that it brings along",
        ),
        pytest.param(lambda claims: signed(claims, key_named("first"), kid="first")[:-4], id="a cut signature"),
        pytest.param(lambda _: "a.b.c", id="no token"),
        pytest.param(lambda _: "", id="an empty token"),
        pytest.param(lambda _: 5, id="a number"),
        pytest.param(lambda _: ["a.b.c"], id="a list"),
        pytest.param(lambda _: None, id="null"),
    ],
)
async def test_a_token_that_the_providers_key_did_not_sign_is_not_believed_whatever_the_metadata_admits(
    owner: SigningIn, sign: Callable[[Claims], Any]
) -> None:
    every = {"id_token_signing_alg_values_supported": ["RS256", "RS512", "HS256", "none"]}
    owner.provider.lies = Lies(signed=sign, metadata=lambda metadata: {**metadata, **every})
    await owner.refuses(AWAY)
    # A code, and an access token beside what was signed.
    assert len(owner.provider.given) >= 2


@pytest.mark.parametrize(
    "jwks",
    [{}, [], "keys", {"keys": []}, {"keys": 5}, {"keys": [{}]}, {"keys": [{"kty": "RSA", "kid": "first", "n": "!"}]}],
)
async def test_keys_that_are_none_make_no_token_believed(owner: SigningIn, jwks: Any) -> None:
    owner.provider.lies = Lies(jwks=lambda _: jwks)
    await owner.refuses(AWAY)


async def test_new_keys_of_the_provider_are_fetched_once_when_a_token_names_one(owner: SigningIn) -> None:
    assert (await owner.returned()).status_code == 303
    assert owner.provider.asked.count("/jwks") == 1
    owner.provider.kid = "second"
    owner.start_anew()
    assert (await owner.returned()).status_code == 303
    assert owner.provider.asked.count("/jwks") == 2


async def test_a_key_that_the_provider_does_not_have_is_looked_for_once_more_and_not_believed(owner: SigningIn) -> None:
    owner.provider.lies = Lies(signed=lambda claims: signed(claims, key_named("another"), kid="another"))
    await owner.refuses(AWAY)
    assert owner.provider.asked.count("/jwks") == 2


@pytest.mark.parametrize(
    "tell",
    [
        pytest.param(lambda token: without(token, "id_token"), id="no ID token"),
        pytest.param(lambda token: {**token, "error": "invalid_grant"}, id="an error beside the tokens"),
        pytest.param(lambda _: [], id="a list"),
        pytest.param(lambda _: None, id="null"),
    ],
)
async def test_an_answer_without_a_token_lets_nobody_in(owner: SigningIn, tell: Callable[[Any], Any]) -> None:
    owner.provider.lies = Lies(token=tell)
    await owner.refuses(AWAY)


PAGE = HTMLResponse("<html>An error page</html>", 200)


@pytest.mark.parametrize("path", ["/token", "/jwks"])
@pytest.mark.parametrize(
    "told",
    [
        PAGE,
        HTMLResponse("", 200),
        HTMLResponse("<html>Away</html>", 503),
        JSONResponse({"error": "server_error", "error_description": f"about {EMAIL}"}, 500),
        RedirectResponse("/elsewhere", 302),
    ],
)
async def test_a_provider_that_answers_anything_else_lets_nobody_in(
    owner: SigningIn, path: str, told: Response
) -> None:
    owner.provider.lies = Lies(answers={path: told})
    await owner.refuses(AWAY)
    assert "/elsewhere" not in owner.provider.asked


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ("access_denied", "The sign-in at Google was cancelled."),
        ("server_error", AWAY),
        ("invalid_request", AWAY),
        ("<b>odd</b>", AWAY),
    ],
)
async def test_a_provider_that_returns_an_error_is_told_to_the_owner(owner: SigningIn, error: str, says: str) -> None:
    await owner.refuses(says, code="", error=error, error_description=f"about {EMAIL}")
    assert owner.provider.sent == []


async def test_a_code_that_the_provider_does_not_know_lets_nobody_in(owner: SigningIn) -> None:
    await owner.refuses(AWAY, code="another")


async def test_a_verifier_that_does_not_belong_to_the_challenge_lets_nobody_in(owner: SigningIn) -> None:
    url = await owner.at_provider()
    returned = await owner.provider.approve(changed(url, code_challenge="A" * 43))
    response = await owner.browser.open(returned)
    assert (response.status_code, AWAY in said_on(response)) == (401, True)
    await owner.is_nobody()


async def test_what_begins_without_a_challenge_or_a_nonce_lets_nobody_in(owner: SigningIn) -> None:
    response = await owner.browser.open(await owner.provider.approve(changed(await owner.at_provider(), nonce="")))
    assert (response.status_code, AWAY in said_on(response)) == (401, True)
    await owner.is_nobody()


# --- The state ---


async def test_a_way_back_without_a_state_leads_nowhere(owner: SigningIn) -> None:
    response = await owner.returned(state="")
    assert (response.status_code, response.headers.get("location")) == (400, None)
    await owner.is_nobody()
    assert owner.provider.sent == []


@pytest.mark.parametrize("change", [lambda state: state + "a", lambda state: state[:-1], lambda state: state + "é"])
async def test_a_way_back_with_another_state_is_refused(owner: SigningIn, change: Callable[[str], str]) -> None:
    url = await owner.at_provider()
    state = parse_qs(urlsplit(url).query)["state"][0]
    response = await owner.browser.open(await owner.provider.approve(url, state=change(state)))
    assert (response.status_code, OTHER in said_on(response)) == (401, True)
    await owner.is_nobody()
    assert owner.provider.sent == []


async def test_a_state_of_another_request_is_refused(owner: SigningIn) -> None:
    """Whose nonce and verifier belong to another code."""
    one, other = await owner.at_provider(), await owner.at_provider()
    state = parse_qs(urlsplit(other).query)["state"][0]
    response = await owner.browser.open(await owner.provider.approve(one, state=state))
    assert (response.status_code, AWAY in said_on(response)) == (401, True)
    await owner.is_nobody()


async def test_a_state_of_an_earlier_attempt_at_the_same_request_is_refused(owner: SigningIn) -> None:
    link = await owner.link()
    earlier = (await owner.browser.open(link)).headers["location"]
    await owner.browser.open(link)
    response = await owner.browser.open(await owner.provider.approve(earlier))
    assert (response.status_code, OTHER in said_on(response)) == (401, True)
    await owner.is_nobody()


async def test_a_way_back_where_nobody_went_is_refused(owner: SigningIn) -> None:
    link = await owner.link()
    request = parse_qs(urlsplit(link).query)["request"][0]
    for state in (request, f"{request}.", f"{request}.-"):
        response = await owner.browser.open(f"/oauth/google/callback?code=a&state={state}")
        assert (response.status_code, OTHER in said_on(response)) == (401, True)
    await owner.is_nobody()
    assert owner.provider.asked == []


async def test_a_way_back_after_ten_minutes_is_refused(owner: SigningIn) -> None:
    returned = await owner.provider.approve(await owner.at_provider())
    owner.signing.clock.advance(minutes=10)
    response = await owner.browser.open(returned)
    assert (response.status_code, "expired" in said_on(response)) == (400, True)
    await owner.is_nobody()


async def test_a_way_back_that_was_taken_before_is_refused_whatever_the_provider_says(owner: SigningIn) -> None:
    returned = await owner.provider.approve(await owner.at_provider())
    assert (await owner.browser.open(returned)).status_code == 303
    owner.browser.cookies.clear()
    owner.signing.http.cookies.clear()
    redeemed = len(owner.provider.sent)
    response = await owner.browser.open(returned)
    assert (response.status_code, "set-cookie" in response.headers) == (401, False)
    assert len(owner.provider.sent) == redeemed


async def test_a_way_back_in_another_browser_is_refused(owner: SigningIn) -> None:
    returned = await owner.provider.approve(await owner.at_provider())
    for cookies in ({}, {"__session": "another"}):
        owner.start_anew()
        owner.browser.cookies.update(cookies)
        response = await owner.browser.open(returned)
        assert (response.status_code, "set-cookie" in response.headers) == (401, False)
    assert owner.provider.sent == []
    assert await owner.count(SESSIONS) == 0


async def test_two_windows_of_a_browser_may_sign_in_at_once(owner: SigningIn) -> None:
    urls = [await owner.at_provider(), await owner.at_provider()]
    for url in urls:
        response = await owner.browser.open(await owner.provider.approve(url))
        assert (response.status_code, urlsplit(response.headers["location"]).path) == (303, "/oauth/consent")
    assert await owner.count(SESSIONS) == 1


async def test_the_cookie_of_the_way_there_is_worth_nothing_and_is_not_the_sessions(owner: SigningIn) -> None:
    url = await owner.at_provider()
    before = owner.browser.cookies["__session"]
    await owner.is_nobody()
    await owner.browser.open(await owner.provider.approve(url))
    assert owner.browser.cookies["__session"] != before


# --- A provider that is away ---


async def refused_at_once(owner: SigningIn) -> str:
    """What the sign-in page says to one who would go to the provider now."""
    response = await owner.browser.open(await owner.link())
    assert (response.status_code, response.headers.get("location")) == (502, None)
    await owner.is_nobody()
    return said_on(response)


@pytest.mark.parametrize(
    "change",
    [
        {"issuer": "https://accounts.example.org"},
        {"issuer": None},
        {"authorization_endpoint": None},
        {"verify": False, "issuer": []},
    ],
)
async def test_metadata_of_another_issuer_or_without_an_endpoint_is_not_believed_and_asked_for_again(
    owner: SigningIn, change: dict[str, Any]
) -> None:
    owner.provider.lies = Lies(metadata=lambda metadata: {**metadata, **change})
    assert AWAY in await refused_at_once(owner)


async def test_metadata_that_names_another_issuer_is_asked_for_again(owner: SigningIn) -> None:
    owner.provider.lies = Lies(metadata=lambda metadata: {**metadata, "issuer": "https://accounts.example.org"})
    await refused_at_once(owner)
    owner.provider.lies = Lies()
    await owner.lets_in()


async def test_neither_code_nor_secret_go_to_an_issuer_that_took_its_place_meanwhile(
    with_settings: NewSigningIn,
) -> None:
    owner = with_settings(is_cold=True)
    url = await owner.at_provider()
    owner.provider.lies = Lies(metadata=lambda metadata: {**metadata, "issuer": "https://accounts.example.org"})
    response = await owner.browser.open(await owner.provider.approve(url))
    assert (response.status_code, AWAY in said_on(response)) == (401, True)
    assert owner.provider.sent == []


@pytest.mark.parametrize(
    "told", [PAGE, HTMLResponse("", 503), JSONResponse([]), JSONResponse("text"), RedirectResponse("/elsewhere", 302)]
)
async def test_a_provider_without_metadata_is_told_to_the_owner(owner: SigningIn, told: Response) -> None:
    owner.provider.lies = Lies(answers={"/.well-known/openid-configuration": told})
    assert AWAY in await refused_at_once(owner)


async def test_a_provider_that_is_gone_is_told_to_the_owner(with_settings: NewSigningIn) -> None:
    owner = with_settings(GOOGLE_SIGN_IN_ISSUER="http://127.0.0.1:9")
    assert AWAY in await refused_at_once(owner)


def sign_in_with(provider: OpenIdProvider, seconds: float) -> GoogleSignIn:
    owner = GoogleOwner(
        client_id=CLIENT_ID, client_secret=CLIENT_SECRET, email=EMAIL, subject="", issuer=provider.issuer
    )
    return GoogleSignIn(owner, BASE, seconds)


@pytest.mark.parametrize("path", ["/token", "/jwks"])
async def test_a_provider_that_is_silent_is_waited_for_only_so_long(provider: OpenIdProvider, path: str) -> None:
    sign_in = sign_in_with(provider, 1)
    url, expected = await sign_in.begin("a-request")
    returned = parse_qs(urlsplit(await provider.approve(url)).query)
    provider.lies = Lies(silent=frozenset({path}))
    async with asyncio.timeout(5):
        with pytest.raises(SignInRefused, match="try it again"):
            await sign_in.finish({name: values[0] for name, values in returned.items()}, expected)


async def test_a_provider_that_answers_byte_by_byte_has_so_long_in_all(provider: OpenIdProvider) -> None:
    async def drip() -> AsyncGenerator[bytes]:
        while not provider.ended.is_set():
            yield b" "
            await asyncio.sleep(0.1)

    provider.lies = Lies(answers={"/.well-known/openid-configuration": StreamingResponse(drip())})
    async with asyncio.timeout(5):
        with pytest.raises(SignInRefused, match="try it again"):
            await sign_in_with(provider, 1).begin("a-request")


@pytest.mark.slow
async def test_ten_seconds_are_waited_for_the_provider(owner: SigningIn) -> None:
    owner.provider.lies = Lies(silent=frozenset({"/.well-known/openid-configuration"}))
    began = time.monotonic()
    assert AWAY in await refused_at_once(owner)
    assert 9 < time.monotonic() - began < 13


# --- Beside the passphrase ---


async def test_a_locked_passphrase_keeps_nobody_from_google(with_settings: NewSigningIn) -> None:
    owner = with_settings(OWNER_SIGN_IN="passphrase,google")
    request = request_on(await owner.browser.open(await owner.page()))
    attempts = [await owner.browser.send("/oauth/sign-in", request=request, passphrase="wrong") for _ in range(6)]
    assert attempts[-1].status_code == 429
    assert (await owner.returned()).headers["location"].startswith("/oauth/consent")


async def test_a_passphrase_that_the_settings_leave_out_is_neither_asked_for_nor_taken(
    with_settings: NewSigningIn,
) -> None:
    owner = with_settings(OWNER_SIGN_IN="google")
    request = (await owner.link()).rpartition("=")[2]
    assert "Passphrase" not in said_on(await owner.browser.open(await owner.page()))
    response = await owner.browser.send("/oauth/sign-in", request=request, passphrase=PASSPHRASE)
    assert "sign in with Google" in said_on(response)
    await owner.is_nobody()


async def test_google_that_the_settings_leave_out_is_neither_offered_nor_gone_to(with_settings: NewSigningIn) -> None:
    owner = with_settings(OWNER_SIGN_IN="passphrase")
    page = await owner.browser.open(await owner.page())
    assert "Google" not in said_on(page)
    response = await owner.browser.open(f"/oauth/google?request={request_on(page)}")
    assert "use the passphrase" in said_on(response)
    await owner.is_nobody()
