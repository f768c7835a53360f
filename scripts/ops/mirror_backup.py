"""Making a mirror: one pass over everything, as of one moment."""

import os
from contextlib import aclosing

from ops.mirror_database import Database
from ops.mirror_folder import MirrorFolder
from ops.mirror_report import Backup
from ops.place import EMULATOR, database_of
from ops.processes import OpsError
from ops.progress import Tell


async def back_up(backup: Backup, tell: Tell) -> None:
    """Write what the database of a project holds. Raises OpsError; a mirror that was there then still is."""
    folder = MirrorFolder(backup.folder)
    emulator = os.environ.get(EMULATOR) or None
    folder.require_room_for(backup.project, emulator)
    database = Database(backup.project)
    moment = await database.moment()
    with folder.replacing(backup.project, emulator, moment, force=backup.force) as writer:
        written = 0
        async with aclosing(database.records(moment, sign_in=backup.sign_in)) as records:
            async for record in records:
                writer.add(record)
                written += 1
                tell("Reading documents", written, None)
        if not written:
            raise OpsError(f"{database_of(backup.project)} holds no documents to back up; check the project's id.")
        backup.manifest = writer.finish(backup.project, emulator, sign_in=backup.sign_in)
