"""`metacortex tail`: what clients do, as it happens."""

import asyncio
import json
import re
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metacortex import rules
from metacortex.errors import MetaCortexError
from metacortex.events import now_ms
from metacortex.profiles import TOOL_NAMES
from metacortex.settings import Settings
from ops.place import Place, ProjectOption, place_of
from ops.processes import OpsError
from ops.terminal import say, show

if TYPE_CHECKING:
    from ops.tail_follow import Stored

SECONDS = 2.0
_BEFORE = re.compile(r"(?P<count>[0-9]{1,6})(?P<unit>[smhd])")
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
# What a line shows of a call, in this order; the rest is in --json.
_SHOWN = (
    *("topic", "query_preview", "id", "merged_id", "superseding_id", "reason", "write_status", "previous_state"),
    *("result_count", "source_count"),
)


class _NobodyReads(Exception):
    """Whatever read the output has ended."""


def tail(
    *,
    project: ProjectOption = None,
    client: Annotated[
        str | None, typer.Option(metavar="ID", help="Only calls of this client, by the id of its profile.")
    ] = None,
    tool: Annotated[str | None, typer.Option(metavar="NAME", help="Only calls of this tool.")] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help="Begin there: 30s, 15m, 2h or 7d ago, or an ISO 8601 time. Default: the last ten events.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each event as one JSON object on one line.")] = False,
) -> None:
    """Show every tool call and every refused request as it happens, until Ctrl-C.

    Events never hold bodies, images or credentials; a search shows the first 160 characters of its query. They are asked
    for every two seconds, so that an hour of looking on costs about 1,800 reads and those of what happens. Events of all
    collections of a project are in one stream.

    Example, for one client since yesterday:

    \b
    ./scripts/metacortex tail --project PROJECT --client claude-web --since 1d
    """
    where = place_of(project, Settings.memory_collection)
    begin = _begin(since)
    if tool is not None and tool not in TOOL_NAMES:
        raise typer.BadParameter(
            f"{tool!r} is no tool; name one of {', '.join(sorted(TOOL_NAMES))}.", param_hint="--tool"
        )
    try:
        asyncio.run(_follow(where, begin, {"client_id": client, "tool_name": tool}, as_json=as_json))
    except KeyboardInterrupt:
        say("Stopped.")
    except _NobodyReads:
        pass
    except OpsError as error:
        say(str(error))
        raise typer.Exit(1) from None


def _begin(since: str | None) -> int | None:
    """Epoch milliseconds; None where the option was not given."""
    if since is None:
        return None
    if ago := _BEFORE.fullmatch(since.strip()):
        return max(rules.EARLIEST_MS, now_ms() - int(ago["count"]) * _UNITS_MS[ago["unit"]])
    try:
        return rules.parse_time(since)
    except ValueError:
        raise typer.BadParameter(
            f"{since!r} is neither a time such as 2026-03-01T09:30 nor a while such as 30s, 15m, 2h or 7d.",
            param_hint="--since",
        ) from None


async def _follow(where: Place, begin: int | None, wanted: dict[str, str | None], *, as_json: bool) -> None:
    # Firestore's client takes a second to import: not for a usage error.
    from ops.store_faults import told  # noqa: PLC0415
    from ops.tail_follow import Follower  # noqa: PLC0415

    follower = Follower(where, begin)
    try:
        first = await follower.begin()
    except MetaCortexError as error:
        raise OpsError(told(error, where.project)) from error
    if not as_json:
        _print(f"{where.project} in the emulator at {where.emulator}" if where.emulator else where.project)
    _show(first, wanted, as_json=as_json)
    silent = False
    while True:
        await asyncio.sleep(SECONDS)
        try:
            news = await follower.news()
            silent = False
        except MetaCortexError as error:
            if not silent:
                say(f"{told(error, where.project)} Still looking.")
            silent = True
            continue
        _show(news, wanted, as_json=as_json)


def _show(events: "list[Stored]", wanted: dict[str, str | None], *, as_json: bool) -> None:
    for event in events:
        if all(value in {None, event.get(name)} for name, value in wanted.items()):
            _print(json.dumps(event, ensure_ascii=False, default=_iso) if as_json else line(event))


def _print(text: str) -> None:
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except OSError:
        # What is still to be written goes nowhere.
        show([])
        raise _NobodyReads from None


def _iso(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def line(event: "Stored") -> str:
    """One event on one line."""
    words = [_moment(event.get("timestamp")), str(event.get("client_id") or "-")]
    words += _of_rejection(event) if event.get("status") == "rejected" else _of_call(event)
    return "  ".join(map(plain, words))


def plain(text: str) -> str:
    """What clients sent, without the characters that would move a terminal's cursor."""
    return "".join(each if each.isprintable() else " " for each in text)


def _moment(timestamp: object) -> str:
    try:
        return rules.format_time(rules.parse_time(timestamp))
    except ValueError:
        return "at no known time"


def _of_rejection(event: "Stored") -> list[str]:
    request = f"{event['method']} {event['path']}" if "path" in event else f"{event.get('count', 1):,} more requests"
    return ["rejected", f"{event.get('status_code')} {event.get('reason')}", request]


def _of_call(event: "Stored") -> list[str]:
    words = [str(event.get("tool_name")), str(event.get("status"))]
    if "latency_ms" in event:
        words.append(f"{event['latency_ms']:,} ms")
    if error := event.get("error"):
        words.append(f"{error.get('code')}: {error.get('message')}")
    told: dict[str, Any] = {**(event.get("request") or {}), **(event.get("response") or {})}
    words += [f"{name}={told[name]}" for name in _SHOWN if name in told]
    return words
