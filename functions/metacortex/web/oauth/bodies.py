"""What may be sent to an OAuth endpoint: little, in good time, and each parameter once."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

from metacortex.oauth.errors import invalid_request, repeated

BODY_BYTES = 64 * 1024
BODY_SECONDS = 15.0
FIELDS = 50
_FORM = "application/x-www-form-urlencoded"


async def take_in(request: Request) -> None:
    """Reads the body, up to 64 KiB, for `body_of`. Raises OAuthError."""
    body = bytearray()
    try:
        # One that never ends would be held for good.
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > BODY_BYTES:
                    raise invalid_request(f"The body is over the limit of {BODY_BYTES:,} bytes.")
    except ClientDisconnect:
        raise invalid_request("The body ended early.") from None
    except TimeoutError:
        raise invalid_request(f"The body did not arrive within {BODY_SECONDS:.0f} seconds.") from None
    request.state.body = bytes(body)


def body_of(request: Request) -> bytes:
    return request.state.body


def form_of(request: Request) -> Mapping[str, str]:
    """The fields of a form. Raises OAuthError, also for a field that is there twice."""
    return fields_of(form_text(request))


def form_text(request: Request) -> str:
    """A form as it was sent. Raises OAuthError."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise invalid_request(f"Send the parameters as {_FORM}.")
    return body_of(request).decode("utf-8", "replace")


def fields_of(text: str) -> Mapping[str, str]:
    """The parameters of a form or a query. Raises OAuthError, also for one that is there twice."""
    fields, twice = sorted_fields(text)
    if twice:
        raise repeated(twice)
    return fields


def sorted_fields(text: str) -> tuple[Mapping[str, str], frozenset[str]]:
    """The parameters that are there once, and the names of the others. An empty one counts as left out (RFC 6749 §3.1)."""
    try:
        pairs = parse_qsl(text, max_num_fields=FIELDS, keep_blank_values=True)
    except ValueError:
        raise invalid_request(f"There are more than {FIELDS} parameters.") from None
    twice = frozenset(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
    return {name: value for name, value in pairs if value and name not in twice}, twice
