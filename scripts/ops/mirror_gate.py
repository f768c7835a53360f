"""Whether two sides, each a mirror or the database of a project, hold the same documents."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from ops.mirror_database import Database
from ops.mirror_documents import Record
from ops.mirror_folder import MirrorFolder
from ops.mirror_ledger import open_ledger
from ops.mirror_manifest import shown
from ops.mirror_report import Gate, Holder, Side
from ops.place import database_of
from ops.processes import OpsError
from ops.progress import Tell


async def compare(gate: Gate, tell: Tell) -> None:
    """Read both sides, each as of one moment, and note what differs. Raises OpsError where one cannot be read whole."""
    with open_ledger() as ledger:
        sides: dict[Side, Holder] = {"source": gate.source, "target": gate.target}
        for side, holder in sides.items():
            noted = 0
            async with _held_by(holder, tell, sign_in=gate.sign_in) as (what, records):
                async for record in records:
                    ledger.note(side, record.path, record.digest())
                    noted += 1
                    tell(f"Reading the {side}", noted, None)
            gate.seen[side] = what
        gate.look_at(ledger.rows())
    if not gate.collections:
        raise OpsError("Neither side holds a document, which proves nothing; check --source and --target.")


@asynccontextmanager
async def _held_by(holder: Holder, tell: Tell, *, sign_in: bool) -> AsyncGenerator[tuple[str, AsyncIterator[Record]]]:
    """What a side is, and its documents."""
    if isinstance(holder, Path):
        folder = MirrorFolder(holder)
        async with (
            folder.reading(tell, sign_in=sign_in) as manifest,
            aclosing(_interruptible(folder.records(manifest, sign_in=sign_in))) as records,
        ):
            yield f"the mirror of {manifest.origin()}", records
        return
    database = Database(holder)
    moment = await database.moment()
    async with aclosing(database.records(moment, sign_in=sign_in)) as records:
        yield f"{database_of(holder)}, as it was at {shown(moment)}", records


async def _interruptible(records: Iterable[Record]) -> AsyncGenerator[Record]:
    for record in records:
        # Ctrl-C takes effect where something is awaited.
        await asyncio.sleep(0)
        yield record
