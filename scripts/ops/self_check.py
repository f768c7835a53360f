"""Saving, searching and fetching through a real MCP client, in both protocol eras."""

import json
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ops.processes import OpsError

TOOLS = ("save_context", "search_context", "fetch_context")
ERAS = ("legacy", MODERN_PROTOCOL_VERSIONS[-1])
MEMORY = "The lighthouse keeper at Skerryvore kept a herring gull named Alasdair."
QUESTION = "What was the lighthouse keeper's gull called?"


class CheckFailed(OpsError):
    """The service answered, but not with what it must answer."""


async def check(urls: list[str], token: str, say: Callable[[str], None]) -> None:
    """Save, search and fetch at every URL in every era, telling what was seen; raises CheckFailed."""
    for url in urls:
        for era in ERAS:
            try:
                await _check_one(url, token, era, say)
            except Exception as error:
                raise CheckFailed(f"The check failed at {url}, era {era}: {_reason(error)}.") from error


def _reason(error: Exception) -> str:
    """What went wrong, without the groups that the client's tasks wrap it in."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__


async def _check_one(url: str, token: str, era: str, say: Callable[[str], None]) -> None:
    topic = f"self-check {uuid.uuid4()}"
    async with _connected(url, token, era) as client:
        say(f"{url}, protocol {client.protocol_version}")
        listed = sorted(tool.name for tool in (await client.list_tools()).tools)
        _require(set(TOOLS) <= set(listed), f"these tools are offered: {', '.join(listed)}")
        say(f"  tools    {', '.join(listed)}")

        saved = await _call(client, "save_context", content=MEMORY, topic=topic)
        memory_id = saved["item"]["id"]
        say(f"  saved    {memory_id} ({saved['write_status']})")

        matches = (await _call(client, "search_context", query=QUESTION, filter_topic=topic))["matches"]
        _require([match["id"] for match in matches][:1] == [memory_id], "the search did not find what was saved")
        say(f"  found    {matches[0]['id']} (score {matches[0]['score']})")

        fetched = (await _call(client, "fetch_context", id=memory_id))["item"]
        _require(fetched["content"] == MEMORY, "the fetched text is not the saved one")
        say(f"  fetched  {fetched['content']}")


@asynccontextmanager
async def _connected(url: str, token: str, era: str) -> AsyncGenerator[Client]:
    # No proxy of the environment stands between this machine and itself.
    http_client = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=30, trust_env=False)
    async with http_client, Client(streamable_http_client(url, http_client=http_client), mode=era) as client:
        yield client


async def _call(client: Client, tool: str, **arguments: str) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    text = next((block.text for block in result.content if isinstance(block, TextContent)), "")
    _require(not result.is_error, f"{tool} was refused: {text}")
    _require(result.structured_content == json.loads(text), f"{tool} answered two different things")
    return result.structured_content or {}


def _require(holds: object, otherwise: str) -> None:
    if not holds:
        raise CheckFailed(otherwise)
