"""How a client finds out where to sign in, from the address of an endpoint alone."""

import pytest

from builders import PROJECT, TOKENS, Service, environment
from metacortex.errors import ConfigurationError
from metacortex.settings import load
from signing import BASE, HASH, RESOURCE, Signing

RESOURCE_METADATA = f"{BASE}/.well-known/oauth-protected-resource/clients/agent/mcp"
EVERYTHING = [
    "/.well-known/oauth-protected-resource/clients/agent/mcp",
    "/.well-known/oauth-protected-resource",
    "/.well-known/oauth-authorization-server",
    "/.well-known/openid-configuration",
]


async def test_an_endpoint_without_a_token_says_where_its_document_is(signing: Signing) -> None:
    response = await signing.call(None)
    assert response.status_code == 401
    challenge = response.headers["www-authenticate"]
    assert challenge == f'Bearer realm="metacortex", resource_metadata="{RESOURCE_METADATA}", scope="memory"'


@pytest.mark.parametrize(
    "token", ["wrong", "mca_wrong", f"mca_{'A' * 22}_{'A' * 43}", f"mcr_{'A' * 22}_{'A' * 43}", "é" * 40]
)
async def test_with_a_wrong_token_it_says_so_too(signing: Signing, token: str) -> None:
    response = await signing.http.post(
        "/clients/agent/mcp", content=b"{}", headers=[(b"authorization", b"Bearer " + token.encode())]
    )
    assert response.status_code == 401
    assert 'error="invalid_token"' in response.headers["www-authenticate"]
    assert f'resource_metadata="{RESOURCE_METADATA}"' in response.headers["www-authenticate"]


@pytest.mark.parametrize("content", [b"", b"{}", b"garbage", b'{"jsonrpc":"2.0","id":1,"method":"server/discover"}'])
async def test_anything_without_a_token_is_unauthorized(signing: Signing, content: bytes) -> None:
    assert (await signing.http.post("/clients/agent/mcp", content=content)).status_code == 401


async def test_the_admin_endpoint_knows_nothing_of_signing_in(signing: Signing) -> None:
    response = await signing.call(None, "default")
    assert response.headers["www-authenticate"] == 'Bearer realm="metacortex"'
    path = "/.well-known/oauth-protected-resource/clients/default/mcp"
    assert (await signing.http.get(path)).status_code == 404


async def test_the_document_of_an_endpoint_names_exactly_its_address_and_the_server(signing: Signing) -> None:
    response = await signing.http.get(EVERYTHING[0])
    assert response.headers["cache-control"] == "public, max-age=300"
    assert response.json() == {
        "resource": RESOURCE,
        "authorization_servers": [BASE],
        "scopes_supported": ["memory"],
        "bearer_methods_supported": ["header"],
        "resource_name": "MetaCortex",
    }


async def test_the_root_has_a_document_too_and_an_unknown_endpoint_none(signing: Signing) -> None:
    assert (await signing.http.get(EVERYTHING[1])).json()["resource"] == BASE
    for path in ("/clients/unheard-of/mcp", "/clients/agent", "/mcp", "/clients/agent/mcp/more"):
        assert (await signing.http.get(f"{EVERYTHING[1]}{path}")).status_code == 404


@pytest.mark.parametrize("suffix", ["", "/", "/clients/agent/mcp", "/anything"])
@pytest.mark.parametrize("path", EVERYTHING[2:])
async def test_the_server_has_one_document_whatever_follows_its_address(
    signing: Signing, path: str, suffix: str
) -> None:
    response = await signing.http.get(path + suffix)
    assert response.headers["cache-control"] == "public, max-age=300"
    document = response.json()
    assert document["issuer"] == BASE
    endpoints = {name: value for name, value in document.items() if name.endswith("_endpoint")}
    assert endpoints == {
        "authorization_endpoint": f"{BASE}/oauth/authorize",
        "token_endpoint": f"{BASE}/oauth/token",
        "registration_endpoint": f"{BASE}/oauth/register",
        "revocation_endpoint": f"{BASE}/oauth/revoke",
    }
    assert document["code_challenge_methods_supported"] == ["S256"]
    assert document["token_endpoint_auth_methods_supported"] == ["none"]
    assert document["scopes_supported"] == ["memory", "offline_access"]
    assert document["client_id_metadata_document_supported"] is True
    assert document["authorization_response_iss_parameter_supported"] is True


@pytest.mark.parametrize("path", EVERYTHING)
async def test_a_web_page_may_read_the_documents(signing: Signing, path: str) -> None:
    response = await signing.http.get(path, headers={"origin": "https://inspector.example.org"})
    assert response.headers["access-control-allow-origin"] == "*"
    asked = {"origin": "https://inspector.example.org", "access-control-request-method": "GET"}
    assert (await signing.http.options(path, headers=asked)).status_code == 200


async def test_nothing_is_taken_from_the_host_header(signing: Signing) -> None:
    headers = {"host": "evil.example.org", "x-forwarded-host": "evil.example.org", "forwarded": "host=evil.example.org"}
    for path in EVERYTHING:
        assert "evil" not in (await signing.http.get(path, headers=headers)).text
    response = await signing.http.post("/clients/agent/mcp", headers=headers)
    assert "evil" not in response.headers["www-authenticate"]


@pytest.mark.parametrize("path", [*EVERYTHING, "/oauth/authorize", "/oauth/token", "/oauth/register", "/oauth/consent"])
async def test_where_signing_in_is_off_nothing_of_it_exists(service: Service, path: str) -> None:
    for method in ("GET", "POST"):
        response = await service.http.request(method, path)
        assert (response.status_code, response.json()) == (404, {"error": "Not found"})
    response = await service.http.post("/clients/agent/mcp")
    assert response.headers["www-authenticate"] == 'Bearer realm="metacortex"'


async def test_a_static_token_stays_good_beside_it(signing: Signing) -> None:
    assert (await signing.call(TOKENS["agent"])).status_code == 200
    assert (await signing.call(TOKENS["default"], "default")).status_code == 200


@pytest.mark.parametrize(
    "url",
    [
        "https://memory.example.org/",
        "https://memory.example.org/path",
        "https://Memory.example.org",
        "http://memory.example.org",
        "https://memory.example.org?a=b",
        "https://owner@memory.example.org",
        "memory.example.org",
        "https://memory.example.org:443",
        "http://localhost:80",
        "https://memory.example.org:65536",
        "https://memory.example.org:08443",
        "https://memory..example.org",
        "https://-memory.example.org",
        "https://..",
    ],
)
def test_the_address_is_an_origin_and_nothing_else(url: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        load(environment(PUBLIC_BASE_URL=url, OWNER_PASSPHRASE_HASH=HASH))
    [fault] = error.value.faults
    assert fault.startswith("PUBLIC_BASE_URL must be an origin")


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({}, "OWNER_PASSPHRASE_HASH"),
        ({"GOOGLE_SIGN_IN_CLIENT_ID": "id"}, "GOOGLE_SIGN_IN_CLIENT_SECRET"),
        ({"GOOGLE_SIGN_IN_CLIENT_ID": "id", "GOOGLE_SIGN_IN_CLIENT_SECRET": "secret"}, "OWNER_EMAIL or OWNER_SUBJECT"),
        ({"OWNER_PASSPHRASE_HASH": "correct horse battery staple"}, "OWNER_PASSPHRASE_HASH"),
    ],
)
def test_it_needs_a_way_for_the_owner_to_sign_in(settings: dict[str, str], missing: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        load(environment(PUBLIC_BASE_URL=BASE, **settings))
    assert any(fault.startswith(missing) for fault in error.value.faults)
    assert PROJECT not in str(error.value)
