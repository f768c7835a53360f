"""The owner's side: who asks, what is refused before they see it, and what their answer does."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from google.cloud.firestore_v1.async_client import AsyncClient

from signing import (
    BASE,
    FORBIDDEN_REDIRECTS,
    FORM,
    PASSPHRASE,
    REDIRECT,
    RESOURCE,
    Browser,
    Signing,
    refused_on,
    request_on,
    returned_to,
    said_on,
)

OTHER = "https://claude.com/api/mcp/auth_callback"
LOOPBACK = "http://127.0.0.1:43117/callback"


# --- Clients that register themselves ---


async def test_a_registration_is_told_again_with_an_id_and_no_secret(signing: Signing) -> None:
    sent = {
        "client_uri": "https://claude.ai",
        "grant_types": ["authorization_code", "refresh_token", "implicit"],
        "token_endpoint_auth_method": "client_secret_post",
        "unheard_of": {"nested": [1]},
    }
    told = await signing.register("A client", REDIRECT, OTHER, **sent)
    assert told["client_id"]
    assert told["redirect_uris"] == [REDIRECT, OTHER]
    assert (told["client_name"], told["client_uri"]) == ("A client", "https://claude.ai")
    assert told["grant_types"] == ["authorization_code", "refresh_token"]
    assert told["token_endpoint_auth_method"] == "none"
    assert "client_secret" not in told


async def test_the_same_registration_twice_gives_two_ids_of_which_each_works(signing: Signing) -> None:
    first = await signing.register("A client")
    signing.clock.advance(minutes=1 / 60)
    second = await signing.register("A client")
    assert first["client_id"] != second["client_id"]
    for client in (first, second):
        assert (await signing.connected(client["client_id"]))["access_token"]


async def test_many_registrations_of_one_name_all_work(signing: Signing) -> None:
    clients = [(await signing.register("A client"))["client_id"] for _ in range(50)]
    assert len(set(clients)) == 50
    assert (await signing.connected(clients[0]))["access_token"]


async def test_of_those_that_were_never_used_two_hundred_stay_the_newest(
    signing: Signing, firestore: AsyncClient
) -> None:
    used = (await signing.connected())["client_id"]
    oldest = (await signing.register("The oldest"))["client_id"]
    newest = await registered_later(signing, firestore, 200)
    left = {snapshot.id for snapshot in await firestore.collection("oauth_clients").get()}
    assert oldest not in left
    assert {used, *newest} <= left


async def test_one_that_is_dropped_while_the_owner_looks_at_it_works_once_it_is_approved(
    signing: Signing, firestore: AsyncClient
) -> None:
    client = (await signing.register())["client_id"]
    browser = Browser(signing)
    request = await browser.sign_in(signing.authorize_url(client))
    await registered_later(signing, firestore, 200)
    assert not (await firestore.collection("oauth_clients").document(client).get()).exists
    code = (await browser.answer(request, "approve"))["code"]
    tokens = (await signing.redeem(client, code)).json()
    assert (await signing.call(tokens["access_token"])).status_code == 200
    # It counts among those that were used from then on.
    await registered_later(signing, firestore, 200)
    assert (await signing.refresh(client, tokens["refresh_token"])).status_code == 200
    assert (await Browser(signing).approve(signing.authorize_url(client)))["code"]


@pytest.mark.parametrize("signing", ["warm"], indirect=True)
async def test_of_registrations_at_once_beyond_two_hundred_each_works(signing: Signing, firestore: AsyncClient) -> None:
    await registered_later(signing, firestore, 200)
    clients = await asyncio.gather(*(signing.register("At once") for _ in range(10)))
    for client in clients:
        assert (await signing.http.get(signing.authorize_url(client["client_id"]))).status_code == 200


async def registered_later(signing: Signing, firestore: AsyncClient, count: int) -> list[str]:
    """So many registrations more, most of them in one write; their ids."""
    signing.clock.advance(minutes=1)
    first = (await signing.register("A later one"))["client_id"]
    pattern = (await firestore.collection("oauth_clients").document(first).get()).to_dict() or {}
    batch = firestore.batch()
    copies = [f"{first}-{place}" for place in range(count - 2)]
    for place, copy in enumerate(copies):
        fields = {**pattern, "id": copy, "registered_at": pattern["registered_at"] + place + 1}
        batch.set(firestore.collection("oauth_clients").document(copy), fields)
    await batch.commit()
    signing.clock.advance(minutes=1)
    return [first, *copies, (await signing.register("The newest"))["client_id"]]


async def test_the_addresses_of_cursor_and_of_visual_studio_code_are_registered_as_they_come(signing: Signing) -> None:
    for redirects, asked in (
        (
            [
                "cursor://anysphere.cursor-mcp/oauth/callback",
                "https://www.cursor.com/agents/mcp/oauth/callback",
                "http://localhost:8787/callback",
            ],
            "cursor://anysphere.cursor-mcp/oauth/callback",
        ),
        (
            [
                "https://insiders.vscode.dev/redirect",
                "https://vscode.dev/redirect",
                "http://127.0.0.1/",
                "http://127.0.0.1:33418/",
            ],
            "http://127.0.0.1:50123/",
        ),
    ):
        client = (await signing.register("An editor", *redirects))["client_id"]
        browser = Browser(signing)
        request = await browser.sign_in(signing.authorize_url(client, redirect_uri=asked))
        response = await browser.send("/oauth/consent", request=request, answer="approve")
        assert response.headers["location"].startswith(f"{asked}?code=")
        code = returned_to(response)["code"]
        assert (await signing.redeem(client, code, redirect_uri=asked)).status_code == 200


@pytest.mark.parametrize(
    "redirect",
    [
        "com.example.app:/signed-in",
        "com.example.app://signed-in/here",
        "https://claude.ai",
        "https://claude.ai:8443/callback;version=1?a=b&c=%20d",
        "https://[2606:4700::6812:202f]/callback",
        "https://claude.ai/callback?",
    ],
)
async def test_the_code_is_added_to_an_address_that_stays_as_it_is(signing: Signing, redirect: str) -> None:
    client = (await signing.register("A program", redirect))["client_id"]
    browser = Browser(signing)
    request = await browser.sign_in(signing.authorize_url(client, redirect_uri=redirect))
    response = await browser.send("/oauth/consent", request=request, answer="approve")
    location = response.headers["location"]
    assert location.startswith(redirect)
    assert location.removeprefix(redirect)[:6] in {"?code=", "&code="}
    assert location.count("?") == 1
    code = returned_to(response)["code"]
    assert (await signing.redeem(client, code, redirect_uri=redirect)).status_code == 200


@pytest.mark.parametrize(
    "redirects",
    [
        None,
        [],
        "https://claude.ai/callback",
        [7],
        [REDIRECT, None],
        *([REDIRECT, uri] for uri in FORBIDDEN_REDIRECTS),
        ["https://claude.ai/callback"] * 21,
        [f"https://claude.ai/{'a' * 3000}"],
    ],
)
async def test_a_registration_with_a_wrong_address_is_refused(signing: Signing, redirects: Any) -> None:
    response = await signing.http.post("/oauth/register", json={"client_name": "A client", "redirect_uris": redirects})
    assert (response.status_code, response.json()["error"]) == (400, "invalid_redirect_uri")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'"text"', b"[" * 10_000, b"{}" + b" " * 70_000])
async def test_a_registration_that_is_no_object_is_refused(signing: Signing, content: bytes) -> None:
    response = await signing.http.post("/oauth/register", content=content)
    assert response.status_code == 400
    assert response.json()["error"] in {"invalid_client_metadata", "invalid_request"}


# --- What is refused before the owner sees it ---


@pytest.mark.parametrize("client_id", ["unheard-of", "", "x" * 3000, "__x__", "..", "a/b", "é\n"])
async def test_an_unknown_client_is_told_nothing_and_the_owner_what_to_do(signing: Signing, client_id: str) -> None:
    response = await signing.http.get(signing.authorize_url(client_id))
    assert response.status_code == 400
    assert "location" not in response.headers
    assert "add it again" in said_on(response)


@pytest.mark.parametrize(
    "redirect",
    [
        REDIRECT + "/more",
        REDIRECT + "?more=1",
        REDIRECT.replace("claude.ai", "claude.ai.evil.example.org"),
        REDIRECT.replace("https://", "https://evil.example.org@"),
        REDIRECT.upper(),
        "https://claude.ai:8443/api/mcp/auth_callback",
        "http://127.0.0.1:1/callback",
        OTHER,
    ],
)
async def test_nothing_is_sent_to_an_address_that_was_not_registered(signing: Signing, redirect: str) -> None:
    client = (await signing.register())["client_id"]
    response = await signing.http.get(signing.authorize_url(client, redirect_uri=redirect))
    assert response.status_code == 400
    assert "location" not in response.headers


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
async def test_on_loopback_the_port_is_free_and_its_names_count_as_one(signing: Signing, host: str) -> None:
    client = (await signing.register("A program", LOOPBACK))["client_id"]
    asked = f"http://{host}:51234/callback"
    page = await signing.http.get(signing.authorize_url(client, redirect_uri=asked))
    assert page.status_code == 200
    elsewhere = f"http://{host}:51234/elsewhere"
    assert (await signing.http.get(signing.authorize_url(client, redirect_uri=elsewhere))).status_code == 400


async def test_the_only_registered_address_need_not_be_named(signing: Signing) -> None:
    client = (await signing.register())["client_id"]
    returned = await Browser(signing).approve(signing.authorize_url(client, redirect_uri=None))
    assert (await signing.redeem(client, returned["code"], redirect_uri=None)).status_code == 200


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"response_type": None}, "invalid_request"),
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"code_challenge": "=" * 43}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge_method": None}, "invalid_request"),
        ({"resource": f"{BASE}/clients/unheard-of/mcp"}, "invalid_target"),
        ({"resource": f"{BASE}/mcp"}, "invalid_target"),
        ({"resource": "https://elsewhere.example.org/clients/agent/mcp"}, "invalid_target"),
        # There are two endpoints: which one is meant cannot be guessed.
        ({"resource": None}, "invalid_target"),
    ],
)
async def test_what_is_wrong_with_a_request_is_told_to_the_owner_who_may_go_back_and_let_the_client_know(
    signing: Signing, changes: dict[str, str | None], error: str
) -> None:
    client = (await signing.register())["client_id"]
    response = await signing.http.get(signing.authorize_url(client, **changes))
    address, returned = refused_on(response)
    assert address == REDIRECT
    assert (returned["error"], returned["state"], returned["iss"]) == (error, "a state", BASE)
    assert f"Go back to {urlsplit(REDIRECT).hostname}" in said_on(response)


@pytest.mark.parametrize(
    "more", [f"redirect_uri={REDIRECT}", "client_id=another", "client_id=", "redirect_uri=a&state=b"]
)
async def test_a_client_or_an_address_that_is_named_twice_is_answered_nowhere(signing: Signing, more: str) -> None:
    client = (await signing.register())["client_id"]
    response = await signing.http.get(f"{signing.authorize_url(client)}&{more}")
    assert (response.status_code, "location" in response.headers) == (400, False)


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ("code_challenge=again", "invalid_request"),
        ("unheard=1&unheard=2", "invalid_request"),
        (f"resource={RESOURCE}", "invalid_target"),
        (f"resource={RESOURCE}&scope=memory", "invalid_request"),
    ],
)
async def test_any_other_parameter_that_is_there_twice_is_told_to_the_client(
    signing: Signing, more: str, error: str
) -> None:
    client = (await signing.register())["client_id"]
    _, returned = refused_on(await signing.http.get(f"{signing.authorize_url(client)}&{more}"))
    assert (returned["error"], returned["state"], returned["iss"]) == (error, "a state", BASE)


async def test_of_two_states_none_is_told_again(signing: Signing) -> None:
    client = (await signing.register())["client_id"]
    _, returned = refused_on(await signing.http.get(f"{signing.authorize_url(client)}&state=another"))
    assert (returned["error"], returned["iss"], "state" in returned) == ("invalid_request", BASE, False)


async def test_a_request_may_also_be_sent_as_a_form(signing: Signing) -> None:
    client = (await signing.register())["client_id"]
    query = signing.authorize_url(client).partition("?")[2]
    headers = {"content-type": "application/x-www-form-urlencoded"}
    assert request_on(await signing.http.post("/oauth/authorize", content=query, headers=headers))


# --- The owner ---


async def test_nobody_approves_who_has_not_signed_in(signing: Signing) -> None:
    client = (await signing.register())["client_id"]
    browser = Browser(signing)
    request = request_on(await browser.open(signing.authorize_url(client)))
    for cookies in ({}, {"__session": "x" * 43}, {"__session": ""}):
        browser.cookies = cookies
        response = await browser.send("/oauth/consent", request=request, answer="approve")
        assert (response.status_code, "location" in response.headers) == (401, False)


async def test_a_wrong_passphrase_signs_nobody_in(signing: Signing) -> None:
    client = (await signing.register())["client_id"]
    browser = Browser(signing)
    request = request_on(await browser.open(signing.authorize_url(client)))
    for passphrase in ("", "wrong", PASSPHRASE + " ", PASSPHRASE.upper(), "x" * 60_000):
        response = await browser.send("/oauth/sign-in", request=request, passphrase=passphrase)
        assert response.status_code in {401, 429}
        assert browser.cookies == {}


async def test_after_five_wrong_ones_none_is_looked_at_for_a_while_on_any_instance(signing: Signing) -> None:
    client = (await signing.register())["client_id"]
    browser = Browser(signing)
    request = request_on(await browser.open(signing.authorize_url(client)))
    statuses = [
        (await browser.send("/oauth/sign-in", request=request, passphrase="wrong")).status_code for _ in range(6)
    ]
    assert statuses == [401] * 5 + [429]
    locked = await browser.send("/oauth/sign-in", request=request, passphrase=PASSPHRASE)
    assert locked.status_code == 429
    assert "Wait" in said_on(locked)
    signing.clock.advance(minutes=0.6)
    assert (await browser.send("/oauth/sign-in", request=request, passphrase=PASSPHRASE)).status_code == 303
    # The right one wipes the slate clean.
    assert (await browser.send("/oauth/sign-in", request=request, passphrase="wrong")).status_code == 401


async def test_the_session_is_a_cookie_that_no_script_and_no_other_site_gets(signing: Signing) -> None:
    client = (await signing.register())["client_id"]
    browser = Browser(signing)
    request = request_on(await browser.open(signing.authorize_url(client)))
    response = await browser.send("/oauth/sign-in", request=request, passphrase=PASSPHRASE)
    value, *attributes = response.headers["set-cookie"].split("; ")
    assert value.startswith("__session=")
    assert {each.lower() for each in attributes} == {"httponly", "secure", "samesite=lax", "path=/", "max-age=43200"}


async def test_who_is_signed_in_is_asked_at_once_for_twelve_hours(signing: Signing) -> None:
    client = (await signing.register())["client_id"]
    browser = Browser(signing)
    await browser.sign_in(signing.authorize_url(client))
    signing.clock.advance(minutes=12 * 60 - 1)
    assert "Approve" in said_on(await browser.open(signing.authorize_url(client)))
    signing.clock.advance(minutes=1)
    assert "Passphrase" in said_on(await browser.open(signing.authorize_url(client)))


async def test_the_page_says_who_asks_and_what_for(signing: Signing) -> None:
    client = (await signing.register("A program", LOOPBACK))["client_id"]
    browser = Browser(signing)
    await browser.sign_in(signing.authorize_url(client, redirect_uri=LOOPBACK))
    said = said_on(await browser.open(signing.authorize_url(client, redirect_uri=LOOPBACK)))
    for words in ("A program", "127.0.0.1:43117", "your own computer", "agent", "search your memories", "active"):
        assert words in said
    for words in ("merge", "retire", "deprecated"):
        assert words not in said


async def test_a_denial_is_told_to_the_client(signing: Signing) -> None:
    client = (await signing.register())["client_id"]
    browser = Browser(signing)
    request = await browser.sign_in(signing.authorize_url(client))
    returned = await browser.answer(request, "deny")
    assert (returned["error"], returned["state"], returned["iss"]) == ("access_denied", "a state", BASE)


@pytest.mark.parametrize("request_id", ["", "unheard-of", "__x__", "..", "a/b", "x" * 3000])
async def test_a_request_that_never_was_is_answered_with_what_to_do(signing: Signing, request_id: str) -> None:
    browser = Browser(signing)
    for page in (
        await browser.open(f"/oauth/consent?{urlencode({'request': request_id})}"),
        await browser.send("/oauth/consent", request=request_id, answer="approve"),
        await browser.send("/oauth/sign-in", request=request_id, passphrase=PASSPHRASE),
    ):
        assert (page.status_code, "connect again" in said_on(page)) == (400, True)
        assert "given away" not in said_on(page)


@pytest.mark.parametrize("answer", ["approve", "deny"])
async def test_a_request_is_answered_once(signing: Signing, answer: str) -> None:
    client = (await signing.register())["client_id"]
    browser = Browser(signing)
    request = await browser.sign_in(signing.authorize_url(client))
    await browser.answer(request, answer)
    for again in (
        await browser.send("/oauth/consent", request=request, answer="approve"),
        await browser.open(f"/oauth/consent?request={request}"),
    ):
        assert again.status_code == 400
        assert "answered already" in said_on(again)
        assert "given away" not in said_on(again)


async def test_a_request_waits_for_ten_minutes(signing: Signing) -> None:
    client = (await signing.register())["client_id"]
    browser = Browser(signing)
    request = await browser.sign_in(signing.authorize_url(client))
    signing.clock.advance(minutes=10)
    late = await browser.send("/oauth/consent", request=request, answer="approve")
    assert (late.status_code, "connect again" in said_on(late)) == (400, True)
    assert "expired without an answer, so nothing was given away" in said_on(late)


@pytest.mark.parametrize(
    "origin", [None, "null", "https://evil.example.org", BASE + ".evil.example.org", f"{BASE}:8443"]
)
async def test_a_form_counts_only_from_our_own_page(signing: Signing, origin: str | None) -> None:
    client = (await signing.register())["client_id"]
    browser = Browser(signing)
    request = await browser.sign_in(signing.authorize_url(client))
    for path, fields in (("/oauth/consent", {"answer": "approve"}), ("/oauth/sign-in", {"passphrase": PASSPHRASE})):
        response = await browser.send(path, origin=origin, request=request, **fields)
        assert (response.status_code, "location" in response.headers) == (400, False)
    assert (await browser.answer(request, "approve"))["code"]


async def test_a_page_may_not_be_framed_or_run_anything_and_its_form_may_lead_to_the_client(signing: Signing) -> None:
    client = (await signing.register())["client_id"]
    browser = Browser(signing)
    await browser.sign_in(signing.authorize_url(client))
    page = await browser.open(signing.authorize_url(client))
    parts = (part.split(maxsplit=1) for part in page.headers["content-security-policy"].split(";"))
    policy = {name: value for name, value in parts}  # noqa: C416 - dict would lose the types
    assert (policy["default-src"], policy["frame-ancestors"], policy["base-uri"]) == ("'none'", "'none'", "'none'")
    # Browsers hold every redirect after a form against this, also those that the client goes on to.
    assert policy["form-action"] == "'self' https: http://127.0.0.1:* http://localhost:*"
    assert page.headers["cache-control"] == "no-store"


async def test_what_happens_is_in_the_trail_and_no_secret_is(signing: Signing, firestore: AsyncClient) -> None:
    client = (await signing.register("A client"))["client_id"]
    browser = Browser(signing)
    request = request_on(await browser.open(signing.authorize_url(client)))
    await browser.send("/oauth/sign-in", request=request, passphrase="a wrong passphrase")
    request = await browser.sign_in(signing.authorize_url(client))
    code = (await browser.answer(request, "approve"))["code"]
    tokens = (await signing.redeem(client, code)).json()
    await signing.redeem(client, code)
    events = [snapshot.to_dict() or {} for snapshot in await firestore.collection("memory_events").get()]
    actions = {event["action"] for event in events if event["event_type"] == "authorization"}
    assert actions == {"owner_sign_in_refused", "owner_signed_in", "grant_approved", "grant_code_replayed"}
    everything = json.dumps([events, await _documents(firestore)], default=str)
    # A credential is KIND_GRANT_SECRET: the kind and the grant may be known.
    given = [each.split("_", 2)[2] for each in (code, tokens["access_token"], tokens["refresh_token"])]
    for secret in (PASSPHRASE, "a wrong passphrase", browser.cookies["__session"], *given):
        assert secret not in everything


async def _documents(firestore: AsyncClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async for collection in firestore.collections():
        found += [snapshot.to_dict() or {} for snapshot in await collection.get()]
    return found


async def test_an_endpoint_that_is_removed_takes_its_grants_with_it(signing: Signing) -> None:
    tokens = await signing.connected()
    profiles = json.loads(signing.settings["MCP_CLIENT_PROFILES_JSON"])
    signing.settings["MCP_CLIENT_PROFILES_JSON"] = json.dumps([each for each in profiles if each["id"] != "agent"])
    later = Signing(signing.project, settings={}, clock=signing.clock)
    later.settings |= signing.settings
    assert (await later.call(tokens["access_token"])).status_code in {401, 404}
    assert (await later.refresh(tokens["client_id"], tokens["refresh_token"])).json()["error"] == "invalid_grant"
    assert RESOURCE.startswith(BASE)


async def test_who_is_slow_to_say_what_they_want_keeps_nobody_out(signing: Signing) -> None:
    client = (await signing.register())["client_id"]
    never = asyncio.Event()

    async def silent() -> AsyncGenerator[bytes]:
        yield b"grant_type="
        await never.wait()

    async def dawdle(path: str) -> None:
        await signing.http.post(path, content=silent(), headers=FORM)

    paths = ["/oauth/token", "/oauth/register", "/oauth/authorize"] * 20
    async with asyncio.TaskGroup() as group:
        slow = [group.create_task(dawdle(path)) for path in paths]
        assert (await signing.connected(client))["access_token"]
        for task in slow:
            task.cancel()
