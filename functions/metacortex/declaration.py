"""What Firebase deploys the function as: its place, its size and its secrets. Only its command line asks for this."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from firebase_functions import https_fn, options
from firebase_functions.params import SecretParam
from flask import Request, Response

from metacortex.settings import REGION, ModelProvider, project_id
from metacortex.web.limits import CALLS_AT_ONCE

ALWAYS = ("MCP_ADMIN_TOKEN", "MCP_CLIENT_PROFILES_JSON")
GEMINI_KEY = "GEMINI_API_KEY"
# A line of a dotenv file, as Firebase's command line reads it.
PROVIDER = re.compile(
    r"""^\s*(?:export)?\s*MODEL_PROVIDER\s*=[ \t]*(?P<quote>['"]?)(?P<value>[^'"#\r\n]*)(?P=quote)\s*(?:\#.*)?$""",
    re.MULTILINE,
)


def endpoint(environment: Mapping[str, str], source: Path) -> Any:
    """The declaration of the function in the folder `source`, as Firebase's SDK makes it."""

    @https_fn.on_request(
        region=REGION,
        memory=options.MemoryOption.MB_512,
        timeout_sec=300,
        # What one instance serves at once; the platform starts another before it would be told 429. One process with one
        # event loop serves them: functions-framework heeds THREADS for synchronous functions alone, and WORKERS=2 would take
        # the memory twice.
        concurrency=CALLS_AT_ONCE,
        max_instances=5,
        secrets=[SecretParam(name) for name in secrets(environment, source)],
        invoker="public",
    )
    def metaCortexMcp(_: Request) -> Response:  # noqa: N802
        raise NotImplementedError

    return metaCortexMcp.__firebase_endpoint__  # pyright: ignore[reportFunctionMemberAccess]


def secrets(environment: Mapping[str, str], source: Path) -> tuple[str, ...]:
    """The names of the secrets to bind, for the function in the folder `source`.

    A deployment fails for want of a secret that is bound and does not exist, so Gemini's key is bound only where the
    dotenv files that are deployed choose its route.
    """
    chosen = [provider for file in _dotenv_files(environment, source) for provider in _providers(file)]
    return (*ALWAYS, GEMINI_KEY) if chosen[-1:] == [ModelProvider.GEMINI] else ALWAYS


def _dotenv_files(environment: Mapping[str, str], source: Path) -> Iterator[Path]:
    """The files that Firebase's command line reads for a project, each overriding those before it."""
    yield source / ".env"
    if project := project_id(environment):
        for name in (project, *_aliases(source.parent / ".firebaserc", project)):
            yield source / f".env.{name}"
    if environment.get("FUNCTIONS_EMULATOR") == "true":
        yield source / ".env.local"


def _aliases(file: Path, project: str) -> list[str]:
    """The names that .firebaserc gives a project; none if there is no such file, or it is no good."""
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        return [alias for alias, named in json.loads(file.read_bytes())["projects"].items() if named == project]
    return []


def _providers(file: Path) -> list[str]:
    # What is wrong with a file, Firebase's command line says better.
    with suppress(OSError):
        return [line["value"].strip() for line in PROVIDER.finditer(file.read_text("utf-8-sig", errors="replace"))]
    return []
