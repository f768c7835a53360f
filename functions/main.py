"""What Firebase deploys: one HTTPS function whose answer is the ASGI app. No logic lives here; start reading at bootstrap.py."""

import os
from pathlib import Path

import functions_framework.aio
from starlette.applications import Starlette
from starlette.requests import Request

from metacortex.bootstrap import application

app = application()


@functions_framework.aio.http  # pyright: ignore[reportArgumentType]
async def metaCortexMcp(_: Request) -> Starlette:  # noqa: N802
    return app


# Whoever serves the function sets this. Only Firebase's command line asks what to deploy, and its SDK takes as long to import
# as the server.
if "FUNCTION_TARGET" not in os.environ:
    from metacortex.declaration import endpoint

    metaCortexMcp.__firebase_endpoint__ = endpoint(  # pyright: ignore[reportFunctionMemberAccess]
        os.environ, Path(__file__).resolve().parent
    )
