"""Memories for a benchmark, written past the service: as documents of its own shape, with the stand-in's vectors."""

import itertools
from collections.abc import Iterator, Sequence

from google.cloud.firestore_v1.async_client import AsyncClient

from metacortex.adapters.firestore_client import create_client
from metacortex.adapters.firestore_documents import encode
from metacortex.adapters.firestore_spaces import FirestoreSpaces
from metacortex.adapters.gemini_client import Route
from metacortex.adapters.gemini_embedder import GeminiEmbedder
from metacortex.events import now_ms
from metacortex.memory import BranchState, Embedding, Memory, Metadata, Modality, NewMemory, Origin, Provenance
from metacortex.profiles import ADMIN_ID
from metacortex.settings import Settings
from metacortex.spaces import FIRST_VECTOR_FIELD, CollectionSpaces, Space
from metacortex.terms import memory_terms
from ops.bench_calls import SEED, Texts
from ops.bench_model import vector_of
from ops.bench_servers import Bench
from ops.progress import Tell

COLLECTION = Settings.memory_collection
# Few enough for a commit, which takes 10 MiB.
BATCH = 200
A_SECOND = 1_000


def fill(bench: Bench, project: str, size: int, begin: int = 0) -> list[str]:
    """Lets a project hold `size` memories, of which it holds the first `begin` already; the ids of the new ones."""
    return bench.portal.call(_fill, project, begin, size, bench.tell)


async def _fill(project: str, begin: int, size: int, tell: Tell) -> list[str]:
    client = create_client(project)
    space = _space()
    await FirestoreSpaces(client, COLLECTION).name(CollectionSpaces.only(space))
    memories = _memories(space, begin, size)
    ids: list[str] = []
    while batch := list(itertools.islice(memories, BATCH)):
        await _write(client, batch)
        ids += [new.memory.id for new in batch]
        tell(f"Writing memories into {project}", len(ids), size - begin)
    await client._firestore_api.transport.close()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    return ids


def _space() -> Space:
    return GeminiEmbedder(Route(), Settings.gemini_embedding_model, Settings.gemini_embedding_dimensions).space


async def _write(client: AsyncClient, memories: Sequence[NewMemory]) -> None:
    batch = client.batch()
    for new in memories:
        batch.create(client.collection(COLLECTION).document(new.memory.id), encode(new))
    await batch.commit()


def _memories(space: Space, begin: int, size: int) -> Iterator[NewMemory]:
    texts = Texts(SEED + begin)
    first = now_ms() - size * A_SECOND
    for number in range(begin, size):
        yield _memory(f"bench-{number}", texts.memory(), texts.topic(), first + number * A_SECOND, space)


def _memory(memory_id: str, content: str, topic: str, at: int, space: Space) -> NewMemory:
    metadata = Metadata(
        topic=topic,
        branch_state=BranchState.ACTIVE,
        modality=Modality.TEXT,
        created_at=at,
        updated_at=at,
        provenance=Provenance(origin=Origin.AGENT_INFERRED),
        written_by=ADMIN_ID,
    )
    vector = tuple(vector_of(content, space.dimensions))
    return NewMemory(
        memory=Memory(id=memory_id, content=content, metadata=metadata),
        embedding=Embedding(vector=vector, space_id=space.id, vector_field=FIRST_VECTOR_FIELD),
        terms=memory_terms(content, metadata),
    )
