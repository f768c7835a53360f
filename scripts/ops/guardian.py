"""Ends what a command started, once that command is gone: however it went, kill -9 included.

The command holds the write end of this process's standard input. Lines name what is alive: `start PID`, a process that
leads its own group, `end PID`, and `scratch PATH`, a folder to remove. End of file means that the command and every
child that had not yet replaced its own copy of that end are gone.
"""

import os
import shutil
import signal
import sys


def main() -> None:
    """Read until the command is gone, then kill every group and remove every folder it left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    scratch: list[str] = []
    for line in sys.stdin:
        verb, _, rest = line.rstrip("\n").partition(" ")
        if verb == "start":
            groups.add(int(rest))
        elif verb == "end":
            groups.discard(int(rest))
        else:
            scratch.append(rest)
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except OSError:
            continue
    for path in scratch:
        shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    main()
