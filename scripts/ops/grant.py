"""`metacortex grant`: which clients the owner has allowed in, and ending that."""

import asyncio
import json
from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from metacortex.errors import MetaCortexError
from metacortex.events import authorization_event, now_ms
from metacortex.rules import format_time
from metacortex.settings import Settings
from ops.place import Place, ProjectOption, connect, database_of, place_of
from ops.processes import OpsError
from ops.terminal import say, show

if TYPE_CHECKING:
    from metacortex.adapters.firestore_oauth import FirestoreOAuth
    from metacortex.oauth.grants import Grant

R = TypeVar("R")

app = typer.Typer(no_args_is_help=True, help="The clients that the owner has allowed in by signing in.")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_grants(*, project: ProjectOption = None, as_json: AsJson = False) -> None:
    """Show every grant: whose it is, for which client of this installation, since when, and when it was last used.

    Example:

    \b
    ./scripts/metacortex grant list --project PROJECT
    """
    where = place_of(project, Settings.memory_collection)
    grants = [grant for grant in done(_listed(where)) if grant.expires_at > now_ms() and not grant.code]
    if as_json:
        show([json.dumps([_described(grant) for grant in grants])])
        return
    show(_lines(grants, database_of(where.project)))


@app.command()
def revoke(
    grant_id: Annotated[str, typer.Argument(metavar="ID", help="The grant, as `grant list` names it.")],
    *,
    project: ProjectOption = None,
) -> None:
    """End a grant and every token of it. Instances that have just checked a token may believe it for a minute more.

    The exit status is 0 if it is ended, 1 if there is no such grant or that failed.

    Example:

    \b
    ./scripts/metacortex grant revoke ID --project PROJECT
    """
    where = place_of(project, Settings.memory_collection)
    if not done(_ended(where, grant_id)):
        say(f"There is no grant {grant_id} in {database_of(where.project)}; `grant list` names them.")
        raise typer.Exit(1)
    say("The grant is ended: its client has to ask again.")


async def _listed(where: Place) -> "Sequence[Grant]":
    return await store_of(where).grants()


async def _ended(where: Place, grant_id: str) -> bool:
    from metacortex.adapters.firestore_events import FirestoreEvents  # noqa: PLC0415 - as in store_of

    store = store_of(where)
    stored = await store.grant(grant_id)
    if stored is None or not await store.remove_grant(grant_id):
        return False
    fields = {"client_id": stored.grant.profile_id, "application": stored.grant.client_name, "grant_id": grant_id}
    event = authorization_event(f"revoked-{grant_id}", now_ms(), "grant_revoked_by_owner", fields)
    try:
        await FirestoreEvents(connect(where.project)).append([event])
    except MetaCortexError as error:
        say(f"The trail does not tell of it: {error}")
    return True


def store_of(where: Place) -> "FirestoreOAuth":
    from metacortex.adapters.firestore_oauth import FirestoreOAuth  # noqa: PLC0415 - it takes long to import

    return FirestoreOAuth(connect(where.project))


def done(work: Coroutine[Any, Any, R]) -> R:
    """What work with the store comes to; where it fails, the command ends and says why."""
    try:
        return asyncio.run(work)
    except (OpsError, MetaCortexError) as error:
        say(str(error))
        raise typer.Exit(1) from None


def _described(grant: "Grant") -> dict[str, object]:
    return {
        "id": grant.id,
        "application": grant.client_name,
        "application_id": grant.client_id,
        "returns_to": grant.returns_to,
        "client": grant.profile_id,
        "created_at": format_time(grant.created_at),
        "used_at": format_time(grant.used_at),
        "ends_at": format_time(grant.expires_at),
    }


def _lines(grants: Sequence["Grant"], place: str) -> Iterator[str]:
    if not grants:
        yield f"No client has been allowed in by signing in: {place}."
    for grant in grants:
        described = f", described at {grant.client_id}" if grant.client_id.startswith("https://") else ""
        yield f"{grant.id}  {grant.client_name}, at {grant.returns_to}, as {grant.profile_id}{described}"
        yield f"  allowed {format_time(grant.created_at)}, last used {format_time(grant.used_at)}"
