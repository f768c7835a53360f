"""Our own time in each call: the function under load, by turns with the floors of the same call.

The floor of `tools/list` is the same server with nothing in it. That of a tool is what it asks of Firestore and of the model,
repeated in this process with their own clients: what is left is HTTP, MCP, the rules and the adapters.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ops.bench_calls import SEED, Texts, fetch, list_tools, save, search
from ops.bench_corpus import fill
from ops.bench_floor import Bare, Repeated, Wire, prepare, repeat
from ops.bench_load import Caller, Timing, drive
from ops.bench_plan import CALLERS
from ops.bench_proxy import running_proxy
from ops.bench_record import Step, record
from ops.bench_servers import Bench, ModelServer, running_empty
from ops.function import Function, running_function

PROJECT = "demo-bench-load"
MEMORIES = 500
RECORDED = 10
# What our own time is told by takes more than what merely fills the machine.
ROUNDS_OF_ONE = 4
ROUNDS_OF_MANY = 2
LIST = "tools/list"

Make = Callable[[], bytes]
Take = Callable[[int], Timing]
"""Measures so many calls."""


@dataclass(frozen=True, kw_only=True)
class Overhead:
    """One kind of call: the function, the empty server, and where there are any the bare calls below, and their bytes alone."""

    call: str
    service: Timing
    empty: Timing
    bare: Timing | None = None
    wire: Timing | None = None
    steps: Sequence[Sequence[str]] = ()
    """What one such call asked for, by names, in the steps in which it is repeated."""

    @property
    def floor(self) -> Timing:
        """The bare calls, or the empty server where there are none."""
        return self.bare or self.empty

    @property
    def own_ms(self) -> float:
        """What is ours of the median: what lies above the floor's."""
        return self.service.p50 - self.floor.p50

    @property
    def ratio(self) -> float:
        return self.service.p50 / self.floor.p50


@dataclass(frozen=True, kw_only=True)
class _Floor:
    """Recorded calls of one kind: their steps by names, and themselves ready to be repeated in both ways."""

    steps: Sequence[Sequence[str]]
    bare: Sequence[Repeated]
    wire: Sequence[Repeated]


def measure_overhead(bench: Bench) -> list[Overhead]:
    ids = fill(bench, PROJECT, MEMORIES)
    calls = _calls(Texts(SEED + 3), ids)
    with (
        _floors(bench, calls) as floors,
        running_function(bench.environment(PROJECT)) as function,
        running_empty() as empty,
    ):
        rivals = _Rivals(bench, calls, function, empty, floors)
        rivals.warm_up()
        return [rivals.measure(name, callers) for callers in CALLERS for name in calls]


def _calls(texts: Texts, ids: list[str]) -> dict[str, Make]:
    return {
        LIST: list_tools,
        "save": lambda: save(texts.memory(), texts.topic()),
        "search": lambda: search(texts.query()),
        "fetch": lambda: fetch(texts.choice(ids)),
    }


@dataclass(frozen=True)
class _Rivals:
    """The function and its floors, all running."""

    bench: Bench
    calls: Mapping[str, Make]
    function: Function
    empty: Function
    floors: Mapping[str, _Floor]

    def warm_up(self) -> None:
        for name in self.calls:
            for take in self._takes(name, 1).values():
                take(RECORDED)

    def measure(self, name: str, callers: int) -> Overhead:
        """Round by round and by turns, so that what slows the machine down slows all of them down."""
        count = self.bench.plan.calls_a_round(callers)
        rounds = ROUNDS_OF_ONE if callers == 1 else ROUNDS_OF_MANY
        takes = [*self._takes(name, callers).items()]
        found: dict[str, Timing] = {}
        for number in range(rounds):
            self.bench.tell(f"{name}, {callers} at once", number, rounds)
            for what, take in takes:
                timing = take(count)
                found[what] = found[what].plus(timing) if what in found else timing
            # The database grows and warms up meanwhile: nobody is always the first.
            takes.reverse()
        return Overhead(call=name, steps=self.floors[name].steps if name in self.floors else (), **found)

    def _takes(self, name: str, callers: int) -> dict[str, Take]:
        make = self.calls[name]
        takes: dict[str, Take] = {
            "service": lambda count: self._drive(self.function, [make() for _ in range(count)], callers),
            "empty": lambda count: self._drive(self.empty, [list_tools()] * count, callers),
        }
        if floor := self.floors.get(name):
            takes["bare"] = lambda count: self._repeat(floor.bare, count, callers)
            # What the clients cost shows best where nobody waits for anybody.
            if callers == 1:
                takes["wire"] = lambda count: self._repeat(floor.wire, count, callers)
        return takes

    def _drive(self, server: Function, bodies: Sequence[bytes], callers: int) -> Timing:
        return drive(server.port, self.bench.token, bodies, callers)

    def _repeat(self, prepared: Sequence[Repeated], count: int, callers: int) -> Timing:
        return self.bench.portal.call(repeat, prepared, count, callers)


@contextmanager
def _floors(bench: Bench, calls: Mapping[str, Make]) -> Generator[dict[str, _Floor]]:
    recorded = _record(bench, {name: make for name, make in calls.items() if name != LIST})
    bare = bench.portal.call(_bare, bench.model)
    wire = bench.portal.call(_wire, bench)
    try:
        yield {
            name: _Floor(
                steps=[sorted(each.name for each in step) for step in steps[0]],
                bare=bench.portal.call(prepare, steps, bare),
                wire=bench.portal.call(prepare, steps, wire),
            )
            for name, steps in recorded.items()
        }
    finally:
        bench.portal.call(bare.close)
        bench.portal.call(wire.close)


# Clients are made in the loop that they belong to.
async def _bare(model: ModelServer) -> Bare:
    return Bare(PROJECT, model)


async def _wire(bench: Bench) -> Wire:
    return Wire(bench.emulator, bench.model)


def _record(bench: Bench, calls: Mapping[str, Make]) -> dict[str, list[list[Step]]]:
    with bench.portal.wrap_async_context_manager(running_proxy(bench.emulator)) as proxy:
        environment = bench.environment(PROJECT, store=f"127.0.0.1:{proxy.port}")
        with running_function(environment) as function, Caller(function.port, bench.token) as caller:
            for make in calls.values():
                caller.call(make())
            recorded: dict[str, list[list[Step]]] = {}
            for name, make in calls.items():
                bench.tell("Recording what the service asks for", len(recorded), len(calls))
                recorded[name] = _clear(record(bench, proxy, caller, [make() for _ in range(RECORDED)]))
            return recorded


def _clear(recorded: Sequence[list[Step]]) -> list[list[Step]]:
    """The calls in the fewest steps: on a busy machine what goes out at once may look like one after the other."""
    fewest = min(map(len, recorded))
    return [steps for steps in recorded if len(steps) == fewest]
