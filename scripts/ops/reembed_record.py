"""Where a move to another embedding space is noted: `<collection>_meta/reembedding`, beside the spaces a collection names.

What it names follows from the step that the move is at, and both are written in one commit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from google.api_core.exceptions import AlreadyExists, FailedPrecondition, NotFound
from google.cloud.firestore_v1.async_batch import AsyncWriteBatch
from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.base_document import DocumentSnapshot

from metacortex.adapters.firestore_client import RETRY, answering
from metacortex.spaces import CollectionSpaces
from ops.place import Place
from ops.processes import OpsError
from ops.reembed_move import Move, Step, working


@dataclass(frozen=True)
class Standing:
    """What a collection names at this moment, the move it is in, and for how many seconds that has been at its step."""

    spaces: CollectionSpaces
    move: Move | None
    seconds: float
    revisions: tuple[Any, Any]


class Moves:
    """The two documents that say where a collection stands."""

    def __init__(self, client: AsyncClient, place: Place) -> None:
        self._client = client
        self._place = place
        meta = client.collection(f"{place.collection}_meta")
        self._space = meta.document("space")
        self._record = meta.document("reembedding")

    async def read(self) -> Standing:
        """Where the collection stands. Raises OpsError where it names no space."""
        async with answering():
            snapshots = {
                snapshot.id: snapshot
                async for snapshot in self._client.get_all([self._space, self._record], retry=RETRY)
            }
        space, record = snapshots[self._space.id], snapshots[self._record.id]
        named = space.to_dict()
        if not named:
            raise OpsError(
                f"{self._place} names no embedding space; check --project and --collection. What MetaCortex 0.3 left needs"
                " `./scripts/metacortex upgrade` first, and a new collection needs no move."
            )
        return Standing(
            spaces=CollectionSpaces(current=named["current"], fields=dict(named["spaces"])),
            move=_decode(record.to_dict() or {}) if record.exists else None,
            seconds=_age(record) if record.exists else 0,
            revisions=(space.update_time, record.update_time if record.exists else None),
        )

    async def require(self, move: Move) -> None:
        """Raises OpsError where another command has taken the move to another step, or ended it."""
        if (await self.read()).move != move:
            raise _moved_on()

    async def begin(self, standing: Standing, move: Move) -> None:
        """Notes a new move. Raises OpsError where another command was first."""
        batch = self._client.batch()
        self._stage_spaces(batch, standing, standing.spaces)
        batch.create(self._record, _encode(move))
        await _commit(batch)

    async def take(self, move: Move, step: Step) -> Move:
        """Takes a move to another step. Raises OpsError where another command was first."""
        standing = await self.read()
        if standing.move != move:
            raise _moved_on()
        moved = replace(move, step=step)
        batch = self._client.batch()
        self._stage_spaces(batch, standing, moved.spaces)
        unchanged = self._client.write_option(last_update_time=standing.revisions[1])
        batch.update(self._record, _encode(moved), option=unchanged)
        await _commit(batch)
        return moved

    async def end(self) -> None:
        """Forgets the move."""
        async with answering():
            await self._record.delete(retry=RETRY)

    def _stage_spaces(self, batch: AsyncWriteBatch, standing: Standing, spaces: CollectionSpaces) -> None:
        unchanged = self._client.write_option(last_update_time=standing.revisions[0])
        batch.update(self._space, {"current": spaces.current, "spaces": dict(spaces.fields)}, option=unchanged)


async def _commit(batch: AsyncWriteBatch) -> None:
    async with answering():
        try:
            await batch.commit(retry=RETRY)
        except (AlreadyExists, FailedPrecondition, NotFound):
            raise _moved_on() from None


def _moved_on() -> OpsError:
    return OpsError("Another command has just moved this collection on; run this again to see where it stands.")


def _age(record: DocumentSnapshot) -> float:
    read_at, written_at = record.read_time, record.update_time
    assert isinstance(read_at, datetime), "what was read has a time"
    assert isinstance(written_at, datetime), "a document that exists has a time"
    return (read_at - written_at).total_seconds()


def _encode(move: Move) -> dict[str, Any]:
    old, new = ({"space": working.space.id, "field": working.vector_field} for working in (move.old, move.new))
    return {"old": old, "new": new, "step": move.step.value}


def _decode(stored: Mapping[str, Any]) -> Move:
    return Move(working(**stored["old"]), working(**stored["new"]), Step(stored["step"]))
