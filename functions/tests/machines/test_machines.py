"""Random sequences of all tools: the service answers each call as the oracle does, over the fake and over Firestore."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from google.cloud.firestore_v1.async_client import AsyncClient
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from builders import NOON, TOKENS, FakeClock, in_memory
from fakes import InMemoryEvents
from images import PNG_BASE64
from machines.oracle import STATES, iso
from machines.world import CLIENTS, SOURCES, World
from metacortex.adapters.firestore_events import FirestoreEvents
from metacortex.adapters.firestore_memories import FirestoreMemories
from metacortex.bootstrap import Stores
from ops.emulator import clear

MINUTE = 60_000
DAY = 24 * 60 * MINUTE
CONTENTS = {
    "owls": "Owls at 0",
    "padded owls": "  Owls at 0\n",
    "hens": "Hens at 60",
    "geese": "Geese at 90\n\n and  a gander 🪿",
    "rooks": "Rooks at 180",
    "a full page": "A flock at 45 ".ljust(50_000, "x"),
    "more than a page": "A flock at 45 ".ljust(50_013, "x"),
}
SHORT = [name for name, content in CONTENTS.items() if len(content) < 100]
CLIENT_IDS = ["default", *(profile["id"] for profile in CLIENTS)]


def clients(*usual: str) -> st.SearchStrategy[str]:
    """Mostly those that may call the tool, so that most calls get as far as its rules."""
    return st.sampled_from([*usual * 6, *CLIENT_IDS])


def often_empty(*choices: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.sampled_from([*[{}] * len(choices), *choices])


def some(**arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Some of these arguments, or none: never so many that no two calls have anything in common."""
    names = st.lists(st.sampled_from(sorted(arguments)), unique=True, max_size=3)
    return names.flatmap(lambda names: st.fixed_dictionaries({name: arguments[name] for name in names}))


states = st.sampled_from(STATES)
origins = st.sampled_from(["user_asserted", "agent_inferred", "legacy_import"])
topics = st.sampled_from(["general", "general", " ", " ", "birds", " birds ", "Birds"])
numbers = st.integers(0, 11)
unknown = st.sampled_from(["unknown", "", "..", "a/b", "__x__", "i" * 1_501])
memories = st.one_of(*[numbers] * 9, unknown)
forms: st.SearchStrategy[Callable[[int], int | str]] = st.sampled_from([int, iso])
# Few and relative to now, so that times often coincide.
minutes_from_now = st.sampled_from([-24 * 60, -15, -1, 0, 0, 0, 1, 15, 24 * 60])
validity = often_empty({"valid_from": 0}, {"valid_until": 15}, {"valid_from": 1, "valid_until": 24 * 60})
filters = some(filter_topic=topics, filter_state=states, filter_origin=origins)
spans = often_empty(
    {"created_after": NOON + MINUTE},
    {"created_before": iso(NOON + 15 * MINUTE)},
    {"created_after": iso(NOON), "created_before": NOON + DAY},
)
details_of_a_save = some(
    topic=topics,
    branch_state=states,
    draft=st.booleans(),
    origin=origins,
    artifact_refs=st.sampled_from([["a"], ["owls", "a"]]),
    source_session=st.just("session"),
    confidence=st.sampled_from([0, 0.5, 1]),
    derived_from=st.lists(numbers, max_size=2),
)
details_of_a_deprecation = some(
    superseding_id=memories,
    supersession_reason=st.sampled_from(["changed", "corrected"]),
    initiator=st.sampled_from(["user", "agent"]),
)


class Machine(RuleBasedStateMachine):
    """The same calls in every world. `run` waits for a coroutine in the loop that the worlds belong to."""

    def __init__(
        self, worlds: Callable[[FakeClock], list[World]], run: Callable[[Coroutine[Any, Any, Any]], Any]
    ) -> None:
        super().__init__()
        self._clock = FakeClock()
        self._worlds = worlds(self._clock)
        self._run = run
        self._agreed = True

    def _each(self, act: Callable[[World], Coroutine[Any, Any, Any]]) -> None:
        self._agreed = False
        for world in self._worlds:
            self._run(act(world))
        self._agreed = True

    def _call(self, tool: str, client: str, **arguments: Any) -> None:
        self._each(lambda world: world.call(tool, client, **arguments))

    def _from_now(self, minutes: int, form: Callable[[int], int | str]) -> int | str:
        return form(self._clock.now + minutes * MINUTE)

    @initialize(
        contents=st.lists(st.sampled_from(["owls", "hens", "rooks"]), min_size=1, unique=True),
        in_states=st.lists(st.sampled_from(["active", "wip", "merged", "active"]), min_size=1, max_size=4),
        validity=validity,
        pause=st.sampled_from([0, 1, 16]),
    )
    def begin(self, contents: list[str], in_states: list[str], validity: dict[str, int], pause: int) -> None:
        times = {name: self._from_now(minutes, int) for name, minutes in validity.items()}
        for position, state in enumerate(in_states):
            for content in contents:
                details: dict[str, Any] = {
                    "branch_state": state,
                    "confidence": position / 4,
                    "artifact_refs": [content],
                }
                self._call("save_context", "default", content=CONTENTS[content], **details, **times)
            self._clock.advance(minutes=pause)
            times = {}

    @rule(minutes=st.sampled_from([1, 14, 15, 20, 24 * 60]))
    def wait(self, minutes: int) -> None:
        self._clock.advance(minutes=minutes)

    @rule(
        client=clients("default", "agent"),
        content=st.sampled_from([*SHORT, *CONTENTS]),
        validity=validity,
        form=forms,
        details=details_of_a_save,
    )
    def save(
        self,
        client: str,
        content: str,
        validity: dict[str, int],
        form: Callable[[int], int | str],
        details: dict[str, Any],
    ) -> None:
        times = {name: self._from_now(minutes, form) for name, minutes in validity.items()}
        self._call("save_context", client, content=CONTENTS[content], **times, **details)

    @rule(client=clients("default", "agent"), content=st.sampled_from(["owls", "hens"]))
    def save_an_image(self, client: str, content: str) -> None:
        image = {"image_base64": PNG_BASE64, "image_mime_type": "image/png"}
        self._call("save_context", client, content=CONTENTS[content], **image)

    @rule(
        client=clients("default", "agent"),
        wrong=st.sampled_from(
            [{"content": " \n"}, {"valid_from": NOON, "valid_until": NOON}, {"draft": False, "branch_state": "active"}]
        ),
    )
    def save_what_is_wrong(self, client: str, wrong: dict[str, Any]) -> None:
        self._call("save_context", client, **{"content": "Owls at 0", **wrong})

    @rule(client=st.sampled_from(["default", "agent"]), number=st.integers(1, SOURCES + 2), topic=topics)
    def save_drafts(self, client: str, number: int, topic: str) -> None:
        for position in range(number):
            self._call("save_context", client, content=f"Draft {position} at 30", topic=topic, draft=True)

    @rule(client=st.sampled_from(["default", *CLIENT_IDS]), which=st.integers(-4, -1) | st.integers(0, 99))
    def repeat(self, client: str, which: int) -> None:
        self._each(lambda world: world.again(which, client))

    @rule(
        client=clients("default", "agent", "reader"),
        query=st.sampled_from(["at 0", " at 60 ", "at 200", "at 350"]),
        filters=filters,
        limit=st.none() | st.integers(1, 3),
    )
    def search(self, client: str, query: str, filters: dict[str, Any], limit: int | None) -> None:
        self._call("search_context", client, query=query, limit=limit, **filters)

    @rule(
        client=clients("default", "reader"),
        state=st.sampled_from([None, "deprecated", *STATES]),
        minutes=minutes_from_now,
        form=forms,
        limit=st.sampled_from([None, 1, 20]),
    )
    def search_what_held(
        self, client: str, state: str | None, minutes: int, form: Callable[[int], int | str], limit: int | None
    ) -> None:
        details = {"filter_state": state, "valid_at": self._from_now(minutes, form), "limit": limit}
        self._call("search_context", client, query="at 0", **details)

    @rule(client=clients("default", "agent", "reader"), which=memories, name=st.sampled_from(["id", "document_id"]))
    def fetch(self, client: str, which: int | str, name: str) -> None:
        self._call("fetch_context", client, **{name: which})

    @rule(
        client=clients("default", "agent", "reader"),
        names=some(id=memories, document_id=memories, offset=st.sampled_from([0, 13, 50_000, 50_012, 50_013])),
    )
    def fetch_by_any_names(self, client: str, names: dict[str, Any]) -> None:
        self._call("fetch_context", client, **names)

    @rule(client=clients("default", "agent", "reader"), which=numbers)
    def read_whole(self, client: str, which: int) -> None:
        self._each(lambda world: world.read_whole(which, client))

    @rule(
        client=clients("default", "curator", "auditor"),
        filters=filters,
        span=spans,
        limit=st.sampled_from([1, 2, 3, None]),
    )
    def walk(self, client: str, filters: dict[str, Any], span: dict[str, Any], limit: int | None) -> None:
        self._each(lambda world: world.walk(client, limit=limit, **filters, **span))

    @rule(client=clients("default", "curator", "auditor"), which=st.integers(0, 99), changes=filters)
    def resume(self, client: str, which: int, changes: dict[str, Any]) -> None:
        self._each(lambda world: world.resume(which, client, **changes))

    @rule(client=clients("default", "curator", "auditor"), junk=st.text(max_size=30))
    def list_from_no_cursor(self, client: str, junk: str) -> None:
        self._call("list_context", client, cursor=junk)

    @rule(
        client=clients("default", "curator"),
        which=memories,
        details=details_of_a_deprecation,
    )
    def deprecate(self, client: str, which: int | str, details: dict[str, Any]) -> None:
        self._call("deprecate_context", client, id=which, **details)

    @rule(client=clients("default", "curator"), which=numbers, details=details_of_a_deprecation)
    def deprecate_otherwise(self, client: str, which: int, details: dict[str, Any]) -> None:
        self._each(lambda world: world.again(which, client, "deprecate_context", **details))

    @rule(which=numbers, by=numbers)
    def supersede(self, which: int, by: int) -> None:
        self._call("deprecate_context", "default", id=which, superseding_id=by)

    @rule(client=clients("default", "curator", "auditor"), details=some(topic=topics, preview=st.booleans()))
    def consolidate_drafts(self, client: str, details: dict[str, Any]) -> None:
        self._call("consolidate_context", client, **details)

    @rule(
        client=clients("default", "curator"),
        source_ids=st.lists(memories, min_size=1, max_size=SOURCES + 1),
        details=some(topic=topics, preview=st.booleans()),
    )
    def consolidate(self, client: str, source_ids: list[int | str], details: dict[str, Any]) -> None:
        self._call("consolidate_context", client, source_ids=source_ids, **details)

    @rule(client=st.sampled_from(["default", "curator"]), first=numbers, number=st.integers(2, SOURCES))
    def merge(self, client: str, first: int, number: int) -> None:
        self._call("consolidate_context", client, source_ids=list(range(first, first + number)))

    @rule(client=st.sampled_from(["default", "curator"]), which=numbers, details=details_of_a_deprecation)
    def deprecate_merged(self, client: str, which: int, details: dict[str, Any]) -> None:
        self._each(lambda world: world.deprecate_merged(which, client, **details))

    @rule(client=st.sampled_from(["default", "curator", "auditor"]), which=numbers, details=some(preview=st.booleans()))
    def merge_again(self, client: str, which: int, details: dict[str, Any]) -> None:
        self._each(lambda world: world.merge_again(which, client, **details))

    @invariant()
    def nothing_is_lost(self) -> None:
        self._each(World.check)

    def teardown(self) -> None:
        # After a disagreement this would only hide it behind another.
        if self._agreed:
            self._each(World.check_all)


@pytest.fixture(autouse=True)
def tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clients' side of the profiles that only these tests have."""
    for profile in CLIENTS:
        monkeypatch.setitem(TOKENS, profile["id"], profile["token"])


async def explore(worlds: Callable[[FakeClock], list[World]], *, sequences: int, steps: int) -> None:
    """Runs random sequences of so many steps, each in new worlds. The machine waits in a thread, its calls run in this loop."""
    loop = asyncio.get_running_loop()

    def run(act: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(act, loop).result()

    class Sequence(Machine):
        def __init__(self) -> None:
            super().__init__(worlds, run)

    # The first ten examples of a run are all new; of those that follow, Hypothesis makes five of six by varying an earlier one.
    run_of_ten = settings(
        max_examples=10,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    for _ in range(sequences // 10):
        await asyncio.to_thread(run_state_machine_as_test, Sequence, settings=run_of_ten)


def over_the_fake(clock: FakeClock) -> list[World]:
    stores = in_memory()

    async def trail() -> list[dict[str, Any]]:
        assert isinstance(stores.events, InMemoryEvents)
        return [dict(event.fields) for event in stores.events.stored.values()]

    return [World(stores, trail, clock)]


async def test_a_few_sequences_of_calls_are_answered_as_documented() -> None:
    await explore(over_the_fake, sequences=10, steps=15)


@pytest.mark.slow
async def test_any_sequence_of_calls_is_answered_as_documented() -> None:
    await explore(over_the_fake, sequences=250, steps=25)


@pytest.mark.slow
@pytest.mark.parametrize("part", [1, 2])
async def test_any_sequence_of_calls_is_answered_the_same_over_firestore(
    part: int, emulator_host: str, project: str, firestore: AsyncClient
) -> None:
    def over_both(clock: FakeClock) -> list[World]:
        clear(emulator_host, project)
        stores = Stores(memories=FirestoreMemories(firestore, "memory_vectors"), events=FirestoreEvents(firestore))
        return [World(stores, trail, clock), *over_the_fake(clock)]

    async def trail() -> list[dict[str, Any]]:
        return [snapshot.to_dict() or {} async for snapshot in firestore.collection("memory_events").stream()]

    await explore(over_both, sequences=110, steps=13)
