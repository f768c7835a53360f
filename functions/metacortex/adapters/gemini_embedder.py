"""Embeddings by Gemini. How a text is prepared for a model is part of the embedding space, so that it never changes unseen."""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from metacortex.adapters.gemini_client import Route, answering
from metacortex.errors import ModelFailed
from metacortex.spaces import Space

SECONDS = 12.0
# What one request of the key route takes; Vertex AI takes one text a request.
BATCH = 100
REQUESTS_AT_ONCE = 5


@dataclass(frozen=True)
class TextFormat:
    """One documented way to prepare texts: what is sent, and the task types for models that know any."""

    document: Callable[[str, str], str]
    """The text to send for a document, from its topic and its text."""
    query: Callable[[str], str]
    document_task: str | None = None
    query_task: str | None = None


PLAIN = TextFormat(document=lambda _, text: text, query=lambda text: text)
# gemini-embedding-2 knows no task types: its documentation gives these prefixes instead.
PREFIXED = TextFormat(
    document=lambda topic, text: f"title: {topic} | text: {text}",
    query=lambda text: f"task: search result | query: {text}",
)
# With a task type goes a title, which is the topic.
TASKED = replace(PLAIN, document_task="RETRIEVAL_DOCUMENT", query_task="RETRIEVAL_QUERY")
FORMATS: dict[str, dict[str, TextFormat]] = {
    "gemini-embedding-2": {"prefix": PREFIXED, "plain": PLAIN},
    "gemini-embedding-001": {"task": TASKED, "plain": PLAIN},
}


class GeminiEmbedder:
    """The Embedder port. The first format of a model is the one a new collection gets."""

    def __init__(self, route: Route, model: str, dimensions: int) -> None:
        self.route = route
        self._formats = FORMATS.get(model, {"plain": PLAIN})
        self.space = Space(model, dimensions, next(iter(self._formats)))
        self.known_formats = tuple(self._formats)

    async def embed_document(self, text: str, *, topic: str, text_format: str) -> tuple[float, ...]:
        [vector] = await self.embed_documents([(topic, text)], text_format=text_format)
        return vector

    async def embed_documents(
        self, documents: Sequence[tuple[str, str]], *, text_format: str
    ) -> list[tuple[float, ...]]:
        """The vectors of many documents, each a topic and a text, in their order; for bulk work."""
        chosen = self._formats[text_format]
        size = BATCH if self.route.api_key and not chosen.document_task else 1
        gate = asyncio.Semaphore(REQUESTS_AT_ONCE)

        async def embed(batch: Sequence[tuple[str, str]]) -> list[tuple[float, ...]]:
            texts = [chosen.document(topic, text) for topic, text in batch]
            title = batch[0][0] if chosen.document_task else None
            async with gate:
                return await self._embed(texts, task=chosen.document_task, title=title)

        batches = [documents[start : start + size] for start in range(0, len(documents), size)]
        return [vector for vectors in await asyncio.gather(*map(embed, batches)) for vector in vectors]

    async def embed_query(self, text: str, *, text_format: str) -> tuple[float, ...]:
        chosen = self._formats[text_format]
        [vector] = await self._embed([chosen.query(text)], task=chosen.query_task, title=None)
        return vector

    async def _embed(self, texts: list[str], *, task: str | None, title: str | None) -> list[tuple[float, ...]]:
        from google.genai.types import Content, EmbedContentConfig, Part

        config = EmbedContentConfig(output_dimensionality=self.space.dimensions, task_type=task, title=title)
        # One Content for each text: strings given together would become one vector.
        async with answering(self.route, SECONDS):
            answer = await self.route.client.aio.models.embed_content(
                model=self.space.model,
                contents=[Content(parts=[Part(text=text)], role="user") for text in texts],
                config=config,
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
