"""The SDK's own OAuth client, registered or described by a document, in both eras of the protocol."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from document_host import NAME, URL, Authority, DocumentHost, document, served
from metacortex.adapters.client_documents import FetchedDocuments, Place
from sdk_client import REDIRECT, Flow
from signing import Signing


@pytest.fixture
async def documents(tmp_path: Path) -> AsyncGenerator[FetchedDocuments]:
    """What is fetched from a host on this machine, which stands for a public one and says who the program is."""
    authority = Authority(tmp_path)
    host = DocumentHost(served(document(redirect_uris=[REDIRECT])))
    async with host.serving(authority.server(NAME)):

        async def resolve(_: str) -> list[Place]:
            return [("127.0.0.1", host.port)]

        yield FetchedDocuments(resolve, authority.trusting, may_reach=lambda _: True)


@pytest.fixture(params=["registered", "described"])
def flow(signing: Signing, documents: FetchedDocuments, request: pytest.FixtureRequest) -> Flow:
    signing.documents = documents
    return Flow(signing, document=URL if request.param == "described" else None)


@pytest.mark.parametrize("mode", ["legacy", "auto", "2026-07-28"])
async def test_it_connects_by_sign_in_and_approval_alone_and_comes_back_without(flow: Flow, mode: str) -> None:
    for _ in range(2):
        async with flow.connected(mode) as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == {
                "save_context",
                "search_context",
                "fetch_context",
            }
    assert flow.asked == 1


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_it_refreshes_by_itself(signing: Signing, flow: Flow, mode: str) -> None:
    async with flow.connected(mode) as client:
        await client.list_tools()
        first = flow.tokens
        signing.clock.advance(days=31)
        flow.let_token_end()
        assert (await client.list_tools(cache_mode="refresh")).tools
    assert flow.tokens.refresh_token != first.refresh_token
    assert flow.asked == 1


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_denial_connects_nobody(flow: Flow, mode: str) -> None:
    flow.answer = "deny"
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - groups of groups
        async with flow.connected(mode) as client:
            await client.list_tools()
    assert "access_denied" in repr(caught.value)
    assert not flow.is_connected
