"""Real servers for what only a socket shows."""

from collections.abc import Generator

import pytest

from builders import Service
from web.wire import Wire, serving


@pytest.fixture(scope="module")
def wire() -> Generator[Wire]:
    """The whole service behind uvicorn."""
    with serving(Service().app) as wire:
        yield wire
