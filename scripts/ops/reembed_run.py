"""One step of a move to another embedding space, while the service goes on. Each can be stopped anywhere and repeated."""

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Callable, Sequence

from google.api_core.exceptions import FailedPrecondition
from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.base_document import DocumentSnapshot

from metacortex.adapters.firestore_documents import PARTS
from metacortex.adapters.firestore_memories import ID, FirestoreMemories
from metacortex.bootstrap import Models
from metacortex.errors import Unavailable
from metacortex.memory import BranchState, Origin
from metacortex.ports import Question, SearchFilters
from metacortex.rules import DEFAULT_TOPIC
from metacortex.spaces import Space, WorkingSpace
from ops.paging import pages
from ops.place import connect
from ops.processes import OpsError
from ops.progress import SECONDS, Tell
from ops.reembed_memories import OF_A_TEXT, Filling, InOneSpace, Leaving, has_vector
from ops.reembed_move import Move, Step, free_field, working
from ops.reembed_record import Moves, Standing
from ops.reembed_report import Action, Report, index_command, next_step, tokens
from ops.stored_texts import Model, Pace

PAGE = 100
DROPS_AT_ONCE = 20

ModelsOf = Callable[[Space], Models]
"""The models of a space. Raises OpsError where this checkout's settings reach no such model."""


async def run(report: Report, models_of: ModelsOf, tell: Tell) -> None:
    """Do what the report's plan says, and note in the report what was found and done.

    Raises OpsError where the collection does not stand where the step begins, and MetaCortexError where store or model fail.
    """
    step = _Step(connect(report.plan.place.project), report, models_of, tell)
    try:
        await step.take()
    finally:
        await step.close()


class _Step:
    def __init__(self, client: AsyncClient, report: Report, models_of: ModelsOf, tell: Tell) -> None:
        self._client = client
        self._report = report
        self._plan = report.plan
        self._place = report.plan.place
        self._models_of = models_of
        self._opened: list[Models] = []
        self._tell = tell
        self._moves = Moves(client, self._place)

    async def take(self) -> None:
        match self._plan.action:
            case Action.FILL:
                await self.fill()
            case Action.SWITCH:
                await self.switch()
            case Action.FINISH:
                await self.leave((Step.SWITCHED, Step.FINISH))
            case Action.ABANDON:
                await self.leave((Step.FILL, Step.SWITCHED, Step.ABANDON))

    async def close(self) -> None:
        """Ends the connections to models."""
        for chosen in self._opened:
            await chosen.close()

    # --- Filling ---

    async def fill(self) -> None:
        """Gives every memory that lacks one a vector in the new space."""
        standing = await self._moves.read()
        move = standing.move or self._new_move(standing)
        self._report.move = move
        self._require_fillable(move)
        is_new = standing.move is None
        if self._plan.write and is_new:
            # What another move has left in the field would pass for vectors of the new space.
            await self._drop(move.new)
            await self._moves.begin(standing, move)
        await self._fill(move, move.new, anew=is_new and not self._plan.write)

    def _new_move(self, standing: Standing) -> Move:
        assert self._plan.to is not None, "filling has a target"
        fields = standing.spaces.fields
        if len(fields) > 1:
            raise OpsError(
                f"{self._place} names {' and '.join(fields)}, and no move is noted; leave one of them in its space document."
            )
        [(space, field)] = fields.items()
        if space == self._plan.to.id:
            raise OpsError(f"{self._place} is in {space} already; name another space with --to.")
        return Move(working(space, field), WorkingSpace(self._plan.to, free_field(standing.spaces)))

    def _require_fillable(self, move: Move) -> None:
        if move.new.space != self._plan.to:
            raise OpsError(
                f"{self._place} is on the move to {move.new.space.id}, which --to must name; or {next_step(move)}."
            )
        if move.step not in {Step.FILL, Step.SWITCHED}:
            raise OpsError(f"{self._place} has left this step; {next_step(move)}.")

    async def _fill(self, move: Move, target: WorkingSpace, *, anew: bool = False) -> None:
        """Gives vectors to the memories that lack them, which are all of them if it is `anew`."""
        filling: Filling | None = None
        tally = self._report.memories
        tally.found = tally.lacking = 0
        async for page in self._pages((*OF_A_TEXT, target.vector_field)):
            lacking = [snapshot for snapshot in page if anew or not has_vector(snapshot, target)]
            tally.found += len(page)
            tally.lacking += len(lacking)
            tally.to_drop += sum(anew and target.vector_field in (snapshot.to_dict() or {}) for snapshot in page)
            if lacking and filling is None:
                filling = self._filling(move, target)
            if lacking and filling:
                await self._add(lacking, filling)
            self._tell("Embedding memories" if self._plan.write else "Reading memories", tally.found, None)
        if self._plan.write:
            await self._moves.require(move)

    async def _add(self, snapshots: Sequence[DocumentSnapshot], filling: Filling) -> None:
        """Counts what the model is to embed, and has it done."""
        tally = self._report.memories
        lacking = filling.lacking(snapshots)
        for memory in lacking:
            tally.texts += len(memory.text.documents)
            tally.tokens += sum(tokens(document.text) for document in memory.text.documents)
        if self._plan.write:
            self._report.refused = filling.refused
            tally.written += await filling.fill(lacking)

    def _filling(self, move: Move, target: WorkingSpace) -> Filling:
        chosen = self._models_of(target.space)
        self._opened.append(chosen)
        pace = Pace(self._plan.per_minute)
        return Filling(
            space=InOneSpace(self._client, self._place.collection, target),
            model=Model(chosen.embedder, target.space.text_format, pace),
            pace=pace,
            part_characters=chosen.embedder.part_characters,
            require=lambda: self._moves.require(move),
        )

    # --- Switching ---

    async def switch(self) -> None:
        """Lets the collection name both spaces, the new one first."""
        standing = await self._moves.read()
        move = self._move_of(standing, (Step.FILL, Step.SWITCHED))
        if move is None:
            self._refuse_without_move(standing)
            return
        await self._count(move.new)
        self._require_filled(move)
        await self._require_indexes(move)
        if self._plan.write and move.step is Step.FILL:
            self._report.move = await self._moves.take(move, Step.SWITCHED)

    def _require_filled(self, move: Move) -> None:
        tally = self._report.memories
        # What was saved since the last look is caught up with by `finish`.
        if tally.lacking * 100 > tally.found and not self._plan.incomplete:
            raise OpsError(
                f"{tally.lacking:,} of {tally.found:,} memories of {self._place} lack a vector in {move.new.space.id}, and no"
                " search there would find them; run `reembed --write` again first. To go on without those that it names as"
                " refused, add --incomplete."
            )

    async def _require_indexes(self, move: Move) -> None:
        """Asks what a search in the new space would ask: production refuses what no index answers."""
        store = FirestoreMemories(self._client, self._place.collection)
        direction = (1.0, *[0.0] * (move.new.space.dimensions - 1))
        for topic, origin in itertools.product((None, DEFAULT_TOPIC), (None, Origin.AGENT_INFERRED)):
            filters = SearchFilters(branch_state=BranchState.ACTIVE, topic=topic, origin=origin)
            question = Question(vector=direction, vector_field=move.new.vector_field, filters=filters)
            try:
                await asyncio.gather(store.nearest(question, 1), store.nearest_parts(question, 1))
            except Unavailable as error:
                if not isinstance(error.__cause__, FailedPrecondition):
                    raise
                raise OpsError(
                    f"{self._place} lacks an index for searches in {move.new.vector_field}, or is still making it; deploy what"
                    f" `{index_command(self._place.collection, move)}` prints, and wait until it is ready."
                ) from error

    # --- Leaving a space ---

    async def leave(self, steps: Sequence[Step]) -> None:
        """Brings every memory into the space that stays, and deletes what there is of the other one."""
        standing = await self._moves.read()
        move = self._move_of(standing, steps)
        if move is None:
            if self._plan.action is Action.FINISH:
                self._refuse_without_move(standing)
            return
        last = steps[-1]
        kept, dropped = (move.new, move.old) if last is Step.FINISH else (move.old, move.new)
        if not self._plan.write:
            await self._count(kept, dropped)
            return
        if move.step is not last:
            await self._catch_up(move, kept)
            move = await self._moves.take(move, last)
            self._report.move = move
        await self._settle()
        await self._catch_up(move, kept)
        await self._drop(dropped)
        await self._moves.end()

    async def _catch_up(self, move: Move, kept: WorkingSpace) -> None:
        await self._fill(move, kept)
        if self._report.refused and not self._plan.incomplete:
            raise OpsError(
                f"The model of {kept.space.id}, or the store, refuses {len(self._report.refused):,} memories, the first of them"
                f" {self._report.refused[0]}, and no search would find these any more. To go on without them, add --incomplete."
            )

    async def _settle(self) -> None:
        """Waits for calls that began when the collection still named the other space."""
        standing = await self._moves.read()
        begun = time.monotonic() - standing.seconds
        while (elapsed := time.monotonic() - begun) < self._plan.settle:
            self._tell("Waiting for calls that began before, seconds", int(elapsed), int(self._plan.settle))
            await asyncio.sleep(min(SECONDS, self._plan.settle - elapsed))

    async def _drop(self, dropped: WorkingSpace) -> None:
        tally = self._report.memories
        leaving = Leaving(self._client, self._place.collection, dropped)
        async for page in self._pages((PARTS, dropped.vector_field)):
            concerned = [snapshot for snapshot in page if leaving.concerns(snapshot)]
            tally.to_drop += len(concerned)
            for start in range(0, len(concerned), DROPS_AT_ONCE):
                await asyncio.gather(*map(leaving.drop, concerned[start : start + DROPS_AT_ONCE]))
            tally.dropped += len(concerned)
            self._tell(f"Deleting what is in {dropped.space.id}", tally.dropped, None)

    # --- Seeing ---

    def _move_of(self, standing: Standing, steps: Sequence[Step]) -> Move | None:
        """The move that this step belongs to; None where none is under way. Raises OpsError where it is at another step."""
        self._report.named = standing.spaces.current
        self._report.move = standing.move
        if standing.move and standing.move.step not in steps:
            raise OpsError(
                f"{self._place} is on the move to {standing.move.new.space.id}, and not at this step; {next_step(standing.move)}."
            )
        return standing.move

    def _refuse_without_move(self, standing: Standing) -> None:
        """Raises OpsError where a step was to be taken: whoever relies on it must hear that it was not."""
        if self._plan.write:
            raise OpsError(
                f"{self._place} is on no move to another space, and goes on in {standing.spaces.current}; begin a move with"
                " `reembed --to MODEL@DIMENSIONS`, or check --project and --collection."
            )

    async def _count(self, kept: WorkingSpace, dropped: WorkingSpace | None = None) -> None:
        """How many memories lack a vector in one space, and how many have one in the other."""
        tally = self._report.memories
        both = [space.vector_field for space in (kept, dropped) if space]
        async for page in self._pages(both):
            tally.found += len(page)
            tally.lacking += sum(not has_vector(snapshot, kept) for snapshot in page)
            if dropped:
                tally.to_drop += sum(dropped.vector_field in (snapshot.to_dict() or {}) for snapshot in page)
            self._tell("Reading memories", tally.found, None)

    def _pages(self, fields: Sequence[str]) -> AsyncGenerator[list[DocumentSnapshot]]:
        return pages(self._client.collection(self._place.collection).select(fields).order_by(ID), PAGE)
