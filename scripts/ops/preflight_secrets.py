"""The secrets of a project, as gcloud shows them: which there are, and, in memory only, what they hold."""

import asyncio
import json
import re
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass

from metacortex import declaration
from ops.preflight_dotenv import exposed_secrets
from ops.preflight_plan import Deployment
from ops.preflight_programs import run
from ops.preflight_report import check, faulty
from ops.processes import OpsError

ENABLED = "ENABLED"

# How gcloud (528) words what went wrong; the first that is found decides.
_UNKNOWN = "NOT_FOUND: Secret "
_REASONS: Mapping[str, str] = {
    r"gcloud auth login|UNAUTHENTICATED|[Rr]eauthentication": (
        "gcloud is not logged in, or its login has expired; run `gcloud auth login`, then this again."
    ),
    r"SERVICE_DISABLED|has not been used in project": (
        "Secret Manager is not switched on in {project}; run"
        " `gcloud services enable secretmanager.googleapis.com --project {project}`."
    ),
    r"PERMISSION_DENIED": (
        "gcloud's account may not {what} of {project}, or there is no such project; have its owner grant {role},"
        " or choose the account with `gcloud config set account`."
    ),
    r"gcloud crashed \((?:Connection|Timeout|SSL)": (
        "gcloud cannot reach Secret Manager; check the network, then run this again."
    ),
}


@dataclass(frozen=True)
class Version:
    """The newest version of a secret: the one a deployment takes, whatever its state."""

    number: str
    state: str
    """ENABLED, DISABLED or DESTROYED."""


Versions = Mapping[str, Version | None]
"""The newest version of each secret by its name; None for a secret that is not there, or has none."""


@check("secrets")
async def secrets(deployment: Deployment, versions: Awaitable[Versions]) -> str:
    """Every secret is in Secret Manager, enabled, and in no dotenv file."""
    faults = exposed_secrets(deployment)
    newest: Versions = {}
    try:
        newest = await versions
    except OpsError as error:
        faults.append(str(error))
    faulty([*faults, *(fault for name, version in newest.items() for fault in _faults(deployment, name, version))])
    return f"{_joined(newest)} are in Secret Manager and enabled, and in no dotenv file."


async def newest_versions(deployment: Deployment, values: Awaitable[Mapping[str, str]]) -> Versions:
    """The newest version of each secret that a deployment binds. Raises OpsError where gcloud or a file cannot tell."""
    # What is declared depends on the dotenv files, and the declaration passes over a line that cannot be read.
    await values
    names = declaration.secrets({"GCLOUD_PROJECT": deployment.project}, deployment.functions)
    return dict(zip(names, await asyncio.gather(*(_newest(deployment, name) for name in names)), strict=True))


async def read_secrets(deployment: Deployment, versions: Awaitable[Versions]) -> dict[str, str]:
    """What the enabled secrets hold, by name. Raises OpsError where gcloud may not read them."""
    readable = {
        name: version.number for name, version in (await versions).items() if version and version.state == ENABLED
    }
    payloads = await asyncio.gather(*(_payload(deployment, name, number) for name, number in readable.items()))
    return dict(zip(readable, payloads, strict=True))


async def _newest(deployment: Deployment, name: str) -> Version | None:
    ended = await _gcloud(deployment, "list", name, "--format=json")
    if ended is None:
        return None
    try:
        versions = [Version(str(each["name"]).rpartition("/")[2], str(each["state"])) for each in json.loads(ended)]
        return max(versions, key=lambda version: int(version.number), default=None)
    except (ValueError, TypeError, KeyError):
        raise OpsError(
            "gcloud did not answer with a list of versions; update it with `gcloud components update`."
        ) from None


async def _payload(deployment: Deployment, name: str, number: str) -> str:
    payload = await _gcloud(deployment, "access", number, f"--secret={name}")
    if payload is None:
        raise OpsError(f"{name} has just been deleted from Secret Manager; run this again.")
    return payload


async def _gcloud(deployment: Deployment, verb: str, *arguments: str) -> str | None:
    """What `gcloud secrets versions` prints; None where it knows no such secret. Raises OpsError, never with what it printed."""
    # --quiet: a question, such as whether to switch an API on, is answered by no.
    command = ("gcloud", "secrets", "versions", verb, *arguments, f"--project={deployment.project}", "--quiet")
    try:
        ended = await run(command, seconds=deployment.seconds)
    except FileNotFoundError:
        raise OpsError(
            "gcloud is not installed, or not on PATH; install the Google Cloud CLI"
            " (https://cloud.google.com/sdk/docs/install), run `gcloud auth login`, then this again."
        ) from None
    except TimeoutError:
        raise OpsError(
            f"gcloud did not answer within {deployment.seconds:g} seconds; see what"
            f" `gcloud secrets list --project {deployment.project}` says, or allow more with --timeout."
        ) from None
    if ended.exit_code == 0:
        return ended.out
    if _UNKNOWN in ended.err:
        return None
    raise OpsError(_reason(deployment, verb, ended.err))


def _reason(deployment: Deployment, verb: str, said: str) -> str:
    reading = verb == "access"
    told = {
        "project": deployment.project,
        "what": "read the secrets" if reading else "list the secrets",
        "role": "roles/secretmanager.secretAccessor" if reading else "roles/secretmanager.viewer",
    }
    for pattern, sentence in _REASONS.items():
        if re.search(pattern, said):
            return sentence.format(**told)
    error = next((line for line in said.splitlines() if line.startswith("ERROR:")), "it did not say why")
    return f"gcloud cannot {told['what']} of {deployment.project} ({error[:300]})."


def _faults(deployment: Deployment, name: str, version: Version | None) -> list[str]:
    store = f"firebase functions:secrets:set {name} --project {deployment.project}"
    if version is None:
        return [f"{name} is not in Secret Manager; {_HOW_TO_MAKE[name].format(store=store)}."]
    if version.state == ENABLED:
        return []
    state = f"The newest version of {name}, which is the one a deployment takes, is {version.state.lower()};"
    if version.state == "DISABLED":
        enable = f"gcloud secrets versions enable {version.number} --secret {name} --project {deployment.project}"
        return [f"{state} run `{enable}`, or store a new one with `{store}`."]
    return [f"{state} store a new one with `{store}`."]


_HOW_TO_MAKE: Mapping[str, str] = {
    "MCP_ADMIN_TOKEN": "run `openssl rand -base64 32`, keep what it prints, and store it with `{store}`",
    "MCP_CLIENT_PROFILES_JSON": (
        "run `printf '[]' | ./scripts/metacortex profile add ID --print-json --file - > profiles.json`, then"
        " `{store} --data-file profiles.json`, and remove the file"
    ),
    "GEMINI_API_KEY": "make a key at https://aistudio.google.com/apikey, and store it with `{store}`",
    "OWNER_PASSPHRASE_HASH": (
        "run `./scripts/metacortex owner passphrase --print > hash.txt`, then `{store} --data-file hash.txt`, and remove the"
        " file"
    ),
    "GOOGLE_SIGN_IN_CLIENT_SECRET": (
        "make an OAuth client for a web application at https://console.cloud.google.com/auth/clients, and store its secret"
        " with `{store}`"
    ),
}


def _joined(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}"
