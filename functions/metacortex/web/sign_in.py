"""What the MCP endpoints know of signing in."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.types import ASGIApp


@dataclass(frozen=True)
class SignIn:
    """Signing in, where it is turned on."""

    base: str
    """The origin of this installation."""
    opens: Callable[[str, str], Awaitable[bool]]
    """Whether a token opens the endpoint of a profile, by its id."""
    app: Callable[[], Awaitable[ASGIApp]]
    """The paths of the authorization server."""


def resource_metadata(base: str, profile_id: str) -> str:
    """Where the document stands that says how to sign in for an endpoint (RFC 9728 §3.1)."""
    return f"{base}/.well-known/oauth-protected-resource/clients/{profile_id}/mcp"
