"""Signing in: what a client may ask for, what the owner's approval gives it, and when that ends."""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

from metacortex.events import Clock
from metacortex.oauth import grants
from metacortex.oauth.clients import REDIRECT_URIS, Client, shown_name
from metacortex.oauth.errors import Gone, OAuthError, invalid_grant, invalid_request, invalid_target
from metacortex.oauth.grants import Credential, Grant, Kind, Pair, Presented
from metacortex.oauth.ports import ClientDocuments, OAuthStore, Request, Stored
from metacortex.oauth.urls import is_redirect, is_same_resource, shown_host
from metacortex.profiles import Profile

SCOPE = "memory"
OFFLINE = "offline_access"
SCOPES = (SCOPE, OFFLINE)
REQUEST_MS = 10 * 60 * 1000
UNUSED_CLIENTS = 200
VERIFIED_SECONDS = 60
VERIFIED_TOKENS = 500
ATTEMPTS = 5
LONGEST_STATE = 2_000

logger = logging.getLogger(__name__)

# What happened, and of which client: for the audit trail.
Note = Callable[[str, Mapping[str, object]], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The parameters of an authorization request, as they were sent."""

    client_id: str
    redirect_uri: str | None
    response_type: str | None
    code_challenge: str | None
    code_challenge_method: str | None
    state: str | None
    scope: str | None
    resource: str | None
    fault: OAuthError | None = None
    """What is wrong with how they were sent."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Where the owner's browser is sent with the outcome of a request."""

    redirect_uri: str
    parameters: Mapping[str, str]


class Authorization:
    """The authorization server of one installation. `base` is its origin, and the issuer of all it gives."""

    def __init__(  # noqa: PLR0913 - each is a part of its own
        self,
        store: OAuthStore,
        documents: ClientDocuments,
        profiles: Mapping[str, Profile],
        *,
        base: str,
        note: Note,
        clock: Clock,
    ) -> None:
        self._store = store
        self._documents = documents
        self._profiles = profiles
        self.base = base
        self._note = note
        self._clock = clock
        # Several at once would find the same clients to be the oldest, and remove too few.
        self._one_registration = asyncio.Lock()
        self._verified: OrderedDict[str, tuple[Grant, int]] = OrderedDict()

    def resource_of(self, profile_id: str) -> str:
        """The address of a profile's endpoint: what its tokens are for."""
        return f"{self.base}/clients/{profile_id}/mcp"

    def has_endpoint(self, profile_id: str) -> bool:
        profile = self._profiles.get(profile_id)
        return profile is not None and not profile.is_admin

    def _profile_key(self, profile_id: str) -> str:
        """What a grant remembers its profile by; nothing where there is no such profile."""
        profile = self._profiles.get(profile_id)
        return hashlib.sha256(profile.token_digest).hexdigest() if profile else ""

    def profile_of(self, resource: str) -> Profile | None:
        """The profile whose endpoint a resource indicator names."""
        return next(
            (
                profile
                for profile in self._profiles.values()
                if not profile.is_admin and is_same_resource(resource, self.resource_of(profile.id))
            ),
            None,
        )

    # --- Clients ---

    async def client(self, client_id: str) -> Client | None:
        """A registered client, or the one that the document at an https address describes."""
        if client_id.startswith("https://"):
            return await self._documents.read(client_id)
        return await self._store.client(client_id)

    async def is_known(self, client_id: str) -> bool:
        """Whether a client may ask for tokens. A described one is known by its grant alone: its document proves nothing here,
        and neither a host that is away nor a stranger's address may be of any consequence where nobody is signed in."""
        return client_id.startswith("https://") or await self.client(client_id) is not None

    async def register(self, metadata: Mapping[str, object]) -> Client:
        """A new client, whatever others of the same name there are. Raises OAuthError."""
        redirects = metadata.get("redirect_uris")
        if not isinstance(redirects, list) or not redirects or len(redirects) > REDIRECT_URIS:
            raise OAuthError("invalid_redirect_uri", f"redirect_uris must list 1 to {REDIRECT_URIS} addresses.")
        if not all(isinstance(uri, str) and is_redirect(uri) for uri in redirects):
            raise OAuthError(
                "invalid_redirect_uri",
                "Each of redirect_uris must be https, http on a loopback address, or a scheme of the application's own "
                "that is a domain name turned round (com.example.app:/path), without a fragment.",
            )
        name = shown_name(metadata.get("client_name"), "An unnamed client")
        client = Client(
            id=grants.new_id(),
            name=name,
            redirect_uris=tuple(redirects),
            registered_at=self._clock(),
        )
        async with self._one_registration:
            await self._store.add_client(client, UNUSED_CLIENTS)
        return client

    # --- The owner's approval ---

    async def begin(self, asked: Asked) -> Request:
        """Stores a request, to wait for the owner.

        Raises Gone where there is no client or no address that the answer may go to, and Refusal where there is one.
        """
        client = await self._asking(asked.client_id)
        redirect_uri = client.redirect(asked.redirect_uri)
        if redirect_uri is None:
            raise Gone(
                "The address to return to is not one that this application has registered. "
                "Remove the connection in the application and add it again."
            )
        try:
            profile, scopes = self._wanted(asked)
        except OAuthError as error:
            raise Refusal(Answer(redirect_uri, self._failure(error, asked.state))) from None
        request = Request(
            id=grants.new_secret(),
            # A stranger's request takes little room.
            client=replace(client, redirect_uris=(redirect_uri,)),
            profile_id=profile.id,
            resource=self.resource_of(profile.id),
            redirect_uri=redirect_uri,
            state=asked.state,
            scopes=scopes,
            challenge=asked.code_challenge or "",
            expires_at=self._clock() + REQUEST_MS,
        )
        await self._store.add_request(request)
        return request

    async def _asking(self, client_id: str) -> Client:
        try:
            client = await self.client(client_id)
        except OAuthError as error:
            if error.code == "temporarily_unavailable":
                raise
            raise Gone(
                f"The application does not describe itself in a way that can be believed: {error.description}"
            ) from None
        if client is None:
            raise Gone(
                "This application is not known here any more. Remove the connection in the application and add it again."
            )
        return client

    def _wanted(self, asked: Asked) -> tuple[Profile, tuple[str, ...]]:
        if asked.fault is not None:
            raise asked.fault
        if asked.response_type is None:
            raise invalid_request("response_type is required.")
        if asked.response_type != "code":
            raise OAuthError("unsupported_response_type", "response_type must be code.")
        if asked.code_challenge_method != "S256" or not grants.is_challenge(asked.code_challenge or ""):
            raise invalid_request("A code_challenge by S256 (code_challenge_method) is required.")
        if len(asked.state or "") > LONGEST_STATE:
            raise invalid_request(f"state has more than {LONGEST_STATE} characters.")
        profile = self._target(asked.resource)
        return profile, granted_scopes(asked.scope)

    def _target(self, resource: str | None) -> Profile:
        # A client that read the document of the root knows no other address.
        if resource is not None and not is_same_resource(resource, self.base):
            profile = self.profile_of(resource)
            if profile is None:
                raise invalid_target()
            return profile
        scoped = [profile for profile in self._profiles.values() if not profile.is_admin]
        if len(scoped) != 1:
            raise OAuthError("invalid_target", "Name the endpoint in resource: there is more than one here.")
        return scoped[0]

    async def waiting(self, request_id: str) -> Request:
        """A request that the owner may still answer. Raises Gone."""
        request = await self._store.request(request_id) if request_id else None
        if request is None:
            raise Gone(ANSWERED)
        if request.expires_at <= self._clock() or request.profile_id not in self._profiles:
            raise Gone(EXPIRED)
        return request

    async def remember(self, request: Request, provider: Mapping[str, str]) -> None:
        """Keeps what a sign-in that has begun must come back with. Raises Gone."""
        if not await self._store.set_provider(request.id, provider):
            raise Gone(ANSWERED)

    async def note_sign_in(self, way: str) -> None:
        await self._note("owner_signed_in", {"way": way})

    async def note_refused_sign_in(self, way: str) -> None:
        await self._note("owner_sign_in_refused", {"way": way})

    async def approve(self, request: Request) -> Answer:
        """Gives the client a code, once. Raises Gone where the request was answered before."""
        await self._take(request)
        now = self._clock()
        grant = Grant(
            id=grants.new_id(),
            client_id=request.client.id,
            client_name=request.client.name,
            profile_id=request.profile_id,
            profile_key=self._profile_key(request.profile_id),
            resource=request.resource,
            returns_to=shown_host(request.redirect_uri),
            scopes=request.scopes,
            created_at=now,
            used_at=now,
            expires_at=now,
        )
        grant, code = grants.approved(
            grant,
            challenge=request.challenge,
            redirect_uri=request.redirect_uri,
        )
        await self._store.add_grant(grant)
        if not request.client.is_described:
            # Its registration may have been pushed out meanwhile.
            await self._store.keep_client(await self._store.client(request.client.id) or request.client)
        await self._note("grant_approved", _told(grant))
        return Answer(request.redirect_uri, self._outcome({"code": code}, request.state))

    async def deny(self, request: Request) -> Answer:
        await self._take(request)
        await self._note("grant_denied", {"client_id": request.profile_id, "application": request.client.name})
        error = OAuthError("access_denied", "The owner did not approve.")
        return Answer(request.redirect_uri, self._failure(error, request.state))

    async def _take(self, request: Request) -> None:
        if not await self._store.take_request(request.id):
            raise Gone(ANSWERED)

    def _failure(self, error: OAuthError, state: str | None) -> dict[str, str]:
        return self._outcome({"error": error.code, "error_description": error.description}, state)

    def _outcome(self, parameters: Mapping[str, str], state: str | None) -> dict[str, str]:
        # RFC 9207: who answers is told, so that a client of several servers cannot be led astray.
        return {**parameters, **({} if state is None else {"state": state}), "iss": self.base}

    # --- Tokens ---

    async def redeem(
        self, code: str, *, client_id: str, redirect_uri: str | None, verifier: str, resource: str | None
    ) -> tuple[Grant, Pair]:
        """The first tokens of a grant, for its code. A code that is presented twice ends what it gave. Raises OAuthError."""
        credential = Credential.parse(code)
        if credential is None or credential.kind is not Kind.CODE:
            raise invalid_grant(_DEAD_CODE)
        after, pair = None, None
        for _ in range(ATTEMPTS):
            stored = await self._store.grant(credential.grant_id)
            grant = self._of_client(stored, client_id, _DEAD_CODE)
            if pair is not None and grant == after:
                # A commit that the client library repeated has met its own success.
                return grant, pair
            if grant.code is None and grant.code_digest == credential.digest:
                await self.end(grant, "grant_code_replayed")
                raise invalid_grant(_DEAD_CODE)
            self._check(grant, credential, redirect_uri, verifier)
            self._require_target(grant, resource)
            after, pair = grants.redeemed(grant, self._clock())
            assert stored is not None
            if await self._store.replace_grant(stored, after):
                return after, pair
        raise invalid_grant(_DEAD_CODE)

    def _check(self, grant: Grant, credential: Credential, redirect_uri: str | None, verifier: str) -> None:
        code = grant.code
        if code is None or code.digest != credential.digest or code.expires_at <= self._clock():
            raise invalid_grant(_DEAD_CODE)
        # OAuth 2.1 leaves it out here, for PKCE does what it was for.
        if redirect_uri is not None and redirect_uri != code.redirect_uri:
            raise invalid_grant("redirect_uri is not the one that was authorized.")
        if grants.challenge_of(verifier) != code.challenge:
            raise invalid_grant("code_verifier does not belong to the code_challenge.")

    async def refresh(
        self, token: str, *, client_id: str, scope: str | None, resource: str | None
    ) -> tuple[Grant, Pair]:
        """The next tokens of a grant, for its refresh token. One that was spent before ends the grant. Raises OAuthError."""
        credential = Credential.parse(token)
        if credential is None:
            raise invalid_grant(_DEAD_REFRESH)
        for _ in range(ATTEMPTS):
            stored = await self._store.grant(credential.grant_id)
            grant = self._of_client(stored, client_id, _DEAD_REFRESH)
            seen = grants.presented(grant, credential, self._clock())
            if seen is Presented.UNKNOWN:
                raise invalid_grant(_DEAD_REFRESH)
            if seen is Presented.SPENT:
                await self.end(grant, "grant_refresh_replayed")
                raise invalid_grant(_DEAD_REFRESH)
            self._require_target(grant, resource)
            _require_scopes(grant, scope)
            if seen is Presented.LOST:
                return grant, grants.same_again(grant, credential)
            after, pair = grants.refreshed(grant, credential, self._clock())
            assert stored is not None
            if await self._store.replace_grant(stored, after):
                return after, pair
        raise invalid_grant(_DEAD_REFRESH)

    def _of_client(self, stored: Stored | None, client_id: str, says: str) -> Grant:
        """The grant, where it is alive and this client's. Another client's credential is as good as none."""
        if stored is None or stored.grant.client_id != client_id or stored.grant.expires_at <= self._clock():
            raise invalid_grant(says)
        if stored.grant.profile_key != self._profile_key(stored.grant.profile_id):
            raise invalid_grant(says)
        return stored.grant

    def _require_target(self, grant: Grant, resource: str | None) -> None:
        if resource is not None and not any(is_same_resource(resource, own) for own in (grant.resource, self.base)):
            raise invalid_target()

    async def verify(self, token: str, profile_id: str) -> bool:
        """Whether an access token opens a profile's endpoint. What was found out is believed for 60 s."""
        credential = Credential.parse(token)
        if credential is None or credential.kind is not Kind.ACCESS:
            return False
        grant = await self._grant_of(credential)
        if grant is None or grant.profile_id != profile_id or grant.profile_key != self._profile_key(profile_id):
            return False
        return is_same_resource(grant.resource, self.resource_of(profile_id)) and grant.accepts(
            credential, self._clock()
        )

    async def _grant_of(self, credential: Credential) -> Grant | None:
        now = self._clock()
        key = hashlib.sha256(str(credential).encode()).hexdigest()
        known = self._verified.get(key)
        if known is not None and now < known[1]:
            return known[0]
        stored = await self._store.grant(credential.grant_id)
        if stored is None or not stored.grant.accepts(credential, now):
            self._verified.pop(key, None)
            return None
        self._verified[key] = (stored.grant, now + VERIFIED_SECONDS * 1000)
        self._verified.move_to_end(key)
        if len(self._verified) > VERIFIED_TOKENS:
            self._verified.popitem(last=False)
        return stored.grant

    async def revoke(self, token: str, client_id: str) -> None:
        """Ends the grant of a token (RFC 7009), if it is this client's. One that is not known needs no ending."""
        credential = Credential.parse(token)
        stored = await self._store.grant(credential.grant_id) if credential else None
        if credential is None or stored is None or stored.grant.client_id != client_id:
            return
        is_refresh = grants.presented(stored.grant, credential, self._clock()) is not Presented.UNKNOWN
        if is_refresh or stored.grant.accepts(credential, self._clock()):
            await self.end(stored.grant, "grant_revoked_by_client")

    async def end(self, grant: Grant, why: str) -> None:
        """Ends a grant, and what this instance believes of it."""
        await self._store.remove_grant(grant.id)
        self._verified = OrderedDict((key, known) for key, known in self._verified.items() if known[0].id != grant.id)
        await self._note(why, _told(grant))


EXPIRED = (
    "This sign-in has expired without an answer, so nothing was given away. "
    "Go back to the application and connect again."
)
ANSWERED = (
    "This sign-in was answered already, or is long gone. The first answer holds. "
    "Go back to the application; if it is not connected, connect again."
)
_DEAD_CODE = "The code is not valid any more; authorize again."
_DEAD_REFRESH = "The refresh token is not valid any more; authorize again."


@dataclass(eq=False)
class Refusal(Exception):
    """A request that is refused before the owner sees it, and what its client is told."""

    answer: Answer


def granted_scopes(asked: str | None) -> tuple[str, ...]:
    """The scopes of a grant: what is asked for and exists here, and never less than the use of the endpoint."""
    names = (asked or "").split()
    return (SCOPE, *([OFFLINE] if OFFLINE in names else []))


def _require_scopes(grant: Grant, asked: str | None) -> None:
    if any(scope not in {*grant.scopes, *SCOPES} for scope in (asked or "").split()):
        raise OAuthError("invalid_scope", "scope asks for more than was granted.")


def _told(grant: Grant) -> dict[str, object]:
    return {"client_id": grant.profile_id, "application": grant.client_name, "grant_id": grant.id}
