"""What signing in needs from the outside world."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from metacortex.oauth.clients import Client
from metacortex.oauth.grants import Grant


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """An authorization request that waits for the owner. Times are epoch milliseconds."""

    id: str
    client: Client
    profile_id: str
    resource: str
    redirect_uri: str
    state: str | None
    scopes: tuple[str, ...]
    challenge: str
    expires_at: int
    provider: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """What a sign-in at a provider that is under way must come back with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """An owner who is signed in. `digest` is that of the cookie's value."""

    digest: str = field(repr=False)
    way: str
    created_at: int
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """How often a passphrase was wrong in a row, and until when no further one is looked at."""

    failures: int = 0
    locked_until: int = 0
    revision: Any = None


@dataclass(frozen=True, slots=True)
class Stored:
    """A grant as it was read. `revision` is what a write checks it against."""

    grant: Grant
    revision: Any


class OAuthStore(Protocol):
    """Keeps clients, requests, grants and sessions. Every method raises Unavailable, TimedOut or RateLimited."""

    async def client(self, client_id: str) -> Client | None: ...

    async def add_client(self, client: Client, keep_unused: int) -> None:
        """Stores a registration; of those that were never used only so many stay, the newest."""
        ...

    async def keep_client(self, client: Client) -> None:
        """Stores a client that the owner approved, for good, whatever became of its registration."""
        ...

    async def add_request(self, request: Request) -> None: ...

    async def request(self, request_id: str) -> Request | None: ...

    async def set_provider(self, request_id: str, provider: Mapping[str, str]) -> bool:
        """Keeps what a sign-in must come back with; False where the request was answered meanwhile."""
        ...

    async def take_request(self, request_id: str) -> bool:
        """Ends a request; False where somebody else did so before."""
        ...

    async def add_grant(self, grant: Grant) -> None: ...

    async def grant(self, grant_id: str) -> Stored | None: ...

    async def replace_grant(self, stored: Stored, after: Grant) -> bool:
        """Writes a grant's next form; False, and nothing written, if it has changed since it was read."""
        ...

    async def remove_grant(self, grant_id: str) -> bool:
        """Ends a grant and every credential of it; False where there was none."""
        ...

    async def grants(self) -> Sequence[Grant]:
        """Every grant that a client has redeemed, the newest first."""
        ...

    async def add_session(self, session: Session) -> None: ...

    async def session(self, digest: str) -> Session | None: ...

    async def remove_sessions(self) -> int:
        """Signs the owner out everywhere; how often they were signed in."""
        ...

    async def attempts(self) -> Attempts: ...

    async def forget_attempts(self) -> None:
        """As if no passphrase had been wrong."""
        ...

    async def set_attempts(self, attempts: Attempts) -> bool:
        """Writes what follows an attempt; False, and nothing written, if another attempt came between."""
        ...


class SignInRefused(Exception):
    """Whoever came back from the sign-in is not the owner, or cannot be proved to be; `says` is for the page."""

    def __init__(self, says: str) -> None:
        super().__init__(says)
        self.says = says


class ProviderSignIn(Protocol):
    """The owner's sign-in at an OpenID provider, by the code flow on the server."""

    async def begin(self, request_id: str) -> tuple[str, dict[str, str]]:
        """Where to send the browser, and what it must come back with. Raises SignInRefused."""
        ...

    def request_of(self, state: str) -> str:
        """The id of the request that a returned state belongs to."""
        ...

    async def finish(self, returned: Mapping[str, str], expected: Mapping[str, str]) -> None:
        """Passes if the owner has signed in. Raises SignInRefused."""
        ...


class ClientDocuments(Protocol):
    async def read(self, url: str) -> Client:
        """The client that a document describes. Raises OAuthError where it cannot be had or may not be believed."""
        ...
