"""Real servers for what only a socket shows."""

from collections.abc import Generator

import pytest

from builders import Service, environment
from web.wire import Wire, serving


@pytest.fixture(scope="module")
def wire() -> Generator[Wire]:
    """The whole service behind uvicorn, with tokens in URLs allowed."""
    with serving(Service(environment(MCP_URL_TOKENS="true")).app) as wire:
        yield wire
