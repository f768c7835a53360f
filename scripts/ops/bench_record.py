"""What the service asks Firestore and the model for a call, recorded on the wire in the steps in which it asks.

Every answer is held back for a moment. So what the service sends together begins before anything of it is answered, and what
waits for an answer begins after it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ops.bench_load import Caller
from ops.bench_proxy import Exchange, Proxy
from ops.bench_servers import Bench

HOLD_MS = 60


@dataclass(frozen=True, kw_only=True)
class ModelCall:
    """One call of the model. Times are seconds of the same clock as an Exchange's."""

    path: str
    body: Mapping[str, Any] = field(repr=False)
    began: float
    ended: float

    @property
    def name(self) -> str:
        return "model"


Step = Sequence[Exchange | ModelCall]
"""What goes out together."""


def record(bench: Bench, proxy: Proxy, caller: Caller, bodies: Sequence[bytes]) -> list[list[Step]]:
    """The steps of each call. The function that is called uses the proxy."""
    proxy.hold = HOLD_MS / 1000
    try:
        return [_steps(bench, proxy, caller, body) for body in bodies]
    finally:
        proxy.hold = 0.0
        bench.model.control(delay_ms=bench.plan.delay_ms)


def _steps(bench: Bench, proxy: Proxy, caller: Caller, body: bytes) -> list[Step]:
    bench.model.control(delay_ms=HOLD_MS, keep=True)
    proxy.exchanges = []
    caller.call(body)
    asked: list[Exchange | ModelCall] = [*proxy.exchanges, *(ModelCall(**call) for call in bench.model.kept())]
    steps: list[list[Exchange | ModelCall]] = []
    for each in sorted(asked, key=lambda each: each.began):
        if steps and each.began < min(other.ended for other in steps[-1]):
            steps[-1].append(each)
        else:
            steps.append([each])
    return list(steps)
