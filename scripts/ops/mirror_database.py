"""A whole Firestore database, read and written as the documents of mirrors."""

from collections.abc import AsyncGenerator, Collection, Generator, Sequence
from contextlib import aclosing, contextmanager
from datetime import UTC, datetime
from typing import Any

from google.api_core.exceptions import GoogleAPIError
from google.api_core.retry import AsyncRetry, if_exception_type
from google.auth.exceptions import GoogleAuthError
from google.cloud.firestore_v1.types import (
    BatchGetDocumentsResponse,
    Document,
    RunQueryResponse,
    StructuredQuery,
    Write,
)

from metacortex.adapters.firestore_client import RETRY, create_client
from ops.mirror_documents import DOCUMENTS, Record, document_of, record_of
from ops.mirror_manifest import is_of_sign_in
from ops.processes import OpsError
from ops.store_faults import PASSING, meaning

PAGE = 1_000
# The service gives up after seconds; long work waits for a minute.
PATIENT = AsyncRetry(if_exception_type(*PASSING), initial=0.2, maximum=5.0, timeout=60.0)
NAME = {"field_path": "__name__"}


class Database:
    """The default database of a project, or of the emulator. Every method raises OpsError where Firestore fails."""

    def __init__(self, project: str) -> None:
        self._project = project
        self._name = f"projects/{project}/databases/(default)"
        with self._explained():
            client = create_client(project)
        # The public client decodes documents into values that do not tell all of Firestore's apart.
        self._api = client._firestore_api  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        self._metadata = client._rpc_metadata  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]

    async def moment(self) -> datetime:
        """The time by Firestore's clock. Asking proves that the database exists and may be read."""
        request = {"database": self._name, "documents": [f"{self._name}/{DOCUMENTS}none/none"]}
        with self._explained():
            stream = await self._api.batch_get_documents(request, metadata=self._metadata, retry=RETRY)
            times = [BatchGetDocumentsResponse.pb(answer).read_time async for answer in stream]
        return times[0].ToDatetime(tzinfo=UTC)

    async def records(self, moment: datetime, *, sign_in: bool) -> AsyncGenerator[Record]:
        """Every document as it was at a moment within the last hour, in the order of their paths.

        Those of signing in are among them only with `sign_in`.
        """
        documents = self._documents(read_time=moment)
        async with aclosing(documents):
            async for document in documents:
                record = record_of(document, self._name)
                if sign_in or not is_of_sign_in(record.path):
                    yield record

    async def paths(self, *, sign_in: bool) -> AsyncGenerator[str]:
        """The path of every such document there is, in order. What changes meanwhile may be among them or not."""
        documents = self._documents(select={"fields": [NAME]})
        async with aclosing(documents):
            async for document in documents:
                path = record_of(document, self._name).path
                if sign_in or not is_of_sign_in(path):
                    yield path

    async def found(self, paths: Sequence[str]) -> dict[str, bytes]:
        """The digests of those of these documents that exist, by path."""
        names = [f"{self._name}/{DOCUMENTS}{path}" for path in paths]
        request = {"database": self._name, "documents": names}
        digests: dict[str, bytes] = {}
        with self._explained():
            stream = await self._api.batch_get_documents(request, metadata=self._metadata, retry=PATIENT)
            async for answer in stream:
                message: Any = BatchGetDocumentsResponse.pb(answer)
                if message.HasField("found"):
                    record = record_of(message.found, self._name)
                    digests[record.path] = record.digest()
        return digests

    async def put(self, records: Collection[Record]) -> None:
        """Make these documents, or replace them whole, in one commit."""
        documents = (document_of(record, self._name) for record in records)
        await self._commit([Write(update=Document.wrap(document)) for document in documents])

    async def delete(self, paths: Collection[str]) -> None:
        """Delete these documents in one commit."""
        await self._commit([Write(delete=f"{self._name}/{DOCUMENTS}{path}") for path in paths])

    async def _commit(self, writes: list[Write]) -> None:
        with self._explained():
            request = {"database": self._name, "writes": writes}
            await self._api.commit(request, metadata=self._metadata, retry=PATIENT)

    async def _documents(
        self, *, read_time: datetime | None = None, select: dict[str, Any] | None = None
    ) -> AsyncGenerator[Any]:
        """Every document of every collection, also of those below documents that do not exist, one page after the other.

        A page that breaks off goes on after the last document that arrived, unless none did.
        """
        query: dict[str, Any] = {
            "select": select,
            "from_": [{"all_descendants": True}],
            "order_by": [{"field": NAME, "direction": StructuredQuery.Direction.ASCENDING}],
            "limit": PAGE,
        }
        whole = False
        while not whole:
            arrived = 0
            try:
                async for document in self._page(query, read_time):
                    arrived += 1
                    query["start_at"] = {"values": [{"reference_value": document.name}], "before": False}
                    yield document
                whole = arrived < PAGE
            except (GoogleAPIError, GoogleAuthError) as error:
                if not (isinstance(error, PASSING) and arrived):
                    raise OpsError(meaning(error, self._project)) from error

    async def _page(self, query: dict[str, Any], read_time: datetime | None) -> AsyncGenerator[Any]:
        request = {"parent": f"{self._name}/documents", "structured_query": query, "read_time": read_time}
        stream = await self._api.run_query(request, metadata=self._metadata, retry=PATIENT)
        async for answer in stream:
            message: Any = RunQueryResponse.pb(answer)
            if message.HasField("document"):
                yield message.document

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except (GoogleAPIError, GoogleAuthError) as error:
            raise OpsError(meaning(error, self._project)) from error
