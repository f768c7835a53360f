"""Round trips of each call, counted on the wire: between the function and Firestore, and at the stand-in for the model.

Documents read are counted as Firestore bills them: one for each that a query or a read returns, at least one for each query,
and one for each 1,000 that a count counts. The entries of a vector index that a query scans are not on the wire: see growth.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from google.cloud.firestore_v1.types import BatchGetDocumentsResponse, RunAggregationQueryResponse, RunQueryResponse

from metacortex.settings import RetrievalMode
from ops.bench_calls import SEED, Texts, fetch, save, search
from ops.bench_corpus import fill
from ops.bench_load import Caller
from ops.bench_proxy import Exchange, Proxy, decoded, running_proxy
from ops.bench_servers import Bench
from ops.function import running_function
from ops.look_costs import COUNTED_ENTRIES_A_READ

PROJECT = "demo-bench-trips"
MEMORIES = 500
CALLS = 5


@dataclass(frozen=True, kw_only=True)
class Trips:
    """What one call sends, as means of several: Firestore's methods and how often, documents read, calls of the model."""

    firestore: Mapping[str, float]
    reads: float
    model: float

    @property
    def total(self) -> float:
        return sum(self.firestore.values()) + self.model


def measure_trips(bench: Bench) -> dict[RetrievalMode, dict[str, Trips]]:
    """The trips of each kind of call, in each way to search."""
    found: dict[RetrievalMode, dict[str, Trips]] = {}
    for number, mode in enumerate(RetrievalMode):
        bench.tell("Round trips", number, len(RetrievalMode))
        project = f"{PROJECT}-{mode}"
        ids = fill(bench, project, MEMORIES)
        with bench.portal.wrap_async_context_manager(running_proxy(bench.emulator)) as proxy:
            environment = bench.environment(project, store=f"127.0.0.1:{proxy.port}", retrieval=mode)
            with running_function(environment) as function, Caller(function.port, bench.token) as caller:
                found[mode] = _trips(bench, proxy, caller, ids)
    return found


def _trips(bench: Bench, proxy: Proxy, caller: Caller, ids: list[str]) -> dict[str, Trips]:
    texts = Texts(SEED + 2)
    saved = save(texts.memory(), texts.topic())
    calls: dict[str, Callable[[], bytes]] = {
        "save": lambda: save(texts.memory(), texts.topic()),
        "save again": lambda: saved,
        "search": lambda: search(texts.query()),
        "fetch": lambda: fetch(texts.choice(ids)),
    }
    # What is read once for many calls is read before they are counted; one of them is what is then saved again.
    caller.call(saved)
    caller.call(calls["search"]())
    return {name: _mean([_trip(bench, proxy, caller, make()) for _ in range(CALLS)]) for name, make in calls.items()}


def _trip(bench: Bench, proxy: Proxy, caller: Caller, body: bytes) -> Trips:
    proxy.exchanges.clear()
    bench.model.control(delay_ms=bench.plan.delay_ms)
    caller.call(body)
    return Trips(
        firestore=Counter(exchange.name for exchange in proxy.exchanges),
        reads=sum(map(reads_of, proxy.exchanges)),
        model=bench.model.calls(),
    )


def _mean(trips: Sequence[Trips]) -> Trips:
    names = sorted({name for trip in trips for name in trip.firestore})
    return Trips(
        firestore={name: sum(trip.firestore.get(name, 0) for trip in trips) / len(trips) for name in names},
        reads=sum(trip.reads for trip in trips) / len(trips),
        model=sum(trip.model for trip in trips) / len(trips),
    )


def reads_of(exchange: Exchange) -> int:
    """The documents that a call read, but for those of a vector index."""
    match exchange.name:
        case "RunQuery":
            return max(1, sum("document" in decoded(RunQueryResponse, answer) for answer in exchange.answers))
        case "BatchGetDocuments":
            got = (decoded(BatchGetDocumentsResponse, answer) for answer in exchange.answers)
            return sum("found" in answer or "missing" in answer for answer in got)
        case "RunAggregationQuery":
            counted = sum(map(_counted, exchange.answers))
            return max(1, math.ceil(counted / COUNTED_ENTRIES_A_READ))
        case _:
            return 0


def _counted(answer: bytes) -> int:
    fields = decoded(RunAggregationQueryResponse, answer).result.aggregate_fields
    return sum(value.integer_value for value in fields.values())
