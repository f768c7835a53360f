"""The isolated collection: whose it is, and removing what is in it.

A collection is an evaluation's own if its `<collection>_meta/eval` says so and every memory in it was written by one. Any
other that holds something is refused, whatever its name.
"""

from collections.abc import Callable
from dataclasses import dataclass

from google.api_core.exceptions import FailedPrecondition
from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.base_query import FieldFilter

from metacortex.adapters.firestore_client import RETRY, answering
from metacortex.memory import BranchState
from metacortex.profiles import STATES, TOOL_NAMES, Profile
from ops.paging import count
from ops.processes import OpsError

CLIENT = "eval"
PROFILE = Profile(
    id=CLIENT,
    token_digest=b"",
    tools=TOOL_NAMES,
    readable_states=STATES,
    writable_states=STATES,
    default_state=BranchState.ACTIVE,
    is_admin=True,
)
"""In whose name an evaluation saves and searches: no credential opens it."""
SETTING = "RETRIEVAL_EVAL_MEMORY_COLLECTION"
BATCH = 400


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """What one load puts into the isolated collection."""

    run: str
    """The id of the load."""
    name: str
    space: str
    memory_count: int
    is_whole: bool


class IsolatedCollection:
    def __init__(self, client: AsyncClient, name: str, *, live: str) -> None:
        self.name = name
        self._live = live
        self._client = client
        self._memories = client.collection(name)
        meta = client.collection(f"{name}_meta")
        self._marker = meta.document("eval")
        self._space = meta.document("space")

    async def corpus(self) -> Corpus | None:
        """What the last load put there; None where there was none."""
        async with answering():
            snapshot = await self._marker.get(retry=RETRY)
        return Corpus(**(snapshot.to_dict() or {})) if snapshot.exists else None

    async def claim(self, corpus: Corpus) -> None:
        """Says that a load begins. Raises OpsError where the collection is not an evaluation's own."""
        if self.name == self._live:
            raise OpsError(
                f"{self.name} is MEMORY_COLLECTION, which evaluation never touches; name another in {SETTING}."
            )
        foreign = await self._count() - await self._count_own()
        if foreign or (await self.corpus() is None and not await self._is_new()):
            raise OpsError(
                f"{self.name} holds what no evaluation wrote, so nothing in it is touched; name another collection in"
                f" {SETTING}."
            )
        async with answering():
            await self._marker.set(vars(corpus), retry=RETRY)

    async def empty(self, tell: Callable[[int], None]) -> None:
        """Removes the memories, what belongs to them, and last the name of their space."""
        removed = 0
        for name in (f"{self.name}_write_fingerprints", f"{self.name}_parts", self.name):
            while found := await self._remove_some(name):
                removed += found
                tell(removed)
        async with answering():
            await self._space.delete(retry=RETRY)

    async def finish(self, corpus: Corpus) -> None:
        """Says that a load is whole. Raises OpsError where another began meanwhile: then neither is."""
        async with answering():
            marker = await self._marker.get(retry=RETRY)
        is_ours = marker.get("run") == corpus.run and await self.holds(corpus)
        unchanged = self._client.write_option(last_update_time=marker.update_time)
        async with answering():
            try:
                await self._marker.update({"is_whole": is_ours}, option=unchanged, retry=RETRY)
            except FailedPrecondition:
                is_ours = False
        if not is_ours:
            raise OpsError(
                f"Another load into {self.name} ran at the same time, so that neither is whole; load once more."
            )

    async def holds(self, corpus: Corpus) -> bool:
        """Whether there are as many memories as a load makes."""
        return await self._count_own() == corpus.memory_count

    async def _is_new(self) -> bool:
        async with answering():
            space = await self._space.get(retry=RETRY)
        return not space.exists and await self._count() == 0

    async def _count(self) -> int:
        return await count(self._memories.select([]))

    async def _count_own(self) -> int:
        return await count(self._memories.where(filter=FieldFilter("metadata.written_by", "==", CLIENT)))

    async def _remove_some(self, name: str) -> int:
        """Removes documents of a collection; how many, which is 0 once there are none."""
        async with answering():
            found = await self._client.collection(name).select([]).limit(BATCH).get(retry=RETRY)
        batch = self._client.batch()
        for snapshot in found:
            batch.delete(snapshot.reference)
        async with answering():
            await batch.commit(retry=RETRY)
        return len(found)
