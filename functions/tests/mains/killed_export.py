"""Writes an archive over another one, again and again, killed before each change of the file system in turn.

Arguments: the folder of an archive, and a scratch folder. Prints, for each moment, how many memories the archive then has.
"""

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from archives import memory, write_archive
from ops.archive_folder import Folder

CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree"}


def die_before(change: int) -> None:
    """Kills this process before its so manieth change of the file system."""
    left = change

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT
        if event in CHANGES or writes:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def write_until(change: int, folder: Path) -> bool:
    """Whether the writing came to its end before it was to be killed."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    die_before(change)
    write_archive(folder, dict(map(memory, range(5, 15))))
    os._exit(0)


def memories_in(folder: Path) -> int:
    with Folder(folder).opened() as archive:
        archive.require_whole(lambda *_: None)
        return archive.manifest.count


def main(before: Path, scratch: Path) -> None:
    change = 0
    is_done = False
    while not is_done:
        folder = scratch / str(change)
        shutil.copytree(before, folder)
        is_done = write_until(change, folder)
        found = memories_in(folder)
        # Whatever the kill left behind, the next writing is as good as any.
        assert write_until(1_000, folder)
        assert memories_in(folder) == 10
        assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "memories.jsonl"]
        sys.stdout.write(f"{found}\n")
        sys.stdout.flush()
        change += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
