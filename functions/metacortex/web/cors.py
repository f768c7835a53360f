"""Which browser pages may call, per profile. A request without an Origin is not a browser's and passes."""

from starlette.requests import Request
from starlette.responses import Response

from metacortex.profiles import Profile
from metacortex.web.responses import origin_not_allowed

ALLOWED_HEADERS = (
    "authorization",
    "content-type",
    "accept",
    "cache-control",
    "mcp-protocol-version",
    "mcp-session-id",
    "mcp-method",
    "mcp-name",
    "last-event-id",
)
PREFLIGHT = {
    "Access-Control-Allow-Methods": "POST, OPTIONS",
    "Access-Control-Allow-Headers": ", ".join(ALLOWED_HEADERS),
    "Access-Control-Max-Age": "3600",
}


def headers_for(request: Request, profile: Profile) -> dict[str, str]:
    """The CORS headers of every answer to this request; none without an Origin. Raises Refused for one not allowed."""
    origin = request.headers.get("origin")
    if origin is None:
        return {}
    if not profile.allows_origin(origin):
        raise origin_not_allowed()
    exposed = {"Access-Control-Expose-Headers": "mcp-session-id, www-authenticate"}
    if "*" in profile.origins:
        return {"Access-Control-Allow-Origin": "*"} | exposed
    return {"Access-Control-Allow-Origin": origin, "Vary": "Origin"} | exposed


def preflight() -> Response:
    return Response(status_code=204, headers=PREFLIGHT)
