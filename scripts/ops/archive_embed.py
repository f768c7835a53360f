"""What a save makes of a memory's text, made again for memories of an archive: vectors, parts and words."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from metacortex.adapters.firestore_documents import decode_memory
from metacortex.memory import NewMemory
from metacortex.ports import Embedder
from metacortex.spaces import WorkingSpace
from metacortex.terms import memory_terms
from ops.archive_lines import Archived
from ops.stored_texts import Model, Pace, StoredText, Vector, stored_text


@dataclass(frozen=True)
class Made:
    """What can be stored, and the memories that the model does not take, each with its reason."""

    new: list[tuple[Archived, NewMemory]]
    refused: dict[str, str]


async def made_again(memories: Sequence[Archived], embedder: Embedder, working: WorkingSpace) -> Made:
    """The memories as a save would store them. Raises MetaCortexError where the model fails on more than their texts."""
    texts = [stored_text(memory.id, memory.fields, embedder.part_characters) for memory in memories]
    embedded = await Model(embedder, working.space.text_format, Pace(None)).embed(texts)
    pairs = [(memory, text) for memory, text in zip(memories, texts, strict=True) if memory.id in embedded.vectors]
    new = await asyncio.to_thread(
        lambda: [(memory, _made(memory, text, embedded.vectors[memory.id], working)) for memory, text in pairs]
    )
    return Made(new, embedded.refused)


def _made(archived: Archived, text: StoredText, vectors: Sequence[Vector], working: WorkingSpace) -> NewMemory:
    memory = decode_memory(archived.id, archived.fields)
    return replace(text.new_memory(memory, vectors, working), terms=memory_terms(text.whole, memory.metadata))
