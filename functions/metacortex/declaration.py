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

from metacortex.settings import REGION, ModelProvider, SignInWay, project_id
from metacortex.web.limits import CALLS_AT_ONCE

ALWAYS = ("MCP_ADMIN_TOKEN", "MCP_CLIENT_PROFILES_JSON")
GEMINI_KEY = "GEMINI_API_KEY"
OWNER_HASH = "OWNER_PASSPHRASE_HASH"
GOOGLE_KEY = "GOOGLE_SIGN_IN_CLIENT_SECRET"
# A line of a dotenv file that a secret depends on, as Firebase's command line reads it.
SETTING = re.compile(
    r"^\s*(?:export)?\s*(?P<name>MODEL_PROVIDER|PUBLIC_BASE_URL|OWNER_SIGN_IN|GOOGLE_SIGN_IN_CLIENT_ID)\s*=[ \t]*"
    r"""(?P<quote>['"]?)(?P<value>[^'"#\r\n]*)(?P=quote)\s*(?:\#.*)?$""",
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

    A deployment fails for want of a secret that is bound and does not exist, so one that not every installation has is bound
    only where the dotenv files that are deployed need it: Gemini's key for its route, and the secret of each way in which the
    owner signs in.
    """
    chosen = dict(line for file in _dotenv_files(environment, source) for line in _settings(file))
    ways = _ways(chosen)
    needed = {
        GEMINI_KEY: chosen.get("MODEL_PROVIDER") == ModelProvider.GEMINI,
        OWNER_HASH: SignInWay.PASSPHRASE in ways,
        GOOGLE_KEY: SignInWay.GOOGLE in ways,
    }
    return (*ALWAYS, *(name for name, is_needed in needed.items() if is_needed))


def _ways(chosen: Mapping[str, str]) -> list[str]:
    """How the owner signs in: as the settings say, else in one way, for a second is bound to be asked for."""
    if named := chosen.get("OWNER_SIGN_IN"):
        return [way.strip() for way in named.split(",")]
    if chosen.get("GOOGLE_SIGN_IN_CLIENT_ID"):
        return [SignInWay.GOOGLE]
    return [SignInWay.PASSPHRASE] if chosen.get("PUBLIC_BASE_URL") else []


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


def _settings(file: Path) -> list[tuple[str, str]]:
    # What is wrong with a file, Firebase's command line says better.
    with suppress(OSError):
        lines = SETTING.finditer(file.read_text("utf-8-sig", errors="replace"))
        return [(line["name"], line["value"].strip()) for line in lines]
    return []
