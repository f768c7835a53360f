"""`metacortex smoke`: proves on a running service that saving, searching and fetching work."""

import asyncio
import json
import os
from pathlib import Path
from typing import Annotated

import typer

from ops.smoke_plan import (
    DEFAULT_ORIGIN,
    DEFAULT_TOPIC,
    Mode,
    Plan,
    read_artifact_refs,
    read_endpoint,
    read_image,
    read_origin,
    read_token,
    read_topic,
)
from ops.terminal import show


def smoke(  # noqa: PLR0913 - the options of a command
    *,
    url: Annotated[
        str,
        typer.Option(
            envvar="MCP_BASE_URL",
            metavar="URL",
            help="The function's base URL, or the full URL of one endpoint, ending in /mcp.",
        ),
    ],
    mode: Annotated[Mode, typer.Option(envvar="MCP_SMOKE_MODE", help="What to try, and in whose name.")] = Mode.ADMIN,
    client: Annotated[
        str | None, typer.Option(metavar="ID", help="The client whose scoped endpoint to use, below the base URL.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            help="The endpoint's token. Better in the environment: MCP_ADMIN_TOKEN for admin-read-write,"
            " MCP_SMOKE_TOKEN for the other modes; sign-in takes none.",
        ),
    ] = None,
    origin: Annotated[
        str | None,
        typer.Option(metavar="ORIGIN", help=f"The page that browser-read-write plays. Default: {DEFAULT_ORIGIN}."),
    ] = None,
    topic: Annotated[str, typer.Option(metavar="TOPIC", help="Where to save and to search.")] = DEFAULT_TOPIC,
    image_file: Annotated[
        Path | None, typer.Option(metavar="FILE", exists=True, dir_okay=False, help="An image to save with the text.")
    ] = None,
    artifact_ref: Annotated[
        list[str] | None, typer.Option(metavar="REF", help="An artifact reference to save; may be repeated.")
    ] = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="How long one answer may take.")] = 30.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object at the end, and nothing else.")
    ] = False,
) -> None:
    """Prove that a running service works: save, search and fetch as its clients do, or begin to sign in as they do.

    admin-read-write uses the admin endpoint. browser-read-write uses a client's own, with an Origin, and checks CORS.
    search-only writes nothing, and checks that its client could not. sign-in takes no token and saves nothing: it checks
    what a client goes by from its endpoint to the page where you sign in, at the origin that PUBLIC_BASE_URL names. The
    exit status is 0 if everything worked, 1 if a step failed, and 2 if the command is wrong.

    What was saved is retired where the endpoint offers deprecate_context. Elsewhere it is saved as a draft, which
    ordinary searches leave out; for a client that may not read or write drafts as an active memory that is valid for a
    minute, which ordinary searches go on finding. The retire line names what stays, and where.

    Example, with ./scripts/dev running:

    \b
    export MCP_ADMIN_TOKEN=...
    ./scripts/metacortex smoke --url http://127.0.0.1:5001

    Example, for a client in production:

    \b
    export MCP_SMOKE_TOKEN=...
    ./scripts/metacortex smoke --mode search-only --client reader \\
        --url https://us-central1-PROJECT.cloudfunctions.net/metaCortexMcp

    Example, for signing in:

    \b
    ./scripts/metacortex smoke --mode sign-in --client chatgpt --url https://memory.example.org
    """
    plan = Plan(
        mode=mode,
        endpoint=read_endpoint(url, mode, client),
        token=read_token(token, mode, os.environ),
        topic=read_topic(topic),
        origin=read_origin(origin, mode),
        image=read_image(image_file, mode),
        artifact_refs=read_artifact_refs(artifact_ref or [], mode),
        timeout=timeout,
    )
    raise typer.Exit(0 if _passes(plan, as_json=as_json) else 1)


def _passes(plan: Plan, *, as_json: bool) -> bool:
    # The MCP SDK takes a second to import: not for the other commands, nor for a usage error.
    from ops.smoke_report import Report, to_terminal  # noqa: PLC0415
    from ops.smoke_run import run, tell_what_stays  # noqa: PLC0415

    report = Report(plan, (lambda _: None) if as_json else to_terminal())
    try:
        asyncio.run(run(plan, report))
    except KeyboardInterrupt:
        report.fail("Stopped.")
        tell_what_stays(plan, report)
    passed = report.error is None
    if as_json:
        show([json.dumps(report.as_json(), ensure_ascii=False)])
    else:
        show([f"{plan.mode} {'passed' if passed else 'failed'} at {plan.endpoint.url}"])
    return passed
