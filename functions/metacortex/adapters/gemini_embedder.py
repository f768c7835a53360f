"""Embeddings by Gemini. How a text is prepared for a model is part of the embedding space, so that it never changes unseen."""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from metacortex.adapters.gemini_client import Route, answering
from metacortex.adapters.text_context import context, in_context
from metacortex.errors import ModelFailed
from metacortex.ports import Document
from metacortex.spaces import Space
from metacortex.together import together

SECONDS = 12.0
# How many texts go in one request of the key route, which takes 100: the client library reads an answer in one go, and takes
# half a millisecond and more for each vector. Vertex AI takes one text a request.
BATCH = 10
# Requests for long memories at once, of all callers together, of so many texts each: their answers may arrive together.
AT_ONCE = {BATCH: 4, 1: 10}
LONG_SECONDS = 45.0


@dataclass(frozen=True)
class TextFormat:
    """One documented way to prepare texts: what is sent, and the task types for models that know any."""

    document: Callable[[Document], str]
    """The text to send for a document."""
    query: Callable[[str], str]
    document_task: str | None = None
    query_task: str | None = None
    title: Callable[[Document], str | None] = lambda _: None
    """What goes beside the text, for models that take a title."""


PLAIN = TextFormat(document=lambda document: document.text, query=lambda text: text)
# gemini-embedding-2 knows no task types: its documentation gives these prefixes instead, and `none` for want of a title.
PREFIXED = TextFormat(
    document=lambda document: f"title: {document.topic} | text: {document.text}",
    query=lambda text: f"task: search result | query: {text}",
)
PREFIXED_DATED = replace(
    PREFIXED, document=lambda document: f"title: {context(document) or 'none'} | text: {document.text}"
)
TASKED = replace(
    PLAIN,
    document_task="RETRIEVAL_DOCUMENT",
    query_task="RETRIEVAL_QUERY",
    title=lambda document: document.topic,
)
TASKED_DATED = replace(TASKED, title=lambda document: context(document) or None)
DATED = replace(PLAIN, document=in_context)


@dataclass(frozen=True)
class EmbeddingModel:
    """What is known of a model: the formats it may be used with, the best first, and what its vectors tell."""

    formats: Mapping[str, TextFormat]
    part_characters: int
    """About a page: much less than the model takes, because a fact drowns in the vector of a long text."""
    near_duplicate: float


MODELS = {
    "gemini-embedding-2": EmbeddingModel(
        {"prefix-dated": PREFIXED_DATED, "prefix": PREFIXED, "plain": PLAIN}, 3_000, 0.93
    ),
    # Its 2,048 tokens are no more than 1,500 characters of Chinese; its vectors lie close together.
    "gemini-embedding-001": EmbeddingModel({"task-dated": TASKED_DATED, "task": TASKED, "plain": PLAIN}, 1_500, 0.96),
}
UNKNOWN = EmbeddingModel({"dated": DATED, "plain": PLAIN}, 1_500, 0.95)


class GeminiEmbedder:
    """The Embedder port. The first format of a model is the one a new collection gets."""

    def __init__(self, route: Route, model: str, dimensions: int) -> None:
        self.route = route
        self._gates = {size: asyncio.Semaphore(requests) for size, requests in AT_ONCE.items()}
        known = MODELS.get(model, UNKNOWN)
        self._formats = known.formats
        self.space = Space(model, dimensions, next(iter(self._formats)))
        self.known_formats = tuple(self._formats)
        self.part_characters = known.part_characters
        self.near_duplicate = known.near_duplicate

    async def ready(self) -> None:
        await self.route.client()

    async def embed_documents(self, documents: Sequence[Document], *, text_format: str) -> list[tuple[float, ...]]:
        """The vector of each document, in their order."""
        chosen = self._formats[text_format]
        size = BATCH if self.route.api_key and not chosen.document_task else 1

        async def embed(batch: Sequence[Document]) -> list[tuple[float, ...]]:
            texts = [chosen.document(document) for document in batch]
            # A title goes with a task type alone, and then each text goes by itself.
            return await self._embed(texts, task=chosen.document_task, title=chosen.title(batch[0]))

        async def embed_in_turn(batch: Sequence[Document]) -> list[tuple[float, ...]]:
            async with self._gates[size]:
                return await embed(batch)

        if len(documents) == 1:
            return await embed(documents)
        batches = [documents[start : start + size] for start in range(0, len(documents), size)]
        async with answering(self.route, LONG_SECONDS):
            found = await together(*map(embed_in_turn, batches))
        return [vector for vectors in found for vector in vectors]

    async def embed_query(self, text: str, *, text_format: str) -> tuple[float, ...]:
        chosen = self._formats[text_format]
        [vector] = await self._embed([chosen.query(text)], task=chosen.query_task, title=None)
        return vector

    async def _embed(self, texts: list[str], *, task: str | None, title: str | None) -> list[tuple[float, ...]]:
        async with answering(self.route, SECONDS) as client:
            from google.genai.types import Content, EmbedContentConfig, Part

            answer = await client.aio.models.embed_content(
                model=self.space.model,
                # One Content for each text: strings given together would become one vector.
                contents=[Content(parts=[Part(text=text)], role="user") for text in texts],
                config=EmbedContentConfig(output_dimensionality=self.space.dimensions, task_type=task, title=title),
            )
        vectors = [embedding.values or [] for embedding in answer.embeddings or []]
        if len(vectors) != len(texts):
            raise ModelFailed(f"The embedding model answered {len(vectors)} vectors for {len(texts)} texts; try again.")
        return [self._unit(vector) for vector in vectors]

    def _unit(self, vector: list[float]) -> tuple[float, ...]:
        if len(vector) != self.space.dimensions:
            raise ModelFailed(
                f"The embedding model answered {len(vector)} dimensions instead of {self.space.dimensions}; "
                "the owner must check GEMINI_EMBEDDING_MODEL and GEMINI_EMBEDDING_DIMENSIONS."
            )
        length = math.hypot(*vector)
        if not 0 < length < math.inf:
            raise ModelFailed("The embedding model answered a vector without direction; try again.")
        return tuple(value / length for value in vector)
