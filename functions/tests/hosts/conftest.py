"""The real hosts and clients: tried where they are asked for, by ./scripts/test --hosts, and then never skipped."""

import os
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest
from playwright.async_api import Browser, async_playwright

from builders import environment
from ops.function import Function, running_function
from ops.hosts import REQUESTED, HostTools, provide
from ops.processes import OpsError, scratch_folder

# Nothing that a page loads is shared with the machine, and nothing is asked of the network.
FLAGS = ["--disable-gpu", "--disable-quic", "--disable-sync", "--no-proxy-server"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get(REQUESTED):
        return
    skipped = pytest.mark.skip(reason="tries real hosts and clients; ./scripts/test --hosts fetches and runs them")
    for item in items:
        if item.get_closest_marker("hosts"):
            item.add_marker(skipped)


@pytest.fixture(scope="session")
def tools() -> HostTools:
    """Node.js, Java, hosts and clients."""
    try:
        return provide()
    except OpsError as error:
        pytest.fail(str(error))


@pytest.fixture
def home() -> Generator[Path]:
    """A home of its own for one program, whose path leaves room for a socket's name."""
    with scratch_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def function(emulator_host: str) -> Generator[Function]:
    """The function as production serves it."""
    settings = environment(FIRESTORE_EMULATOR_HOST=emulator_host, GCLOUD_PROJECT="demo-hosts", MCP_URL_TOKENS="true")
    with running_function(settings) as running:
        yield running


@pytest.fixture(scope="module")
async def chromium(tools: HostTools) -> AsyncGenerator[Browser]:
    with scratch_folder() as home:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=tools.chromium, env={**tools.chromium_environment(home)}, args=FLAGS
            )
            yield browser
            await browser.close()
