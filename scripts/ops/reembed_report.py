"""What a step of a move to another embedding space is to do, and what it found and did: for a person, and as JSON."""

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from metacortex.adapters.local_models import LocalEmbedder
from metacortex.spaces import Space
from ops.indexes import needed
from ops.place import Place
from ops.reembed_move import Move, Step

SHOWN_IDS = 3
# Dollars for a million tokens of input, from https://ai.google.dev/gemini-api/docs/pricing as it was quoted in April 2026, when
# gemini-embedding-2 was a preview. --price says another.
PRICES = {"gemini-embedding-2": 0.20, "gemini-embedding-001": 0.15, LocalEmbedder.space.model: 0.0}
# About four characters of an alphabet make a token; of Han, kana and Hangul each is about one.
_DENSE = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]")


class Action(StrEnum):
    FILL = "fill"
    SWITCH = "switch"
    FINISH = "finish"
    ABANDON = "abandon"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One step of a move: where, which, and whether to write at all."""

    place: Place
    action: Action
    write: bool
    to: Space | None = None
    """The space to move to; None but for filling it."""
    per_minute: int | None = None
    settle: float = 0
    incomplete: bool = False
    price: float | None = None
    """Dollars for a million tokens, where the owner says it."""


@dataclass
class Tally:
    """The memories: how many there are, how many lack a vector, how many got one, how many lost theirs of the other space."""

    found: int = 0
    lacking: int = 0
    written: int = 0
    to_drop: int = 0
    dropped: int = 0
    texts: int = 0
    tokens: int = 0


@dataclass
class Report:
    """What a step found and did, as far as it came."""

    plan: Plan
    move: Move | None = None
    named: str | None = None
    """The space that the collection names, where there is no move."""
    memories: Tally = field(default_factory=Tally)
    refused: list[str] = field(default_factory=list[str])
    error: str | None = None

    @property
    def ok(self) -> bool:
        """Whether it did all that it was asked to."""
        return self.error is None and (self.plan.incomplete or not self.refused)

    @property
    def target(self) -> Space | None:
        """The space in which memories get vectors in this step."""
        if self.move is None:
            return None
        return (self.move.old if self.plan.action is Action.ABANDON else self.move.new).space

    def cost(self) -> float | None:
        """About how many dollars the model takes for the texts; None where its price is not known."""
        price = self.plan.price
        if price is None and self.target is not None:
            price = PRICES.get(self.target.model)
        return None if price is None else self.memories.tokens * price / 1_000_000

    def as_json(self) -> dict[str, Any]:
        place, move = self.plan.place, self.move
        return {
            "ok": self.ok,
            "project": place.project,
            "emulator": place.emulator,
            "collection": place.collection,
            "action": self.plan.action,
            "write": self.plan.write,
            "from": _where(move.old.space, move.old.vector_field) if move else None,
            "to": _where(move.new.space, move.new.vector_field) if move else None,
            "step": move.step if move else None,
            "memories": asdict(self.memories),
            "cost_dollars": self.cost(),
            "refused": self.refused,
            "indexes": vector_indexes(place.collection, move) if move else [],
            "error": self.error,
        }

    def lines(self) -> Iterator[str]:
        """What there is to tell of a step that did not fail."""
        yield str(self.plan.place)
        move = self.move
        if move is None:
            yield _line("space", self.named or "")
            yield "Nothing to do: no move to another space is under way."
            return
        yield _line("from", f"{move.old.space.id}, in {move.old.vector_field}")
        yield _line("to", f"{move.new.space.id}, in {move.new.vector_field}")
        yield _line("memories", ", ".join(self._counts()))
        if self.memories.texts:
            yield _line("model", f"{self.memories.texts:,} texts, about {self.memories.tokens:,} tokens{self._price()}")
        if self.refused:
            shown = ", ".join(self.refused[:SHOWN_IDS])
            yield _line(
                "refused", f"{len(self.refused):,} by the model or the store, which no search will find there: {shown}"
            )
        if self.plan.action in {Action.FILL, Action.SWITCH}:
            yield from _index_lines(self.plan.place.collection, move)
        yield self._end()

    def _counts(self) -> Iterator[str]:
        tally, space = self.memories, self.target
        yield f"{tally.found:,} found"
        if self.plan.write and self.plan.action is not Action.SWITCH:
            yield f"{tally.written:,} written in {space and space.id}"
        else:
            yield f"{tally.lacking:,} lack a vector in {space and space.id}"
        if self.plan.action is Action.FILL and (left := tally.dropped if self.plan.write else tally.to_drop):
            yield f"{left:,} {'' if self.plan.write else 'to be '}rid of a vector that another move had left"
        if self.plan.action in {Action.FINISH, Action.ABANDON}:
            counted = f"{tally.dropped:,} rid of" if self.plan.write else f"{tally.to_drop:,} to be rid of"
            yield f"{counted} the other"

    def _price(self) -> str:
        cost, model = self.cost(), self.target.model if self.target else ""
        if cost is None:
            return f"; what {model} costs is not known here (--price says it)"
        return f", about ${cost:,.2f}"

    def _end(self) -> str:
        if not self.plan.write:
            return "Nothing was written. To do it, run the same command with --write."
        assert self.move is not None, "only a move has an end"
        old, new = self.move.old.space.id, self.move.new.space.id
        following = Action.FINISH if self.move.step is Step.SWITCHED else Action.SWITCH
        return {
            Action.FILL: f"Next: `reembed {following}`. Until `reembed finish` a service goes on in {old}.",
            Action.SWITCH: (
                f"Both spaces work now. Deploy the service with the model of {new}; then `reembed finish`, or `reembed abandon`."
            ),
            Action.FINISH: f"The collection is in {new} alone.",
            Action.ABANDON: f"The collection is in {old} alone, as before.",
        }[self.plan.action]


def tokens(text: str) -> int:
    """About how many tokens a model makes of a text."""
    dense = len(_DENSE.findall(text))
    return dense + (len(text) - dense + 3) // 4


def vector_indexes(collection: str, move: Move) -> list[dict[str, Any]]:
    """The composite indexes that searches in the new space need."""
    wanted = needed(collection, move.new.space.dimensions, move.new.vector_field)["indexes"]
    return [index for index in wanted if "vectorConfig" in index["fields"][-1]]


def index_command(collection: str, move: Move) -> str:
    space, name = move.new.space, move.new.vector_field
    return f"./scripts/metacortex indexes --collection {collection} --dimensions {space.dimensions} --field {name}"


def _index_lines(collection: str, move: Move) -> Iterator[str]:
    for name in (collection, f"{collection}_parts"):
        yield _line("indexes", f"{name}: {move.new.vector_field} after each set of filters")
    yield _line("", f"`{index_command(collection, move)}` prints them")


def _where(space: Space, vector_field: str) -> dict[str, str]:
    return {"space": space.id, "field": vector_field}


def _line(name: str, text: str) -> str:
    return f"  {name:<10}  {text}"


def next_step(move: Move) -> str:
    """What an owner may do at a step, as the end of a sentence."""
    return {
        Step.FILL: "go on with `reembed --write`, then `reembed switch`; or give it up with `reembed abandon`",
        Step.SWITCHED: "end it with `reembed finish`, or give it up with `reembed abandon`",
        Step.FINISH: "complete `reembed finish --write`",
        Step.ABANDON: "complete `reembed abandon --write`",
    }[move.step]
