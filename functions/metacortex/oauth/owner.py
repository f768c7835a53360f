"""The owner: how they prove who they are, and how long that is believed."""

import asyncio
import hashlib
import math
from dataclasses import replace

from metacortex.events import Clock
from metacortex.oauth import grants
from metacortex.oauth.ports import OAuthStore, Session

SESSION_MS = 12 * 60 * 60 * 1000
COOKIE = "__session"
"""Firebase Hosting passes no other cookie on."""
FREE_ATTEMPTS = 5
FIRST_LOCK_MS = 30 * 1000
LONGEST_LOCK_MS = 60 * 60 * 1000
LONGEST_PASSPHRASE = 1_000


class Locked(Exception):
    """Too many wrong passphrases in a row; none is looked at for so many seconds more."""

    def __init__(self, seconds: int) -> None:
        super().__init__()
        self.seconds = seconds


class Owner:
    """Sessions of the one owner, and the passphrase that begins one. `passphrase_hash` is argon2id's; empty for none."""

    def __init__(self, store: OAuthStore, passphrase_hash: str, clock: Clock) -> None:
        self._store = store
        self._hash = passphrase_hash
        self._clock = clock
        # argon2 takes 64 MiB on purpose: one attempt at a time.
        self._one_at_a_time = asyncio.Lock()

    @property
    def has_passphrase(self) -> bool:
        return bool(self._hash)

    async def sign_in(self, way: str) -> str:
        """Begins a session, and answers the value of its cookie."""
        secret = grants.new_secret()
        now = self._clock()
        await self._store.add_session(
            Session(digest=_digest(secret), way=way, created_at=now, expires_at=now + SESSION_MS)
        )
        return secret

    async def session(self, cookie: str | None) -> Session | None:
        """The session of a cookie, if it is one that has not ended."""
        session = await self._store.session(_digest(cookie)) if cookie else None
        return session if session and session.expires_at > self._clock() else None

    async def knows(self, passphrase: str) -> bool:
        """Whether this is the passphrase. Raises Locked; each attempt is counted, on all instances, before it is looked at."""
        await self._count_attempt()
        async with self._one_at_a_time:
            right = await asyncio.to_thread(_matches, self._hash, passphrase)
        if right:
            await self._forgive()
        return right

    async def _count_attempt(self) -> None:
        while True:
            attempts = await self._store.attempts()
            now = self._clock()
            if attempts.locked_until > now:
                raise Locked(math.ceil((attempts.locked_until - now) / 1000))
            counted = replace(attempts, failures=attempts.failures + 1)
            if counted.failures >= FREE_ATTEMPTS:
                counted = replace(counted, locked_until=now + lock_of(counted.failures))
            if await self._store.set_attempts(counted):
                return

    async def _forgive(self) -> None:
        """After the right passphrase. Where another attempt came between, that one's count stays."""
        current = await self._store.attempts()
        await self._store.set_attempts(replace(current, failures=0, locked_until=0))


def lock_of(failures: int) -> int:
    """How long, in milliseconds, nothing is looked at after so many wrong passphrases in a row."""
    return min(FIRST_LOCK_MS * 2 ** min(failures - FREE_ATTEMPTS, 20), LONGEST_LOCK_MS)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _matches(passphrase_hash: str, passphrase: str) -> bool:
    from argon2 import PasswordHasher  # noqa: PLC0415 - only who signs in waits for it
    from argon2.exceptions import VerifyMismatchError  # noqa: PLC0415

    try:
        return PasswordHasher().verify(passphrase_hash, passphrase)
    except VerifyMismatchError:
        return False
