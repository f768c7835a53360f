"""A search's queries in Firestore's own messages: the client library takes several milliseconds for each vector that it reads or
sends, value by value and copy by copy, and a search reads up to fifty of them."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.types import RunQueryResponse, StructuredQuery

from metacortex.adapters.firestore_client import RETRY, answering, run_query, vector_value

# The messages themselves, without the library's classes around them.
_Query, _FindNearest = StructuredQuery.pb(), StructuredQuery.FindNearest.pb()
_Answer = RunQueryResponse.pb
_EQUAL = StructuredQuery.FieldFilter.Operator.EQUAL
_AND = StructuredQuery.CompositeFilter.Operator.AND
_COSINE = StructuredQuery.FindNearest.DistanceMeasure.COSINE


def holding(collection: str, values: Mapping[str, str | bool], fields: Iterable[str], limit: int) -> Any:
    """The query for some fields of the documents that hold these values."""
    return _Query(**_selected(collection, values, fields), limit={"value": limit})


def nearest(  # noqa: PLR0913 - the parts of one message
    collection: str,
    values: Mapping[str, str | bool],
    fields: Iterable[str],
    *,
    vector: Sequence[float],
    vector_field: str,
    distance: str,
    limit: int,
) -> Any:
    """The query for those of them whose vectors are nearest to one. Their distances stand in a field called `distance`."""
    find_nearest = _FindNearest(
        vector_field={"field_path": vector_field},
        query_vector=vector_value(vector),
        distance_measure=_COSINE,
        limit={"value": limit},
        distance_result_field=distance,
    )
    return _Query(**_selected(collection, values, fields), find_nearest=find_nearest)


def _selected(collection: str, values: Mapping[str, str | bool], fields: Iterable[str]) -> dict[str, Any]:
    filters = [
        {"field_filter": {"field": {"field_path": path}, "op": _EQUAL, "value": _plain_value(value)}}
        for path, value in values.items()
    ]
    return {
        "select": {"fields": [{"field_path": path} for path in fields]},
        "from_": [{"collection_id": collection}],
        "where": filters[0] if len(filters) == 1 else {"composite_filter": {"op": _AND, "filters": filters}},
    }


def _plain_value(value: str | bool) -> dict[str, Any]:  # noqa: FBT001 - the value of a field
    return {"boolean_value": value} if isinstance(value, bool) else {"string_value": value}


async def documents(client: AsyncClient, query: Any) -> dict[str, Mapping[str, Any]]:
    """The fields of the documents that a query finds, by their ids and in their order; a vector is a list of floats."""
    async with answering():
        return await RETRY(functools.partial(_read, client, query))()  # pyright: ignore[reportCallIssue]


async def _read(client: AsyncClient, query: Any) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    async for response in await run_query(client, query):
        answer = _Answer(response)
        if answer.HasField("document"):
            fields = {name: _decoded(value) for name, value in answer.document.fields.items()}
            found[answer.document.name.rpartition("/")[2]] = fields
    return found


def _decoded(value: Any) -> Any:
    kind = value.WhichOneof("value_type")
    if kind == "map_value":
        fields = value.map_value.fields
        if "__type__" in fields:
            return [each.double_value for each in fields["value"].array_value.values]
        return {name: _decoded(each) for name, each in fields.items()}
    if kind == "array_value":
        return [_decoded(each) for each in value.array_value.values]
    return None if kind == "null_value" else getattr(value, kind)
