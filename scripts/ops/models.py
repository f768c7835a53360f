"""`metacortex models`: whether the configured models answer, and as they must."""

import asyncio
import json
import logging
import os
from collections.abc import Callable, Generator
from contextlib import aclosing, contextmanager
from typing import Annotated, Any

import typer

from metacortex import bootstrap
from metacortex.settings import ModelProvider, Settings, project_id
from ops.model_checks import Check, Status, Subject, checked
from ops.model_settings import model_settings, read_checkout
from ops.processes import OpsError
from ops.terminal import say, show


def models(
    *,
    project: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="The Google Cloud project of the vertex route. Default: GCLOUD_PROJECT, where it is set."
        ),
    ] = None,
    dev: Annotated[
        bool, typer.Option("--dev", help="Check what ./scripts/dev uses, rather than what is deployed.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object at the end, and nothing else.")
    ] = False,
) -> None:
    """Prove that the configured models work: one embedding, one description of an image, one merge.

    The settings are those of this checkout: functions/.env, the file of the project beside it, functions/.secret.local and
    the environment, the last winning. Where MODEL_PROVIDER is not set, that means vertex, as for a deployed function; with
    --dev it means gemini if there is a GEMINI_API_KEY, else local, and the file of the project is left out. The vertex
    route is tried with your own identity, as `gcloud auth application-default login` leaves it, not with the function's.

    A model that is shut down, missing or of the wrong size is named with the setting to change. A run costs a few
    hundred tokens. The exit status is 0 if every model works, 1 if one does not, and 2 if the command or a setting is
    wrong.

    Example, before a deployment:

    \b
    gcloud auth application-default login
    ./scripts/metacortex models --project PROJECT

    Example, for this machine:

    \b
    ./scripts/metacortex models --dev
    """
    project = project or project_id(os.environ)
    settings = _settings(project, dev=dev)
    _require_route(settings, project, dev=dev)
    chosen = bootstrap.models(settings, project)
    if as_json:
        with _quiet_log():
            checks = asyncio.run(_run(settings, chosen, lambda _: None, lambda _: None))
        show([json.dumps(_as_json(settings, project, chosen, checks), ensure_ascii=False)])
    else:
        checks = asyncio.run(_run(settings, chosen, _say_begun, _show_ended))
        show([_summary(settings, project, checks)])
    raise typer.Exit(0 if _well(checks) else 1)


def _settings(project: str | None, *, dev: bool) -> Settings:
    """The settings of models, as `--dev` sees them or as a deployed function does."""
    try:
        if dev:
            return model_settings(read_checkout(None), FUNCTIONS_EMULATOR="true")
        return model_settings(read_checkout(project))
    except OpsError as error:
        say(str(error))
        raise typer.Exit(2) from None


def _require_route(settings: Settings, project: str | None, *, dev: bool) -> None:
    if settings.provider is not ModelProvider.VERTEX:
        return
    if dev:
        raise typer.BadParameter(
            "cannot be checked with MODEL_PROVIDER=vertex, which ./scripts/dev refuses; leave out --dev.",
            param_hint="--dev",
        )
    if project is None:
        reason = "MODEL_PROVIDER is vertex"
        if settings.model_provider is None:
            reason = "MODEL_PROVIDER is not set, which means vertex for a deployed function"
        raise typer.BadParameter(
            f"is needed, or GCLOUD_PROJECT in the environment: {reason}. For what ./scripts/dev uses, add --dev.",
            param_hint="--project",
        )


@contextmanager
def _quiet_log() -> Generator[None]:
    """Keeps what the service would log off the terminal."""
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


async def _run(
    settings: Settings,
    chosen: bootstrap.Models,
    begun: Callable[[Subject], None],
    ended: Callable[[Check], None],
) -> list[Check]:
    checks: list[Check] = []
    async with aclosing(checked(settings, chosen, begun)) as running:
        async for check in running:
            ended(check)
            checks.append(check)
    return checks


def _say_begun(subject: Subject) -> None:
    say(f"Asking for the {subject.name} ...")


def _show_ended(check: Check) -> None:
    subject = check.subject
    line = f"{check.status:<7}  {subject.name:<9}  {check.latency_ms:>6.0f} ms"
    line = f"{line}  {subject.model} {subject.place}: {check.detail}"
    show([f"{line} — {check.warning}" if check.warning else line])


def _well(checks: list[Check]) -> bool:
    return all(check.status is not Status.FAILED for check in checks)


def _summary(settings: Settings, project: str | None, checks: list[Check]) -> str:
    route = f"vertex in {project}" if settings.provider is ModelProvider.VERTEX else settings.provider
    failed = sum(check.status is Status.FAILED for check in checks)
    return f"{route}: {f'{failed} of {len(checks)} checks failed' if failed else 'all well'}"


def _as_json(settings: Settings, project: str | None, chosen: bootstrap.Models, checks: list[Check]) -> dict[str, Any]:
    space = chosen.embedder.space
    return {
        "ok": _well(checks),
        "provider": settings.provider,
        "project": project if settings.provider is ModelProvider.VERTEX else None,
        "embedding_space": {"id": space.id, "dimensions": space.dimensions},
        "checks": [
            {
                "name": check.subject.name,
                "model": check.subject.model,
                "place": check.subject.place,
                "status": check.status,
                "latency_ms": check.latency_ms,
                "detail": check.detail,
                "warning": check.warning,
            }
            for check in checks
        ],
    }
