"""What Firebase deploys: one HTTPS function whose answer is the ASGI app. No logic lives here; start reading at bootstrap.py."""

import os
from pathlib import Path

import functions_framework.aio
from firebase_functions import https_fn, options
from firebase_functions.params import SecretParam
from flask import Request as FlaskRequest
from flask import Response as FlaskResponse
from starlette.applications import Starlette
from starlette.requests import Request

from metacortex.bootstrap import application
from metacortex.declaration import secrets
from metacortex.settings import REGION
from metacortex.web.limits import CALLS_AT_ONCE

app = application()


@https_fn.on_request(
    region=REGION,
    memory=options.MemoryOption.MB_512,
    timeout_sec=300,
    # What one instance serves at once; the platform starts another before it would be told 429. One process with one event
    # loop serves them: functions-framework heeds THREADS for synchronous functions alone, and WORKERS=2 would take the
    # memory twice.
    concurrency=CALLS_AT_ONCE,
    max_instances=5,
    secrets=[SecretParam(name) for name in secrets(os.environ, Path(__file__).resolve().parent)],
    invoker="public",
)
def metaCortexMcp(_: FlaskRequest) -> FlaskResponse:  # noqa: N802  # pyright: ignore[reportRedeclaration]
    """What Firebase discovers; what it serves is the function of the same name below."""
    raise NotImplementedError


_endpoint = metaCortexMcp.__firebase_endpoint__  # pyright: ignore[reportFunctionMemberAccess]


@functions_framework.aio.http  # pyright: ignore[reportArgumentType]
async def metaCortexMcp(_: Request) -> Starlette:  # noqa: N802
    return app


metaCortexMcp.__firebase_endpoint__ = _endpoint  # pyright: ignore[reportFunctionMemberAccess]
