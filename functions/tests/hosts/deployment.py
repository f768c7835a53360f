"""`firebase deploy` from a copy of this checkout, against a stand-in for Google: no account, and nothing leaves the machine."""

import io
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hosts.firebase_suite import discovering, own_runtime
from hosts.google_api import UPLOADS, GoogleApi
from ops.checkout import ROOT
from ops.hosts import HostTools
from ops.processes import scratch_folder
from web.wire import serving

PROJECT = "demo-deployed"
ALIAS = "production"
SECRETS = frozenset({"MCP_ADMIN_TOKEN", "MCP_CLIENT_PROFILES_JSON"})
# What a checkout holds that git does not.
MADE = shutil.ignore_patterns(
    ".git", ".metacortex", "venv", "__pycache__", ".*_cache", ".hypothesis", ".env*", ".secret*"
)
# Where the command line finds each of Google's services, unless the environment says otherwise.
ADDRESS = re.compile(r'envOverride\("([A-Z0-9_]+)",\s*"https://')


@dataclass(frozen=True)
class Deployment:
    """What became of one run."""

    exit_status: int
    output: str
    google: GoogleApi

    @property
    def uploaded(self) -> list[str]:
        """The paths of the files in the source that was uploaded; none if it was not."""
        return sorted(self._files())

    @property
    def bytecode(self) -> dict[str, bytes]:
        """The compiled modules among them, by their paths."""
        return {name: content for name, content in self._files().items() if name.endswith(".pyc")}

    def _files(self) -> dict[str, bytes]:
        files: dict[str, bytes] = {}
        for upload in self.google.changes(UPLOADS):
            with zipfile.ZipFile(io.BytesIO(upload.body)) as archive:
                files |= {name: archive.read(name) for name in archive.namelist()}
        return files

    @property
    def secrets(self) -> list[str]:
        """The secrets that the function is bound to."""
        return [each["key"] for each in self.google.function["serviceConfig"]["secretEnvironmentVariables"]]

    def created_indexes(self) -> list[dict[str, Any]]:
        """The composite indexes, in the form of the index file."""
        made = self.google.changes(r".*/collectionGroups/[^/]+/indexes")
        return [{"collectionGroup": each.path.split("/")[-2], **each.json()} for each in made]

    def changed_fields(self) -> list[dict[str, Any]]:
        """The single-field settings, in the form of the index file."""
        found: list[dict[str, Any]] = []
        for each in self.google.changes(r".*/collectionGroups/[^/]+/fields/[^/]+"):
            collection, _, path = each.path.split("/")[-3:]
            ttl = {"ttl": True} if "ttlConfig" in each.json() else {}
            found.append({"collectionGroup": collection, "fieldPath": path, **ttl, **each.json()["indexConfig"]})
        return found


def deploy(
    tools: HostTools, *arguments: str, files: Mapping[str, str], secrets: frozenset[str] = SECRETS
) -> Deployment:
    """Run `firebase deploy` for the installation `production`, with files of a test's own in the checkout."""
    google = GoogleApi(secrets)
    with scratch_folder() as folder, serving(google.app) as wire, discovering(tools):
        home = folder / "home"
        home.mkdir()
        checkout = _copy(folder / "checkout", files)
        command = [*tools.command("firebase-tools", "firebase"), "deploy", "--project", ALIAS, "--non-interactive"]
        run = subprocess.run(
            [*command, *arguments],
            cwd=checkout,
            env=tools.environment(home, FIREBASE_TOKEN="a-token", **_addresses(tools, f"http://127.0.0.1:{wire.port}")),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=300,
        )
    return Deployment(run.returncode, run.stdout, google)


def _copy(checkout: Path, files: Mapping[str, str]) -> Path:
    shutil.copytree(ROOT, checkout, ignore=MADE)
    (checkout / "functions/venv").symlink_to(sys.prefix)
    config = own_runtime(json.loads((checkout / "firebase.json").read_text()))
    (checkout / "firebase.json").write_text(json.dumps(config))
    (checkout / ".firebaserc").write_text(json.dumps({"projects": {ALIAS: PROJECT}}))
    for name, text in files.items():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(text)
    return checkout


def _addresses(tools: HostTools, base: str) -> dict[str, str]:
    source = (tools.folder / "node_modules/firebase-tools/lib/api.js").read_text()
    return dict.fromkeys(ADDRESS.findall(source), base)
