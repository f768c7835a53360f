"""What ./scripts/dev --check says of a service."""

import asyncio
from collections.abc import Generator

import pytest

from ops import self_check
from ops.function import Function, running_function
from ops.self_check import CheckFailed, check

pytestmark = pytest.mark.slow

TOKEN = "an-admin-token-of-this-test"


@pytest.fixture(scope="module")
def function(emulator_host: str) -> Generator[Function]:
    settings = {
        "FIRESTORE_EMULATOR_HOST": emulator_host,
        "FUNCTIONS_EMULATOR": "true",
        "GCLOUD_PROJECT": "demo-self-check",
        "MCP_ADMIN_TOKEN": TOKEN,
    }
    with running_function(settings) as running:
        yield running


def told(function: Function, *, path: str = "/mcp", token: str = TOKEN) -> list[str]:
    lines: list[str] = []
    asyncio.run(check([f"{function.url}{path}"], token, lines.append))
    return lines


def test_each_era_is_told_step_by_step(function: Function) -> None:
    lines = told(function)
    assert [line.split()[0] for line in lines if line.startswith("  ")] == ["tools", "saved", "found", "fetched"] * 2
    assert [line.split()[-1] for line in lines if not line.startswith("  ")] == ["2025-11-25", "2026-07-28"]


def test_a_refusal_fails_with_the_words_of_the_service(function: Function, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_check, "MEMORY", "")
    with pytest.raises(CheckFailed, match=r"era legacy: save_context was refused: .*content"):
        told(function)


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
def test_a_wrong_answer_fails_with_its_place(function: Function, monkeypatch: pytest.MonkeyPatch, era: str) -> None:
    monkeypatch.setattr(self_check, "ERAS", (era,))
    monkeypatch.setattr(self_check, "TOOLS", ("no_such_tool",))
    with pytest.raises(CheckFailed, match=rf"/mcp, era {era}: these tools are offered: "):
        told(function)


@pytest.mark.parametrize(("path", "token"), [("/mcp", "a-wrong-token-of-this-test"), ("/nowhere", TOKEN)])
def test_no_answer_at_all_fails_with_a_sentence(function: Function, path: str, token: str) -> None:
    with pytest.raises(CheckFailed, match=r"^The check failed at http://\S+, era legacy: .+\.$") as raised:
        told(function, path=path, token=token)
    assert token not in str(raised.value)
