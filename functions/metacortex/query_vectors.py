"""The vectors of the last queries: agents ask the same again, of another state, topic or moment."""

from collections import OrderedDict

from metacortex.ports import Embedder
from metacortex.spaces import Space

QUERIES = 200


class QueryVectors:
    """Embeds queries and remembers the last 200 of this instance, about 5 MB. What is remembered belongs to one space."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._known: OrderedDict[tuple[Space, str], tuple[float, ...]] = OrderedDict()

    async def vector(self, query: str, space: Space) -> tuple[float, ...]:
        key = (space, query)
        if key not in self._known:
            self._known[key] = await self._embedder.embed_query(query, text_format=space.text_format)
        self._known.move_to_end(key)
        vector = self._known[key]
        if len(self._known) > QUERIES:
            self._known.popitem(last=False)
        return vector
