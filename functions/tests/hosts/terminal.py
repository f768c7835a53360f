"""A program in a terminal of its own: what it shows there, and what a person types."""

import asyncio
import os
import pty
import re
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

SECONDS = 120


class Terminal:
    def __init__(self, process: Process, screen: int) -> None:
        self._process = process
        self._screen = screen
        self._shown = ""
        self._unread = 0

    async def shows(self, pattern: str) -> str:
        """Waits until the program shows this, after what was waited for before; fails where it ends without."""
        async with asyncio.timeout(SECONDS):
            while not (found := re.compile(pattern).search(self._shown, self._unread)):
                assert await self._read(), self._shown
        self._unread = found.end()
        return found[0]

    def type(self, text: str) -> None:
        os.write(self._screen, text.encode())

    async def ends(self) -> tuple[int, str]:
        """The exit status, and all that was shown."""
        async with asyncio.timeout(SECONDS):
            while await self._read():
                pass
            return await self._process.wait(), self._shown

    async def _read(self) -> bool:
        """Whether there was more."""
        try:
            more = await asyncio.to_thread(os.read, self._screen, 4096)
        except OSError:
            # The system's word for a terminal that its last program has left.
            return False
        self._shown += more.decode(errors="replace")
        return bool(more)


@asynccontextmanager
async def in_terminal(command: Sequence[str], env: Mapping[str, str], cwd: Path) -> AsyncGenerator[Terminal]:
    """Runs a program in a terminal, and ends it with the block."""
    screen, device = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=device,
        stdout=device,
        stderr=device,
        env={**env, "TERM": "xterm"},
        cwd=cwd,
        start_new_session=True,
    )
    os.close(device)
    try:
        yield Terminal(process, screen)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        os.close(screen)
