"""Who is calling: the credential of a request against the profile of its path."""

from urllib.parse import parse_qs

from starlette.requests import Request

from metacortex.profiles import Profile
from metacortex.web.responses import unauthorized
from metacortex.web.sign_in import SignIn, resource_metadata

URL_PARAMETER = "auth_token"


async def authenticate(request: Request, profile: Profile, *, url_tokens: bool, sign_in: SignIn | None) -> None:
    """Passes where the request carries this profile's token, or one that its owner gave by signing in; else raises Refused.

    The header wins over the URL. Two Authorization headers, or two tokens in the URL, are no credential at all: which of them a
    proxy before us looked at cannot be known.
    """
    headers = request.headers.getlist("authorization")
    in_url = url_tokens and profile.url_token_allowed
    token = _bearer(headers) if headers else _url_token(request) if in_url else None
    if token is not None and profile.accepts(token):
        return
    if sign_in is None or profile.is_admin:
        raise unauthorized()
    if headers and token is not None and await sign_in.opens(token, profile.id):
        return
    raise unauthorized(resource_metadata=resource_metadata(sign_in.base, profile.id), with_token=token is not None)


def _bearer(headers: list[str]) -> str | None:
    if len(headers) != 1:
        return None
    scheme, _, token = headers[0].strip().partition(" ")
    return token if scheme.lower() == "bearer" else None


def _url_token(request: Request) -> str | None:
    try:
        tokens = parse_qs(request.url.query, max_num_fields=20).get(URL_PARAMETER, [])
    except ValueError:
        return None
    return tokens[0] if len(tokens) == 1 else None
