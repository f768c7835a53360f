"""The connection to Firestore: one client per process, its deadline, and its errors in the domain's terms."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc.aio
from google.api_core import exceptions
from google.api_core.retry import AsyncRetry, if_exception_type
from google.auth.exceptions import GoogleAuthError
from google.cloud.firestore_v1.async_batch import AsyncWriteBatch
from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.base_document import BaseDocumentReference
from google.cloud.firestore_v1.services.firestore import FirestoreAsyncClient
from google.cloud.firestore_v1.services.firestore.transports.grpc_asyncio import FirestoreGrpcAsyncIOTransport
from google.cloud.firestore_v1.types import (
    CommitRequest,
    MapValue,
    RunQueryRequest,
    RunQueryResponse,
    Value,
    Write,
    WriteResult,
)
from google.cloud.firestore_v1.vector import Vector

from metacortex.aside import aside
from metacortex.errors import MetaCortexError, RateLimited, TimedOut, TooLarge, Unavailable

DEADLINE_SECONDS = 15.0
# The library's own policy goes on for minutes; a caller waits for seconds. Every call of the store is safe to repeat.
RETRY = AsyncRetry(if_exception_type(exceptions.ServiceUnavailable), initial=0.1, maximum=1.0, timeout=5.0)
# A store that was away is looked for every second: gRPC alone would come to wait for two minutes between attempts.
CHANNEL = (
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # As the library has it. Pings go out only beside calls, which is how it must be: an idle instance has no CPU to answer with.
    ("grpc.keepalive_time_ms", 30_000),
    # A connection that died while nobody used it, as an idle one may, is given up after 5 s without a sign of life, so that the
    # call that finds it dead is repeated on another one before its deadline. The library would wait for 20 s.
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
)
# The library takes some 40 µs a write to put a commit together and to read its results.
MANY_WRITES = 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_TRY_AGAIN = Unavailable("The store cannot be reached at the moment; the same call is safe to repeat in a few seconds.")
_TOO_SLOW = TimedOut("The store did not answer in time; the same call is safe to repeat.")
_BUSY = RateLimited("The store asks for fewer requests at the moment; repeat the same call in a minute.")
_REFUSED = Unavailable("The store refuses this service; its owner must check the project, the database and the role.")
_NO_INDEX = Unavailable("The store has no index for this query; its owner must deploy firestore.indexes.json.")
_TOO_LARGE = "The store cannot keep so much about one memory; shorten its text, artifact_refs and derived_from."

logger = logging.getLogger(__name__)

# What each error of the client library means here; the closest class in its method resolution order decides.
ERRORS: Mapping[type[BaseException], MetaCortexError] = {
    exceptions.ServiceUnavailable: _TRY_AGAIN,
    exceptions.ServerError: _TRY_AGAIN,
    exceptions.Conflict: _TRY_AGAIN,
    exceptions.Cancelled: _TRY_AGAIN,
    exceptions.RetryError: _TRY_AGAIN,
    exceptions.GatewayTimeout: _TOO_SLOW,
    TimeoutError: _TOO_SLOW,
    exceptions.TooManyRequests: _BUSY,
    exceptions.Unauthorized: _REFUSED,
    exceptions.Forbidden: _REFUSED,
    exceptions.NotFound: _REFUSED,
    GoogleAuthError: _REFUSED,
    exceptions.FailedPrecondition: _NO_INDEX,
}


# The messages themselves, without the library's classes around them.
_Value, _Map = Value.pb(), MapValue.pb()


def vector_value(vector: Iterable[float]) -> Any:
    """A vector in Firestore's own message: the library takes 4 ms to make one, number by number."""
    values = {"values": [_Value(double_value=value) for value in vector]}
    return _Value(
        map_value=_Map(fields={"__type__": _Value(string_value="__vector__"), "value": _Value(array_value=values)})
    )


class _Batch(AsyncWriteBatch):
    """The library's batch, which writes new vectors faster, and whose commits of many writes do not hold up the event loop."""

    def create(self, reference: BaseDocumentReference, document_data: dict[str, Any]) -> None:
        vectors = {name: value for name, value in document_data.items() if isinstance(value, Vector)}
        super().create(reference, {name: value for name, value in document_data.items() if name not in vectors})
        fields = Write.pb(self._write_pbs[-1]).update.fields
        for name, vector in vectors.items():
            fields[name].CopyFrom(vector_value(vector))

    async def commit(self, retry: Any = RETRY, timeout: float | None = None) -> list[WriteResult]:  # noqa: ASYNC109 - as it is inherited
        """Commits once. Of many writes the results, a moment for each, are left unread."""
        if len(self._write_pbs) <= MANY_WRITES:
            return await super().commit(retry, timeout)
        request = await aside(self._request)
        client: Any = self._client
        await client._firestore_api.commit(request=request, retry=retry, timeout=timeout, metadata=client._rpc_metadata)  # noqa: SLF001 - as the library does it
        return []

    def _request(self) -> CommitRequest:
        message = CommitRequest.pb()(database=self._client._database_string)  # noqa: SLF001 - as the library does it
        for write in self._write_pbs:
            # One at a time, so that other threads get the interpreter in between.
            message.writes.append(Write.pb(write))
        return CommitRequest.wrap(message)


class _Client(AsyncClient):
    """The library's client with a channel of our own options, for which the library has no argument."""

    def batch(self) -> _Batch:
        return _Batch(self)

    @property
    def _firestore_api(self) -> FirestoreAsyncClient:
        if self._firestore_api_internal is None:  # pyright: ignore[reportUnnecessaryComparison]
            channel = self._channel()
            transport = FirestoreGrpcAsyncIOTransport(host=self._target, channel=channel)
            self._firestore_api_internal = FirestoreAsyncClient(transport=transport)
        return self._firestore_api_internal

    def _channel(self) -> grpc.aio.Channel:
        if self._emulator_host:
            return grpc.aio.insecure_channel(self._emulator_host, CHANNEL)
        return FirestoreGrpcAsyncIOTransport.create_channel(
            self._target,
            credentials=self._credentials,  # pyright: ignore[reportArgumentType]
            options=CHANNEL,
        )

    async def run_query(self, query: Any) -> AsyncIterable[RunQueryResponse]:
        """Sends a query as it is."""
        request = RunQueryRequest(parent=f"{self._database_string}/documents", structured_query=query)
        return await self._firestore_api.run_query(request=request, metadata=self._rpc_metadata)


async def run_query(client: AsyncClient, query: Any) -> AsyncIterable[RunQueryResponse]:
    """The answers to a query in Firestore's own message, which the library's queries hide."""
    assert isinstance(client, _Client)
    return await client.run_query(query)


def create_client(project: str | None) -> AsyncClient:
    """A client that connects with its first call. It belongs to the event loop of that call."""
    return _Client(project=project)


@asynccontextmanager
async def answering() -> AsyncGenerator[None]:
    """Around each call of the store: gives it a deadline, and raises its failures in the domain's terms."""
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            yield
    except (exceptions.GoogleAPIError, GoogleAuthError, TimeoutError) as error:
        meaning = next((ERRORS[kind] for kind in type(error).__mro__ if kind in ERRORS), None)
        if meaning is None:
            raise
        raise type(meaning)(meaning.message) from error


async def committed(batch: AsyncWriteBatch) -> bool:
    """Commits all or nothing; False where a precondition no longer holds. Raises TooLarge where the store cannot keep it."""
    async with answering():
        try:
            await batch.commit(retry=RETRY)
        except (exceptions.AlreadyExists, exceptions.FailedPrecondition, exceptions.NotFound):
            return False
        except exceptions.InvalidArgument as error:
            logger.warning("The store refuses what is to be stored: %s", error.message)
            raise TooLarge(_TOO_LARGE) from error
    return True


def timestamp(milliseconds: int) -> datetime:
    """The Firestore Timestamp that a TTL policy reads."""
    return _EPOCH + timedelta(milliseconds=milliseconds)
