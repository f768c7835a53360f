"""The owner's sign-in at Google, by Authlib: OpenID Connect's code flow with state, nonce and PKCE, all on the server."""

import asyncio
import hmac
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from authlib.integrations.starlette_client import OAuth

from metacortex.oauth.grants import new_secret
from metacortex.oauth.ports import SignInRefused

SECONDS = 10.0
# Google signs with this; what else a provider may offer, no signature among it, is not looked at.
ALGORITHMS = ("RS256",)

_AWAY = "The sign-in at Google could not be finished; try it again in a moment."
_CANCELLED = "The sign-in at Google was cancelled."
_NOT_THE_OWNER = "This Google account is not the owner's. Sign in with the owner's account."
_OTHER = "This sign-in belongs to another attempt; start it again here."

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class GoogleOwner:
    """Who the owner is at the provider: by their verified e-mail address, their subject, or both."""

    client_id: str
    client_secret: str = field(repr=False)
    email: str
    subject: str
    issuer: str


class GoogleSignIn:
    """The ProviderSignIn port. `base` is the origin of this installation; `seconds` is what each half of a sign-in may take."""

    def __init__(self, owner: GoogleOwner, base: str, seconds: float = SECONDS) -> None:
        self._owner = owner
        self._seconds = seconds
        self._returns_to = f"{base}/oauth/google/callback"
        self._provider: Any = OAuth().register(
            "google",
            client_id=owner.client_id,
            client_secret=owner.client_secret,
            server_metadata_url=f"{owner.issuer.removesuffix('/')}/.well-known/openid-configuration",
            client_kwargs={
                "scope": "openid email",
                "code_challenge_method": "S256",
                "timeout": seconds,
                "trust_env": False,
            },
        )

    async def begin(self, request_id: str) -> tuple[str, dict[str, str]]:
        # The request's own id is no secret to the page that it stands on; a state must be new with each attempt.
        state = f"{request_id}.{new_secret()}"
        async with _believing(self._seconds):
            await self._require_issuer()
            begun = await self._provider.create_authorization_url(
                self._returns_to, state=state, prompt="select_account"
            )
            return begun["url"], {"state": state, "nonce": begun["nonce"], "verifier": begun["code_verifier"]}

    def request_of(self, state: str) -> str:
        return state.partition(".")[0]

    async def finish(self, returned: Mapping[str, str], expected: Mapping[str, str]) -> None:
        if not hmac.compare_digest(returned.get("state", "").encode(), expected.get("state", "-").encode()):
            raise SignInRefused(_OTHER)
        if "code" not in returned:
            raise SignInRefused(_CANCELLED if returned.get("error") == "access_denied" else _AWAY)
        async with _believing(self._seconds):
            claims = await self._claims(returned["code"], expected)
        if not self._is_owner(claims):
            raise SignInRefused(_NOT_THE_OWNER)

    async def _claims(self, code: str, expected: Mapping[str, str]) -> Mapping[str, Any]:
        # Before the code and the secret are told to the address that the metadata names.
        await self._require_issuer()
        token = await self._provider.fetch_access_token(self._returns_to, code=code, code_verifier=expected["verifier"])
        claims = await self._provider.parse_id_token(
            token,
            nonce=expected["nonce"],
            claims_options={"iss": {"essential": True, "value": self._owner.issuer}},
        )
        # Alone: a token that is for others too may be one that they were given.
        if claims is None or claims["aud"] not in (self._owner.client_id, [self._owner.client_id]):
            raise SignInRefused(_AWAY)
        return claims

    async def _require_issuer(self) -> None:
        metadata = await self._provider.load_server_metadata()
        if metadata.get("issuer") != self._owner.issuer:
            # It would be kept otherwise, and asked for never again.
            metadata.clear()
            logger.warning("The provider's metadata names another issuer than the one that is set.")
            raise SignInRefused(_AWAY)
        # Authlib takes a provider at its word for what it signs with.
        metadata["id_token_signing_alg_values_supported"] = ALGORITHMS

    def _is_owner(self, claims: Mapping[str, Any]) -> bool:
        owner = self._owner
        if owner.subject and claims.get("sub") != owner.subject:
            return False
        if not owner.email:
            return bool(owner.subject)
        return claims.get("email_verified") is True and _is_same_email(str(claims.get("email", "")), owner.email)


@asynccontextmanager
async def _believing(seconds: float) -> AsyncGenerator[None]:
    """Around what a provider answers: whatever is wrong with it refuses the sign-in."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except SignInRefused:
        raise
    except Exception as error:  # noqa: BLE001 - what a lie breaks depends on the lie; its text may hold the token
        logger.warning("Google's sign-in cannot be believed: %s", type(error).__name__)
        raise SignInRefused(_AWAY) from None


def _is_same_email(one: str, other: str) -> bool:
    """In any case of its letters, as far as they are ASCII: elsewhere two letters can be one in lower case."""
    return one == other or (one.isascii() and one.lower() == other.lower())
