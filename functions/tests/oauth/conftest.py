"""An installation in which the owner signs in, over the emulator."""

import pytest

from signing import Signing


@pytest.fixture(params=["warm", "cold"])
def signing(
    emulator_host: str, project: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Signing:
    """Once as one process, and once with a new process for every request."""
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", emulator_host)
    return Signing(project, is_cold=request.param == "cold")
