"""What a save makes of a memory's text, made again for memories of an archive: vectors, parts and words."""

import asyncio
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from google.api_core.exceptions import RetryError
from google.api_core.retry import AsyncRetry, if_exception_type

from metacortex import rules
from metacortex.adapters.firestore_documents import RETRIEVAL_TEXT, decode_memory
from metacortex.errors import ModelFailed, RateLimited
from metacortex.memory import Embedding, Memory, NewMemory, Part
from metacortex.ports import Document, Embedder
from metacortex.spaces import WorkingSpace
from metacortex.terms import memory_terms
from ops.archive_lines import Archived

Vector = tuple[float, ...]

# Models count their quotas by the minute.
PATIENCE = AsyncRetry(if_exception_type(RateLimited), initial=2.0, maximum=30.0, timeout=150.0)


@dataclass(frozen=True)
class Made:
    """What can be stored, and the memories that the model does not take, each with its reason."""

    new: list[tuple[Archived, NewMemory]]
    refused: dict[str, str]


async def made_again(memories: Sequence[Archived], embedder: Embedder, working: WorkingSpace) -> Made:
    """The memories as a save would store them. Raises MetaCortexError where the model fails on more than their texts."""
    texts = [_text(memory, embedder.part_characters) for memory in memories]
    blank = {text.archived.id: _BLANK for text in texts if not text.whole.strip()}
    made = await _made([text for text in texts if text.archived.id not in blank], embedder, working)
    return Made(made.new, blank | made.refused)


_BLANK = "It holds no text, and a save stores none such."


async def _made(texts: Sequence["_Text"], embedder: Embedder, working: WorkingSpace) -> Made:
    if not texts:
        return Made([], {})
    try:
        return Made(await _embedded(texts, embedder, working), {})
    except ModelFailed:
        # If it is not the texts, this fails as well.
        await embedder.embed_query("memory", text_format=working.space.text_format)
    return await _halved(texts, embedder, working)


async def _halved(texts: Sequence["_Text"], embedder: Embedder, working: WorkingSpace) -> Made:
    """One text that the model does not take fails its whole request: that is halved until the text is found."""
    try:
        return Made(await _embedded(texts, embedder, working), {})
    except ModelFailed as error:
        if len(texts) == 1:
            return Made([], {texts[0].archived.id: error.message})
    half = len(texts) // 2
    first = await _halved(texts[:half], embedder, working)
    second = await _halved(texts[half:], embedder, working)
    return Made(first.new + second.new, first.refused | second.refused)


async def _embedded(
    texts: Sequence["_Text"], embedder: Embedder, working: WorkingSpace
) -> list[tuple[Archived, NewMemory]]:
    documents = [document for text in texts for document in text.documents()]
    embed = functools.partial(embedder.embed_documents, documents, text_format=working.space.text_format)
    try:
        vectors = await PATIENCE(embed)()  # pyright: ignore[reportCallIssue] - the library's own type lacks the arguments
    except RetryError as error:
        raise error.cause from None
    following = iter(vectors)
    return await asyncio.to_thread(lambda: [(text.archived, text.made(following, working)) for text in texts])


@dataclass(frozen=True)
class _Text:
    """A memory of an archive as a model and a search by words see it."""

    archived: Archived
    memory: Memory
    whole: str
    stretches: list[str]
    """Its parts; none where it is short."""

    def documents(self) -> list[Document]:
        document = Document(text=self.whole, topic=self.memory.metadata.topic, date=self.memory.metadata.date)
        return [replace(document, text=stretch) for stretch in self.stretches] or [document]

    def made(self, following: Iterator[Vector], working: WorkingSpace) -> NewMemory:
        """With the next vectors of those that follow, one for each of its documents."""
        parts = tuple(Part(summary=rules.summary(stretch), vector=next(following)) for stretch in self.stretches)
        vector = rules.mean_direction([part.vector for part in parts]) if parts else next(following)
        return NewMemory(
            memory=self.memory,
            embedding=Embedding(vector=vector, space_id=working.space.id, vector_field=working.vector_field),
            terms=memory_terms(self.whole, self.memory.metadata),
            parts=parts,
        )


def _text(archived: Archived, part_characters: int) -> _Text:
    memory = decode_memory(archived.id, archived.fields)
    whole = archived.fields.get(RETRIEVAL_TEXT) or memory.content
    return _Text(archived, memory, whole, rules.stretches(whole, part_characters))
