"""The SDK's own OAuth client, given the address of an endpoint and nothing else."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, TokenStorage
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from signing import RESOURCE, Browser, Signing

REDIRECT = "http://127.0.0.1:43117/callback"


class Kept(TokenStorage):
    """What a client keeps between its runs."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Flow:
    """One client, and the owner who answers it."""

    def __init__(self, signing: Signing, answer: str = "approve") -> None:
        self.signing = signing
        self.kept = Kept()
        self.asked = 0
        self._answer = answer
        self._returned: dict[str, Any] = {}

    async def _open(self, url: str) -> None:
        self.asked += 1
        browser = Browser(self.signing)
        self._returned = await browser.answer(await browser.sign_in(url), self._answer)

    async def _wait(self) -> AuthorizationCodeResult:
        if "error" in self._returned:
            raise OAuthFlowError(self._returned["error"])
        return AuthorizationCodeResult(**self._returned)

    @asynccontextmanager
    async def connected(self, mode: str) -> AsyncGenerator[Client]:
        provider = OAuthClientProvider(
            server_url=RESOURCE,
            client_metadata=OAuthClientMetadata(client_name="A program", redirect_uris=[AnyUrl(REDIRECT)]),
            storage=self.kept,
            redirect_handler=self._open,
            callback_handler=self._wait,
        )
        async with (
            httpx2.AsyncClient(transport=self.signing.http._transport, auth=provider, timeout=30) as http,  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
            Client(streamable_http_client(RESOURCE, http_client=http), mode=mode) as client,  # pyright: ignore[reportArgumentType]
        ):
            yield client


@pytest.mark.parametrize("mode", ["legacy", "auto", "2026-07-28"])
async def test_it_connects_by_sign_in_and_approval_alone_and_comes_back_without(signing: Signing, mode: str) -> None:
    flow = Flow(signing)
    for _ in range(2):
        async with flow.connected(mode) as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == {
                "save_context",
                "search_context",
                "fetch_context",
            }
    assert flow.asked == 1


async def test_it_refreshes_by_itself(signing: Signing) -> None:
    flow = Flow(signing)
    async with flow.connected("auto"):
        pass
    assert flow.kept.tokens
    first = flow.kept.tokens
    signing.clock.advance(days=31)
    flow.kept.tokens = first.model_copy(update={"expires_in": 0})
    async with flow.connected("auto") as client:
        assert (await client.list_tools()).tools
    assert flow.kept.tokens.refresh_token != first.refresh_token


async def test_a_denial_connects_nobody(signing: Signing) -> None:
    flow = Flow(signing, "deny")
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - groups of groups
        async with flow.connected("auto"):
            pass
    assert "access_denied" in repr(caught.value)
    assert flow.kept.tokens is None
