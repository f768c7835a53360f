"""The two ways to ask a case: the service in this process, over the isolated corpus, or a running one over MCP."""

import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from metacortex import bootstrap
from metacortex.errors import EmbeddingSpaceMismatch, MetaCortexError
from metacortex.service import SearchRequest
from ops.eval_cases import Case
from ops.eval_isolated import PROFILE
from ops.eval_plan import Plan
from ops.processes import OpsError
from ops.smoke_faults import body_of, refused, told
from ops.smoke_plan import Plan as Connection


@dataclass(frozen=True)
class Found:
    """A result of a search; its score is 0..1."""

    id: str
    score: float


Search = Callable[[Case, int], Awaitable[list[Found]]]
"""Asks a case for so many results; answers them best first. Raises SearchFailed."""

# The SDK logs what it also raises.
logging.getLogger("mcp").addHandler(logging.NullHandler())


class SearchFailed(Exception):
    """One search failed; others may not."""


def in_process(plan: Plan) -> Search:
    """Searches the isolated corpus as the service does."""
    store = bootstrap.firestore(plan.settings, plan.project).memories
    service = bootstrap.service(plan.settings, store, plan.models)

    async def search(case: Case, limit: int) -> list[Found]:
        request = SearchRequest(
            query=case.query,
            topic=case.topic,
            branch_state=case.state,
            origin=case.origin,
            valid_at=case.valid_at,
            limit=limit,
        )
        try:
            found = await service.search(PROFILE, request)
        except EmbeddingSpaceMismatch as error:
            raise OpsError("The isolated corpus was loaded with another model; load it again with this one.") from error
        except MetaCortexError as error:
            raise SearchFailed(f"{error.code}: {error.message}") from error
        return [Found(match.id, match.score) for match in found.matches]

    return search


@asynccontextmanager
async def over_mcp(connection: Connection) -> AsyncGenerator[Search]:
    """Searches a running service as its clients do. Raises OpsError where it cannot be reached or turns us away."""
    try:
        async with _connected(connection) as client:

            async def search(case: Case, limit: int) -> list[Found]:
                try:
                    result = await client.call_tool(
                        "search_context", {"query": case.query, "limit": limit, **case.filters}
                    )
                except MCPError as error:
                    raise SearchFailed(f"JSON-RPC {error.code}: {error.message}") from error
                return _found(result)

            yield search
    except Exception as error:
        sentence = None if isinstance(error, OpsError) else told(error, connection)
        if sentence is None:
            raise
        raise OpsError(sentence) from error


@asynccontextmanager
async def _connected(connection: Connection) -> AsyncGenerator[Client]:
    async def look_at(response: httpx2.Response) -> None:
        if response.status_code < 400:
            return
        await response.aread()
        if "jsonrpc" not in body_of(response):
            raise OpsError(refused(response, connection))

    async with httpx2.AsyncClient(
        headers={"Authorization": f"Bearer {connection.token}"},
        event_hooks={"response": [look_at]},
        timeout=connection.timeout,
        # No proxy of the environment stands between this machine and itself.
        trust_env=not connection.endpoint.is_local,
    ) as http_client:
        transport = streamable_http_client(connection.endpoint.url, http_client=http_client)
        async with Client(transport, read_timeout_seconds=connection.timeout) as client:
            yield client


def _found(result: CallToolResult) -> list[Found]:
    if result.is_error:
        text = next((block.text for block in result.content if isinstance(block, TextContent)), "")
        raise SearchFailed(_told_by_the_tool(text))
    matches: list[dict[str, Any]] = (result.structured_content or {}).get("matches", [])
    return [Found(match["id"], match["score"]) for match in matches]


def _told_by_the_tool(text: str) -> str:
    try:
        error = json.loads(text)["error"]
        return f"{error['code']}: {error['message']}"
    except (ValueError, KeyError, TypeError):
        return "search_context failed without saying why"
