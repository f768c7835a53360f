"""What may be sent to an OAuth endpoint: little, and each parameter once."""

from collections import Counter
from collections.abc import Mapping
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

from metacortex.oauth.errors import invalid_request

BODY_BYTES = 64 * 1024
FIELDS = 50
_FORM = "application/x-www-form-urlencoded"


async def read(request: Request) -> bytes:
    """The body, up to 64 KiB. Raises OAuthError."""
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > BODY_BYTES:
                raise invalid_request(f"The body is over the limit of {BODY_BYTES:,} bytes.")
    except ClientDisconnect:
        raise invalid_request("The body ended early.") from None
    return bytes(body)


async def form_of(request: Request) -> Mapping[str, str]:
    """The fields of a form. Raises OAuthError, also for a field that is there twice (RFC 6749 §3.2)."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise invalid_request(f"Send the parameters as {_FORM}.")
    body = await read(request)
    return fields_of(body.decode("utf-8", "replace"))


def fields_of(text: str) -> Mapping[str, str]:
    """The parameters of a form or a query; an empty one counts as left out (RFC 6749 §3.1)."""
    try:
        pairs = parse_qsl(text, max_num_fields=FIELDS, keep_blank_values=True)
    except ValueError:
        raise invalid_request(f"There are more than {FIELDS} parameters.") from None
    twice = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]
    if twice:
        raise invalid_request("A parameter is there twice.")
    return {name: value for name, value in pairs if value}
