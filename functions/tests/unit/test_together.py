"""Work done at the same time: what comes of it, and that a failure or a cancellation leaves nothing running."""

import asyncio

import pytest

from metacortex.errors import Unavailable
from metacortex.together import together


class Work:
    """Pieces of work that never end by themselves, and what became of them."""

    def __init__(self) -> None:
        self.ended: list[str] = []
        self.begun = asyncio.Event()

    async def forever(self, name: str) -> str:
        self.begun.set()
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            self.ended.append(name)

    async def fails(self, error: BaseException) -> str:
        await self.begun.wait()
        raise error


async def after(turns: int, result: str) -> str:
    for _ in range(turns):
        await asyncio.sleep(0)
    return result


async def test_results_come_in_the_order_of_the_work() -> None:
    assert await together(after(3, "one"), after(1, "two"), after(2, "three")) == ("one", "two", "three")
    assert await together(*[]) == ()


async def test_the_first_failure_comes_out_as_it_is_and_ends_the_rest() -> None:
    work, error = Work(), Unavailable("Away.")
    with pytest.raises(Unavailable) as raised:
        await together(work.forever("one"), work.fails(error), work.forever("two"))
    assert raised.value is error
    assert sorted(work.ended) == ["one", "two"]


async def test_a_failure_keeps_its_cause() -> None:
    async def fails() -> None:
        raise Unavailable("Away.") from TimeoutError()

    with pytest.raises(Unavailable) as raised:
        await together(fails(), after(1, ""))
    assert isinstance(raised.value.__cause__, TimeoutError)


async def test_what_fails_while_it_is_ended_hides_nothing() -> None:
    work = Work()

    async def fails_when_ended() -> str:
        try:
            return await work.forever("one")
        finally:
            raise ValueError("A consequence.")

    with pytest.raises(Unavailable):
        await together(fails_when_ended(), work.fails(Unavailable("Away.")))


async def test_a_cancellation_is_one_for_all_and_stays_one() -> None:
    work = Work()
    task = asyncio.create_task(together(work.forever("one"), work.forever("two")))
    await work.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(work.ended) == ["one", "two"]


async def test_a_deadline_ends_all_and_stays_one() -> None:
    work = Work()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await together(work.forever("one"), together(work.forever("two"), work.forever("three")))
    assert sorted(work.ended) == ["one", "three", "two"]
