"""What every tool must answer, from its documented behaviour alone: plain dictionaries and lists, and no code of the service."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

STATES = ["active", "merged", "deprecated", "wip"]
TOOLS = [
    "save_context",
    "search_context",
    "fetch_context",
    "list_context",
    "deprecate_context",
    "consolidate_context",
]
CODES = {
    400: "invalid_argument",
    403: "forbidden",
    404: "not_found",
    409: "conflict",
    413: "too_large",
    422: "nothing_to_do",
}
WINDOW_MS = 15 * 60_000
PAGE_CHARACTERS = 50_000
CONTENT_BYTES = 400_000

Answer = dict[str, Any]


@dataclass(frozen=True)
class Refusal:
    """An answer that is an error: its status and code."""

    status: int
    code: str


NOT_OFFERED = Refusal(-32602, "invalid_params")


class Refused(Exception):
    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal)
        self.refusal = refusal


def refuse(status: int, *, where: bool) -> None:
    if where:
        raise Refused(Refusal(status, CODES[status]))


@dataclass(frozen=True)
class Rights:
    """What one client may do."""

    id: str
    tools: list[str]
    reads: list[str]
    writes: list[str]

    @property
    def default_state(self) -> str:
        return "active" if "active" in self.reads else self.reads[0]

    @property
    def is_admin(self) -> bool:
        return self.id == "default"


ADMIN = Rights("default", TOOLS, STATES, STATES)


def rights_of(profile: Mapping[str, Any]) -> Rights:
    """The rights that one entry of MCP_CLIENT_PROFILES_JSON grants."""
    return Rights(
        profile["id"],
        profile["allowedTools"],
        profile.get("allowedFilterStates", ["active"]),
        profile.get("allowedWriteStates", ["active", "wip"]),
    )


@dataclass
class Remembered:
    """A memory as it stands. Times are epoch milliseconds."""

    id: str
    content: str
    topic: str
    state: str
    created_at: int
    updated_at: int
    origin: str
    written_by: str
    modality: str = "text"
    artifact_refs: list[str] = field(default_factory=list[str])
    derived_from: list[str] = field(default_factory=list[str])
    source_session: str | None = None
    confidence: float | None = None
    valid_from: int | None = None
    valid_until: int | None = None
    superseded_by: str | None = None
    reason: str | None = None
    initiator: str | None = None

    def retire(self, now: int, by: str | None, reason: str, initiator: str | None) -> None:
        self.state, self.updated_at = "deprecated", now
        self.superseded_by, self.reason, self.initiator = by, reason, initiator
        ended = self.valid_until is not None and self.valid_until <= now
        # What begins at this very moment keeps its end: nothing is valid from a moment until the same moment.
        begun = self.valid_from is None or self.valid_from <= now
        if reason == "changed" and begun and not ended:
            self.valid_until = now

    def holds_at(self, moment: int) -> bool:
        begun = self.valid_from is None or self.valid_from <= moment
        ended = self.valid_until is not None and self.valid_until <= moment
        return begun and not ended and self.reason != "corrected"


def iso(milliseconds: int) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03}Z"


def instant(value: int | str | None) -> int | None:
    """Epoch milliseconds of a time argument."""
    if not isinstance(value, str):
        return value
    moment = datetime.fromisoformat(value)
    since = moment.replace(tzinfo=moment.tzinfo or UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return since // timedelta(milliseconds=1)


def cosine(one: str, other: str) -> float:
    """The similarity of two texts `at N` degrees: the vectors of the tests' embedder."""
    return round(math.cos(math.radians(_degrees(one) - _degrees(other))), 9)


def similarity(one: str, other: str) -> float:
    return round(max(0.0, cosine(one, other)), 6)


def _degrees(text: str) -> float:
    words = text.split()
    return float(words[words.index("at") + 1])


def merged_text(contents: Iterable[str]) -> str:
    """The rule by which the tests' merger merges, in any order of the sources."""
    return "\n".join(sorted(contents))


def summary(content: str) -> str:
    line = " ".join(content.split())
    return line if len(line) <= 220 else f"{line[:217]}..."


def public(memory: Remembered, rights: Rights) -> Answer:
    provenance = {
        "origin": memory.origin,
        "source_session": memory.source_session,
        "derived_from": memory.derived_from or None,
        "confidence": memory.confidence,
    }
    return _present(
        {
            "topic": memory.topic,
            "branch_state": memory.state,
            "modality": memory.modality,
            "artifact_refs": memory.artifact_refs or None,
            "created_at": iso(memory.created_at),
            "updated_at": iso(memory.updated_at),
            "valid_from": _shown(memory.valid_from),
            "valid_until": _shown(memory.valid_until),
            "superseded_by": memory.superseded_by,
            "supersession_reason": memory.reason,
            "initiator": memory.initiator,
            "provenance": _present(provenance),
            "written_by": memory.written_by if rights.is_admin else None,
        }
    )


def _present(fields: Mapping[str, Any]) -> Answer:
    return {name: value for name, value in fields.items() if value is not None}


def _shown(moment: int | None) -> str | None:
    return None if moment is None else iso(moment)


def _item(memory: Remembered, rights: Rights, content: str | None = None) -> Answer:
    shown = memory.content if content is None else content
    return {"id": memory.id, "content": shown, "metadata": public(memory, rights)}


def _entry(memory: Remembered, rights: Rights) -> Answer:
    return {"id": memory.id, "summary": summary(memory.content), "metadata": public(memory, rights)}


SIMILAR, NEAR_DUPLICATE = 3, 0.99
LONGEST_CHAIN = 20


class Oracle:
    """A memory of its own that answers every call as the service must.

    Of the service's answer it takes only what nobody can foresee: the id of a new memory, the text of a cursor, and the order of
    equally near matches.
    """

    def __init__(self, clients: Iterable[Rights], *, results: int, sources: int) -> None:
        self.memories: dict[str, Remembered] = {}
        self.merges: dict[str, list[str]] = {}
        """The sources of every memory that a consolidation made."""
        self._rights = {rights.id: rights for rights in clients}
        self._results = results
        self._sources = sources
        self._fingerprints: dict[tuple[object, ...], tuple[str, int]] = {}
        self._cursors: dict[str, tuple[tuple[int, str], tuple[object, ...]]] = {}

    def answer(self, tool: str, client: str, given: Answer, now: int, seen: Answer) -> Answer:
        """What the call must answer; raises Refused where it must be refused. `seen` is what the service answered."""
        rights, given = self._rights[client], _present(given)
        if tool not in rights.tools:
            raise Refused(NOT_OFFERED)
        match tool:
            case "save_context":
                return self._save(rights, given, now, seen)
            case "search_context":
                return self._search(rights, given, seen)
            case "fetch_context":
                return self._fetch(rights, given)
            case "list_context":
                return self._list(rights, given, seen)
            case "deprecate_context":
                return self._deprecate(rights, given, now)
            case _:
                return self._consolidate(rights, given, now, seen)

    # --- Save ---

    def _save(self, rights: Rights, given: Answer, now: int, seen: Answer) -> Answer:
        valid_from, valid_until = instant(given.get("valid_from")), instant(given.get("valid_until"))
        refuse(400, where="draft" in given and "branch_state" in given)
        refuse(400, where=valid_from is not None and valid_until is not None and valid_from >= valid_until)
        content = given["content"].strip()
        refuse(400, where=not content)
        state = "wip" if given.get("draft") else given.get("branch_state", "active")
        origin = given.get("origin", "agent_inferred")
        refuse(403, where=state not in rights.writes or (origin == "legacy_import" and not rights.is_admin))
        fields: Answer = {
            "content": content,
            "topic": given.get("topic", "").strip() or "general",
            "state": state,
            "modality": "mixed" if "image_base64" in given else "text",
            "artifact_refs": given.get("artifact_refs", []),
            "valid_from": valid_from,
            "valid_until": valid_until,
            "origin": origin,
            "source_session": given.get("source_session"),
            "derived_from": given.get("derived_from", []),
            "confidence": given.get("confidence"),
        }
        fingerprint = tuple(tuple(value) if isinstance(value, list) else value for value in fields.values())
        earlier, until = self._fingerprints.get(fingerprint, ("", 0))
        if now < until and self.memories[earlier].state == state:
            return {"item": _item(self.memories[earlier], rights), "write_status": "duplicate"}
        memory = self._add(seen.get("item", {}).get("id"), rights, now, fields)
        self._fingerprints[fingerprint] = (memory.id, now + WINDOW_MS)
        similar = self._similar(memory, rights, seen.get("similar", []))
        return {"item": _item(memory, rights), "write_status": "created"} | ({"similar": similar} if similar else {})

    def _similar(self, new: Remembered, rights: Rights, seen: list[Answer]) -> list[Answer]:
        """At most three active memories of the topic that say nearly the same; of equally near ones the service's choice."""
        near = [
            {"id": memory.id, "score": similarity(new.content, memory.content), "summary": summary(memory.content)}
            for memory in self.memories.values()
            if memory is not new
            and "active" in rights.reads
            and (memory.state, memory.topic) == ("active", new.topic)
            and similarity(new.content, memory.content) >= NEAR_DUPLICATE
        ]
        scores = sorted((match["score"] for match in near), reverse=True)[:SIMILAR]
        chosen = [match for match in seen if match in near]
        assert [match["score"] for match in chosen] == scores
        return chosen

    def _add(self, memory_id: str, rights: Rights, now: int, fields: Answer) -> Remembered:
        assert memory_id not in self.memories, "a new memory has an id of its own"
        memory = Remembered(id=memory_id, created_at=now, updated_at=now, written_by=rights.id, **fields)
        self.memories[memory_id] = memory
        return memory

    # --- Search and fetch ---

    def _search(self, rights: Rights, given: Answer, seen: Answer) -> Answer:
        refuse(400, where=not given["query"].strip())
        filters = self._filters(rights, given)
        moment = instant(given.get("valid_at"))
        order = [match["id"] for match in seen.get("matches", [])]

        def rank(memory: Remembered) -> tuple[float, int]:
            return -cosine(given["query"], memory.content), order.index(memory.id) if memory.id in order else len(order)

        eligible = [memory for memory in self._passing(filters) if moment is None or memory.holds_at(moment)]
        found = sorted(eligible, key=rank)[: given.get("limit", self._results)]
        applied = {"filter_topic": filters["filter_topic"], "filter_state": filters["filter_state"]}
        extra = {"valid_at": _shown(moment), "filter_origin": filters["filter_origin"]}
        return {
            "matches": [
                _entry(memory, rights) | {"score": similarity(given["query"], memory.content), "matched_by": "vector"}
                for memory in found
            ],
            "applied_filters": applied | _present(extra),
        }

    def _filters(self, rights: Rights, given: Answer) -> Answer:
        """State, topic and origin as they count."""
        state = given.get("filter_state", rights.default_state)
        refuse(403, where=state not in rights.reads)
        topic = given.get("filter_topic", "").strip() or None
        return {"filter_topic": topic, "filter_state": state, "filter_origin": given.get("filter_origin")}

    def _passing(self, filters: Answer) -> list[Remembered]:
        return [
            memory
            for memory in self.memories.values()
            if memory.state == filters["filter_state"]
            and filters["filter_topic"] in {None, memory.topic}
            and filters["filter_origin"] in {None, memory.origin}
        ]

    def _fetch(self, rights: Rights, given: Answer) -> Answer:
        names = {given[name] for name in ("id", "document_id") if name in given}
        refuse(400, where=len(names) != 1)
        memory = self._open(rights, names.pop())
        offset = given.get("offset", 0)
        refuse(400, where=offset >= len(memory.content))
        end = offset + PAGE_CHARACTERS
        answer: Answer = {"item": _item(memory, rights, memory.content[offset:end])}
        return answer | {"next_offset": end} if end < len(memory.content) else answer

    def _open(self, rights: Rights, memory_id: str) -> Remembered:
        """A memory that this client may read; to it there is no other."""
        memory = self.memories.get(memory_id)
        if memory is None or memory.state not in rights.reads:
            raise Refused(Refusal(404, CODES[404]))
        return memory

    # --- List ---

    def _list(self, rights: Rights, given: Answer, seen: Answer) -> Answer:
        filters = self._filters(rights, given)
        after, before = instant(given.get("created_after")), instant(given.get("created_before"))
        asked = (*filters.values(), after, before)
        behind = self._position(given["cursor"], asked) if "cursor" in given else None
        passing = sorted(
            (-memory.created_at, memory.id)
            for memory in self._passing(filters)
            if (after is None or memory.created_at >= after) and (before is None or memory.created_at < before)
        )
        rest = [position for position in passing if behind is None or position > behind]
        shown = rest[: given.get("limit", 20)]
        cursor = None
        if len(rest) > len(shown):
            cursor = seen.get("next_cursor") or "a cursor"
            self._cursors[cursor] = (shown[-1], asked)
        times = {"created_after": _shown(after), "created_before": _shown(before)}
        return {
            "items": [_entry(self.memories[memory_id], rights) for _, memory_id in shown],
            "next_cursor": cursor,
            "applied_filters": filters | times,
        }

    def _position(self, cursor: str, asked: tuple[object, ...]) -> tuple[int, str]:
        position, made_with = self._cursors.get(cursor, ((0, ""), None))
        refuse(400, where=made_with != asked)
        return position

    # --- Deprecate ---

    def _deprecate(self, rights: Rights, given: Answer, now: int) -> Answer:
        memory_id, by = given["id"], given.get("superseding_id")
        reason, initiator = given.get("supersession_reason", "changed"), given.get("initiator")
        refuse(403, where="deprecated" not in rights.writes)
        refuse(400, where=memory_id == by)
        replacement = None if by is None else self._open(rights, by)
        memory = self.memories.get(memory_id)
        before = "deprecated"
        if memory is None or not _is_repeated(memory, by, reason, initiator):
            memory = self._open(rights, memory_id)
            before = memory.state
            refuse(409, where=before == "deprecated")
            chain = [] if replacement is None else self.chain(replacement)
            refuse(409, where=memory in chain or any(end.state == "deprecated" for end in chain[-1:]))
            refuse(409, where=len(chain) > 1 + LONGEST_CHAIN)
            memory.retire(now, by, reason, initiator)
        item = {
            "id": memory_id,
            "branch_state": "deprecated",
            "superseded_by": memory.superseded_by,
            "supersession_reason": memory.reason or "changed",
        }
        return {"item": _present(item), "previous_state": before}

    def chain(self, memory: Remembered) -> list[Remembered]:
        """A memory, what superseded it, what superseded that, and so on to the last."""
        chain = [memory]
        while (successor := chain[-1].superseded_by) is not None:
            chain.append(self.memories[successor])
        return chain

    # --- Consolidate ---

    def _consolidate(self, rights: Rights, given: Answer, now: int, seen: Answer) -> Answer:
        topic = given.get("topic", "").strip() or "general"
        ids, is_preview = given.get("source_ids"), given.get("preview", False)
        refuse(400, where=ids is not None and len(ids) != len(set(ids)))
        refuse(403, where=not is_preview and not {"active", "deprecated"} <= set(rights.writes))
        if ids is None:
            sources, remaining = self._drafts(rights, topic)
        else:
            refuse(400, where=len(ids) > self._sources)
            earlier = None if is_preview else self._replayed(rights, ids)
            if earlier is not None:
                return _merge_answer(earlier, ids, 0)
            sources, remaining = [self._open(rights, memory_id) for memory_id in ids], 0
        refuse(409, where=any(source.state == "deprecated" for source in sources))
        refuse(422, where=len(sources) < 2)
        refuse(409, where=len({(source.valid_from, source.valid_until) for source in sources}) > 1)
        content = merged_text(source.content for source in sources)
        refuse(413, where=len(content.encode()) > CONTENT_BYTES)
        if is_preview:
            return {
                "preview": True,
                "merged_content": content,
                "topic": topic,
                "sources": [_entry(source, rights) for source in sources],
                "source_count": len(sources),
                "remaining_count": remaining,
            }
        fields = {
            "content": content,
            "topic": topic,
            "state": "active",
            "artifact_refs": list(dict.fromkeys(ref for source in sources for ref in source.artifact_refs)),
            "valid_from": sources[0].valid_from,
            "valid_until": sources[0].valid_until,
            "origin": "agent_inferred",
            "derived_from": [source.id for source in sources],
        }
        merged = self._add(seen.get("item", {}).get("merged_id"), rights, now, fields)
        for source in sources:
            source.retire(now, merged.id, "changed", "agent")
        self.merges[merged.id] = merged.derived_from
        return _merge_answer(merged, merged.derived_from, remaining)

    def _drafts(self, rights: Rights, topic: str) -> tuple[list[Remembered], int]:
        """The oldest drafts of a topic, as many as one merge takes, and how many it leaves."""
        refuse(403, where="wip" not in rights.reads)
        drafts = self._passing({"filter_state": "wip", "filter_topic": topic, "filter_origin": None})
        drafts.sort(key=lambda draft: (draft.created_at, draft.id))
        refuse(422, where=len(drafts) < 2)
        return drafts[: self._sources], max(0, len(drafts) - self._sources)

    def _replayed(self, rights: Rights, ids: Sequence[str]) -> Remembered | None:
        """The memory that has already replaced exactly these."""
        successors = {self.memories[i].superseded_by if i in self.memories else None for i in ids}
        merged = self.memories.get(successors.pop() or "") if len(successors) == 1 else None
        is_replay = merged is not None and set(merged.derived_from) == set(ids) and merged.state in rights.reads
        return merged if is_replay else None


def _is_repeated(memory: Remembered, by: str | None, reason: str, initiator: str | None) -> bool:
    # What was saved as deprecated has no reason, which counts as changed. An initiator that is left out contradicts none.
    same = (by, reason) == (memory.superseded_by, memory.reason or "changed")
    return memory.state == "deprecated" and same and initiator in {None, memory.initiator}


def _merge_answer(merged: Remembered, source_ids: Sequence[str], remaining: int) -> Answer:
    return {
        "item": {
            "merged_id": merged.id,
            "merged_content": merged.content,
            "topic": merged.topic,
            "branch_state": merged.state,
        },
        "deprecated_ids": list(source_ids),
        "source_count": len(source_ids),
        "remaining_count": remaining,
    }
