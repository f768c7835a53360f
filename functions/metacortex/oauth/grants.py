"""What an owner's approval gives to a client: one code, then pairs of access and refresh tokens.

A grant is one document, so that every step of its life is one guarded write and its end is one deletion. A credential is
`KIND_GRANT_SECRET`, where the secret has 256 bits; the document holds SHA-256 digests alone.
"""

import base64
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field, replace
from enum import StrEnum

SECOND_MS = 1_000
CODE_MS = 120 * SECOND_MS
ACCESS_MS = 60 * 60 * SECOND_MS
REFRESH_MS = 90 * 24 * 60 * 60 * SECOND_MS
LOST_ANSWER_MS = 30 * SECOND_MS
"""How long a client that never got its new tokens may ask for them again."""
ACCESS_TOKENS = 4
"""How many access tokens of a grant may be alive at once: a client that refreshes early keeps the one in use."""

_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_CREDENTIAL = re.compile(r"(?P<kind>mcc|mca|mcr)_(?P<grant>[A-Za-z0-9-]{22})_(?P<secret>[A-Za-z0-9_-]{43,90})")


class Kind(StrEnum):
    CODE = "mcc"
    ACCESS = "mca"
    REFRESH = "mcr"


@dataclass(frozen=True, slots=True)
class Credential:
    """A code or token as a client presents it."""

    kind: Kind
    grant_id: str
    secret: str = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> "Credential | None":
        found = _CREDENTIAL.fullmatch(text)
        return cls(Kind(found["kind"]), found["grant"], found["secret"]) if found else None

    def __str__(self) -> str:
        return f"{self.kind}_{self.grant_id}_{self.secret}"

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.secret.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """The code of a grant that no client has redeemed yet."""

    digest: str = field(repr=False)
    challenge: str
    """The S256 challenge of PKCE."""
    redirect_uri: str
    expires_at: int


@dataclass(frozen=True, slots=True)
class Access:
    digest: str = field(repr=False)
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refresh:
    """The refresh token that counts, and what recognises those before it.

    A refresh token carries its number and a tag made with `key`, so that one which was spent long ago can be told from one
    that never was. `salt` makes the pair that came last from the token before it, as often as it is asked for.
    """

    digest: str = field(repr=False)
    number: int
    key: str = field(repr=False)
    salt: str = field(default="", repr=False)
    spent_digest: str = field(default="", repr=False)
    rotated_at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One approval. Times are epoch milliseconds."""

    id: str
    client_id: str
    client_name: str
    profile_id: str
    profile_key: str = field(repr=False)
    """What tells the profile from another that is given its id later, or whose token was exchanged."""
    resource: str
    returns_to: str
    """The host or scheme that its answer went to, as the owner was shown it."""
    scopes: tuple[str, ...]
    created_at: int
    used_at: int
    expires_at: int
    code: Code | None = None
    """None once it is redeemed."""
    code_digest: str = field(default="", repr=False)
    """That of the code that was redeemed: who presents it again has stolen it, or was stolen from."""
    access: tuple[Access, ...] = ()
    refresh: Refresh | None = None

    def accepts(self, token: Credential, now: int) -> bool:
        """Whether an access token is alive, compared in constant time."""
        alive = [access for access in self.access if access.expires_at > now]
        return any([hmac.compare_digest(access.digest, token.digest) for access in alive])  # noqa: C419 - looks at each


@dataclass(frozen=True, slots=True)
class Pair:
    """What a client is given for a code or a refresh token."""

    access: str = field(repr=False)
    refresh: str = field(repr=False)


def new_id() -> str:
    """A grant's name, which its credentials show: random, without the underscore that divides them, and not with a dash at its
    head, by which a command would take it for an option."""
    while (name := _text(secrets.token_bytes(16)).replace("_", "-")).startswith("-"):
        pass
    return name


def new_secret() -> str:
    return _text(secrets.token_bytes(32))


def approved(grant: Grant, *, challenge: str, redirect_uri: str) -> tuple[Grant, str]:
    """A new grant with its code, and that code."""
    credential = Credential(Kind.CODE, grant.id, new_secret())
    code = Code(
        digest=credential.digest,
        challenge=challenge,
        redirect_uri=redirect_uri,
        expires_at=grant.created_at + CODE_MS,
    )
    return replace(grant, code=code, expires_at=code.expires_at), str(credential)


def redeemed(grant: Grant, now: int) -> tuple[Grant, Pair]:
    """The grant once its code is spent, and the first pair of tokens."""
    assert grant.code is not None
    key = new_secret()
    refresh = _refresh_token(grant.id, key, 1, new_secret())
    access = Credential(Kind.ACCESS, grant.id, new_secret())
    after = replace(
        grant,
        code=None,
        code_digest=grant.code.digest,
        access=(Access(access.digest, now + ACCESS_MS),),
        refresh=Refresh(digest=refresh.digest, number=1, key=key),
        used_at=now,
        expires_at=now + REFRESH_MS,
    )
    return after, Pair(str(access), str(refresh))


class Presented(StrEnum):
    """What a refresh token is to its grant."""

    CURRENT = "current"
    LOST = "lost"
    """The one before, within the time in which its answer may have been lost."""
    SPENT = "spent"
    UNKNOWN = "unknown"


def presented(grant: Grant, token: Credential, now: int) -> Presented:
    refresh = grant.refresh
    if refresh is None or token.kind is not Kind.REFRESH:
        return Presented.UNKNOWN
    if hmac.compare_digest(refresh.digest, token.digest):
        return Presented.CURRENT
    if hmac.compare_digest(refresh.spent_digest, token.digest):
        return Presented.LOST if now < refresh.rotated_at + LOST_ANSWER_MS else Presented.SPENT
    return Presented.SPENT if _is_ours(grant.id, refresh.key, token.secret) else Presented.UNKNOWN


def refreshed(grant: Grant, token: Credential, now: int) -> tuple[Grant, Pair]:
    """The grant once its current refresh token is spent, and the next pair."""
    assert grant.refresh is not None
    salt = new_secret()
    number = grant.refresh.number + 1
    pair, access, refresh = _pair(grant, token, salt, number)
    alive = [each for each in grant.access if each.expires_at > now][1 - ACCESS_TOKENS :]
    after = replace(
        grant,
        access=(*alive, Access(access.digest, now + ACCESS_MS)),
        refresh=replace(
            grant.refresh,
            digest=refresh.digest,
            number=number,
            salt=salt,
            spent_digest=token.digest,
            rotated_at=now,
        ),
        used_at=now,
        expires_at=now + REFRESH_MS,
    )
    return after, pair


def same_again(grant: Grant, token: Credential) -> Pair:
    """The pair that this spent token was exchanged for last: made anew from the token itself, since no secret is kept."""
    assert grant.refresh is not None
    return _pair(grant, token, grant.refresh.salt, grant.refresh.number)[0]


def _pair(grant: Grant, token: Credential, salt: str, number: int) -> tuple[Pair, Credential, Credential]:
    assert grant.refresh is not None
    access = Credential(Kind.ACCESS, grant.id, _derived(token.secret, salt, "access"))
    refresh = _refresh_token(grant.id, grant.refresh.key, number, _derived(token.secret, salt, "refresh"))
    return Pair(str(access), str(refresh)), access, refresh


def _refresh_token(grant_id: str, key: str, number: int, random: str) -> Credential:
    """43 random characters, the number, and a tag that says that both are of this grant."""
    body = f"{random}-{number}"
    return Credential(Kind.REFRESH, grant_id, f"{body}-{_tag(grant_id, key, body)}")


def _is_ours(grant_id: str, key: str, secret: str) -> bool:
    body, _, tag = secret.rpartition("-")
    return hmac.compare_digest(tag, _tag(grant_id, key, body))


def _tag(grant_id: str, key: str, body: str) -> str:
    return hmac.digest(key.encode(), f"{grant_id} {body}".encode(), "sha256").hex()[:24]


def _derived(secret: str, salt: str, purpose: str) -> str:
    return _text(hmac.digest(secret.encode(), f"{purpose} {salt}".encode(), "sha256"))


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def challenge_of(verifier: str) -> str:
    """The S256 challenge of a PKCE verifier (RFC 7636)."""
    return _text(hashlib.sha256(verifier.encode()).digest())


def is_challenge(text: str) -> bool:
    """Whether a text could be the S256 challenge of a verifier."""
    return _CHALLENGE.fullmatch(text) is not None
