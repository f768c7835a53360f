"""What went wrong in a smoke run, as one sentence that says what to do about it."""

import json
import re
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import httpx2
import mcp_types as types
from mcp import MCPError
from pydantic import ValidationError

from ops.processes import OpsError
from ops.smoke_plan import Endpoint, Plan

NOT_PUBLIC = (
    "The platform turned the call away before it reached the service (403): let anyone invoke the function"
    " (role roles/run.invoker for allUsers); the service checks its own tokens."
)


class Failed(OpsError):
    """A step of a smoke run did not do what it must."""


def require(holds: object, otherwise: str) -> None:
    """Raises Failed with a sentence unless something holds."""
    if not holds:
        raise Failed(otherwise)


def body_of(response: httpx2.Response) -> dict[str, Any]:
    """The JSON object an answer holds; empty where it holds anything else."""
    try:
        body = json.loads(response.content)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def unhealthy(response: httpx2.Response, endpoint: Endpoint) -> str:
    """Why a health check was not answered as MetaCortex answers it."""
    status = response.status_code
    if status == 404:
        return (
            f"Nothing answers at {endpoint.health_url} (404): the base URL is wrong, or the function is not deployed."
        )
    if status in {401, 403}:
        return NOT_PUBLIC
    if status >= 500:
        return f"{endpoint.health_url} answered {status}: the function does not start; look in its log."
    if 300 <= status < 400:
        return f"{endpoint.health_url} redirects elsewhere ({status}): give the URL of the function itself."
    return f"{endpoint.health_url} answers, but not as MetaCortex does ({status}): the base URL is wrong."


def refused(response: httpx2.Response, plan: Plan) -> str:
    """Why the endpoint turned a request away. The answer's body has been read."""
    status, body = response.status_code, body_of(response)
    origin = body.get("error") == "Origin not allowed"
    known = {
        401: f"The token was refused (401): {_where_the_token_is(plan)}",
        403: f"The origin {plan.origin} is not allowed (403): {_how_to_allow(plan)}" if origin else NOT_PUBLIC,
        404: _no_such_endpoint(plan.endpoint),
        429: "The service has too many calls at once (429): try again in a moment.",
    }
    if status in known:
        return known[status]
    request_id = _request_id(body)
    if request_id is None:
        return f"{plan.endpoint.url} answered {status}: look in the log of the function."
    if status == 503:
        return f"The service is configured wrongly (503): its log names every fault, under the requestId {request_id}."
    return f"The service failed ({status}): its log says why, under the requestId {request_id}."


def _where_the_token_is(plan: Plan) -> str:
    if plan.endpoint.client is None:
        return "pass the admin token this service was started with; ./scripts/dev keeps its own in functions/.secret.local."
    return (
        f"pass the own token of the client {plan.endpoint.client};"
        f" ./scripts/metacortex profile rotate {plan.endpoint.client} makes a new one."
    )


def _how_to_allow(plan: Plan) -> str:
    if plan.endpoint.client is None:
        return "add it to MCP_ALLOWED_ORIGINS and restart the service, or pass one that is allowed by --origin."
    return (
        "pass one that is allowed by --origin, add it to the profile's allowedOrigins, or make a client for it:"
        f" ./scripts/metacortex profile add ID --origin {plan.origin}; then restart ./scripts/dev, or deploy."
    )


def _no_such_endpoint(endpoint: Endpoint) -> str:
    if endpoint.client is None:
        return f"There is no MCP endpoint at {endpoint.url} (404): the base URL is wrong."
    return (
        f"There is no endpoint of a client {endpoint.client} (404): the client id is unknown to this service, or the base"
        " URL is wrong; ./scripts/metacortex profile list names the ids."
    )


def _request_id(body: dict[str, Any]) -> str | None:
    value = body.get("requestId")
    return value if isinstance(value, str) and re.fullmatch(r"[\w-]{1,64}", value) else None


def told(error: BaseException, plan: Plan) -> str | None:
    """An error as a sentence; None for one that only a fault of this program can cause."""
    causes = list(_unfolded(error))
    for cause in causes:
        if sentence := _told(cause, causes, plan):
            return sentence
    return None


def _told(error: BaseException, causes: list[BaseException], plan: Plan) -> str | None:
    host = plan.endpoint.host
    match error:
        case OpsError():
            sentence = str(error)
        case httpx2.TimeoutException() | MCPError(code=types.REQUEST_TIMEOUT):
            sentence = f"{host} gave no answer within {plan.timeout:g} seconds: try again, or allow more by --timeout."
        case httpx2.ConnectError():
            sentence = _no_connection(causes, plan.endpoint)
        case httpx2.ProxyError():
            sentence = f"The proxy of this environment did not connect to {host}: {error}."
        case httpx2.HTTPError() | httpx2.InvalidURL():
            sentence = f"{host} broke the connection, or does not speak HTTP: is this the service's URL?"
        case MCPError(code=code) if code != types.PARSE_ERROR:
            sentence = f"The service refused: {error.message} (JSON-RPC error {code})"
        # The SDK raises RuntimeError where a result is at odds with the outputSchema of its tool.
        case MCPError() | ValidationError() | RuntimeError():
            sentence = f"{plan.endpoint.url} answered with something that is not valid MCP: is this MetaCortex?"
        case _:
            sentence = None
    return sentence


def _no_connection(causes: list[BaseException], endpoint: Endpoint) -> str:
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return (
            f"{endpoint.host} and this machine could not agree on TLS: its certificate is not trusted here, or it speaks"
            " plain HTTP, for which the URL begins with http://."
        )
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return f"The name of {endpoint.host} leads nowhere: check its spelling, and that this machine is online."
    started = "start it with ./scripts/dev" if endpoint.is_local else "check the URL"
    return f"Nothing listens at {endpoint.host}: is it running? If not, {started}."


def _unfolded(error: BaseException) -> Iterator[BaseException]:
    """An error, what it groups, and what caused it, those that say most first: our own, then those of the connection."""
    found: list[BaseException] = []
    waiting = [error]
    while waiting:
        current = waiting.pop(0)
        if current in found:
            continue
        found.append(current)
        if isinstance(current, BaseExceptionGroup):
            waiting += current.exceptions
        waiting += [cause for cause in (current.__cause__, current.__context__) if cause is not None]
    return iter(
        sorted(found, key=lambda each: (not isinstance(each, OpsError), not isinstance(each, httpx2.HTTPError)))
    )
