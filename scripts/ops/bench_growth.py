"""A search as the memories grow: its time and its reads in the emulator, and beyond by Firestore's rules.

The emulator compares every vector in one process: its times are no forecast of production. Reads are the same in both, but
for the entries of vector indexes that a query scans: those are not on the wire, and are added by the rule.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ops.bench_calls import SEED, Texts, search
from ops.bench_corpus import fill
from ops.bench_load import Caller, Timing, drive
from ops.bench_proxy import Proxy, running_proxy
from ops.bench_servers import Bench
from ops.bench_trips import reads_of
from ops.function import running_function
from ops.look_costs import READ, SIZES, VECTOR_ENTRIES_A_READ, Corpus, costs

PROJECT = "demo-bench-growth"
SEARCHES = 10
COUNTED = 5
THOUSAND = 1_000


@dataclass(frozen=True, kw_only=True)
class Size:
    """A search over so many active memories. `seen` is the mean of its reads on the wire.

    Both are None beyond what was measured.
    """

    memories: int
    search: Timing | None = None
    seen: float | None = None

    @property
    def reads(self) -> float:
        """What a search is billed: as it was seen, and the index entries by the rule; beyond, at most, all by the rules."""
        if self.seen is None:
            return costs(Corpus(memories=self.memories, parts=0))["search_context"].reads
        return self.seen + math.ceil(self.memories / VECTOR_ENTRIES_A_READ)

    @property
    def dollars(self) -> float:
        """The reads of a thousand searches, by the prices of `look_costs`."""
        return self.reads * THOUSAND * READ


def measure_growth(bench: Bench) -> Sequence[Size]:
    with bench.portal.wrap_async_context_manager(running_proxy(bench.emulator)) as proxy:
        measured: list[Size] = []
        store = f"127.0.0.1:{proxy.port}"
        held = 0
        for size in bench.plan.sizes:
            fill(bench, PROJECT, size, held)
            held = size
            bench.tell("Searches as memories grow", len(measured), len(bench.plan.sizes))
            measured.append(_measure(bench, proxy, store, size))
    beyond = [Size(memories=size) for size in SIZES if size > bench.plan.sizes[-1]]
    return [*measured, *beyond]


def _measure(bench: Bench, proxy: Proxy, store: str, size: int) -> Size:
    texts = Texts(SEED + 5)
    with running_function(bench.environment(PROJECT)) as function:
        drive(function.port, bench.token, [search(texts.query())], 1)
        timing = drive(function.port, bench.token, [search(texts.query()) for _ in range(SEARCHES)], 1)
    with (
        running_function(bench.environment(PROJECT, store=store)) as function,
        Caller(function.port, bench.token) as caller,
    ):
        caller.call(search(texts.query()))
        seen = [_reads(proxy, caller, search(texts.query())) for _ in range(COUNTED)]
    return Size(memories=size, search=timing, seen=sum(seen) / COUNTED)


def _reads(proxy: Proxy, caller: Caller, body: bytes) -> int:
    proxy.exchanges.clear()
    caller.call(body)
    return sum(map(reads_of, proxy.exchanges))
