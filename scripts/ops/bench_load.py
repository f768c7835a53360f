"""Calls of a running server, from one caller or from several at once, and how long they took.

The client is as lean as the standard library's; what it costs itself is in every figure, those of the empty server included.
"""

import http.client
import json
import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from ops.processes import OpsError

SECONDS = 60
LONGEST_ERROR = 200


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How long calls took, in milliseconds. `seconds` is how long all of them took together."""

    callers: int
    latencies: tuple[float, ...] = field(repr=False)
    seconds: float
    errors: tuple[str, ...] = ()
    """What the failed ones said."""

    @property
    def p50(self) -> float:
        return percentile(self.latencies, 0.5)

    @property
    def p95(self) -> float:
        return percentile(self.latencies, 0.95)

    @property
    def per_second(self) -> float:
        return len(self.latencies) / self.seconds

    def plus(self, other: "Timing") -> "Timing":
        """Both, as if one had followed the other."""
        return Timing(
            callers=self.callers,
            latencies=self.latencies + other.latencies,
            seconds=self.seconds + other.seconds,
            errors=self.errors + other.errors,
        )


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that is not below that share of them."""
    return sorted(values)[max(0, math.ceil(len(values) * share) - 1)]


class Caller:
    """One connection to an MCP endpoint, kept open, and made again where the server has ended it."""

    def __init__(self, port: int, token: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        self._headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2025-11-25",
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connect(self) -> None:
        self._connection.connect()

    def close(self) -> None:
        self._connection.close()

    def timed(self, body: bytes) -> tuple[float, str | None]:
        """How many milliseconds an answer took, and what was wrong with it."""
        began = time.perf_counter()
        try:
            status, answer = self._post(body)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            return _since(began), f"{type(error).__name__}: {error}"
        return _since(began), _fault(status, answer)

    def call(self, body: bytes) -> dict[str, Any]:
        """What a call that must succeed answers. Raises OpsError."""
        try:
            status, answer = self._post(body)
        except (OSError, http.client.HTTPException) as error:
            raise OpsError(f"The server did not answer ({type(error).__name__}).") from error
        if fault := _fault(status, answer):
            raise OpsError(f"The server answered a call with an error: {fault}")
        return json.loads(answer)["result"].get("structuredContent") or {}

    def _post(self, body: bytes) -> tuple[int, bytes]:
        self._connection.request("POST", "/mcp", body, self._headers)
        response = self._connection.getresponse()
        return response.status, response.read()


def _since(began: float) -> float:
    return (time.perf_counter() - began) * 1000


def _fault(status: int, answer: bytes) -> str | None:
    text = answer.decode(errors="replace")[:LONGEST_ERROR]
    if status != 200:
        return f"{status} {text}"
    result = json.loads(answer).get("result")
    return None if isinstance(result, dict) and not result.get("isError") else text


def drive(port: int, token: str, bodies: Sequence[bytes], callers: int) -> Timing:
    """Sends every body once, from so many callers at once; connections are made before the time begins."""
    waiting = deque(bodies)
    answered: list[tuple[float, str | None]] = []
    ready = threading.Barrier(callers + 1)

    def work() -> None:
        with Caller(port, token) as caller:
            try:
                caller.connect()
            except OSError:
                ready.abort()
                return
            ready.wait()
            _empty(waiting, caller, answered)

    # Where Ctrl-C ends the command, they must not keep it.
    threads = [threading.Thread(target=work, daemon=True) for _ in range(callers)]
    for thread in threads:
        thread.start()
    try:
        ready.wait()
    except threading.BrokenBarrierError:
        raise OpsError("The server that is measured takes no connections any more.") from None
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    return Timing(
        callers=callers,
        latencies=tuple(latency for latency, _ in answered),
        seconds=time.perf_counter() - began,
        errors=tuple(error for _, error in answered if error),
    )


def _empty(waiting: deque[bytes], caller: Caller, answered: list[tuple[float, str | None]]) -> None:
    while True:
        try:
            body = waiting.popleft()
        except IndexError:
            return
        answered.append(caller.timed(body))
