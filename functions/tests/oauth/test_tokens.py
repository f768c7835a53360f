"""Codes and tokens: what each opens, how often, and for how long."""

import asyncio
import json

import pytest

from builders import PROFILES
from metacortex.oauth import grants
from signing import BASE, REDIRECT, RESOURCE, Browser, Signing, error_of

DAYS = 24 * 60


async def code_for(signing: Signing, client_id: str, **changes: str | None) -> str:
    return (await Browser(signing).approve(signing.authorize_url(client_id, **changes)))["code"]


async def test_the_answer_names_who_gave_it_and_carries_the_state(signing: Signing) -> None:
    client = await signing.register()
    returned = await Browser(signing).approve(signing.authorize_url(client["client_id"]))
    assert set(returned) == {"code", "state", "iss"}
    assert (returned["state"], returned["iss"]) == ("a state", BASE)


async def test_a_code_gives_tokens_that_open_the_endpoint_of_their_profile_alone(signing: Signing) -> None:
    tokens = await signing.connected()
    assert (tokens["token_type"], tokens["expires_in"], tokens["scope"]) == ("Bearer", 3600, "memory offline_access")
    assert (await signing.call(tokens["access_token"])).status_code == 200
    assert (await signing.call(tokens["access_token"], "reader")).status_code == 401
    assert (await signing.call(tokens["access_token"], "default")).status_code == 401
    assert (await signing.call(tokens["refresh_token"])).status_code == 401


async def test_an_access_token_lives_for_an_hour(signing: Signing) -> None:
    tokens = await signing.connected()
    signing.clock.advance(minutes=59)
    assert (await signing.call(tokens["access_token"])).status_code == 200
    signing.clock.advance(minutes=1)
    assert (await signing.call(tokens["access_token"])).status_code == 401


async def test_a_code_lives_for_two_minutes(signing: Signing) -> None:
    client = (await signing.register())["client_id"]
    code = await code_for(signing, client)
    signing.clock.advance(minutes=2)
    assert error_of(await signing.redeem(client, code)) == (400, "invalid_grant")


async def test_a_code_that_is_presented_again_ends_what_it_gave(signing: Signing) -> None:
    client = (await signing.register())["client_id"]
    code = await code_for(signing, client)
    tokens = (await signing.redeem(client, code)).json()
    assert error_of(await signing.redeem(client, code)) == (400, "invalid_grant")
    assert error_of(await signing.refresh(client, tokens["refresh_token"])) == (400, "invalid_grant")
    signing.clock.advance(minutes=1)
    assert (await signing.call(tokens["access_token"])).status_code == 401


async def test_of_two_who_present_a_code_at_once_one_at_most_gets_tokens(signing: Signing) -> None:
    client = (await signing.register())["client_id"]
    code = await code_for(signing, client)
    answers = await asyncio.gather(*(signing.redeem(client, code) for _ in range(5)))
    assert sorted(answer.status_code for answer in answers)[1:] == [400] * 4


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"code_verifier": "w" * 43}, "invalid_grant"),
        ({"code_verifier": None}, "invalid_request"),
        ({"code": None}, "invalid_request"),
        ({"redirect_uri": "https://claude.ai/elsewhere"}, "invalid_grant"),
        ({"resource": f"{BASE}/clients/reader/mcp"}, "invalid_target"),
        ({"resource": "https://elsewhere.example.org/mcp"}, "invalid_target"),
        ({"grant_type": "password"}, "unsupported_grant_type"),
        ({"grant_type": None}, "invalid_request"),
    ],
)
async def test_a_code_is_refused_for_what_is_wrong_and_stays_good(
    signing: Signing, changes: dict[str, str | None], error: str
) -> None:
    client = (await signing.register())["client_id"]
    code = await code_for(signing, client)
    right: dict[str, str | None] = {
        "grant_type": "authorization_code",
        "client_id": client,
        "code": code,
        "redirect_uri": REDIRECT,
        "code_verifier": "v" * 43,
    }
    assert error_of(await signing.token(**{**right, **changes})) == (400, error)
    assert (await signing.redeem(client, code)).status_code == 200


async def test_an_unknown_client_is_told_so(signing: Signing) -> None:
    tokens = await signing.connected()
    for client in ("unheard-of", "", None, "x" * 5000):
        assert error_of(await signing.token(grant_type="refresh_token", client_id=client, refresh_token="x")) == (
            401,
            "invalid_client",
        )
    other = (await signing.register("Another"))["client_id"]
    assert error_of(await signing.refresh(other, tokens["refresh_token"])) == (400, "invalid_grant")
    assert (await signing.refresh(tokens["client_id"], tokens["refresh_token"])).status_code == 200


async def test_a_refresh_gives_a_new_pair_and_the_old_access_token_stays_until_its_hour(signing: Signing) -> None:
    tokens = await signing.connected()
    answer = await signing.refresh(tokens["client_id"], tokens["refresh_token"])
    fresh = answer.json()
    assert answer.headers["cache-control"] == "no-store"
    assert {fresh["access_token"], fresh["refresh_token"]}.isdisjoint({tokens["access_token"], tokens["refresh_token"]})
    for token in (tokens["access_token"], fresh["access_token"]):
        assert (await signing.call(token)).status_code == 200


async def test_a_client_whose_answer_was_lost_gets_the_same_again_for_half_a_minute(signing: Signing) -> None:
    tokens = await signing.connected()
    client = tokens["client_id"]
    first = (await signing.refresh(client, tokens["refresh_token"])).json()
    signing.clock.advance(minutes=0.45)
    again = (await signing.refresh(client, tokens["refresh_token"])).json()
    assert again == first
    assert (await signing.refresh(client, first["refresh_token"])).status_code == 200


async def test_of_refreshes_at_once_all_get_the_same_pair(signing: Signing) -> None:
    tokens = await signing.connected()
    answers = await asyncio.gather(*(signing.refresh(tokens["client_id"], tokens["refresh_token"]) for _ in range(5)))
    assert len({answer.json()["refresh_token"] for answer in answers}) == 1


async def test_a_refresh_token_that_was_spent_before_ends_the_grant(signing: Signing) -> None:
    tokens = await signing.connected()
    client = tokens["client_id"]
    fresh = (await signing.refresh(client, tokens["refresh_token"])).json()
    signing.clock.advance(minutes=0.6)
    assert error_of(await signing.refresh(client, tokens["refresh_token"])) == (400, "invalid_grant")
    assert error_of(await signing.refresh(client, fresh["refresh_token"])) == (400, "invalid_grant")
    signing.clock.advance(minutes=1)
    assert (await signing.call(fresh["access_token"])).status_code == 401


async def test_one_that_was_spent_long_ago_ends_the_grant_too(signing: Signing) -> None:
    tokens = await signing.connected()
    client, newest = tokens["client_id"], tokens["refresh_token"]
    for _ in range(3):
        newest = (await signing.refresh(client, newest)).json()["refresh_token"]
    assert error_of(await signing.refresh(client, tokens["refresh_token"])) == (400, "invalid_grant")
    assert error_of(await signing.refresh(client, newest)) == (400, "invalid_grant")


@pytest.mark.parametrize("change", ["guess", "of another", "of another kind"])
async def test_a_refresh_token_that_never_was_ends_nothing(signing: Signing, change: str) -> None:
    tokens = await signing.connected()
    client, real = tokens["client_id"], tokens["refresh_token"]
    kind, grant, secret = real.split("_", 2)
    other = (await signing.connected(client))["refresh_token"].split("_", 2)[2]
    forged = {"guess": f"{kind}_{grant}_{'A' * len(secret)}", "of another": f"{kind}_{grant}_{other}"}
    presented = forged.get(change, f"mca_{grant}_{secret}")
    assert error_of(await signing.refresh(client, presented)) == (400, "invalid_grant")
    assert (await signing.refresh(client, real)).status_code == 200


async def test_a_client_that_comes_each_month_stays_and_one_that_is_away_for_ninety_days_does_not(
    signing: Signing,
) -> None:
    tokens = await signing.connected()
    client, newest = tokens["client_id"], tokens["refresh_token"]
    for _ in range(4):
        signing.clock.advance(days=31)
        newest = (await signing.refresh(client, newest)).json()["refresh_token"]
    signing.clock.advance(days=90)
    assert error_of(await signing.refresh(client, newest)) == (400, "invalid_grant")
    # Its registration outlives its tokens: it may ask again at once.
    assert (await Browser(signing).approve(signing.authorize_url(client)))["code"]


@pytest.mark.parametrize(
    ("scope", "status"), [(None, 200), ("memory", 200), ("offline_access memory", 200), ("memory admin", 400)]
)
async def test_a_refresh_may_ask_for_less_and_not_for_more(signing: Signing, scope: str | None, status: int) -> None:
    tokens = await signing.connected()
    assert (await signing.refresh(tokens["client_id"], tokens["refresh_token"], scope=scope)).status_code == status


@pytest.mark.parametrize(
    "resource",
    [
        None,
        RESOURCE,
        RESOURCE + "/",
        RESOURCE.replace("https://memory", "HTTPS://MEMORY"),
        RESOURCE.replace(".org", ".org:443"),
    ],
)
async def test_a_resource_is_the_same_whatever_its_spelling(signing: Signing, resource: str | None) -> None:
    client = (await signing.register())["client_id"]
    code = await code_for(signing, client, resource=resource or RESOURCE)
    tokens = (await signing.redeem(client, code, resource=resource)).json()
    assert (await signing.refresh(client, tokens["refresh_token"], resource=resource)).status_code == 200


async def test_a_revoked_token_takes_its_grant_with_it(signing: Signing) -> None:
    for kind in ("access_token", "refresh_token"):
        tokens = await signing.connected()
        answer = await signing.http.post(
            "/oauth/revoke", data={"token": tokens[kind], "client_id": tokens["client_id"], "token_type_hint": kind}
        )
        assert (answer.status_code, answer.content) == (200, b"")
        assert error_of(await signing.refresh(tokens["client_id"], tokens["refresh_token"])) == (400, "invalid_grant")
        assert (await signing.call(tokens["access_token"])).status_code == 401


async def test_nobody_revokes_what_is_not_theirs_and_an_unknown_token_needs_no_revoking(signing: Signing) -> None:
    tokens = await signing.connected()
    other = (await signing.register("Another"))["client_id"]
    for token in (tokens["refresh_token"], "unheard-of"):
        answer = await signing.http.post("/oauth/revoke", data={"token": token, "client_id": other})
        assert answer.status_code == 200
    assert (await signing.call(tokens["access_token"])).status_code == 200


async def test_the_address_to_return_to_need_not_be_told_again(signing: Signing) -> None:
    client = (await signing.register())["client_id"]
    assert (await signing.redeem(client, await code_for(signing, client), redirect_uri=None)).status_code == 200


async def test_a_profile_that_is_made_anew_or_is_given_another_token_does_not_take_over_its_grants(
    signing: Signing,
) -> None:
    tokens = await signing.connected()
    others = [{**profile, "token": f"another-{profile['token']}"} for profile in PROFILES]
    later = Signing(signing.project, {"MCP_CLIENT_PROFILES_JSON": json.dumps(others)}, signing.clock)
    assert (await later.call(tokens["access_token"])).status_code == 401
    assert error_of(await later.refresh(tokens["client_id"], tokens["refresh_token"])) == (400, "invalid_grant")
    assert (await signing.call(tokens["access_token"])).status_code == 200


def test_no_grant_has_a_name_that_a_command_takes_for_an_option() -> None:
    assert not any(grants.new_id().startswith("-") for _ in range(1_000))
