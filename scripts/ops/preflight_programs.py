"""Other programs that a preflight asks, each within its time."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Ended:
    """How a program ended, and all it wrote."""

    exit_code: int
    # What gcloud prints may be a secret.
    out: str = field(repr=False)
    err: str


async def run(
    command: Sequence[str | Path], *, seconds: float, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Ended:
    """Run a program to its end, without input.

    Raises FileNotFoundError where there is none, and TimeoutError after `seconds`, when it and all it started is ended.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd,
        env=env,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(seconds):
            out, err = await process.communicate()
    except BaseException:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))
