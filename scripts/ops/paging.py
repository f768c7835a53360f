"""Reading many documents of the store, and counting them."""

from collections.abc import AsyncGenerator
from datetime import datetime

from google.cloud.firestore_v1.async_query import AsyncQuery
from google.cloud.firestore_v1.base_document import DocumentSnapshot

from metacortex.adapters.firestore_client import RETRY, answering
from metacortex.errors import TimedOut


async def pages(
    query: AsyncQuery, size: int, *, read_time: datetime | None = None
) -> AsyncGenerator[list[DocumentSnapshot]]:
    """Every document of an ordered query, at most `size` at once, none of them empty.

    Of a page that does not come within the store's deadline, what has come is one: a slow connection makes them smaller.
    Raises MetaCortexError where nothing comes.
    """
    following = query
    is_last = False
    while not is_last:
        page: list[DocumentSnapshot] = []
        try:
            async with answering():
                async for snapshot in following.limit(size).stream(retry=RETRY, read_time=read_time):
                    page.append(snapshot)  # noqa: PERF401 - a comprehension would lose what came before the deadline
            is_last = len(page) < size
        except TimedOut:
            if not page:
                raise
        if page:
            yield page
            following = query.start_after(page[-1])


async def count(query: AsyncQuery) -> int:
    """How many documents a query finds, at a read for each thousand."""
    async with answering():
        return int((await query.count().get(retry=RETRY))[0][0].value)


async def read(query: AsyncQuery) -> list[DocumentSnapshot]:
    """The documents of a query that finds few."""
    async with answering():
        return list(await query.get(retry=RETRY))
