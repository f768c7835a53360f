"""A server on this machine that speaks the Gemini API's shapes, by key and on Vertex AI, and fails as a test says."""

import asyncio
import functools
import hashlib
import json
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

Body = dict[str, Any]
DESCRIPTION = "A diagram. The label reads Q7."


def vector_of(text: str, dimensions: int) -> list[float]:
    """A vector that belongs to a text, and is not of length one: smaller models do not normalise."""
    chance = random.Random(hashlib.sha256(text.encode()).digest())
    return [byte - 127.5 for byte in chance.randbytes(dimensions)]


def text_in(content: Body) -> str:
    return "".join(part.get("text", "") for part in content["parts"])


def failure(code: int, status: str = "SOME_STATUS", **details: Any) -> Response:
    """An error as the API words it, quoting what it was sent."""
    error = {"code": code, "message": "the prompt and the key are quoted here", "status": status, **details}
    return JSONResponse({"error": error}, code)


def generated(text: str | None = DESCRIPTION, finish: str = "STOP", **more: Any) -> Response:
    parts = [] if text is None else [{"text": text}]
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": finish}
    return JSONResponse({"candidates": [candidate], **more})


@dataclass
class GeminiApi:
    """What was asked, and what to answer next instead of the right thing."""

    asked: list[tuple[str, Body]] = field(default_factory=list[tuple[str, Body]])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    next: list[Response | Callable[[Body], Response | Awaitable[Response]]] = field(default_factory=list[Any])
    unknown_models: set[str] = field(default_factory=set[str])
    """Models that it answers 404 for."""
    instead: Callable[[Body], Awaitable[Response] | None] = lambda _: None
    """What it answers a request instead of the right thing, where that is not None."""
    before: Callable[[], Awaitable[None]] | None = None
    """What it waits for before each answer."""
    waiting: list[Body] = field(default_factory=list[Body])
    """Requests that are not answered yet."""

    @property
    def verbs(self) -> list[str]:
        return [path.rpartition(":")[2] for path, _ in self.asked]

    @property
    def app(self) -> Starlette:
        return Starlette(routes=[Route("/{path:path}", self._answer, methods=["POST"])])

    async def _answer(self, request: Request) -> Response:
        path = request.url.path
        if path == "/token":
            return JSONResponse({"access_token": "an-access-token", "expires_in": 3600, "token_type": "Bearer"})
        body = await request.json()
        self.asked.append((path, body))
        self.headers.append(dict(request.headers))
        model, _, verb = path.rpartition("/")[2].partition(":")
        if model in self.unknown_models:
            return failure(404, "NOT_FOUND")
        self.waiting.append(body)
        try:
            if self.before is not None:
                await self.before()
            if answer := self.instead(body):
                return await answer
        finally:
            self.waiting.remove(body)
        if not self.next:
            return _right(verb, body)
        scripted = self.next.pop(0)
        answer = scripted if isinstance(scripted, Response) else scripted(body)
        return answer if isinstance(answer, Response) else await answer


def _right(verb: str, body: Body) -> Response:
    match verb:
        case "batchEmbedContents":
            found = [
                {"values": vector_of(text_in(each["content"]), each["outputDimensionality"])}
                for each in body["requests"]
            ]
            return JSONResponse({"embeddings": found})
        case "embedContent":
            size = (body.get("embedContentConfig") or body)["outputDimensionality"]
            return JSONResponse({"embedding": {"values": vector_of(text_in(body["content"]), size)}})
        case "predict":
            size = body["parameters"]["outputDimensionality"]
            found = [{"embeddings": {"values": vector_of(each["content"], size)}} for each in body["instances"]]
            return JSONResponse({"predictions": found})
        case "generateContent":
            return generated()
        case _:
            return failure(404, "NOT_FOUND")


@functools.cache
def _private_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return pem.decode()


def surroundings(base: str, folder: Path) -> dict[str, str]:
    """The environment in which both routes find the API at a base URL, and an identity whose tokens come from there."""
    credentials = folder / "credentials.json"
    identity = {
        "type": "service_account",
        "project_id": "another-project",
        "private_key_id": "1",
        "private_key": _private_key(),
        "client_email": "tests@another-project.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": f"{base}/token",
    }
    credentials.write_text(json.dumps(identity))
    return {
        "GOOGLE_GEMINI_BASE_URL": base,
        "GOOGLE_VERTEX_BASE_URL": base,
        "GOOGLE_APPLICATION_CREDENTIALS": str(credentials),
        "NO_PROXY": "127.0.0.1",
    }


async def never(_: Body) -> Response:
    """Answers after anyone has stopped waiting."""
    await asyncio.sleep(60)
    return failure(500)
