from collections.abc import Generator
from pathlib import Path

import pytest

from gemini_api import GeminiApi, surroundings
from web.wire import serving


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[GeminiApi]:
    """The Gemini API on this machine, where both routes find it, and an identity that it knows."""
    api = GeminiApi()
    with serving(api.app) as wire:
        for name, value in surroundings(f"http://127.0.0.1:{wire.port}", tmp_path).items():
            monkeypatch.setenv(name, value)
        yield api
