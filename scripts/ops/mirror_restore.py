"""Restoring a mirror: writes what the target lacks or has otherwise, and only then deletes what the mirror does not hold."""

import asyncio
import itertools
from collections.abc import Iterable, Iterator
from contextlib import aclosing

from ops.mirror_database import Database
from ops.mirror_documents import Record
from ops.mirror_folder import MirrorFolder
from ops.mirror_ledger import Ledger, open_ledger
from ops.mirror_manifest import Manifest
from ops.mirror_report import Restore, collection_of
from ops.processes import OpsError
from ops.progress import Tell

# Firestore takes 500 writes and 10 MiB at once, and counts in what it writes into its indexes.
WRITES_AT_ONCE = 50
BYTES_AT_ONCE = 1024 * 1024
BATCHES_AT_ONCE = 8
DELETIONS_AT_ONCE = 200


async def restore(report: Restore, tell: Tell) -> None:
    """Make the database of a project hold what a mirror holds, and note what was found.

    Raises OpsError, with every document whole: the same again goes on from there. Nothing is written before every file of
    the mirror is known to be as it was, and the database has answered.
    """
    folder = MirrorFolder(report.folder)
    async with folder.reading(tell, sign_in=report.sign_in) as manifest:
        report.manifest = manifest
        if manifest.project == report.project and not report.allow_source:
            raise OpsError(
                f"{report.folder} is a mirror of {report.project} itself; name another project, or add --allow-source to"
                " write over the database that it was made of."
            )
        database = Database(report.project)
        await database.moment()
        work = _Restore(database, report, tell)
        with open_ledger() as ledger:
            await work.put(folder.records(manifest, sign_in=report.sign_in), manifest, ledger)
            await work.prune(ledger)


class _Restore:
    def __init__(self, database: Database, report: Restore, tell: Tell) -> None:
        self._database = database
        self._report = report
        self._tell = tell

    async def put(self, records: Iterator[Record], manifest: Manifest, ledger: Ledger) -> None:
        batches = _batches(records)
        done = 0
        while some := list(itertools.islice(batches, BATCHES_AT_ONCE)):
            await asyncio.gather(*(self._put(batch) for batch in some))
            for record in itertools.chain.from_iterable(some):
                ledger.note("source", record.path, record.digest())
                done += 1
            self._tell("Writing documents" if self._report.write else "Comparing documents", done, manifest.documents)

    async def _put(self, batch: list[Record]) -> None:
        found = await self._database.found([record.path for record in batch])
        lacking = [record for record in batch if found.get(record.path) != record.digest()]
        if lacking and self._report.write:
            await self._database.put(lacking)
        for record in batch:
            self._tally(record, found.get(record.path))

    def _tally(self, record: Record, found: bytes | None) -> None:
        tally = self._report.collections[collection_of(record.path)]
        if found is None:
            tally.missing += 1
        elif found != record.digest():
            tally.different += 1
        else:
            tally.equal += 1

    async def prune(self, ledger: Ledger) -> None:
        """Look for documents that the mirror does not hold, and delete them where that was asked for."""
        extra: list[str] = []
        seen = 0
        async with aclosing(self._database.paths(sign_in=self._report.sign_in)) as paths:
            async for path in paths:
                seen += 1
                self._tell("Looking for other documents", seen, None)
                if ledger.holds(path):
                    continue
                self._report.collections[collection_of(path)].extra += 1
                extra.append(path)
                if len(extra) == DELETIONS_AT_ONCE:
                    await self._delete(extra)
                    extra.clear()
        await self._delete(extra)

    async def _delete(self, paths: list[str]) -> None:
        if paths and self._report.write and self._report.prune:
            await self._database.delete(paths)


def _batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    """What one commit takes at a time."""
    batch: list[Record] = []
    size = 0
    for record in records:
        if batch and (len(batch) == WRITES_AT_ONCE or size + record.size() > BYTES_AT_ONCE):
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += record.size()
    if batch:
        yield batch
