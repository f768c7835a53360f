"""A pack: memories and the questions they answer, in one JSON file. What is wrong in it is told with its place."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from metacortex import rules
from metacortex.errors import MetaCortexError
from metacortex.memory import BranchState, Origin, SupersessionReason
from metacortex.tools.schema import Time
from ops.local_settings import Faulty, shown
from ops.processes import OpsError

SHOWN_FAULTS = 20
NAME_CHARACTERS = 100
# Where pydantic speaks of Python, plainer words.
WORDS = {
    "missing": "is required",
    "extra_forbidden": "is not a field of this record",
    "string_too_short": "must not be empty",
    "model_type": "must be an object",
    "tuple_type": "must be a list",
}


def _by_rule(rule: Callable[[str], str]) -> AfterValidator:
    def check(value: str) -> str:
        try:
            return rule(value)
        except MetaCortexError as error:
            raise ValueError(error.message) from None

    return AfterValidator(check)


def _content(value: str) -> str:
    trimmed = rules.content(value)
    if not trimmed:
        raise ValueError("a memory needs a text")
    return trimmed


Name = Annotated[str, Field(min_length=1, max_length=NAME_CHARACTERS)]
# Keys are stored as source_session: they tell memories of equal text apart.
Key = Annotated[str, Field(min_length=1, max_length=rules.SOURCE_SESSION_CHARACTERS)]
Topic = Annotated[str, _by_rule(rules.topic)]


class _Record(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class PackMemory(_Record):
    """A memory to save, as if at `created_at`. With `superseded_by` or `deprecated_at` it is deprecated later.

    Times are epoch milliseconds. `deprecated_at` is, unless it is given, when the superseding memory was made.
    """

    key: Key
    topic: Topic
    content: Annotated[str, _by_rule(_content)]
    created_at: Time
    valid_from: Time | None = None
    valid_until: Time | None = None
    origin: Origin = Origin.AGENT_INFERRED
    branch_state: BranchState = BranchState.ACTIVE
    superseded_by: str | None = None
    supersession_reason: SupersessionReason = SupersessionReason.CHANGED
    deprecated_at: Time | None = None

    @property
    def is_retired(self) -> bool:
        return self.superseded_by is not None or self.deprecated_at is not None


class PackCase(_Record):
    """A question, its filters, and the keys of the memories that answer it."""

    query: Annotated[str, _by_rule(rules.query)]
    positive_keys: tuple[str, ...]
    category: Name
    filter_topic: Topic | None = None
    filter_state: BranchState | None = None
    filter_origin: Origin | None = None
    valid_at: Time | None = None

    @property
    def asked(self) -> tuple[object, ...]:
        """What makes two cases the same search."""
        return (self.query, self.filter_topic, self.filter_state, self.filter_origin, self.valid_at)


class Pack(_Record):
    name: Name
    license: str = ""
    memories: tuple[PackMemory, ...]
    cases: tuple[PackCase, ...]

    def to_json(self) -> str:
        """The pack as its file holds it, with times in ISO 8601 and without what is not set."""
        document = self.model_dump(mode="json", exclude_defaults=True)
        for record in (*document["memories"], *document["cases"]):
            for name in ("created_at", "valid_from", "valid_until", "deprecated_at", "valid_at"):
                if name in record:
                    record[name] = rules.format_time(record[name])
        return json.dumps(document, ensure_ascii=False, indent=1)


def read_pack(path: Path) -> Pack:
    """The pack in a file. Raises OpsError where it cannot be read, and Faulty with every fault it has."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise OpsError(f"{shown(path)} cannot be read: {error.strerror}.") from None
    return parse_pack(text, shown(path))


def parse_pack(text: bytes, place: str) -> Pack:
    try:
        pack = Pack.model_validate_json(text)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        raise _faulty(place, [_sentence(fault) for fault in faults]) from None
    if faults := list(_faults(pack)):
        raise _faulty(place, faults)
    return pack


def _faulty(place: str, faults: list[str]) -> Faulty:
    if len(faults) > SHOWN_FAULTS:
        place = f"{place} (the first of {len(faults)})"
    return Faulty(place, faults[:SHOWN_FAULTS])


def _sentence(fault: ErrorDetails) -> str:
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault["loc"]).lstrip(".")
    says = WORDS.get(fault["type"], fault["msg"].removeprefix("Value error, ")).rstrip(".")
    return f"{place or 'The file'}: {says[0].lower()}{says[1:]}."


def _faults(pack: Pack) -> Iterator[str]:
    """What no single entry shows by itself."""
    for name, entries in (("memories", pack.memories), ("cases", pack.cases)):
        if not entries:
            yield f"{name}: must have at least one entry."
    places: dict[str, int] = {}
    for place, memory in enumerate(pack.memories):
        if places.setdefault(memory.key, place) != place:
            yield f"memories[{place}].key: is that of memories[{places[memory.key]}] too; give each its own."
    for place, memory in enumerate(pack.memories):
        yield from (f"memories[{place}].{fault}" for fault in _memory_faults(memory, places))
    asked: dict[object, int] = {}
    for place, case in enumerate(pack.cases):
        yield from (f"cases[{place}].positive_keys{fault}" for fault in _key_faults(case, places))
        if asked.setdefault(case.asked, place) != place:
            yield f"cases[{place}]: asks the same as cases[{asked[case.asked]}]; join their positive_keys."


def _key_faults(case: PackCase, keys: Mapping[str, int]) -> Iterator[str]:
    for place, key in enumerate(case.positive_keys):
        if key not in keys:
            yield f"[{place}]: is the key of no memory in this pack."


def _memory_faults(memory: PackMemory, keys: Mapping[str, int]) -> Iterator[str]:
    if memory.valid_from is not None and memory.valid_until is not None and memory.valid_from >= memory.valid_until:
        yield "valid_from: must be earlier than valid_until."
    if memory.superseded_by is not None and memory.superseded_by not in keys:
        yield "superseded_by: is the key of no memory in this pack."
    if memory.superseded_by == memory.key:
        yield "superseded_by: names the memory itself."
    if memory.is_retired and memory.branch_state is BranchState.DEPRECATED:
        yield "branch_state: cannot be deprecated from the start where the memory is deprecated later; leave it out."
