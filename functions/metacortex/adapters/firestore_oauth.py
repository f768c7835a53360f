"""What signing in keeps in Firestore: clients, requests, grants, and the owner's sessions. Credentials only as digests."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.async_collection import AsyncCollectionReference
from google.cloud.firestore_v1.base_document import DocumentSnapshot
from google.cloud.firestore_v1.base_query import FieldFilter

from metacortex.adapters.firestore_client import RETRY, answering, committed, timestamp
from metacortex.oauth.clients import Client
from metacortex.oauth.grants import Access, Code, Grant, Refresh
from metacortex.oauth.ports import Attempts, Request, Session, Stored
from metacortex.rules import is_document_id

CLIENTS = "oauth_clients"
REQUESTS = "oauth_requests"
GRANTS = "oauth_grants"
SESSIONS = "owner_sessions"
ATTEMPTS = "owner_attempts"
# Of registrations that nobody used, one more than comes is removed, so that their number falls back in any case.
REMOVED_AT_ONCE = 10
LISTED = 500


class FirestoreOAuth:
    """The OAuthStore port."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    def _in(self, name: str) -> AsyncCollectionReference:
        return self._client.collection(name)

    async def _read(self, collection: str, name: str) -> DocumentSnapshot | None:
        # Whatever a caller presents: an id that Firestore would refuse is that of nothing.
        if not is_document_id(name):
            return None
        async with answering():
            snapshot = await self._in(collection).document(name).get(retry=RETRY)
        return snapshot if snapshot.exists else None

    async def _write(self, collection: str, name: str, fields: Mapping[str, Any]) -> None:
        async with answering():
            await self._in(collection).document(name).set(dict(fields), retry=RETRY)

    # --- Clients ---

    async def client(self, client_id: str) -> Client | None:
        snapshot = await self._read(CLIENTS, client_id)
        return None if snapshot is None else _client(snapshot.to_dict() or {})

    async def add_client(self, client: Client, keep_unused: int) -> None:
        unused = self._in(CLIENTS).where(filter=FieldFilter("used", "==", False))  # noqa: FBT003
        async with answering():
            [[counted]] = await unused.count().get(retry=RETRY)
            surplus = min(int(counted.value) + 1 - keep_unused, REMOVED_AT_ONCE)
            oldest = await unused.order_by("registered_at").limit(surplus).get(retry=RETRY) if surplus > 0 else []
        batch = self._client.batch()
        batch.create(self._in(CLIENTS).document(client.id), asdict(client))
        for snapshot in oldest:
            # Unless the owner approves it at this moment.
            unchanged = self._client.write_option(last_update_time=snapshot.update_time)
            batch.delete(snapshot.reference, option=unchanged)
        if not await committed(batch):
            # The next registration removes what this one leaves.
            await self._write(CLIENTS, client.id, asdict(client))

    async def keep_client(self, client: Client) -> None:
        await self._write(CLIENTS, client.id, asdict(replace(client, used=True)))

    # --- Requests ---

    async def add_request(self, request: Request) -> None:
        await self._write(REQUESTS, request.id, _ending(asdict(request)))

    async def request(self, request_id: str) -> Request | None:
        snapshot = await self._read(REQUESTS, request_id)
        if snapshot is None:
            return None
        stored = _read_ending(snapshot)
        fields: dict[str, Any] = {**stored, "client": _client(stored["client"]), "scopes": tuple(stored["scopes"])}
        return Request(**fields)

    async def set_provider(self, request_id: str, provider: Mapping[str, str]) -> bool:
        batch = self._client.batch()
        batch.update(self._in(REQUESTS).document(request_id), {"provider": dict(provider)})
        return await committed(batch)

    async def take_request(self, request_id: str) -> bool:
        batch = self._client.batch()
        batch.delete(self._in(REQUESTS).document(request_id), option=self._client.write_option(exists=True))
        return await committed(batch)

    # --- Grants ---

    async def add_grant(self, grant: Grant) -> None:
        await self._write(GRANTS, grant.id, _ending(asdict(grant)))

    async def grant(self, grant_id: str) -> Stored | None:
        snapshot = await self._read(GRANTS, grant_id)
        return None if snapshot is None else Stored(_grant(snapshot), snapshot.update_time)

    async def replace_grant(self, stored: Stored, after: Grant) -> bool:
        batch = self._client.batch()
        unchanged = self._client.write_option(last_update_time=stored.revision)
        batch.update(self._in(GRANTS).document(after.id), _ending(asdict(after)), option=unchanged)
        return await committed(batch)

    async def remove_grant(self, grant_id: str) -> bool:
        batch = self._client.batch()
        batch.delete(self._in(GRANTS).document(grant_id), option=self._client.write_option(exists=True))
        return await committed(batch)

    async def grants(self) -> Sequence[Grant]:
        async with answering():
            snapshots = (
                await self._in(GRANTS).order_by("created_at", direction="DESCENDING").limit(LISTED).get(retry=RETRY)
            )
        return [_grant(snapshot) for snapshot in snapshots]

    # --- The owner ---

    async def add_session(self, session: Session) -> None:
        await self._write(SESSIONS, session.digest, _ending(asdict(session)))

    async def session(self, digest: str) -> Session | None:
        snapshot = await self._read(SESSIONS, digest)
        return None if snapshot is None else Session(**_read_ending(snapshot))

    async def remove_sessions(self) -> int:
        async with answering():
            found = [snapshot.reference async for snapshot in self._in(SESSIONS).select([]).stream(retry=RETRY)]
            for reference in found:
                await reference.delete(retry=RETRY)
        return len(found)

    async def attempts(self) -> Attempts:
        snapshot = await self._read(ATTEMPTS, "passphrase")
        return Attempts() if snapshot is None else Attempts(**(snapshot.to_dict() or {}), revision=snapshot.update_time)

    async def forget_attempts(self) -> None:
        async with answering():
            await self._in(ATTEMPTS).document("passphrase").delete(retry=RETRY)

    async def set_attempts(self, attempts: Attempts) -> bool:
        document = self._in(ATTEMPTS).document("passphrase")
        fields = {"failures": attempts.failures, "locked_until": attempts.locked_until}
        batch = self._client.batch()
        if attempts.revision is None:
            batch.create(document, fields)
        else:
            batch.update(document, fields, option=self._client.write_option(last_update_time=attempts.revision))
        return await committed(batch)


def _client(stored: Mapping[str, Any]) -> Client:
    return Client(
        id=stored["id"],
        name=stored["name"],
        redirect_uris=tuple(stored["redirect_uris"]),
        registered_at=stored["registered_at"],
        used=stored["used"],
    )


def _ending(fields: dict[str, Any]) -> dict[str, Any]:
    """A record whose end is a Timestamp, as a TTL policy reads it."""
    return fields | {"expires_at": timestamp(fields["expires_at"])}


def _read_ending(snapshot: DocumentSnapshot) -> dict[str, Any]:
    stored = snapshot.to_dict() or {}
    return stored | {"expires_at": round(stored["expires_at"].timestamp() * 1000)}


def _grant(snapshot: DocumentSnapshot) -> Grant:
    stored = _read_ending(snapshot)
    code, refresh = stored["code"], stored["refresh"]
    fields: dict[str, Any] = {
        **stored,
        "scopes": tuple(stored["scopes"]),
        "code": Code(**code) if code else None,
        "access": tuple(Access(**access) for access in stored["access"]),
        "refresh": Refresh(**refresh) if refresh else None,
    }
    return Grant(**fields)
