"""Work that would hold up every other call: it goes to a thread of its own, one piece after the other.

One thread and not several: more would add up their memory, and would take turns with the event loop all the more often.
"""

import asyncio
import functools
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# A thread gives way to the event loop after 5 ms if left alone, and the loop asks it to with every packet that it sends.
sys.setswitchinterval(0.000_5)

_THREAD = ThreadPoolExecutor(max_workers=1, thread_name_prefix="aside")


async def aside(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """What `work` returns. For what takes longer than the hop into the thread: about a millisecond."""
    return await asyncio.get_running_loop().run_in_executor(_THREAD, functools.partial(work, *arguments, **named))
