"""Embedding the texts of stored memories once more, as a save would."""

import asyncio
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from google.api_core.exceptions import RetryError
from google.api_core.retry import AsyncRetry, if_exception_type

from metacortex import rules
from metacortex.adapters.firestore_documents import CONTENT, RETRIEVAL_TEXT, decode_metadata
from metacortex.errors import ModelFailed, RateLimited
from metacortex.memory import Embedding, Memory, NewMemory, Part
from metacortex.ports import Document, Embedder
from metacortex.spaces import WorkingSpace

Vector = tuple[float, ...]

TEXTS_AT_ONCE = 100
# Models count their quotas by the minute.
PATIENCE = AsyncRetry(if_exception_type(RateLimited), initial=2.0, maximum=30.0, timeout=150.0)
_BLANK = "It holds no text, and a save stores none such."


@dataclass(frozen=True)
class StoredText:
    """What a model is to embed of one memory: its whole text, or the parts of a long one."""

    id: str
    whole: str
    documents: tuple[Document, ...]
    is_long: bool

    def new_memory(self, memory: Memory, vectors: Sequence[Vector], working: WorkingSpace) -> NewMemory:
        """The memory with these vectors, one for each of the documents; its terms are left out."""
        parts = tuple(
            Part(summary=rules.summary(document.text), vector=vector)
            for document, vector in zip(self.documents, vectors, strict=True)
        )
        vector = rules.mean_direction(vectors) if self.is_long else vectors[0]
        return NewMemory(
            memory=memory,
            embedding=Embedding(vector=vector, space_id=working.space.id, vector_field=working.vector_field),
            parts=parts if self.is_long else (),
        )


def stored_text(memory_id: str, fields: Mapping[str, Any], part_characters: int) -> StoredText:
    """The text of a stored document, cut for a model as a save would cut it."""
    metadata = decode_metadata(fields)
    whole: str = fields.get(RETRIEVAL_TEXT) or fields.get(CONTENT) or ""
    document = Document(text=whole, topic=metadata.topic, date=metadata.date)
    parts = tuple(replace(document, text=stretch) for stretch in rules.stretches(whole, part_characters))
    return StoredText(memory_id, whole, parts or (document,), bool(parts))


class Pace:
    """How long to wait so that no more than so many texts go out in a minute; without a limit never."""

    def __init__(self, per_minute: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.most_at_once = min(per_minute or TEXTS_AT_ONCE, TEXTS_AT_ONCE)
        self._seconds_each = 60 / per_minute if per_minute else 0.0
        self._clock = clock
        self._free_at = clock()

    def delay(self, texts: int) -> float:
        """The seconds to wait before these texts; they are counted as gone out."""
        now = self._clock()
        begin = max(now, self._free_at)
        self._free_at = begin + texts * self._seconds_each
        return begin - now


@dataclass(frozen=True)
class Embedded:
    """The vectors of each memory, one for each of its documents; and the memories that the model does not take, with why."""

    vectors: dict[str, Sequence[Vector]]
    refused: dict[str, str]


class Model:
    """A model that embeds in one form of text, at a pace; a busy one is waited for."""

    def __init__(self, embedder: Embedder, text_format: str, pace: Pace) -> None:
        self._embedder = embedder
        self._text_format = text_format
        self._pace = pace

    async def embed(self, texts: Sequence[StoredText]) -> Embedded:
        """Raises MetaCortexError where the model fails on more than these texts."""
        blank = {text.id: _BLANK for text in texts if not text.whole.strip()}
        others = [text for text in texts if text.id not in blank]
        made = await self._halving(others, is_whole=True) if others else Embedded({}, {})
        return Embedded(made.vectors, blank | made.refused)

    async def _halving(self, texts: Sequence[StoredText], *, is_whole: bool) -> Embedded:
        """One text that the model does not take fails its whole request: that is halved until the text is found."""
        try:
            return Embedded(await self._ask(texts), {})
        except ModelFailed as error:
            reason = error.message
        if is_whole:
            # If it is not the texts, this fails as well.
            await self._embedder.embed_query("memory", text_format=self._text_format)
        if len(texts) == 1:
            return Embedded({}, {texts[0].id: reason})
        half = len(texts) // 2
        first = await self._halving(texts[:half], is_whole=False)
        second = await self._halving(texts[half:], is_whole=False)
        return Embedded(first.vectors | second.vectors, first.refused | second.refused)

    async def _ask(self, texts: Sequence[StoredText]) -> dict[str, Sequence[Vector]]:
        documents = [document for text in texts for document in text.documents]
        await asyncio.sleep(self._pace.delay(len(documents)))
        embed = functools.partial(self._embedder.embed_documents, documents, text_format=self._text_format)
        try:
            made = await PATIENCE(embed)()  # pyright: ignore[reportCallIssue] - the library's own type lacks the arguments
        except RetryError as error:
            raise error.cause from None
        following = iter(made)
        return {text.id: [next(following) for _ in text.documents] for text in texts}
