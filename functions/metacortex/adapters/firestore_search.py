"""The queries of a search in Firestore: the nearest vectors, how many memories hold a word, and which."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.async_collection import AsyncCollectionReference
from google.cloud.firestore_v1.async_query import AsyncQuery
from google.cloud.firestore_v1.base_query import FieldFilter
from google.cloud.firestore_v1.field_path import FieldPath

from metacortex.adapters import firestore_queries
from metacortex.adapters.firestore_client import RETRY, answering
from metacortex.adapters.firestore_documents import (
    CONTENT,
    COUNTS,
    DISTANCE,
    MEMORY_ID,
    METADATA,
    SHORTENED,
    SUMMARY,
    TERMS,
    WORDS,
    decode_candidate,
    decode_content,
    decode_held,
)
from metacortex.fusion import Candidate
from metacortex.ports import Question, SearchFilters
from metacortex.rules import similarity, summary
from metacortex.together import together

STATE = "metadata.branch_state"
TOPIC = "metadata.module_name"
ORIGIN = "metadata.provenance.origin"


class FirestoreSearch:
    """The part of the MemoryStore port that searches."""

    def __init__(self, client: AsyncClient, collection: str) -> None:
        self._client = client
        self._collection = client.collection(collection)
        self._parts = client.collection(f"{collection}_parts")

    async def count_terms(self, filters: SearchFilters, terms: Sequence[str]) -> dict[str, int]:
        queries = [_holding(self._collection, filters, term).count() for term in terms]
        async with answering():
            counts = await together(*(query.get(retry=RETRY) for query in queries))
        return {term: int(count[0][0].value) for term, count in zip(terms, counts, strict=True)}

    async def nearest(self, question: Question, limit: int) -> list[Candidate]:
        fields = [SUMMARY, METADATA, DISTANCE, *_words(question)]
        found = [
            decode_candidate(memory_id, document, _similarity(document), by_vector=True)
            for memory_id, document in (await self._nearest(self._collection, question, fields, limit)).items()
        ]
        return await self._summarised(found)

    async def nearest_parts(self, question: Question, limit: int) -> list[Candidate]:
        fields = [MEMORY_ID, SUMMARY, METADATA, SHORTENED, DISTANCE]
        found = await self._nearest(self._parts, question, fields, limit)
        return [
            decode_candidate(document[MEMORY_ID], document, _similarity(document), by_vector=True)
            for document in found.values()
        ]

    async def _nearest(
        self, collection: AsyncCollectionReference, question: Question, fields: list[str], limit: int
    ) -> dict[str, Mapping[str, Any]]:
        query = firestore_queries.nearest(
            collection.id,
            _values(question.filters),
            fields,
            vector=question.vector,
            vector_field=question.vector_field,
            distance=DISTANCE,
            limit=limit,
        )
        return await firestore_queries.documents(self._client, query)

    async def holding(self, question: Question, term: str, limit: int) -> list[Candidate]:
        vector_field = question.vector_field
        fields = [SUMMARY, METADATA, vector_field, *_words(question)]
        values = {**_values(question.filters), _path(WORDS, term): True}
        query = firestore_queries.holding(self._collection.id, values, fields, limit)
        documents = await firestore_queries.documents(self._client, query)
        found = [
            decode_candidate(memory_id, document, similarity(question.vector, document[vector_field]), by_vector=False)
            for memory_id, document in documents.items()
            # Where there is no vector of this space there is nothing to compare.
            if len(document.get(vector_field) or ()) == len(question.vector)
        ]
        return await self._summarised(found)

    async def held(self, question: Question, memory_ids: Sequence[str]) -> dict[str, Mapping[str, int]]:
        documents = await self._fields_of(memory_ids, _words(question))
        return {memory_id: decode_held(document) for memory_id, document in documents.items()}

    async def _summarised(self, found: list[Candidate]) -> list[Candidate]:
        contents = await self._contents(candidate.id for candidate in found if not candidate.summary)
        return [
            candidate if candidate.summary else replace(candidate, summary=summary(contents.get(candidate.id, "")))
            for candidate in found
        ]

    async def _contents(self, memory_ids: Iterable[str]) -> dict[str, str]:
        """The texts of documents that have no summary: those of MetaCortex 0.3, until they are upgraded."""
        documents = await self._fields_of(memory_ids, [CONTENT])
        return {memory_id: decode_content(document) for memory_id, document in documents.items()}

    async def _fields_of(self, memory_ids: Iterable[str], fields: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """Some fields of each of these memories; nothing of one that does not exist."""
        references = [self._collection.document(memory_id) for memory_id in memory_ids]
        if not references:
            return {}
        async with answering():
            snapshots = [snapshot async for snapshot in self._client.get_all(references, fields, retry=RETRY)]
        return {snapshot.id: snapshot.to_dict() or {} for snapshot in snapshots}


def filtered(collection: AsyncCollectionReference, filters: SearchFilters) -> AsyncQuery:
    """The documents of one state, and of a topic and an origin where the filters name them."""
    query: AsyncQuery = collection  # pyright: ignore[reportAssignmentType]
    for path, value in _values(filters).items():
        query = query.where(filter=FieldFilter(path, "==", value))
    return query


def _values(filters: SearchFilters) -> dict[str, str]:
    """What the fields of the documents that pass the filters hold."""
    values = {
        STATE: filters.branch_state.value,
        TOPIC: filters.topic,
        ORIGIN: filters.origin.value if filters.origin else None,
    }
    return {path: value for path, value in values.items() if value is not None}


def _holding(collection: AsyncCollectionReference, filters: SearchFilters, term: str) -> AsyncQuery:
    # Equality on the key of a map needs no index of its own: Firestore merges those of the single fields.
    return filtered(collection, filters).where(filter=FieldFilter(_path(WORDS, term), "==", True))  # noqa: FBT003


def _similarity(document: Mapping[str, Any]) -> float:
    """1 − the cosine distance; a stored vector without direction, whose distance is no number, is near to nothing."""
    return 1 - document[DISTANCE] if math.isfinite(document[DISTANCE]) else 0.0


def _words(question: Question) -> list[str]:
    """Of a document's words only those that are asked for."""
    return [_path(part, term) for part in (WORDS, COUNTS) for term in question.terms]


def _path(part: str, term: str) -> str:
    return FieldPath(TERMS, part, term).to_api_repr()
