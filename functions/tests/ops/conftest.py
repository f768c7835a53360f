import shutil
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from running import DevRun, make_checkout


@pytest.fixture
def short_temporary() -> Generator[Path]:
    """A temporary folder whose path leaves room for a socket's name, which pytest's own does not."""
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="mc-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return make_checkout(tmp_path / "checkout")


@pytest.fixture
def start_dev(checkout: Path, short_temporary: Path) -> Generator[Callable[..., DevRun]]:
    """Starts ./scripts/dev with arguments and settings; whatever a failed test leaves running is ended."""
    runs: list[DevRun] = []

    def start(*arguments: str, **env: str) -> DevRun:
        runs.append(DevRun(checkout, short_temporary, arguments, env))
        return runs[-1]

    yield start
    for run in runs:
        if run.process.poll() is None:
            run.process.kill()
            run.process.wait()
