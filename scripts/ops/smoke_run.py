"""The steps of a smoke run, against the service as its clients see it: plain HTTP first, then the MCP SDK's client."""

import json
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent

from ops.smoke_faults import Failed, body_of, refused, require, told, unhealthy
from ops.smoke_plan import Mode, Plan
from ops.smoke_report import Report
from ops.smoke_sign_in import check_sign_in

READING = ("search_context", "fetch_context")
MATCH_FIELDS = ("id", "summary", "score", "metadata")
BROWSER_HEADERS = ("authorization", "content-type", "mcp-protocol-version", "mcp-method", "mcp-name", "mcp-session-id")
RESULTS = 20
ACTIVE_FOR_MS = 60_000

# The SDK logs what it also raises; told once is enough, and told by us it never holds the token.
logging.getLogger("mcp").addHandler(logging.NullHandler())


async def run(plan: Plan, report: Report) -> None:
    """Every step until the first that fails, which the report holds then."""
    try:
        async with _http_client(plan) as http_client:
            if plan.mode is Mode.SIGN_IN:
                await check_sign_in(plan, http_client, report)
                return
            await _check_health(plan, http_client, report)
            if plan.origin:
                await _check_preflight(plan, plan.origin, http_client, report)
        await _use_tools(plan, report)
    except Exception as error:
        sentence = told(error, plan)
        if sentence is None:
            raise
        report.fail(sentence)
    tell_what_stays(plan, report)


def tell_what_stays(plan: Plan, report: Report) -> None:
    """Names what was saved and is not retired."""
    if report.saved_id and not report.retired:
        stays = f"memory {report.saved_id} stays in the topic {plan.topic} {_how_it_stays(report)}"
        report.skip("retire", f"{stays}: {_why_not_retired(report)}.")


def _how_it_stays(report: Report) -> str:
    if report.saved_state == "wip":
        return "as a draft (wip), out of ordinary searches"
    return f"as {report.saved_state}, where ordinary searches can find it"


def _why_not_retired(report: Report) -> str:
    return "the run failed" if report.error else "this endpoint does not offer deprecate_context"


@asynccontextmanager
async def _http_client(plan: Plan, **settings: Any) -> AsyncGenerator[httpx2.AsyncClient]:
    # No proxy of the environment stands between this machine and itself.
    async with httpx2.AsyncClient(timeout=plan.timeout, trust_env=not plan.endpoint.is_local, **settings) as client:
        yield client


async def _check_health(plan: Plan, http_client: httpx2.AsyncClient, report: Report) -> None:
    with report.step("health") as says:
        response = await http_client.get(plan.endpoint.health_url)
        body = body_of(response)
        if response.status_code != 200 or body.get("ok") is not True or "endpoints" not in body:
            raise Failed(unhealthy(response, plan.endpoint))
        says(f"{body.get('service')} at {plan.endpoint.base}")


async def _check_preflight(plan: Plan, origin: str, http_client: httpx2.AsyncClient, report: Report) -> None:
    asked = {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": ", ".join(BROWSER_HEADERS),
    }
    with report.step("preflight") as says:
        response = await http_client.request("OPTIONS", plan.endpoint.url, headers=asked)
        if not response.is_success:
            raise Failed(refused(response, plan))
        allowed = {header.strip().lower() for header in _list_in(response, "Access-Control-Allow-Headers")}
        require(_allows(response, origin), f"The preflight does not allow the origin {origin}.")
        require("POST" in _list_in(response, "Access-Control-Allow-Methods"), "The preflight does not allow POST.")
        for header in BROWSER_HEADERS:
            require(header in allowed, f"The preflight does not allow the header {header}.")
        says(f"pages of {origin} may call")


def _list_in(response: httpx2.Response, header: str) -> list[str]:
    return [part.strip() for part in response.headers.get(header, "").split(",")]


def _allows(response: httpx2.Response, origin: str) -> bool:
    return response.headers.get("Access-Control-Allow-Origin") in {origin, "*"}


class _Forbidden(Failed):
    """This client may not do what was asked."""


class _Edge:
    """Looks at every answer of the endpoint before the SDK does, which knows no more than that there was an error."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.answers = 0
        self.answers_without_cors = 0

    async def look_at(self, response: httpx2.Response) -> None:
        self.answers += 1
        if self._plan.origin and not _allows(response, self._plan.origin):
            self.answers_without_cors += 1
        if response.status_code < 400:
            return
        await response.aread()
        if "jsonrpc" not in body_of(response):
            raise Failed(refused(response, self._plan))


async def _use_tools(plan: Plan, report: Report) -> None:
    edge = _Edge(plan)
    async with AsyncExitStack() as stack:
        with report.step("connect") as says:
            client = await stack.enter_async_context(_connected(plan, edge))
            server = client.server_info
            says(f"protocol {client.protocol_version}")
            says(f"of {server.name} {server.version}" if server else "of a server without a name")
        tools = await _list_tools(plan, client, report)
        if plan.mode.writes:
            await _save_and_find(plan, client, edge, tools, report)
        else:
            await _search_only(plan, client, report)


@asynccontextmanager
async def _connected(plan: Plan, edge: _Edge) -> AsyncGenerator[Client]:
    headers = {"Authorization": f"Bearer {plan.token}"} | ({"Origin": plan.origin} if plan.origin else {})
    hooks = {"response": [edge.look_at]}
    async with _http_client(plan, headers=headers, event_hooks=hooks) as http_client:
        transport = streamable_http_client(plan.endpoint.url, http_client=http_client)
        # An answer may arrive in time and answer something else than what was asked.
        async with Client(transport, read_timeout_seconds=plan.timeout) as client:
            yield client


async def _list_tools(plan: Plan, client: Client, report: Report) -> list[str]:
    with report.step("tools") as says:
        names = [tool.name for tool in (await client.list_tools()).tools]
        needed = ("save_context", *READING) if plan.mode.writes else READING[:1]
        missing = [name for name in needed if name not in names]
        require(not missing, f"This endpoint does not offer {', '.join(missing)}: grant it, or choose another --mode.")
        require(
            plan.mode is not Mode.SEARCH or plan.endpoint.client is None or "save_context" not in names,
            f"{plan.mode} is for clients that may not write, and this one is offered save_context.",
        )
        says(", ".join(names))
        return names


async def _save_and_find(plan: Plan, client: Client, edge: _Edge, tools: list[str], report: Report) -> None:
    text = f"MetaCortex smoke test: the marker word of this run is {secrets.token_hex(8)}."
    await _save(plan, client, text, tools, report)
    try:
        await _find(plan, client, text, report)
        await _fetch(plan, client, text, report)
        if plan.origin:
            _check_cors(plan.origin, edge, report)
    except Failed:
        with suppress(Failed):
            await _retire(client, tools, report)
        raise
    await _retire(client, tools, report)


async def _save(plan: Plan, client: Client, text: str, tools: list[str], report: Report) -> None:
    image = (
        {"image_base64": plan.image.base64, "image_mime_type": plan.image.mime_type} if plan.image is not None else {}
    )
    refs = {"artifact_refs": list(plan.artifact_refs)} if plan.artifact_refs else {}
    with report.step("save") as says:
        saved = await _saved(plan, client, tools, {"content": text, "topic": plan.topic, **refs, **image})
        memory_id, state = _at(saved, "item", "id"), _at(saved, "item", "metadata", "branch_state")
        report.saved_id, report.saved_state = str(memory_id), str(state)
        says(f"{memory_id} in the topic {plan.topic}, as {state}")


async def _saved(plan: Plan, client: Client, tools: list[str], memory: Mapping[str, Any]) -> dict[str, Any]:
    """Save so that ordinary searches do not find it for ever: it is retired later, or a draft, or soon out of date."""
    if "deprecate_context" in tools:
        return await _call(client, "save_context", **memory)
    with suppress(_Forbidden):
        asked = {"query": plan.topic, "filter_topic": plan.topic, "filter_state": "wip", "limit": 1}
        await _call(client, "search_context", **asked)
        return await _call(client, "save_context", **memory, draft=True)
    until = round(time.time() * 1000) + ACTIVE_FOR_MS
    return await _call(client, "save_context", **memory, valid_until=until)


async def _find(plan: Plan, client: Client, text: str, report: Report) -> None:
    with report.step("search") as says:
        filters = {"filter_topic": plan.topic, "filter_state": report.saved_state}
        matches = _matches(await _call(client, "search_context", query=text, limit=RESULTS, **filters))
        position = next((place for place, match in enumerate(matches, 1) if match["id"] == report.saved_id), None)
        require(position, f"The search does not find what was saved among its {len(matches)} matches.")
        says(f"found, {position} of {len(matches)}, score {matches[(position or 1) - 1]['score']}")


async def _fetch(plan: Plan, client: Client, text: str, report: Report) -> None:
    with report.step("fetch") as says:
        fetched = await _call(client, "fetch_context", id=report.saved_id)
        require(_at(fetched, "item", "content") == text, "The fetched text is not the saved one.")
        refs = _at(fetched, "item", "metadata").get("artifact_refs", [])
        require(refs == list(plan.artifact_refs), "The fetched artifact_refs are not the saved ones.")
        says("the same text")


def _check_cors(origin: str, edge: _Edge, report: Report) -> None:
    with report.step("cors") as says:
        without = edge.answers_without_cors
        require(not without, f"{without} of {edge.answers} answers lack Access-Control-Allow-Origin for {origin}.")
        says(f"every answer carries Access-Control-Allow-Origin for {origin}")


async def _retire(client: Client, tools: list[str], report: Report) -> None:
    if "deprecate_context" not in tools:
        return
    with report.step("retire") as says:
        answer = await _call(client, "deprecate_context", id=report.saved_id)
        require(_at(answer, "item", "branch_state") == "deprecated", "The memory is not deprecated after all.")
        report.retired = True
        says("deprecated")


async def _search_only(plan: Plan, client: Client, report: Report) -> None:
    with report.step("search") as says:
        answer = await _call(client, "search_context", query="MetaCortex smoke test", filter_topic=plan.topic)
        matches = _matches(answer)
        applied = _at(answer, "applied_filters", "filter_topic")
        require(applied == plan.topic, "The applied_filters do not repeat the topic that was asked for.")
        says(
            f"{len(matches)} found in the topic {plan.topic}, in state {_at(answer, 'applied_filters', 'filter_state')}"
        )


def _matches(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    matches = _at(answer, "matches")
    require(isinstance(matches, list), "The matches are not a list.")
    for match in matches:
        for name in MATCH_FIELDS:
            _at(match, name)
    return matches


async def _call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The result of a tool: one JSON object, as text and as structuredContent."""
    result = await client.call_tool(tool, arguments)
    text = next((block.text for block in result.content if isinstance(block, TextContent)), "")
    if result.is_error:
        error = _parsed(text)
        refusal = _Forbidden if _at(error, "error", "status") == 403 else Failed
        raise refusal(f"{tool} was refused: {_message_of(error)}")
    require(
        result.structured_content is not None and result.structured_content == _parsed(text),
        f"{tool} does not answer one JSON object, the same as text and as structuredContent.",
    )
    return result.structured_content or {}


def _message_of(error: Any) -> str:
    return f"{_at(error, 'error', 'message')} ({_at(error, 'error', 'status')} {_at(error, 'error', 'code')})"


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _at(value: Any, *path: str) -> Any:
    """What stands at a path in an answer."""
    for key in path:
        require(isinstance(value, Mapping) and key in value, f"The answer has no {'.'.join(path)}.")
        value = value[key]
    return value
