"""`metacortex inspect`: what an installation holds, what happened lately, and what it costs."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from metacortex.errors import MetaCortexError
from metacortex.settings import Settings
from ops.look_costs import BYTES_A_MEMORY, DAYS, EVENT, FREE_A_DAY, GIB_MONTH, Corpus, Cost, costs
from ops.look_indexes import Indexes, indexes, shown
from ops.place import CollectionOption, Place, ProjectOption, connect, place_of
from ops.processes import OpsError
from ops.progress import Tell, progress
from ops.tail import line, plain
from ops.terminal import say, show

if TYPE_CHECKING:
    from ops.look_corpus import Events, Memories


@dataclass(frozen=True, kw_only=True)
class Look:
    """What one look at an installation showed."""

    place: Place
    memories: "Memories"
    events: "Events"
    indexes: Indexes

    def month(self) -> Cost:
        """What thirty days cost that are like those the events tell of."""
        each = costs(Corpus(memories=max(self.memories.by_state.values(), default=0), parts=self.memories.parts))
        total = EVENT.times(self.events.rejection_events)
        for tool, calls in self.events.calls.items():
            total = total.plus(each.get(tool, EVENT).times(calls))
        return total.times(DAYS / self.events.days)

    def storage_dollars(self) -> float:
        """What storing the memories costs in a month, without the free GiB."""
        return self.memories.total * BYTES_A_MEMORY / 2**30 * GIB_MONTH


def inspect(
    *,
    project: ProjectOption = None,
    collection: CollectionOption = Settings.memory_collection,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else.")] = False,
) -> None:
    """Show what is in a database: memories by state and topic, embedding spaces, the last calls, refused requests by
    reason, indexes and TTL policies, and an estimate of what a month costs.

    Nothing is written. Memories are counted, not read, so that a look at a large collection costs a few hundred reads: two
    for each topic, and one for each event of the last thirty days, of at most 5,000. Indexes and TTL policies are looked
    at with gcloud; the emulator has none.

    The estimate takes the calls of these days, and the platform's published rules and prices; docs/OPERATIONS.md says
    which. It is no bill.

    Example, in production, with your own identity:

    \b
    gcloud auth login && gcloud auth application-default login
    ./scripts/metacortex inspect --project PROJECT
    """
    where = place_of(project, collection)
    try:
        with progress(quiet=as_json) as tell:
            look = asyncio.run(_look(where, tell))
    except OpsError as error:
        _fail(str(error), where, as_json=as_json)
    except MetaCortexError as error:
        _fail(_told(error, where), where, as_json=as_json)
    except KeyboardInterrupt:
        _fail("Stopped; nothing was changed.", where, as_json=as_json)
    show([json.dumps(_as_json(look), ensure_ascii=False)] if as_json else _lines(look))


def _told(error: MetaCortexError, where: Place) -> str:
    # As in _look.
    from ops.store_faults import told  # noqa: PLC0415

    return told(error, where.project)


def _fail(sentence: str, where: Place, *, as_json: bool) -> NoReturn:
    if as_json:
        show([json.dumps({"ok": False, **asdict(where), "error": sentence}, ensure_ascii=False)])
    else:
        say(sentence)
    raise typer.Exit(1)


async def _look(where: Place, tell: Tell) -> Look:
    # Firestore's client takes a second to import: not for the other commands, nor for a usage error.
    from ops.look_corpus import read_events, read_memories  # noqa: PLC0415

    client = connect(where.project)
    memories, events = await asyncio.gather(read_memories(client, where, tell), read_events(client, tell))
    return Look(place=where, memories=memories, events=events, indexes=await indexes(where, memories.spaces))


def _as_json(look: Look) -> dict[str, Any]:
    memories, events, month = look.memories, look.events, look.month()
    spaces, move = memories.spaces, memories.move
    return {
        "ok": True,
        **asdict(look.place),
        "memories": {
            "total": memories.total,
            "parts": memories.parts,
            "states": dict(memories.by_state),
            "topics": dict(memories.by_topic),
            "topic_count": memories.topics,
            "more_topics": memories.more_topics,
        },
        "spaces": {"current": spaces.current, "fields": dict(spaces.fields)} if spaces else None,
        "move": {"from": move.old.space.id, "to": move.new.space.id, "step": move.step} if move else None,
        "events": {
            "found": events.found,
            "days": round(events.days, 2),
            "calls": dict(events.calls),
            "clients": dict(events.clients),
            "errors": dict(events.errors),
            "rejections": dict(events.rejections),
            "last": events.last,
        },
        "indexes": asdict(look.indexes),
        "month": {
            **{name: round(value) for name, value in asdict(month).items()},
            "dollars": round(month.dollars, 2),
            "storage_dollars": round(look.storage_dollars(), 2),
        },
    }


def _lines(look: Look) -> Iterator[str]:
    memories, events = look.memories, look.events
    yield str(look.place)
    yield _line("memories", f"{memories.total:,}, and {memories.parts:,} parts of long ones")
    yield _line("states", _counts(memories.by_state))
    yield _line("topics", f"{'more than ' if memories.more_topics else ''}{memories.topics:,}")
    yield from (_line("", f"{count:>8,}  {plain(topic)}") for topic, count in memories.by_topic.items())
    yield from _space_lines(memories)
    yield _line("events", f"{events.found:,} in {events.days:.3g} days, of all collections of the project")
    yield _line("calls", _counts(events.calls))
    yield _line("clients", _counts(events.clients))
    yield _line("errors", _counts(events.errors))
    yield _line("rejections", _counts(events.rejections))
    yield from (_line("last" if number == 0 else "", line(event)) for number, event in enumerate(events.last))
    yield from _index_lines(look.indexes)
    yield from _month_lines(look)


def _space_lines(memories: "Memories") -> Iterator[str]:
    if memories.spaces is None:
        yield _line("spaces", "none is named" + (" yet" if not memories.total else "; see `upgrade`"))
        return
    for number, (space, field) in enumerate(memories.spaces.fields.items()):
        current = ", the current one" if space == memories.spaces.current else ""
        yield _line("" if number else "spaces", f"{space}, in {field}{current}")
    if move := memories.move:
        yield _line("move", f"to {move.new.space.id}, at the step {move.step}; see `reembed --help`")


def _index_lines(seen: Indexes) -> Iterator[str]:
    if seen.indexes is None or seen.ttl is None:
        yield _line("indexes", seen.unseen or "")
        return
    yield _line("indexes", shown(seen.indexes))
    yield _line("TTL", shown(seen.ttl))


def _month_lines(look: Look) -> Iterator[str]:
    month = look.month()
    yield _line(
        "a month",
        f"about {month.reads:,.0f} reads and {month.writes:,.0f} writes, ${month.dollars:,.2f} without the free quota",
    )
    free = month.reads <= FREE_A_DAY["reads"] * DAYS and month.writes <= FREE_A_DAY["writes"] * DAYS
    yield _line(
        "", "evenly spread, the free quota covers its reads and writes" if free else "more than the free quota covers"
    )
    yield _line("storage", f"about ${look.storage_dollars():,.2f} a month, without the free GiB")


def _counts(counts: Mapping[str, int]) -> str:
    shown_first = sorted(counts.items(), key=lambda item: -item[1])
    return ", ".join(f"{count:,} {plain(name)}" for name, count in shown_first) or "none"


def _line(name: str, text: str) -> str:
    return f"  {name:<10}  {text}"
