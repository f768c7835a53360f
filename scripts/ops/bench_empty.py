"""The floor of a request: what serves the function, with an app that does nothing. Its source, for functions-framework."""

import functions_framework.aio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


async def _answer(request: Request) -> JSONResponse:
    await request.body()
    return JSONResponse({"jsonrpc": "2.0", "id": 1, "result": {}})


app = Starlette(routes=[Route("/healthz", _answer), Route("/mcp", _answer, methods=["POST"])])


@functions_framework.aio.http  # pyright: ignore[reportArgumentType]
async def metaCortexMcp(_: Request) -> Starlette:  # noqa: N802 - the name of the target, as in main.py
    return app
