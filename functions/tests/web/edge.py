"""Requests to the HTTP edge that several of its tests send."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2

from builders import JSON_HEADERS, Service, bearer, path_of

ORIGIN = "https://claude.ai"
LISTING = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
NOT_FOUND = {"error": "Not found"}
BODY_LIMIT = 1_048_576
VALID = JSON_HEADERS | bearer("agent")


@dataclass(frozen=True)
class Sent:
    """A request to the agent's endpoint, and the status it is answered with."""

    status: int
    reason: str = ""
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=lambda: VALID)
    content: bytes = json.dumps(LISTING).encode()

    async def to(self, service: Service, **headers: str) -> httpx2.Response:
        response = await service.http.request(
            self.method, path_of("agent"), content=self.content, headers={**self.headers, **headers}
        )
        assert response.status_code == self.status
        return response

    def __str__(self) -> str:
        return f"{self.status} {self.reason or self.method}"


REFUSALS = [
    Sent(401, "unauthorized", headers=JSON_HEADERS),
    Sent(405, "method_not_allowed", method="GET"),
    Sent(413, "body_too_large", content=b" " * (BODY_LIMIT + 1)),
    Sent(415, "unsupported_media_type", headers=VALID | {"content-type": "text/plain"}),
    Sent(400, "malformed", content=b"{"),
]


async def ask(service: Service, path: str = path_of("agent"), headers: Any = VALID, **request: Any) -> httpx2.Response:
    """Posts one valid message: as the agent, unless told otherwise."""
    return await service.http.post(path, content=json.dumps(LISTING), headers=headers, **request)


def cors_headers(response: httpx2.Response) -> dict[str, str]:
    """Every header that a browser's cross-origin check or a cache's key looks at."""
    return {
        name: value for name, value in response.headers.items() if name.startswith("access-control") or name == "vary"
    }
