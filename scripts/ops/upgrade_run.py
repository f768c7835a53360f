"""One upgrade: sees everything first, and then writes only what is lacking, each document against the revision it read."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from google.api_core.exceptions import FailedPrecondition, InvalidArgument, NotFound
from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.base_document import DocumentSnapshot

from metacortex.adapters.firestore_client import RETRY, answering
from metacortex.adapters.firestore_documents import CONTENT, METADATA, RETRIEVAL_TEXT
from metacortex.adapters.firestore_memories import ID
from metacortex.adapters.firestore_spaces import FirestoreSpaces
from metacortex.errors import Unavailable
from metacortex.ports import Embedder
from metacortex.spaces import FIRST_VECTOR_FIELD, CollectionSpaces
from ops import upgrade_vectors
from ops.paging import pages
from ops.place import connect
from ops.processes import OpsError
from ops.progress import Tell
from ops.upgrade_documents import SPACE, Fields, Part, parts
from ops.upgrade_report import Report, Tally

PAGE = 500
WRITES_AT_ONCE = 50
ATTEMPTS = 5


async def run(report: Report, embedder: Embedder | None, tell: Tell) -> None:
    """Do what the report's plan says, and note in the report what was found and done.

    Raises OpsError where the collection cannot be upgraded as planned, and MetaCortexError where store or model fail.
    Whatever ends it, also a kill, leaves whole documents: the same plan goes on from there.
    """
    await _Upgrade(connect(report.plan.where.project), report, tell).run(embedder)


class _Upgrade:
    def __init__(self, client: AsyncClient, report: Report, tell: Tell) -> None:
        self._client = client
        self._report = report
        self._plan = report.plan
        self._tell = tell
        self._sample = upgrade_vectors.Spread()
        self._claimed: set[str] = set()

    async def run(self, embedder: Embedder | None) -> None:
        spaces = FirestoreSpaces(self._client, self._plan.where.collection)
        named = await spaces.read()
        self._report.names_space = named is not None
        wanted = CollectionSpaces.only(self._plan.space)
        self._require_space(named or wanted)
        memories, *others = parts(self._plan.where.collection, self._plan.space, named or wanted)
        lacking = [(memories, await self._survey(memories, self._look_at_memory))]
        self._require_memories()
        if named is None:
            self._require_no_other_claim()
        await self._look_at_vectors(embedder)
        lacking += [(part, await self._survey(part)) for part in others]
        if not self._plan.write:
            return
        if named is None:
            # Between the look and this write another command may have named one.
            self._require_space(await spaces.name(wanted))
        for part, ids in lacking:
            await self._complete(part, ids)

    # --- Seeing ---

    def _require_space(self, spaces: CollectionSpaces) -> None:
        if spaces.fields.get(self._plan.space.id) != FIRST_VECTOR_FIELD:
            raise OpsError(
                f"{self._plan.where.collection} names the space {spaces.current} already, so that its vectors are not of"
                f" {self._plan.space.id}. If it still holds documents of MetaCortex 0.3, run this with that space."
            )

    def _require_memories(self) -> None:
        if not self._report.tallies["memories"].found:
            raise OpsError(
                f"{self._plan.where} holds no memories; check --project and --collection."
                " A new collection needs no upgrade."
            )

    def _require_no_other_claim(self) -> None:
        if others := self._claimed - {self._plan.space.id}:
            raise OpsError(
                f"Some memories of {self._plan.where.collection} say that their vectors are of {', '.join(sorted(others))}; name"
                " that space, or find out who wrote them."
            )

    async def _survey(self, part: Part, look: Callable[[DocumentSnapshot], None] = lambda _: None) -> list[str]:
        """The ids of the documents that lack something."""
        tally = self._report.tallies[part.name] = Tally()
        ids: list[str] = []
        query = self._client.collection(part.collection).select(part.shows).order_by(ID)
        async for page in pages(query, PAGE):
            for snapshot in page:
                look(snapshot)
                if part.lacking(snapshot):
                    ids.append(snapshot.id)
            tally.found += len(page)
            tally.lacking = len(ids)
            self._tell(f"Reading {part.name}", tally.found, None)
        return ids

    def _look_at_memory(self, snapshot: DocumentSnapshot) -> None:
        self._sample.offer(snapshot.id)
        if claimed := (snapshot.to_dict() or {}).get(SPACE):
            self._claimed.add(str(claimed))

    async def _look_at_vectors(self, embedder: Embedder | None) -> None:
        texts = (CONTENT, RETRIEVAL_TEXT, METADATA) if embedder else ()
        sample = await self._read_again(self._plan.where.collection, self._sample.names, (FIRST_VECTOR_FIELD, *texts))
        vectors = upgrade_vectors.seen_in(sample, self._plan.space)
        if embedder:
            least = await upgrade_vectors.compare(sample, embedder, self._plan.space)
            vectors = replace(vectors, least_cosine=least)
        self._report.vectors = vectors

    async def _read_again(self, collection: str, ids: Sequence[str], fields: Sequence[str]) -> list[DocumentSnapshot]:
        references = [self._client.collection(collection).document(name) for name in ids]
        async with answering():
            snapshots = self._client.get_all(references, fields, retry=RETRY)
            return [snapshot async for snapshot in snapshots if snapshot.exists]

    # --- Writing ---

    async def _complete(self, part: Part, ids: Sequence[str]) -> None:
        for start in range(0, len(ids), WRITES_AT_ONCE):
            some = ids[start : start + WRITES_AT_ONCE]
            snapshots = await self._read_again(part.collection, some, part.needs)
            await asyncio.gather(*(self._write(part, snapshot) for snapshot in snapshots))
            self._tell(f"Writing {part.name}", start + len(some), len(ids))

    async def _write(self, part: Part, snapshot: DocumentSnapshot) -> None:
        """Add what a document lacks. Where another client changed it meanwhile, look again at what it then lacks."""
        for _ in range(ATTEMPTS):
            lacking = part.lacking(snapshot) if snapshot.exists else {}
            if not lacking:
                return
            try:
                is_written = await self._update(snapshot, lacking)
            except InvalidArgument as error:
                # With what it lacks it may be larger than a document can be.
                self._report.refused[snapshot.reference.path] = error.message
                return
            if is_written:
                self._report.tallies[part.name].written += 1
                return
            async with answering():
                snapshot = await snapshot.reference.get(part.needs, retry=RETRY)
        raise Unavailable("Other clients keep changing one of these documents at this moment.")

    async def _update(self, snapshot: DocumentSnapshot, fields: Fields) -> bool:
        """Whether the document was still as it was read, and so was written."""
        unchanged = self._client.write_option(last_update_time=snapshot.update_time)
        async with answering():
            try:
                await snapshot.reference.update(fields, option=unchanged, retry=RETRY)
            except (FailedPrecondition, NotFound):
                return False
        return True
