"""Loading a pack: its memories go through the service's own write path, its cases take the place of the isolated ones."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from google.cloud.firestore_v1.async_client import AsyncClient

from metacortex import bootstrap
from metacortex.errors import EmbeddingSpaceMismatch, MetaCortexError, RateLimited, TimedOut, Unavailable
from metacortex.events import Event, EventKind, now_ms
from metacortex.lifecycle import Deprecation
from metacortex.memory import Draft, Initiator, Provenance
from metacortex.ports import MemoryStore
from metacortex.service import MemoryService
from ops.eval_cases import Case, CaseSet, CaseStore
from ops.eval_isolated import CLIENT, PROFILE, Corpus, IsolatedCollection
from ops.eval_pack import Pack, PackCase, PackMemory
from ops.eval_plan import Partition, Plan
from ops.processes import OpsError
from ops.progress import Tell

R = TypeVar("R")

SAVES_AT_ONCE = 16
PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds to wait before a save is tried again that the store or the model had no room for."""


class Dial:
    """A clock that shows what it is set to, in epoch milliseconds."""

    now = 0

    def __call__(self) -> int:
        return self.now


async def load(plan: Plan, client: AsyncClient, pack: Pack, tell: Tell) -> None:
    """Fills the emptied isolated collection, and then replaces the isolated cases.

    Raises OpsError or MetaCortexError. Whatever ends it, also a kill, the old cases stay readable until the new ones count;
    a run refuses them as long as the memories they are about are not there.
    """
    collection = IsolatedCollection(client, plan.settings.memory_collection, live=plan.live_collection)
    cases = CaseStore(client)
    old = await cases.read(Partition.ISOLATED)
    corpus = Corpus(
        run=uuid.uuid4().hex,
        name=pack.name,
        space=plan.models.embedder.space.id,
        memory_count=len(pack.memories),
        is_whole=False,
    )
    await collection.claim(corpus)
    await collection.empty(lambda removed: tell("Removing the last corpus", removed, None))
    store = bootstrap.firestore(plan.settings, plan.project).memories
    ids = await _Loader(plan, store, corpus.run, tell).load(pack)
    await collection.finish(corpus)
    new = CaseSet(
        source=pack.name,
        corpus=corpus.run,
        cases=tuple(_case(case, ids) for case in pack.cases),
        revision=old.revision if old else None,
    )
    await cases.replace(Partition.ISOLATED, new, now_ms())


def _case(case: PackCase, ids: dict[str, str]) -> Case:
    return Case(
        query=case.query,
        positive_ids=tuple(ids[key] for key in case.positive_keys),
        category=case.category,
        topic=case.filter_topic,
        state=case.filter_state,
        origin=case.filter_origin,
        valid_at=case.valid_at,
    )


class _Trail:
    """The events of one writer. All have one id, so that one document stays of them: how many writes there were."""

    def __init__(self, run: str, writer: str, tool: str) -> None:
        self._id = f"eval-{run}-{writer}"
        self._run = run
        self._tool = tool
        self._count = 0

    def event(self, _: object) -> Event:
        self._count += 1
        fields = {
            "event_type": "evaluation",
            "client_id": CLIENT,
            "tool_name": self._tool,
            "status": "success",
            "run": self._run,
            "write_count": self._count,
        }
        return Event(id=self._id, kind=EventKind.MEMORY, timestamp=now_ms(), fields=fields)


class _Loader:
    def __init__(self, plan: Plan, store: MemoryStore, run: str, tell: Tell) -> None:
        self._plan = plan
        self._store = store
        self._run = run
        self._tell = tell
        self._ids: dict[str, str] = {}

    async def load(self, pack: Pack) -> dict[str, str]:
        """Saves and deprecates everything; the id of each memory by its key."""
        waiting = iter(pack.memories)
        writers = (self._save_all(waiting, len(pack.memories), number) for number in range(SAVES_AT_ONCE))
        await asyncio.gather(*writers)
        await self._deprecate_all(pack.memories)
        return self._ids

    def _service(self) -> tuple[MemoryService, Dial]:
        dial = Dial()
        return bootstrap.service(self._plan.settings, self._store, self._plan.models, dial), dial

    async def _save_all(self, waiting: Iterator[PackMemory], total: int, number: int) -> None:
        service, dial = self._service()
        trail = _Trail(self._run, f"save-{number}", "save_context")
        for memory in waiting:
            dial.now = memory.created_at
            saved = await _patiently(memory, partial(service.save, PROFILE, _draft(memory), trail.event))
            self._ids[memory.key] = saved.memory.id
            self._tell("Saving memories", len(self._ids), total)

    async def _deprecate_all(self, memories: Sequence[PackMemory]) -> None:
        service, dial = self._service()
        trail = _Trail(self._run, "deprecate", "deprecate_context")
        made_at = {memory.key: memory.created_at for memory in memories}
        retired = [memory for memory in memories if memory.is_retired]
        for done, memory in enumerate(retired, 1):
            dial.now = memory.deprecated_at or made_at[memory.superseded_by or memory.key]
            await _patiently(
                memory,
                partial(service.deprecate, PROFILE, self._ids[memory.key], self._deprecation(memory), trail.event),
            )
            self._tell("Deprecating memories", done, len(retired))

    def _deprecation(self, memory: PackMemory) -> Deprecation:
        return Deprecation(
            superseding_id=self._ids[memory.superseded_by] if memory.superseded_by else None,
            reason=memory.supersession_reason,
            initiator=Initiator.USER,
        )


def _draft(memory: PackMemory) -> Draft:
    return Draft(
        content=memory.content,
        topic=memory.topic,
        branch_state=memory.branch_state,
        # The key keeps memories apart that say the same within the window of duplicates.
        provenance=Provenance(origin=memory.origin, source_session=memory.key),
        valid_from=memory.valid_from,
        valid_until=memory.valid_until,
    )


async def _patiently(memory: PackMemory, write: Callable[[], Awaitable[R]]) -> R:
    """What a write answers, tried again after a pause where store or model had no room for it."""
    for pause in (*PAUSES, None):
        try:
            return await write()
        except EmbeddingSpaceMismatch:
            raise
        except (RateLimited, TimedOut, Unavailable) as error:
            if pause is None:
                raise OpsError(f"The memory {memory.key} could not be written. {error.message}") from error
            await asyncio.sleep(pause)
        except MetaCortexError as error:
            raise OpsError(f"The memory {memory.key} could not be written. {error.message}") from error
    raise AssertionError("the last attempt returns or raises")
