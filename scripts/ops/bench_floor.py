"""The floor of a call: the same calls of Firestore and of the model in the same steps, with nothing of ours around them.

They are repeated in two ways. *Bare* is with Google's own clients, google-cloud-firestore and google-genai, from Python values
to Python values: what these clients cost counts as theirs. *Wire* sends the recorded bytes over gRPC and HTTP and looks into
no answer: what is between the two is the price of the clients. A step begins when all of the one before is answered; the
service may begin earlier, and may be faster for it. What is written gets an id of its own each time, of the same length.
"""

import asyncio
import json
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import grpc.aio
import httpx2
from google.cloud.firestore_v1.async_batch import AsyncWriteBatch
from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.async_query import AsyncQuery
from google.cloud.firestore_v1.async_vector_query import AsyncVectorQuery
from google.cloud.firestore_v1.base_query import FieldFilter
from google.cloud.firestore_v1.base_vector_query import DistanceMeasure
from google.cloud.firestore_v1.types import (
    BatchGetDocumentsRequest,
    CommitRequest,
    RunAggregationQueryRequest,
    RunQueryRequest,
    StructuredQuery,
    Write,
)
from google.cloud.firestore_v1.vector import Vector
from google.genai import Client
from google.genai.types import Content, EmbedContentConfig, HttpOptions

from ops.bench_load import Timing
from ops.bench_proxy import UNLIMITED, Exchange, decoded
from ops.bench_record import ModelCall, Step
from ops.bench_servers import API_KEY, ModelServer
from ops.processes import OpsError

Call = Callable[[], Awaitable[object]]
Repeated = Sequence[Sequence[Call]]
"""The steps of one call of the service, ready to be repeated."""
Repeater = Callable[[Exchange | ModelCall], Awaitable[Call]]


async def prepare(recorded: Sequence[Sequence[Step]], repeater: Repeater) -> list[Repeated]:
    return [[[await repeater(each) for each in step] for step in steps] for steps in recorded]


async def repeat(floors: Sequence[Repeated], count: int, callers: int) -> Timing:
    """Repeats recorded calls in turn, `count` in all, from so many callers at once."""
    waiting = deque(floors[number % len(floors)] for number in range(count))
    latencies: list[float] = []

    async def work() -> None:
        while waiting:
            steps = waiting.popleft()
            began = time.perf_counter()
            for step in steps:
                await _together(step)
            latencies.append((time.perf_counter() - began) * 1000)

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(callers)))
    return Timing(callers=callers, latencies=tuple(latencies), seconds=time.perf_counter() - began)


async def _together(step: Sequence[Call]) -> None:
    if len(step) == 1:
        await step[0]()
    else:
        await asyncio.gather(*(call() for call in step))


# --- As bytes ---


class Wire:
    """Repeats calls as the bytes that were recorded."""

    def __init__(self, emulator: str, model: ModelServer) -> None:
        self._channel = grpc.aio.insecure_channel(emulator, UNLIMITED)
        self._http = httpx2.AsyncClient(base_url=model.url, trust_env=False, timeout=60)

    async def __call__(self, recorded: Exchange | ModelCall) -> Call:
        if isinstance(recorded, ModelCall):
            return self._posted(recorded)
        return self._sent(recorded)

    def _posted(self, recorded: ModelCall) -> Call:
        body = json.dumps(recorded.body).encode()

        async def call() -> None:
            await self._http.post(recorded.path, content=body, headers={"Content-Type": "application/json"})

        return call

    def _sent(self, recorded: Exchange) -> Call:
        send = self._channel.unary_stream(recorded.method, None, None)
        written = _written_ids(recorded)

        async def call() -> None:
            request = recorded.request
            for known in written:
                request = request.replace(known.encode(), _like(known).encode())
            async for _ in send(request, metadata=recorded.metadata):
                pass

        return call

    async def close(self) -> None:
        await self._channel.close(None)
        await self._http.aclose()


def _written_ids(recorded: Exchange) -> list[str]:
    if recorded.name != "Commit":
        return []
    return [write.update.name.rpartition("/")[2] for write in decoded(CommitRequest, recorded.request).writes]


def _like(known: str) -> str:
    """A new id of the same length."""
    return secrets.token_hex(len(known))[: len(known)]


# --- With Google's clients ---


class Bare:
    """Repeats calls with Google's own clients, as their documentation shows them."""

    def __init__(self, project: str, model: ModelServer) -> None:
        self._firestore = AsyncClient(project=project)
        self._genai = Client(vertexai=False, api_key=API_KEY, http_options=HttpOptions(base_url=model.url))

    async def __call__(self, recorded: Exchange | ModelCall) -> Call:
        if isinstance(recorded, ModelCall):
            return self._embedded(recorded)
        match recorded.name:
            case "BatchGetDocuments":
                return self._read(decoded(BatchGetDocumentsRequest, recorded.request))
            case "RunQuery":
                return self._queried(decoded(RunQueryRequest, recorded.request).structured_query)
            case "RunAggregationQuery":
                return self._counted(decoded(RunAggregationQueryRequest, recorded.request))
            case "Commit":
                return await self._committed(decoded(CommitRequest, recorded.request))
            case _:
                raise _unknown(f"Firestore's {recorded.name}")

    def _embedded(self, recorded: ModelCall) -> Call:
        model, _, verb = recorded.path.rpartition("/")[2].partition(":")
        if verb != "batchEmbedContents":
            raise _unknown(verb)
        asked: list[dict[str, Any]] = recorded.body["requests"]

        async def call() -> object:
            answer = await self._genai.aio.models.embed_content(
                model=model,
                contents=[Content.model_validate(each["content"]) for each in asked],
                config=EmbedContentConfig(output_dimensionality=asked[0]["outputDimensionality"]),
            )
            return [embedding.values for embedding in answer.embeddings or []]

        return call

    def _read(self, request: BatchGetDocumentsRequest) -> Call:
        documents = [self._firestore.document(_path(name)) for name in request.documents]
        fields = list(request.mask.field_paths) or None

        async def call() -> object:
            return [snapshot.to_dict() async for snapshot in self._firestore.get_all(documents, fields)]

        return call

    def _queried(self, asked: StructuredQuery) -> Call:
        query = _near(self._query(asked), asked)

        async def call() -> object:
            return [snapshot.to_dict() async for snapshot in query.stream()]

        return call

    def _counted(self, request: RunAggregationQueryRequest) -> Call:
        query = self._query(request.structured_aggregation_query.structured_query).count()

        async def call() -> object:
            return await query.get()

        return call

    def _query(self, asked: StructuredQuery) -> AsyncQuery:
        if asked.order_by or len(asked.from_) != 1:
            raise _unknown("such a query")
        query: AsyncQuery = self._firestore.collection(asked.from_[0].collection_id)  # pyright: ignore[reportAssignmentType]
        for path, value in _equalities(asked.where):
            query = query.where(filter=FieldFilter(path, "==", value))
        if asked.select:
            query = query.select([field.field_path for field in asked.select.fields])
        return query.limit(_number(asked.limit)) if asked.limit else query

    async def _committed(self, request: CommitRequest) -> Call:
        writes = [(write, await self._stored(write)) for write in request.writes]

        async def call() -> object:
            batch = self._firestore.batch()
            for write, fields in writes:
                self._stage(batch, write, fields)
            return await batch.commit()

        return call

    async def _stored(self, write: Write) -> dict[str, Any]:
        """What a recorded write stored, as the client reads it: the values that it was given."""
        if write.update_mask.field_paths or write.update_transforms:
            raise _unknown("such a write")
        return (await self._firestore.document(_path(write.update.name)).get()).to_dict() or {}

    def _stage(self, batch: AsyncWriteBatch, write: Write, fields: dict[str, Any]) -> None:
        collection, _, known = _path(write.update.name).rpartition("/")
        document = self._firestore.collection(collection).document(_like(known))
        if "exists" in write.current_document:
            batch.create(document, fields)
        else:
            batch.set(document, fields)

    async def close(self) -> None:
        await self._firestore._firestore_api.transport.close()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        await self._genai.aio.aclose()


def _path(name: str) -> str:
    """A document's path below its database."""
    return name.partition("/documents/")[2]


def _equalities(where: StructuredQuery.Filter) -> list[tuple[str, Any]]:
    if "composite_filter" in where:
        return [pair for each in where.composite_filter.filters for pair in _equalities(each)]
    if "field_filter" not in where:
        return []
    asked = where.field_filter
    if asked.op != StructuredQuery.FieldFilter.Operator.EQUAL:
        raise _unknown("such a filter")
    kind = type(asked.value).pb(asked.value).WhichOneof("value_type")
    return [(asked.field.field_path, getattr(asked.value, kind))]


def _near(query: AsyncQuery, asked: StructuredQuery) -> AsyncQuery | AsyncVectorQuery:
    nearest = asked.find_nearest
    if not nearest.vector_field.field_path:
        return query
    values = StructuredQuery.FindNearest.pb(nearest).query_vector.map_value.fields["value"].array_value.values
    return query.find_nearest(
        nearest.vector_field.field_path,
        Vector([value.double_value for value in values]),
        limit=_number(nearest.limit),
        distance_measure=DistanceMeasure(nearest.distance_measure.value),
        distance_result_field=nearest.distance_result_field or None,
    )


def _number(wrapped: object) -> int:
    """A number that may be missing on the wire; proto-plus answers it unwrapped."""
    return cast("int", wrapped)


def _unknown(what: str) -> OpsError:
    return OpsError(
        f"The benchmark cannot repeat {what}, which the service asked for: scripts/ops/bench_floor.py must learn it."
    )
