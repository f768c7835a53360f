"""`metacortex preflight`: everything an owner should know before `firebase deploy`."""

import asyncio
import json
import os
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ops.checkout import ROOT
from ops.preflight_plan import Deployment, read_alias, read_project
from ops.terminal import show

if TYPE_CHECKING:
    from ops.preflight_report import Finding


def preflight(
    *,
    project: Annotated[str, typer.Option(metavar="ID", help="The id of the project to deploy to.")],
    alias: Annotated[
        str,
        typer.Option(metavar="NAME", help="What .firebaserc calls it, as in functions/.env.NAME; or its id once more."),
    ],
    archive: Annotated[
        Path | None,
        typer.Option(metavar="DIR", exists=True, file_okay=False, help="An archive of the live collection."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="How long one answer of gcloud may take.")
    ] = 30.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object at the end, and nothing else.")
    ] = False,
) -> None:
    """Check all that a deployment depends on, and change nothing.

    That the tree is a commit for which the tests passed, with fresh locks, closed rules and a supported runtime; that
    the dotenv files are named and filled right, and the secrets in Secret Manager; that indexes, settings and the live
    collection agree; and that there is a whole archive of that collection, at most three days old.

    It asks gcloud for the secrets, reads them into memory to validate them, and never shows them; and it reads the live
    collection with application default credentials. The exit status is 0 if all is well, 1 if a check failed, and 2 if
    the command is wrong.

    Example:

    \b
    gcloud auth login && gcloud auth application-default login
    ./scripts/metacortex preflight --project PROJECT --alias prod --archive DIR
    """
    deployment = Deployment(
        root=ROOT,
        project=read_project(project, os.environ),
        alias=read_alias(alias),
        archive=archive,
        now=datetime.now(UTC),
        seconds=timeout,
    )
    raise typer.Exit(0 if _passes(deployment, as_json=as_json) else 1)


def _passes(deployment: Deployment, *, as_json: bool) -> bool:
    from ops.preflight_report import Status, to_terminal  # noqa: PLC0415 - as in look_at

    findings = asyncio.run(look_at(deployment, (lambda _: None) if as_json else to_terminal()))
    failed = [finding for finding in findings if finding.status is Status.FAILED]
    if as_json:
        told = {"ok": not failed, "project": deployment.project, "alias": deployment.alias}
        show([json.dumps(told | {"checks": [asdict(finding) for finding in findings]}, ensure_ascii=False)])
    elif failed:
        show([f"preflight failed for {deployment.project}: {len(failed)} of {len(findings)} checks"])
    else:
        show([f"preflight passed for {deployment.project}: firebase deploy --project {deployment.alias}"])
    return not failed


async def look_at(deployment: Deployment, tell: "Callable[[Finding], None]") -> "list[Finding]":
    """Every check, each told as it ends; returned in their order."""
    # Firestore's client takes a second to import: not for the other commands, nor for a usage error.
    from ops import preflight_checkout, preflight_corpus, preflight_dotenv, preflight_secrets, preflight_settings  # noqa: PLC0415

    # What several checks need to know is asked once.
    values = asyncio.create_task(preflight_dotenv.read_deployed(deployment))
    versions = asyncio.create_task(preflight_secrets.newest_versions(deployment, values))
    payloads = asyncio.create_task(preflight_secrets.read_secrets(deployment, versions))
    settings = asyncio.create_task(preflight_settings.read_settings(values))
    live = asyncio.create_task(preflight_corpus.read_collection(deployment, settings))
    checks: list[Coroutine[Any, Any, Finding]] = [
        preflight_checkout.clean_tree(deployment),
        preflight_checkout.tests_passed(deployment),
        preflight_checkout.fresh_locks(deployment),
        preflight_checkout.closed_rules(deployment),
        preflight_checkout.supported_runtime(deployment),
        preflight_dotenv.alias(deployment),
        preflight_secrets.secrets(deployment, versions),
        preflight_settings.configuration(values, versions, payloads),
        preflight_corpus.dimensions(deployment, settings, live),
        preflight_corpus.archived(deployment, settings, live),
    ]
    findings = [asyncio.create_task(check) for check in checks]
    for finding in asyncio.as_completed(findings):
        tell(await finding)
    # A failure that no check had to ask for is no news.
    await asyncio.gather(values, versions, payloads, settings, live, return_exceptions=True)
    return [finding.result() for finding in findings]
