"""One service and the oracle beside it: every call goes to both, and their answers must be the same."""

import json
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from builders import PROFILES, FakeClock, ProtocolError, Service, ToolError, environment, plane_models
from machines.oracle import ADMIN, NOT_OFFERED, STATES, Answer, Oracle, Refusal, Refused, merged_text, rights_of
from metacortex.bootstrap import Stores
from metacortex.memory import Memory

CURATOR: dict[str, Any] = {
    "id": "curator",
    "token": "a-curating-token-of-the-tests",
    "allowedTools": ["list_context", "deprecate_context", "consolidate_context"],
    "allowedFilterStates": ["active", "wip"],
    "allowedWriteStates": ["active", "deprecated"],
}
AUDITOR: dict[str, Any] = {
    "id": "auditor",
    "token": "an-auditing-token-of-the-tests",
    "allowedTools": ["fetch_context", "list_context", "deprecate_context", "consolidate_context"],
    "allowedFilterStates": ["merged", "deprecated"],
}
CLIENTS = [*PROFILES, CURATOR, AUDITOR]
RESULTS = 2
SOURCES = 3
# Searches that name a moment look at so few first that they must look again.
SETTINGS = environment(
    MCP_CLIENT_PROFILES_JSON=json.dumps(CLIENTS),
    RETRIEVAL_MODE="vector",
    SEARCH_RESULT_LIMIT=str(RESULTS),
    RETRIEVAL_CANDIDATES="1",
    CONSOLIDATION_BATCH_LIMIT=str(SOURCES),
)

Trail = Callable[[], Coroutine[Any, Any, Sequence[Answer]]]


class JoiningMerger:
    """The Merger port: all that the sources say, in an order that is theirs whatever the order they come in."""

    async def merge(self, sources: Sequence[Memory], *, topic: str) -> str:
        return merged_text(source.content for source in sources)


class World:
    """`trail` reads the events that the stores hold, as their fields."""

    def __init__(self, stores: Stores, trail: Trail, clock: FakeClock) -> None:
        self.service = Service(SETTINGS, stores, plane_models(merger=JoiningMerger()), clock)
        self.oracle = Oracle([ADMIN, *map(rights_of, CLIENTS)], results=RESULTS, sources=SOURCES)
        self._trail = trail
        self._expected: Counter[tuple[Any, ...]] = Counter()
        self._calls: list[tuple[str, Answer]] = []
        self._cursors: list[tuple[str, Answer]] = []

    async def call(self, tool: str, client: str, **arguments: Any) -> Answer | Refusal:
        """Calls both. Where ids are expected, a number names one of the memories that there are."""
        return await self._both(tool, client, {name: self._resolved(name, value) for name, value in arguments.items()})

    async def again(self, which: int, client: str, tool: str | None = None, **changes: Any) -> None:
        """Repeats an earlier call, of one tool or of any, from any client: to the letter, or with other details."""
        earlier = [(name, arguments) for name, arguments in self._calls if tool in {None, name}]
        if earlier:
            name, arguments = earlier[which % len(earlier)]
            await self.call(name, client, **arguments | changes)

    async def deprecate_merged(self, which: int, client: str, **details: Any) -> None:
        """Retires what a consolidation made."""
        merged = list(self.oracle.merges)
        if merged:
            await self.call("deprecate_context", client, id=merged[which % len(merged)], **details)

    async def merge_again(self, which: int, client: str, **details: Any) -> None:
        """Asks for an earlier consolidation again, with its sources in another order."""
        merges = list(self.oracle.merges.values())
        if merges:
            source_ids = merges[which % len(merges)][::-1]
            await self.call("consolidate_context", client, source_ids=source_ids, **details)

    async def walk(self, client: str, **filters: Any) -> None:
        """Lists page by page to the end. Together the pages show each memory once: the oracle says which, page by page."""
        page = await self.call("list_context", client, **filters)
        while isinstance(page, dict) and page["next_cursor"] is not None:
            self._cursors.append((page["next_cursor"], filters))
            page = await self.call("list_context", client, cursor=page["next_cursor"], **filters)

    async def resume(self, which: int, client: str, **changes: Any) -> None:
        """Goes on from a cursor of any earlier page, with the filters of then or others."""
        if self._cursors:
            cursor, filters = self._cursors[which % len(self._cursors)]
            await self.call("list_context", client, cursor=cursor, **filters | changes)

    async def read_whole(self, which: int, client: str) -> None:
        """Fetches page by page; together the pages are the whole content."""
        pages: list[str] = []
        offset: int | None = 0
        while offset is not None:
            page = await self.call("fetch_context", client, id=which, offset=offset)
            if isinstance(page, Refusal):
                return
            pages.append(page["item"]["content"])
            offset = page.get("next_offset")
        assert "".join(pages) == self.oracle.memories[self._resolved("id", which)].content

    def _resolved(self, name: str, value: Any) -> Any:
        ids = list(self.oracle.memories)
        if name in {"source_ids", "derived_from"}:
            return list(dict.fromkeys(self._resolved("id", which) for which in value))
        if name in {"id", "document_id", "superseding_id"} and isinstance(value, int):
            return ids[value % len(ids)] if ids else "none-yet"
        return value

    async def _both(self, tool: str, client: str, arguments: Answer) -> Answer | Refusal:
        self._calls.append((tool, arguments))
        seen = await self._seen(tool, client, arguments)
        expected = self._answer(tool, client, arguments, seen if isinstance(seen, dict) else {})
        assert seen == expected, (tool, client, arguments)
        status, code = ("error", expected.status) if isinstance(expected, Refusal) else ("success", None)
        self._expected[client, tool, status, 400 if expected == NOT_OFFERED else code] += 1
        return seen

    async def _seen(self, tool: str, client: str, arguments: Answer) -> Answer | Refusal:
        try:
            return await self.service.call(tool, client, **arguments)
        except ToolError as error:
            return Refusal(error.status, error.code)
        except ProtocolError as error:
            return Refusal(error.code, NOT_OFFERED.code)

    def _answer(self, tool: str, client: str, arguments: Answer, seen: Answer) -> Answer | Refusal:
        try:
            return self.oracle.answer(tool, client, arguments, self.service.clock.now, seen)
        except Refused as refused:
            return refused.refusal

    # --- What holds at any moment ---

    async def check(self) -> None:
        """Nothing is lost or changed, no chain turns back, and what was merged has one current version."""
        expected = self.oracle.memories
        stored = await self.service.stores.memories.versions(list(expected))
        memories = {version.memory.id: version.memory for version in stored if version is not None}
        assert {name: memory.content for name, memory in memories.items()} == {
            name: memory.content for name, memory in expected.items()
        }
        successors = {name: memory.metadata.superseded_by for name, memory in memories.items()}
        current = {name: _end_of(name, successors) for name in memories}
        for merged_id, source_ids in self.oracle.merges.items():
            assert {successors[source_id] for source_id in source_ids} == {merged_id}
            assert {memories[source_id].metadata.branch_state for source_id in source_ids} == {"deprecated"}
            assert {current[source_id] for source_id in source_ids} == {current[merged_id]}

    async def check_trail(self) -> None:
        """Every call has left one event."""
        events = await self._trail()
        assert self._expected == Counter(
            (
                event["client_id"],
                event["tool_name"],
                event["status"],
                event["error"]["status_code"] if "error" in event else None,
            )
            for event in events
        )

    async def check_all(self) -> None:
        """Everything there is, as the owner sees it, and the trail."""
        for state in STATES:
            await self.walk("default", filter_state=state, limit=100)
        await self.check_trail()


def _end_of(memory_id: str, successors: dict[str, str | None]) -> str:
    passed: list[str] = []
    current: str | None = memory_id
    while current is not None:
        assert current not in passed, "what superseded a memory was itself superseded by it"
        passed.append(current)
        current = successors[current]
    return passed[-1]
