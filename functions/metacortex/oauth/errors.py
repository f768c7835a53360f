"""What an OAuth endpoint answers where it refuses, in the words of the specifications."""

from dataclasses import dataclass


@dataclass(eq=False)
class OAuthError(Exception):
    """A refusal with its code (RFC 6749 §4.1.2.1 and §5.2, RFC 7591 §3.2.2, RFC 8707 §2), and one sentence for a developer."""

    code: str
    description: str
    status_code: int = 400


@dataclass(eq=False)
class Gone(Exception):
    """A request of the owner's browser that leads nowhere any more, and what to do instead."""

    says: str


def invalid_request(description: str) -> OAuthError:
    return OAuthError("invalid_request", description)


def invalid_grant(description: str) -> OAuthError:
    return OAuthError("invalid_grant", description)


def invalid_target() -> OAuthError:
    return OAuthError("invalid_target", "resource is not the address of an endpoint that this grant is for.")


def repeated(names: frozenset[str]) -> OAuthError:
    """Parameters that are there twice (RFC 6749 §3.1 and §3.2); resource alone may be (RFC 8707 §2), where it can be served."""
    if names <= {"resource"}:
        return OAuthError("invalid_target", "Name one endpoint in resource; a grant is for one.")
    return invalid_request("A parameter is there twice.")


def unnamed_client() -> OAuthError:
    return OAuthError("invalid_client", "Send client_id as a parameter of the form; clients have no secrets here.", 401)


def invalid_client() -> OAuthError:
    return OAuthError("invalid_client", "This client is not known here; register it again.", 401)
