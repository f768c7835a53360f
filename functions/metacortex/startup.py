"""What lets a new process answer soon: it imports what a request needs when one needs it, in a thread, and once."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

from pydantic import BaseModel

T = TypeVar("T")


@contextmanager
def importing() -> Generator[None]:
    """Around imports. The collector would search again and again through what stays for good; afterwards it leaves it alone."""
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


@contextmanager
def building_lazily() -> Generator[None]:
    """Around imports that bring hundreds of pydantic models, of which a request needs a few: each is built when it is used."""
    BaseModel.model_config["defer_build"] = True
    try:
        yield
    finally:
        # Two apps that start at once in one process, as in tests, end this for each other.
        BaseModel.model_config.pop("defer_build", None)


def once(make: Callable[[], T]) -> Callable[[], Awaitable[T]]:
    """What `make` makes, for everyone who awaits it; made in a thread by the first of them. A failure is tried again."""
    lock = asyncio.Lock()
    made: list[T] = []

    def make_now() -> T:
        with importing():
            return make()

    async def get() -> T:
        if not made:
            async with lock:
                if not made:
                    made.append(await asyncio.to_thread(make_now))
        return made[0]

    return get
