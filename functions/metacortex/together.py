"""Work done at the same time, where the first failure ends the rest: nothing goes on behind an answer."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar, overload

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


@overload
async def together(one: Coroutine[Any, Any, A], two: Coroutine[Any, Any, B], /) -> tuple[A, B]: ...
@overload
async def together(
    one: Coroutine[Any, Any, A], two: Coroutine[Any, Any, B], three: Coroutine[Any, Any, C], /
) -> tuple[A, B, C]: ...
@overload
async def together(*work: Coroutine[Any, Any, A]) -> tuple[A, ...]: ...
async def together(*work: Coroutine[Any, Any, Any]) -> tuple[Any, ...]:
    """The result of each, in their order. Raises the first failure as it is, once all others have ended."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except BaseExceptionGroup as failed:
        first = failed.exceptions[0]
    else:
        return tuple(task.result() for task in tasks)
    raise first
