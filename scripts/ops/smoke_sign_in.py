"""The steps of a smoke run that looks at signing in as a client without a token sees it. Nothing is registered or written."""

import re
from typing import Any

import httpx2

from ops.smoke_faults import Failed, body_of, refused, require
from ops.smoke_plan import Plan
from ops.smoke_report import Report

CACHED = "public, max-age=300"
SERVER_DOCUMENTS = ("oauth-authorization-server", "openid-configuration")
LIST_TOOLS = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
REWRITE = "where a Hosting site stands before the function, it needs a rewrite for"

_WELL_KNOWN = "/.well-known/"
_METADATA = re.compile(r'resource_metadata="([^"]*)"')


async def check_sign_in(plan: Plan, http_client: httpx2.AsyncClient, report: Report) -> None:
    """What a client goes by from the URL of its endpoint to the page where the owner signs in."""
    await _check_challenge(plan, http_client, report)
    await _check_endpoint_document(plan, http_client, report)
    await _check_server_documents(plan, http_client, report)
    await _check_pages(plan, http_client, report)
    await _check_admin(plan, http_client, report)


async def _check_challenge(plan: Plan, http_client: httpx2.AsyncClient, report: Report) -> None:
    with report.step("challenge") as says:
        response = await http_client.post(plan.endpoint.url, json=LIST_TOOLS)
        require(not response.is_redirect, f"{plan.endpoint.url} redirects elsewhere ({response.status_code}).")
        if response.status_code >= 400 and response.status_code != 401:
            raise Failed(refused(response, plan))
        require(response.status_code == 401, f"A call without a token is answered {response.status_code}, not 401.")
        challenge = response.headers.get("WWW-Authenticate", "")
        found = _METADATA.search(challenge)
        if found is None:
            raise Failed("Signing in is off: set PUBLIC_BASE_URL and a way for the owner to sign in, then deploy.")
        named = found[1].partition(_WELL_KNOWN)[0]
        require(
            named == plan.endpoint.base,
            f"PUBLIC_BASE_URL is {named}, not {plan.endpoint.base}: clients must be given the endpoint below the former.",
        )
        require(found[1] == _metadata_url(plan), f"The challenge names {found[1]}, not {_metadata_url(plan)}.")
        require('scope="' in challenge, "The challenge names no scope.")
        require("error=" not in challenge, "The challenge tells an error, although no token was sent.")
        says("401 without a token, with the address of its document")


def _metadata_url(plan: Plan) -> str:
    return f"{plan.endpoint.base}{_WELL_KNOWN}oauth-protected-resource/clients/{plan.endpoint.client}/mcp"


async def _check_endpoint_document(plan: Plan, http_client: httpx2.AsyncClient, report: Report) -> None:
    with report.step("resource") as says:
        document = await _document(_metadata_url(plan), http_client)
        _require_equal(document, "resource", plan.endpoint.url)
        _require_equal(document, "authorization_servers", [plan.endpoint.base])
        says(f"tokens are for {plan.endpoint.url}")


async def _check_server_documents(plan: Plan, http_client: httpx2.AsyncClient, report: Report) -> None:
    base = plan.endpoint.base
    with report.step("server") as says:
        one, other = [await _document(f"{base}{_WELL_KNOWN}{name}", http_client) for name in SERVER_DOCUMENTS]
        require(one == other, f"{' and '.join(SERVER_DOCUMENTS)} are not the same document.")
        _require_equal(one, "issuer", base)
        for name in ("authorization", "token", "registration", "revocation"):
            endpoint = one.get(f"{name}_endpoint")
            require(
                isinstance(endpoint, str) and endpoint.startswith(f"{base}/"),
                f"The {name}_endpoint is not below {base}.",
            )
        _require_equal(one, "code_challenge_methods_supported", ["S256"])
        _require_equal(one, "token_endpoint_auth_methods_supported", ["none"])
        says(f"issuer {base}, PKCE with S256")


async def _check_pages(plan: Plan, http_client: httpx2.AsyncClient, report: Report) -> None:
    with report.step("pages") as says:
        url = f"{plan.endpoint.base}/oauth/authorize"
        response = await http_client.get(url)
        # Without parameters nobody asks for anything, and the page that says so is the service's own.
        is_ours = response.status_code == 400 and "no-store" in response.headers.get("Cache-Control", "")
        require(is_ours, f"{url} answers {response.status_code}, not with a page of the service: {REWRITE} /oauth/**.")
        says("the service's own, kept by no cache")


async def _check_admin(plan: Plan, http_client: httpx2.AsyncClient, report: Report) -> None:
    base = plan.endpoint.base
    with report.step("admin") as says:
        response = await http_client.post(f"{base}/mcp", json=LIST_TOOLS)
        challenge = response.headers.get("WWW-Authenticate", "")
        require(not response.is_success, f"{base}/mcp answers a call without a token ({response.status_code}).")
        require(not _METADATA.search(challenge), "The admin endpoint offers signing in.")
        document = await http_client.get(f"{base}{_WELL_KNOWN}oauth-protected-resource/mcp")
        require(document.status_code == 404, f"There is a document for the admin endpoint ({document.status_code}).")
        says("cannot be reached by signing in")


async def _document(url: str, http_client: httpx2.AsyncClient) -> dict[str, Any]:
    response = await http_client.get(url)
    document = body_of(response)
    if response.status_code != 200 or not document:
        raise Failed(f"{url} answers {response.status_code}, and no document: {REWRITE} /.well-known/**.")
    kept = response.headers.get("Cache-Control", "nothing")
    require(kept == CACHED, f"Cache-Control of {url} is {kept}, not {CACHED}: something before the service changes it.")
    return document


def _require_equal(document: dict[str, Any], name: str, wanted: object) -> None:
    found = document.get(name)
    require(found == wanted, f"{name} is {found}, not {wanted}.")
