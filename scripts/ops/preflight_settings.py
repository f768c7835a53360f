"""Whether the deployed function would accept its configuration."""

import re
import secrets
from collections.abc import Awaitable, Mapping

from metacortex.errors import ConfigurationError
from metacortex.settings import ModelProvider, Settings, in_emulator, load
from ops.preflight_dotenv import SECRETS, misspelt
from ops.preflight_report import check, faulty
from ops.preflight_secrets import ENABLED, Versions
from ops.processes import OpsError


@check("configuration")
async def configuration(
    values: Awaitable[Mapping[str, str]], versions: Awaitable[Versions], payloads: Awaitable[Mapping[str, str]]
) -> str:
    """The dotenv files and the secrets make a valid configuration of a deployed function."""
    told = await values
    environment = _with_stand_ins(told)
    missing: list[str] = []
    unread = ""
    try:
        environment |= await payloads
        missing = [name for name, version in (await versions).items() if version is None or version.state != ENABLED]
    except OpsError as error:
        unread = str(error)
    faulty(_faults(environment, told))
    if unread:
        raise OpsError(f"The dotenv files are valid, but the secrets could not be read. {unread}")
    if missing:
        raise OpsError(f"All but {', '.join(missing)} is valid; store what is missing, then run this again.")
    profiles = len(load(environment).profiles) - 1
    return f"Valid, with {profiles} client profile{'' if profiles == 1 else 's'}."


async def read_settings(values: Awaitable[Mapping[str, str]]) -> Settings:
    """The settings of a deployment, but for its secrets. Raises OpsError where they are faulty."""
    told = await values
    if _faults(_with_stand_ins(told), told):
        raise OpsError("The configuration has to be valid first.")
    return load(_with_stand_ins(told))


def _faults(environment: Mapping[str, str], told: Mapping[str, str]) -> list[str]:
    """Everything wrong with what a function is to be given, of which the dotenv files tell a part."""
    faults = misspelt(told)
    if in_emulator(told):
        faults.append("A dotenv file names an emulator, which a deployed function would use; remove that line.")
    if told.get("MODEL_PROVIDER", "").strip() == ModelProvider.LOCAL:
        faults.append("MODEL_PROVIDER=local works on your own machine only; deploy vertex or gemini.")
    faults += _origin_faults(told)
    try:
        load(environment)
    except ConfigurationError as error:
        faults.extend(error.faults)
    return faults


def _origin_faults(told: Mapping[str, str]) -> list[str]:
    """What is wrong, for a deployed function alone, with the origins that signing in goes by."""
    faults = [
        f"{name} is an origin without TLS, which works on your own machine only; deploy one that begins with https://."
        for name in ("PUBLIC_BASE_URL", "GOOGLE_SIGN_IN_ISSUER")
        if told.get(name, "").strip().startswith("http://")
    ]
    if _SHARED_ROOT.search(told.get("PUBLIC_BASE_URL", "").strip()):
        faults.append(
            "PUBLIC_BASE_URL is on cloudfunctions.net, where only a path is the function's, so that no client finds how to sign"
            " in; name the origin of its URL on run.app, of a Hosting site, or of a domain of your own."
        )
    return faults


def _with_stand_ins(told: Mapping[str, str]) -> dict[str, str]:
    """The dotenv files' settings, and for each secret something that is valid."""
    with_google = told.get("GOOGLE_SIGN_IN_CLIENT_ID", "").strip()
    return {
        **told,
        **dict.fromkeys(SECRETS, ""),
        "MCP_ADMIN_TOKEN": _RANDOM,
        "GEMINI_API_KEY": _RANDOM,
        "OWNER_PASSPHRASE_HASH": f"$argon2id${_RANDOM}",
        "GOOGLE_SIGN_IN_CLIENT_SECRET": _RANDOM if with_google else "",
    }


_SHARED_ROOT = re.compile(r"\.cloudfunctions\.net(?::\d+)?$")
_RANDOM = secrets.token_urlsafe(32)
