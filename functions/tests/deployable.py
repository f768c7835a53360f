"""A copy of this checkout in which a preflight finds nothing wrong, and a stand-in for gcloud beside it."""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builders import ADMIN_TOKEN, PROFILES
from ops import tested
from ops.checkout import FUNCTIONS, ROOT
from running import executable

FILES = (
    ".gitignore",
    "firebase.json",
    "firestore.indexes.json",
    "firestore.rules",
    "functions/main.py",
    "functions/requirements.txt",
    "pyproject.toml",
    "requirements-dev.txt",
)
FOLDERS = ("functions/metacortex", "functions/tests", "scripts")
SECRETS = {"MCP_ADMIN_TOKEN": ADMIN_TOKEN, "MCP_CLIENT_PROFILES_JSON": json.dumps(PROFILES)}
ALIAS = "prod"
RUNTIME = f"python{sys.version_info.major}{sys.version_info.minor}"

# gcloud's own words, as version 528 says them where the API answers so.
NOT_LOGGED_IN = """\
ERROR: (gcloud.secrets.versions.list) You do not currently have an active account selected.
Please run:

  $ gcloud auth login

to obtain new credentials."""
NOT_PERMITTED = (
    "ERROR: (gcloud.secrets.versions.list) PERMISSION_DENIED: Permission 'secretmanager.versions.list' denied for resource"
    " 'projects/p/secrets/x' (or it may not exist). This command is authenticated as somebody."
)
SWITCHED_OFF = """\
ERROR: (gcloud.secrets.versions.list) PERMISSION_DENIED: Secret Manager API has not been used in project 123 before or it is \
disabled. Enable it by visiting https://console.developers.google.com/apis then retry.
- '@type': type.googleapis.com/google.rpc.ErrorInfo
  reason: SERVICE_DISABLED"""
UNREACHABLE = (
    "ERROR: gcloud crashed (ConnectionError): HTTPSConnectionPool(host='secretmanager.googleapis.com', port=443): Max retries"
    " exceeded with url: /v1/projects/p/secrets/MCP_ADMIN_TOKEN/versions"
)
UNHEARD_OF = "WARNING: a notice\nERROR: (gcloud.secrets.versions.list) ABORTED: The moon is full."


def make_deployable(folder: Path) -> Path:
    """The copy, committed. Its functions/venv is that of this checkout, and its runtime that of this Python."""
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, folder / name)
    configuration = folder / "firebase.json"
    configuration.write_text(configuration.read_text().replace("python311", RUNTIME))
    (folder / "functions/venv").symlink_to(FUNCTIONS / "venv")
    git(folder, "init", "--quiet")
    # In .gitignore it is a folder, which a link is not.
    (folder / ".git/info/exclude").write_text("functions/venv\n.firebaserc\n")
    commit(folder)
    return folder


def commit(folder: Path) -> str:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=A commit")
    return tested.commit(folder)


def git(folder: Path, *arguments: str) -> None:
    someone = ("-c", "user.name=Someone", "-c", "user.email=someone@example.org", "-c", "commit.gpgSign=false")
    subprocess.run(["git", "-C", folder, *someone, *arguments], check=True, capture_output=True)


def name_alias(folder: Path, **projects: str) -> None:
    (folder / ".firebaserc").write_text(json.dumps({"projects": projects}))


@dataclass(frozen=True)
class Gcloud:
    """A stand-in for gcloud that knows the secrets of one project, and refuses command lines that differ from ours."""

    folder: Path
    project: str

    def __post_init__(self) -> None:
        rest = f"--project={self.project} --quiet"
        executable(
            self.folder / "gcloud",
            f"""cd "{self.folder}"
            case "$*" in
                "secrets versions list $4 --format=json {rest}") secret=$4 file=$4 ;;
                "secrets versions access $4 $5 {rest}") secret=${{5#--secret=}} file=${{5#--secret=}}.$4 ;;
                *) echo "ERROR: (gcloud) unrecognized arguments: $*" >&2; exit 2 ;;
            esac
            if [ -e hangs ]; then sleep 600 & echo "$! $$" >> hangs; wait; fi
            if [ -e "refuses.$3" ]; then cat "refuses.$3" >&2; [ "$3" = access ] || echo "[]"; exit 1; fi
            if [ ! -e "$file" ]; then
                echo "ERROR: (gcloud.secrets.versions.$3) NOT_FOUND: Secret [projects/1/secrets/$secret] not found." >&2
                exit 1
            fi
            cat "$file" """,
        )

    def store(self, secrets: Mapping[str, str]) -> None:
        for name, value in secrets.items():
            self.have(name, "ENABLED")
            (self.folder / f"{name}.1").write_text(value)

    def have(self, name: str, *states: str) -> None:
        """A secret's versions, the oldest first; gcloud tells the newest first."""
        versions: list[dict[str, Any]] = [
            {
                "createTime": f"2026-11-{number:02}T10:00:00Z",
                "etag": '"x"',
                "name": f"projects/1/secrets/{name}/versions/{number}",
                "replicationStatus": {"automatic": {}},
                "state": state,
            }
            for number, state in enumerate(states, 1)
        ]
        (self.folder / name).write_text(json.dumps(versions[::-1]))

    def remove(self, name: str) -> None:
        (self.folder / name).unlink()

    def refuse(self, words: str, verb: str = "list") -> None:
        (self.folder / f"refuses.{verb}").write_text(words)

    def hang(self) -> None:
        (self.folder / "hangs").touch()

    def hung(self) -> list[int]:
        """Every process that hangs, and the one it waits for."""
        return [int(pid) for pid in (self.folder / "hangs").read_text().split()]
