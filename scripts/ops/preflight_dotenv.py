"""What a deployed function gets as settings: functions/.env and the dotenv file of its project or alias.

As the Firebase CLI reads them (lib/functions/env.js of firebase-tools 15.34.2): .env first; over it .env.PROJECT, or .env.ALIAS
where the deployment names the alias; both at once it refuses, as it does names that are reserved.
"""

import difflib
import io
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from dotenv.parser import Binding, parse_stream

from metacortex.settings import TABLE
from ops.local_settings import Faulty, text_of
from ops.preflight_plan import Deployment
from ops.preflight_report import check, faulty
from ops.processes import OpsError

SECRETS = tuple(setting.name for setting in TABLE if setting.secret)

# A line that python-dotenv, which reads for ./scripts/dev, and the Firebase CLI take for the same: they differ over # within
# a value, over \ between quotes, and over what spans lines.
_LINE = re.compile(
    r"""(?:export[ \t]+)?(?P<name>\w+)[ \t]*=[ \t]*(?:'[^'\\\n]*'|"[^"\\\n]*"|[^\s'"#][^#\n]*?)?(?:(?<=[^\s=])\s+\#[^\n]*)?"""
)
_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")
_RESERVED = re.compile(
    r"(?:X_GOOGLE_|FIREBASE_|EXT_|KIT_).*|CLOUD_RUNTIME_CONFIG|EVENTARC_CLOUD_EVENT_SOURCE|ENTRY_POINT|GCP_PROJECT"
    r"|GCLOUD_PROJECT|GOOGLE_CLOUD_PROJECT|FUNCTION_(?:TRIGGER_TYPE|NAME|MEMORY_MB|TIMEOUT_SEC|IDENTITY|REGION|TARGET"
    r"|SIGNATURE_TYPE)|K_SERVICE|K_REVISION|K_CONFIGURATION|PORT"
)
# In the folder of the function, but never read for a deployment.
NEVER_DEPLOYED = (".env.local", ".env.example")


@check("alias")
async def alias(deployment: Deployment) -> str:
    """.firebaserc, where there is one, knows the alias for this project, and no dotenv file is named wrong."""
    known = aliases(deployment.root)
    faulty([*_alias_faults(deployment, known), *_file_faults(deployment, known)])
    read = " and ".join(_shown(file) for file in _deployed_files(deployment))
    return (
        f"{deployment.alias} is {deployment.project}; its settings are {f'those in {read}' if read else 'the defaults'}."
        f" Deploy with `firebase deploy --project {deployment.alias}`."
    )


async def read_deployed(deployment: Deployment) -> dict[str, str]:
    """What the dotenv files of a deployment set. Raises Faulty, naming the lines, where the Firebase CLI would refuse one."""
    values: dict[str, str] = {}
    for file in _deployed_files(deployment):
        values |= _values_in(file)
    return values


def misspelt(values: Mapping[str, str]) -> list[str]:
    """A fault for every name that is nearly a setting's."""
    settings = [setting.name for setting in TABLE]
    unknown = {
        name: difflib.get_close_matches(name, settings, 1, cutoff=0.85) for name in sorted({*values} - {*settings})
    }
    return [f"{name} is no setting; did you mean {near[0]}?" for name, near in unknown.items() if near]


def exposed_secrets(deployment: Deployment) -> list[str]:
    """A fault for every secret in a dotenv file of the deployment; Firebase refuses those that it is to bind as well."""
    return [
        f"{name} stands in {_shown(file)}, and would become a variable that everybody can read who may look at the function;"
        " move it to Secret Manager, delete that line, and if it was ever deployed so, make a new one."
        for file in _deployed_files(deployment)
        for name in _values_in(file)
        if name in SECRETS
    ]


def aliases(root: Path) -> Mapping[str, str]:
    """What .firebaserc calls projects: each alias with its project. Raises OpsError where that cannot be read."""
    try:
        projects = json.loads((root / ".firebaserc").read_text()).get("projects", {})
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError):
        raise OpsError(
            ".firebaserc is not a JSON object; make it again with `firebase use PROJECT --alias ALIAS`."
        ) from None
    return {str(name): str(project) for name, project in projects.items()}


def _alias_faults(deployment: Deployment, known: Mapping[str, str]) -> list[str]:
    project, alias = deployment.project, deployment.alias
    mapped = known.get(alias)
    if mapped is None and alias != project:
        make = f"firebase use {project} --alias {alias}"
        unknown = f"The Firebase CLI does not know the alias {alias}, and would take it for a project; run `{make}`,"
        return [f"{unknown} or deploy without an alias and repeat this with --alias {project}."]
    if mapped not in {None, project}:
        return [f".firebaserc maps {alias} to {mapped}, not to {project}; name the right one of both."]
    return []


def _file_faults(deployment: Deployment, known: Mapping[str, str]) -> list[str]:
    own = {f".env.{deployment.project}", f".env.{deployment.alias}"}
    others = {f".env.{name}" for pair in known.items() for name in pair}
    there = [file for file in _dotenv_files(deployment) if file.name != ".env"]
    faults = [
        f"{_shown(file)} is read for no deployment, for it is named for no alias and no project;"
        f" rename it to functions/.env.{deployment.alias}, or remove it."
        for file in there
        if file.name not in own | others | {*NEVER_DEPLOYED}
    ]
    if len(own.intersection(file.name for file in there)) > 1:
        faults.append(
            f"The Firebase CLI refuses {' beside '.join(f'functions/{name}' for name in sorted(own))}; keep one."
        )
    return faults


def _dotenv_files(deployment: Deployment) -> list[Path]:
    return sorted(deployment.functions.glob(".env")) + sorted(deployment.functions.glob(".env.*"))


def _deployed_files(deployment: Deployment) -> list[Path]:
    names = {".env", f".env.{deployment.project}", f".env.{deployment.alias}"}
    return [file for file in _dotenv_files(deployment) if file.name in names]


def _values_in(file: Path) -> dict[str, str]:
    lines = [binding for binding in parse_stream(io.StringIO(text_of(file))) if not _says_nothing(binding)]
    if faults := [fault for line in lines for fault in _faults(line)]:
        raise Faulty(_shown(file), faults)
    return {line.key: line.value or "" for line in lines if line.key}


def _says_nothing(binding: Binding) -> bool:
    text = binding.original.string.strip()
    return not text or text.startswith("#")


def _faults(binding: Binding) -> Iterator[str]:
    """What is wrong with a line. Never the line itself: it may be a secret that somebody pasted."""
    text = binding.original.string
    place = f"Line {binding.original.line + text[: len(text) - len(text.lstrip())].count(chr(10))}"
    line = _LINE.fullmatch(text.strip())
    if line is None:
        yield f"{place} is not a plain NAME=value; keep a value to one line, and one with # between quotes, without \\ in it."
    elif not _NAME.fullmatch(line["name"]):
        yield f"{place} has a name that the Firebase CLI refuses; use upper-case letters, digits and _."
    elif _RESERVED.fullmatch(line["name"]):
        yield f"{place} sets {line['name']}, which is reserved for the platform; remove it."


def _shown(file: Path) -> str:
    return f"functions/{file.name}"
