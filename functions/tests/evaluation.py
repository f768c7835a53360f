"""`metacortex eval` as an owner runs it, and small packs for it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ops.cli import app

COLLECTION = "memory_vectors_eval"
SETTINGS = {
    "MEMORY_COLLECTION": "memory_vectors",
    "RETRIEVAL_EVAL_MEMORY_COLLECTION": COLLECTION,
    "RETRIEVAL_MODE": "vector",
    "MODEL_PROVIDER": "local",
    "MCP_BASE_URL": None,
    "MCP_ADMIN_TOKEN": None,
}
"""What the files of this checkout may say otherwise."""

Document = dict[str, Any]


def memory(key: str, content: str, **fields: Any) -> Document:
    return {"key": key, "topic": "birds", "content": content, "created_at": "2025-03-01T08:00:00Z", **fields}


def case(query: str, *keys: str, **fields: Any) -> Document:
    return {"query": query, "positive_keys": list(keys), "category": "plain", **fields}


OWL = memory("owl", "Owls hunt mice at night.")
HERON = memory("heron", "Herons stand in shallow water and wait for fish.")
SWIFT = memory("swift", "Swifts sleep while they fly.")
BIRDS: Document = {
    "name": "birds",
    "memories": [OWL, HERON, SWIFT],
    "cases": [
        case("which bird hunts mice at night", "owl"),
        case("which bird waits for fish in shallow water", "heron"),
        case("birds that are fed", "owl", "heron", category="several"),
    ],
}
OFF_TOPIC = case("how is a will contested in court", category="off-topic")


class Evaluation:
    """Runs the command for one database, beside the loop of the test."""

    def __init__(self, project: str, folder: Path) -> None:
        self._project = project
        self._folder = folder

    async def __call__(self, name: str, *arguments: str, status: int = 0, **env: str | None) -> Result:
        options = [name, *arguments, "--project", self._project]
        result = await asyncio.to_thread(invoke, *options, **env)
        assert result.exit_code == status, result.output
        return result

    async def load(self, pack: Document, *, status: int = 0, **env: str | None) -> Result:
        return await self("load", self.file(pack), "--model", "local", status=status, **env)

    async def run(self, *arguments: str, status: int = 0, **env: str | None) -> Document:
        """What `eval run --json` prints."""
        return json.loads((await self("run", *arguments, "--json", "--model", "local", status=status, **env)).stdout)

    def file(self, document: Any, name: str = "pack.json") -> str:
        path = self._folder / name
        path.write_text(json.dumps(document))
        return str(path)


def invoke(*arguments: str, **env: str | None) -> Result:
    return CliRunner().invoke(app, ["eval", *arguments], env={**SETTINGS, **env}, catch_exceptions=False)


def use_the_loop_of_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """grpc's poller belongs to the loop that used it first: what a command runs, it runs there."""
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(asyncio, "run", lambda work: asyncio.run_coroutine_threadsafe(work, loop).result())


def said(result: Result) -> str:
    """What was said on standard error, on one line, without the lines that tell the progress."""
    return " ".join(result.stderr.split())
