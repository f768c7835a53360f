"""`metacortex profile`: the clients of an installation, and what each may do."""

import json
import os
import re
import secrets
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from metacortex.memory import BranchState
from metacortex.profiles import Profile, parse_profiles, token_digest
from ops.checkout import SECRETS_FILE
from ops.endpoints import PORT
from ops.local_settings import STANDARD_INPUT, shown
from ops.processes import OpsError
from ops.profile_list import NAME, Change, Document, change_list, read_environment, read_list
from ops.terminal import say, show

DEFAULT_TOOLS = "save_context,search_context,fetch_context"
COPY_NOW = "The token is kept nowhere and not shown again: copy it now."
STORE_IN_PRODUCTION = f"firebase functions:secrets:set {NAME} --data-file FILE"

app = typer.Typer(no_args_is_help=True, help="The clients of an installation: who may call, with what, and from where.")

File = Annotated[
    Path,
    typer.Option(
        "--file",
        metavar="PATH",
        show_default=False,
        help="The secrets file, or a file with nothing but the JSON list, or - for standard input."
        " Default: functions/.secret.local.",
    ),
]
Id = Annotated[str, typer.Argument(metavar="ID", help="The client id, as in /clients/ID/mcp.")]
PrintJson = Annotated[
    bool,
    typer.Option(
        "--print-json", help="Write nothing; print the whole new list, for Secret Manager, to standard output."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def add(  # noqa: PLR0913 - the options of a command
    client_id: Id,
    *,
    tools: Annotated[str, typer.Option(metavar="NAMES", help="The tools it may call.")] = DEFAULT_TOOLS,
    read_states: Annotated[str, typer.Option(metavar="STATES", help="The states it may read.")] = "active",
    write_states: Annotated[str, typer.Option(metavar="STATES", help="The states it may save in.")] = "active,wip",
    origin: Annotated[
        list[str] | None,
        typer.Option(metavar="ORIGIN", help="A browser origin it may call from, or * for any; may be repeated."),
    ] = None,
    url_token: Annotated[
        bool, typer.Option("--url-token", help="Accept ?auth_token= too, where MCP_URL_TOKENS=true.")
    ] = False,
    print_json: PrintJson = False,
    file: File = SECRETS_FILE,
) -> None:
    """Make a profile for a client, and tell its ways in. Its token is printed once; only the token's hash is kept.

    Names in a list are separated by commas. States are active, merged, deprecated and wip.

    Example, for a web client that is let in by signing in:

    \b
    ./scripts/metacortex profile add claude-web --origin https://claude.ai

    Example, for production:

    \b
    firebase functions:secrets:access MCP_CLIENT_PROFILES_JSON \\
        | ./scripts/metacortex profile add reader --tools search_context,fetch_context --print-json --file - > new.json \\
        && firebase functions:secrets:set MCP_CLIENT_PROFILES_JSON --data-file new.json
    """
    token = secrets.token_urlsafe(32)
    document: Document = {
        "id": client_id,
        "tokenSha256": token_digest(token).hex(),
        "allowedTools": _names(tools),
        "allowedFilterStates": _names(read_states),
        "allowedWriteStates": _names(write_states),
        "allowedOrigins": origin or [],
        "allowUrlToken": url_token,
    }
    _require_valid(document)

    def added(documents: list[Document]) -> list[Document]:
        if any(known.get("id") == client_id for known in documents):
            raise OpsError(
                f"There is a profile {client_id} already; choose another id, or make a new token for it:"
                f" ./scripts/metacortex profile rotate {client_id}"
            )
        return [*documents, document]

    _change(file, added, print_json=print_json, done=f"The profile {client_id} is added to {shown(file)}.")
    ways = _deployed_ways(client_id) if print_json else _local_ways(client_id, read_list(file).settings)
    _show(_ways_in(ways, token, url_token=url_token), print_json=print_json)


@app.command("list")
def list_profiles(*, as_json: AsJson = False, file: File = SECRETS_FILE) -> None:
    """Show every profile: its tools, states and origins, and how its credential is kept. Never the credential.

    Example:

    \b
    ./scripts/metacortex profile list
    """
    with _refusals():
        profiles = read_list(file)
        described = [
            _description(profile, document)
            for profile, document in zip(profiles.parsed(), profiles.documents(), strict=True)
        ]
    if as_json:
        show([json.dumps(described)])
    elif not described:
        show([f"There are no profiles in {profiles.place}; make one: ./scripts/metacortex profile add ID"])
    else:
        show("\n".join(_lines(each)) for each in described)


@app.command()
def rotate(client_id: Id, *, print_json: PrintJson = False, file: File = SECRETS_FILE) -> None:
    """Give a profile a new token, printed once. The old one stops working with the service's next start, and so does whatever
    clients of the profile were given by signing in.

    Example:

    \b
    ./scripts/metacortex profile rotate claude-web
    """
    token = secrets.token_urlsafe(32)

    def rotated(documents: list[Document]) -> list[Document]:
        old = _named(client_id, documents)
        kept = {name: value for name, value in old.items() if name not in {"id", "token", "tokenSha256"}}
        new = {"id": client_id, "tokenSha256": token_digest(token).hex(), **kept}
        return [new if document is old else document for document in documents]

    done = f"The profile {client_id} has a new token in {shown(file)}; the old one works until the next start."
    _change(file, rotated, print_json=print_json, done=done)
    _show_token(client_id, token, print_json=print_json)


@app.command()
def remove(
    client_id: Id,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    print_json: PrintJson = False,
    file: File = SECRETS_FILE,
) -> None:
    """Remove a profile: its endpoint stops existing with the service's next start. What it wrote stays.

    Example:

    \b
    ./scripts/metacortex profile remove claude-web
    """
    if not yes:
        _ask_before_removing(client_id, file)

    def removed(documents: list[Document]) -> list[Document]:
        old = _named(client_id, documents)
        return [document for document in documents if document is not old]

    _change(file, removed, print_json=print_json, done=f"The profile {client_id} is removed from {shown(file)}.")


@app.command()
def validate(
    *,
    file: File = SECRETS_FILE,
    env: Annotated[bool, typer.Option("--env", help=f"Look at {NAME} in the environment instead of a file.")] = False,
) -> None:
    """Check the profiles and tell every fault with its place. The exit status is 0 without faults, else 1.

    Example:

    \b
    ./scripts/metacortex profile validate

    Example, for production:

    \b
    firebase functions:secrets:access MCP_CLIENT_PROFILES_JSON | ./scripts/metacortex profile validate --file -
    """
    if env and file != SECRETS_FILE:
        raise typer.BadParameter("takes the place of --file; leave out one of the two.", param_hint="--env")
    with _refusals():
        count = len((read_environment() if env else read_list(file)).parsed())
    show([f"{count} profile{'' if count == 1 else 's'}, no faults"])


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


OPTIONS = {
    "id": "ID",
    "allowedTools": "--tools",
    "allowedFilterStates": "--read-states",
    "allowedWriteStates": "--write-states",
    "allowedOrigins": "--origin",
}
_FAULT = re.compile(r"new\[0\]\.(?P<field>\w+)(?:\[(?P<position>\d+)\])? (?P<says>.*)")


def _require_valid(document: Document) -> None:
    """Refuse what no profile may hold, in the words of the command line."""
    _, faults = parse_profiles(json.dumps([document]), BranchState.ACTIVE, "new")
    for fault in faults:
        say(_in_options(fault))
    if faults:
        raise typer.Exit(2)


def _in_options(fault: str) -> str:
    found = _FAULT.fullmatch(fault)
    if not found:
        return fault
    entry = "" if found["position"] is None else f" (entry {int(found['position']) + 1})"
    return f"{OPTIONS.get(found['field'], found['field'])}{entry} {found['says']}"


def _named(client_id: str, documents: list[Document]) -> Document:
    for document in documents:
        if document.get("id") == client_id:
            return document
    known = ", ".join(str(document.get("id")) for document in documents) or "none"
    raise OpsError(f"There is no profile {client_id}; there are: {known}.")


def _ask_before_removing(client_id: str, file: Path) -> None:
    if file == STANDARD_INPUT:
        raise typer.BadParameter("is needed where standard input holds the profiles.", param_hint="--yes")
    with _refusals():
        _named(client_id, read_list(file).documents())
    typer.confirm(f"Remove the profile {client_id} from {shown(file)}?", abort=True, err=True)


def _change(file: Path, change: Change, *, print_json: bool, done: str) -> None:
    if file == STANDARD_INPUT and not print_json:
        raise typer.BadParameter("is needed where standard input holds the profiles.", param_hint="--print-json")
    with _refusals():
        if print_json:
            show([read_list(file).changed(change)])
            say(f"Nothing is written. Store the list on standard output with: {STORE_IN_PRODUCTION}")
            say("Then deploy: a running service keeps the list it started with.")
            return
        change_list(file, change)
    show([done, "A running ./scripts/dev picks it up at its next start."])
    if os.environ.get(NAME, "").strip():
        say(f"{NAME} is set in this environment too, and what is started from here uses that one.")


@dataclass(frozen=True)
class _Ways:
    """What is known of the installation that a client is let into."""

    endpoint: str
    signing_in: str
    """What a client must be given to be let in by signing in."""
    url_tokens: bool
    """Whether it is known to take tokens in URLs."""


def _local_ways(client_id: str, settings: Mapping[str, str]) -> _Ways:
    base = settings.get("PUBLIC_BASE_URL", "").strip() or f"http://127.0.0.1:{PORT}"
    url_tokens = settings.get("MCP_URL_TOKENS", "").strip().lower() == "true"
    return _Ways(f"{base}/clients/{client_id}/mcp", "the endpoint alone", url_tokens)


def _deployed_ways(client_id: str) -> _Ways:
    return _Ways(
        f"BASE/clients/{client_id}/mcp, where BASE is PUBLIC_BASE_URL, or without that the function's URL",
        "where PUBLIC_BASE_URL is set, the endpoint alone",
        url_tokens=False,
    )


def _ways_in(ways: _Ways, token: str, *, url_token: bool) -> list[str]:
    return [
        "",
        f"  endpoint  {ways.endpoint}",
        f"  token     {token}",
        "",
        "There are three ways in; take the first that the client knows, and give it:",
        f"  1. signing in    {ways.signing_in}; you sign in in your browser, and approve",
        "  2. by header     the endpoint, and the header Authorization: Bearer TOKEN",
        f"  3. in the URL    {_in_url(ways, url_token=url_token)}",
        "",
        COPY_NOW,
    ]


def _in_url(ways: _Ways, *, url_token: bool) -> str:
    if not url_token:
        return "not this profile, for it was made without --url-token; discouraged anyway, since URLs end up in logs"
    closed = "" if ways.url_tokens else ", and closed unless MCP_URL_TOKENS=true"
    return f"ENDPOINT?auth_token=TOKEN: discouraged, since URLs end up in logs{closed}"


def _show_token(client_id: str, token: str, *, print_json: bool) -> None:
    lines = ["", f"  endpoint  /clients/{client_id}/mcp", f"  token     {token}", "", COPY_NOW]
    _show(lines, print_json=print_json)


def _show(lines: list[str], *, print_json: bool) -> None:
    """On standard output, unless that is for the list."""
    if print_json:
        say("\n".join(lines))
    else:
        show(lines)


def _description(profile: Profile, document: Document) -> dict[str, Any]:
    return {
        "id": profile.id,
        "allowedTools": list(profile.tools),
        "allowedFilterStates": list(profile.readable_states),
        "allowedWriteStates": list(profile.writable_states),
        "allowedOrigins": list(profile.origins),
        "allowUrlToken": profile.url_token_allowed,
        "credential": "plain" if "token" in document else "hash",
    }


def _lines(described: dict[str, Any]) -> list[str]:
    named = {
        "tools": ", ".join(described["allowedTools"]),
        "reads": ", ".join(described["allowedFilterStates"]),
        "writes": ", ".join(described["allowedWriteStates"]),
        "origins": ", ".join(described["allowedOrigins"]) or "none",
        "URL token": "yes" if described["allowUrlToken"] else "no",
        "credential": described["credential"],
    }
    return [described["id"], *(f"  {name:<12}{value}" for name, value in named.items())]


@contextmanager
def _refusals() -> Generator[None]:
    """What stops a command is told as it is, and the exit status is 1."""
    try:
        yield
    except OpsError as error:
        say(str(error))
        raise typer.Exit(1) from None
