"""The Messages API, as far as Claude Code asks it for anything, with a model behind it that uses one tool once."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

USAGE = {"input_tokens": 1, "output_tokens": 1}


@dataclass(frozen=True)
class ObedientModel:
    tool: str
    arguments: Mapping[str, Any]

    @property
    def app(self) -> Starlette:
        return Starlette(routes=[Route("/v1/messages", self._answer, methods=["POST"])])

    async def _answer(self, request: Request) -> Response:
        asked = await request.json()
        is_done = any(part["type"] == "tool_result" for part in asked["messages"][-1]["content"])
        return Response("".join(_said("It is done.") if is_done else self._uses()), media_type="text/event-stream")

    def _uses(self) -> Iterator[str]:
        block = {"type": "tool_use", "id": "toolu_1", "name": self.tool, "input": {}}
        return _message(
            block, {"type": "input_json_delta", "partial_json": json.dumps(self.arguments)}, stops_for="tool_use"
        )


def _said(text: str) -> Iterator[str]:
    return _message({"type": "text", "text": ""}, {"type": "text_delta", "text": text}, stops_for="end_turn")


def _message(block: Mapping[str, Any], delta: Mapping[str, Any], *, stops_for: str) -> Iterator[str]:
    """A message of one block, as the events in which it is told."""
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "obedient",
        "content": [],
        "usage": USAGE,
    }
    yield _event("message_start", message=message)
    yield _event("content_block_start", index=0, content_block=block)
    yield _event("content_block_delta", index=0, delta=delta)
    yield _event("content_block_stop", index=0)
    yield _event("message_delta", delta={"stop_reason": stops_for, "stop_sequence": None}, usage=USAGE)
    yield _event("message_stop")


def _event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"
