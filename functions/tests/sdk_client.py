"""The SDK's own OAuth client, given the address of an endpoint and nothing else, and the owner who answers it."""

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, TokenStorage
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from signing import RESOURCE, Browser, Signing, request_on

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
    """One client, and the owner, who signs in once and gives the same answer until a test changes it.

    The client registers itself, unless it names the document that describes it.
    """

    def __init__(self, signing: Signing, answer: str = "approve", *, document: str | None = None) -> None:
        self.answer = answer
        self.asked = 0
        self._signing = signing
        self._document = document
        self._kept = Kept()
        self._browser = Browser(signing)
        self._returned: dict[str, Any] = {}
        self._provider = self._started()

    @property
    def tokens(self) -> OAuthToken:
        assert self._kept.tokens
        return self._kept.tokens

    @property
    def is_connected(self) -> bool:
        """Whether the client has ever been given tokens."""
        return self._kept.tokens is not None

    def let_token_end(self) -> None:
        """The client takes its access token for one that has ended: it goes by a clock of its own."""
        self._provider.context.token_expiry_time = time.time() - 1

    @asynccontextmanager
    async def connected(self, mode: str) -> AsyncGenerator[Client]:
        """The client from its start to its end; what it keeps is there again when it starts anew."""
        self._provider = self._started()
        async with (
            httpx2.AsyncClient(transport=self._signing.transport, auth=self._provider) as http,
            Client(streamable_http_client(RESOURCE, http_client=http), mode=mode) as client,  # pyright: ignore[reportArgumentType]
        ):
            yield client

    def _started(self) -> OAuthClientProvider:
        return OAuthClientProvider(
            server_url=RESOURCE,
            client_metadata=OAuthClientMetadata(client_name="A program", redirect_uris=[AnyUrl(REDIRECT)]),
            storage=self._kept,
            redirect_handler=self._open,
            callback_handler=self._wait,
            client_metadata_url=self._document,
        )

    async def _open(self, url: str) -> None:
        self.asked += 1
        is_signed_in = bool(self._browser.cookies)
        request = request_on(await self._browser.open(url)) if is_signed_in else await self._browser.sign_in(url)
        self._returned = await self._browser.answer(request, self.answer)

    async def _wait(self) -> AuthorizationCodeResult:
        if "error" in self._returned:
            raise OAuthFlowError(self._returned["error"])
        return AuthorizationCodeResult(**self._returned)
