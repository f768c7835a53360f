"""`metacortex owner`: how the owner signs in, and ending that."""

import sys
from typing import Annotated

import typer

from metacortex.oauth.owner import LONGEST_PASSPHRASE
from metacortex.settings import Settings
from ops.checkout import SECRETS_FILE
from ops.grant import done, store_of
from ops.local_settings import locked, shown, write
from ops.place import Place, ProjectOption, database_of, place_of
from ops.terminal import say, show

NAME = "OWNER_PASSPHRASE_HASH"
SHORTEST = 12

app = typer.Typer(no_args_is_help=True, help="The owner's sign-in, by which clients are allowed in.")


@app.command()
def passphrase(
    *,
    print_hash: Annotated[
        bool, typer.Option("--print", help="Write nothing; print the hash, for Secret Manager, to standard output.")
    ] = False,
) -> None:
    """Set the passphrase that the owner signs in with. Only its hash is kept.

    It is asked for twice, or read from standard input where that is no terminal.

    Example, for production:

    \b
    ./scripts/metacortex owner passphrase --print > hash.txt
    firebase functions:secrets:set OWNER_PASSPHRASE_HASH --data-file hash.txt
    rm hash.txt
    """
    from argon2 import PasswordHasher  # noqa: PLC0415 - no other command needs it

    hashed = PasswordHasher().hash(_asked())
    if print_hash:
        show([hashed])
        return
    with locked(SECRETS_FILE):
        write(SECRETS_FILE, {NAME: hashed})
    say(f"The passphrase is set; its hash is in {shown(SECRETS_FILE)}.")


def _asked() -> str:
    if sys.stdin.isatty():
        text = typer.prompt("Passphrase", hide_input=True, confirmation_prompt="The same again", err=True)
    else:
        text = sys.stdin.readline().rstrip("\n")
    if len(text) < SHORTEST:
        raise typer.BadParameter(f"A passphrase has at least {SHORTEST} characters; several words make a good one.")
    if len(text) > LONGEST_PASSPHRASE:
        raise typer.BadParameter(f"A passphrase has at most {LONGEST_PASSPHRASE:,} characters.")
    return text


@app.command()
def unlock(*, project: ProjectOption = None) -> None:
    """Let a passphrase be tried again at once, after too many wrong ones.

    Example:

    \b
    ./scripts/metacortex owner unlock --project PROJECT
    """
    where = place_of(project, Settings.memory_collection)
    done(_unlocked(where))
    say(f"The next passphrase is looked at, in {database_of(where.project)}.")


async def _unlocked(where: Place) -> None:
    await store_of(where).forget_attempts()


@app.command("sign-out")
def sign_out(*, project: ProjectOption = None) -> None:
    """Sign the owner out of every browser. Clients that were allowed stay so: see `grant revoke`.

    Example:

    \b
    ./scripts/metacortex owner sign-out --project PROJECT
    """
    where = place_of(project, Settings.memory_collection)
    ended = done(_signed_out(where))
    say(f"Signed out of {ended} {'browser' if ended == 1 else 'browsers'} in {database_of(where.project)}.")


async def _signed_out(where: Place) -> int:
    return await store_of(where).remove_sessions()
