"""A way in for programs that send no credential: it adds one to whatever passes, and changes nothing else."""

from collections.abc import Iterable

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
# They belong to one connection, or tell of a body as it was on the wire.
OF_THE_CONNECTION = {"connection", "content-encoding", "content-length", "keep-alive", "transfer-encoding"}


class CredentialProxy:
    """Passes requests for /mcp on to an endpoint that is named once it runs."""

    def __init__(self, token: str) -> None:
        self.endpoint: str | None = None
        self.app = Starlette(routes=[Route("/mcp", self._pass_on, methods=METHODS)])
        self._authorization = {"authorization": f"Bearer {token}"}

    async def _pass_on(self, request: Request) -> Response:
        assert self.endpoint is not None
        async with httpx2.AsyncClient(timeout=60, trust_env=False) as http:
            answer = await http.request(
                request.method,
                self.endpoint,
                content=await request.body(),
                headers=_kept(request.headers.items()) + list(self._authorization.items()),
            )
        response = Response(answer.content, answer.status_code)
        response.raw_headers += [
            (name.encode("latin-1"), value.encode("latin-1")) for name, value in _kept(answer.headers.multi_items())
        ]
        return response


def _kept(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers if name.lower() not in OF_THE_CONNECTION]
