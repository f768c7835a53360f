"""consolidate_context: merge several memories into one that supersedes them."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, NotRequired

from mcp_types import ToolAnnotations
from pydantic import Field
from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from metacortex import rules
from metacortex.errors import InvalidArgument
from metacortex.events import Event
from metacortex.memory import BranchState, Entry, Memory
from metacortex.profiles import Profile
from metacortex.service import Consolidated, MemoryService, Preview
from metacortex.tools import payloads
from metacortex.tools.schema import Arguments, Texts
from metacortex.tools.tool import Tool, shown_while_running

RECORDED_IDS = 100
"""As many as an owner may let a merge have: a refused call may name half a million."""


class ConsolidateArguments(Arguments):
    topic: Annotated[
        str | None,
        Field(
            description="The topic whose oldest drafts (wip) to merge; with source_ids only the topic of the merged memory. "
            "Default: general."
        ),
    ] = None
    source_ids: Annotated[
        Texts | None,
        Field(description="The ids of the memories to merge, of any topic; at least 2, all different."),
    ] = None
    preview: Annotated[bool | None, Field(description="true: show what would be written, and write nothing.")] = None

    def sources(self) -> tuple[str, ...] | None:
        if self.source_ids is None:
            return None
        if len(set(self.source_ids)) < len(self.source_ids):
            raise InvalidArgument("source_ids names a memory twice; send each id once.")
        return tuple(self.source_ids)


class MergedItem(TypedDict):
    merged_id: str
    merged_content: str
    topic: str
    branch_state: BranchState


class ConsolidateResult(TypedDict):
    item: NotRequired[MergedItem]
    deprecated_ids: NotRequired[list[str]]
    preview: NotRequired[bool]
    merged_content: NotRequired[str]
    topic: NotRequired[str]
    sources: NotRequired[list[payloads.EntryPayload]]
    source_count: int
    remaining_count: int
    truncated: NotRequired[bool]


Outcome = Consolidated | Preview


async def run(
    service: MemoryService, profile: Profile, arguments: ConsolidateArguments, event: Callable[[Outcome], Event]
) -> Outcome:
    topic, source_ids = rules.topic(arguments.topic), arguments.sources()
    if arguments.preview:
        return await service.preview(profile, topic, source_ids)
    return await service.consolidate(profile, topic, source_ids, event)


def payload(arguments: ConsolidateArguments, outcome: Outcome, profile: Profile) -> ConsolidateResult:
    if isinstance(outcome, Preview):
        return _preview(arguments, outcome, profile)
    metadata = outcome.memory.metadata
    return {
        "item": {
            "merged_id": outcome.memory.id,
            "merged_content": outcome.memory.content,
            "topic": metadata.topic,
            "branch_state": metadata.branch_state,
        },
        "deprecated_ids": list(outcome.source_ids),
        "source_count": len(outcome.source_ids),
        "remaining_count": outcome.remaining,
    }


def _preview(arguments: ConsolidateArguments, preview: Preview, profile: Profile) -> ConsolidateResult:
    entries = [payloads.entry(_entry(source), profile) for source in preview.sources]
    sources, shortened = payloads.all_within_budget(entries)
    result: ConsolidateResult = {
        "preview": True,
        "merged_content": preview.content,
        "topic": rules.topic(arguments.topic),
        "sources": sources,
        "source_count": len(sources),
        "remaining_count": preview.remaining,
    }
    if shortened:
        result["truncated"] = True
    return result


def _entry(memory: Memory) -> Entry:
    return Entry(id=memory.id, summary=rules.summary(memory.content), metadata=memory.metadata)


def request_event(arguments: ConsolidateArguments) -> Mapping[str, Any]:
    return {
        "topic": arguments.topic,
        "source_ids": list(filter(rules.is_document_id, (arguments.source_ids or ())[:RECORDED_IDS])) or None,
        "preview": arguments.preview,
    }


def response_event(outcome: Outcome) -> Mapping[str, Any]:
    if isinstance(outcome, Preview):
        return {"source_count": len(outcome.sources)}
    return {
        "merged_id": outcome.memory.id,
        "source_count": len(outcome.source_ids),
        "deprecated_ids": list(outcome.source_ids),
    }


TOOL = Tool(
    name="consolidate_context",
    title="Merge memories",
    description=(
        "Merge several memories into one that keeps what they say and supersedes them: the oldest drafts of a topic, or the "
        "memories in source_ids. The sources are deprecated, never deleted. Use preview first, show the user the merged text, "
        "and go on only if they agree. Takes up to two minutes. Repeating a call with the same source_ids is safe; without them "
        "it goes on with the next drafts, as long as remaining_count is not 0."
    ),
    annotations=ToolAnnotations(
        read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=False
    ),
    arguments=ConsolidateArguments,
    result=ConsolidateResult,
    run=run,
    payload=payload,
    request_event=request_event,
    response_event=response_event,
    event_is_committed=lambda outcome: isinstance(outcome, Consolidated) and outcome.is_new,
    hints=shown_while_running("Merging memories", "Merged memories"),
)
