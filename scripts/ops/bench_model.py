"""A server that stands in for the Gemini API by key: the same vector for the same text, after a delay that can be set.

It counts what it answers, and keeps it while it is told to. Texts that share words have similar vectors. `PUT /control` sets
`delay_ms` and `keep`, and begins a new count; `GET /control` answers `calls` and `kept`.
"""

import asyncio
import functools
import hashlib
import re
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

Body = dict[str, Any]


@functools.lru_cache(maxsize=50_000)
def _direction(word: str, dimensions: int) -> NDArray[np.float64]:
    seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
    return np.random.default_rng(seed).standard_normal(dimensions)


def vector_of(text: str, dimensions: int) -> list[float]:
    """The unit vector between the directions of a text's words, with as many digits as the API answers."""
    words = re.findall(r"\w+", text.lower()) or [""]
    total = np.sum([_direction(word, dimensions) for word in words], axis=0)
    return np.round(total / np.linalg.norm(total), 8).tolist()


@dataclass(frozen=True)
class Kept:
    """One call. Times are seconds of this machine's monotonic clock, which all its processes share."""

    path: str
    body: Body
    began: float
    ended: float


class StandIn:
    def __init__(self) -> None:
        self._delay = 0.0
        self._keeps = False
        self._calls = 0
        self._kept: list[Kept] = []

    async def control(self, request: Request) -> Response:
        if request.method == "PUT":
            asked = await request.json()
            self._delay = asked["delay_ms"] / 1000
            self._keeps = asked["keep"]
            self._calls, self._kept = 0, []
        return JSONResponse({"calls": self._calls, "kept": [asdict(call) for call in self._kept]})

    async def answer(self, request: Request) -> Response:
        began = time.monotonic()
        body: Body = await request.json()
        await asyncio.sleep(self._delay)
        self._calls += 1
        if self._keeps:
            self._kept.append(Kept(request.url.path, body, began, time.monotonic()))
        return _answer(request.url.path.rpartition(":")[2], body)


def _answer(verb: str, body: Body) -> Response:
    match verb:
        case "batchEmbedContents":
            return JSONResponse({"embeddings": [{"values": _embedded(asked)} for asked in body["requests"]]})
        case "embedContent":
            return JSONResponse({"embedding": {"values": _embedded(body)}})
        case "generateContent":
            merged = {"role": "model", "parts": [{"text": "All of it in one memory."}]}
            return JSONResponse({"candidates": [{"content": merged, "finishReason": "STOP"}]})
        case _:
            return JSONResponse({"error": {"code": 404, "message": "No such method.", "status": "NOT_FOUND"}}, 404)


def _embedded(asked: Body) -> list[float]:
    text = " ".join(part.get("text", "") for part in asked["content"]["parts"])
    return vector_of(text, asked["outputDimensionality"])


async def _health(_: Request) -> Response:
    return JSONResponse({"ok": True})


def create_app() -> Starlette:
    stand_in = StandIn()
    return Starlette(
        routes=[
            Route("/healthz", _health),
            Route("/control", stand_in.control, methods=["GET", "PUT"]),
            Route("/{version}/{method:path}", stand_in.answer, methods=["POST"]),
        ]
    )
