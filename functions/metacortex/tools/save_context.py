"""save_context: remember something."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NotRequired

from mcp_types import ToolAnnotations
from pydantic import Field
from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from metacortex import rules
from metacortex.errors import InvalidArgument
from metacortex.events import Event
from metacortex.memory import BranchState, Draft, Origin, Provenance, WriteStatus
from metacortex.profiles import Profile
from metacortex.service import MemoryService, Saved
from metacortex.tools import payloads
from metacortex.tools.schema import Arguments, Texts, Time
from metacortex.tools.tool import Tool, shown_while_running

State = Literal["active", "merged", "deprecated", "wip"]


class SaveArguments(Arguments):
    content: Annotated[
        str | None, Field(description="What to remember, complete in itself. Required unless there is an image.")
    ] = None
    topic: Annotated[
        str | None, Field(description="The project or subject it belongs to, as an exact name. Default: general.")
    ] = None
    draft: Annotated[
        bool | None, Field(description="true: keep it as work in progress (wip), out of default searches.")
    ] = None
    branch_state: Annotated[
        State | None, Field(description="The lifecycle state to save in, instead of draft. Default: active.")
    ] = None
    artifact_refs: Annotated[
        Texts | None, Field(description="Files, URLs, commits or issues it is about; at most 50.")
    ] = None
    image_base64: Annotated[str | None, Field(description="An image as base64; needs image_mime_type.")] = None
    image_mime_type: Annotated[str | None, Field(description=f"One of {', '.join(rules.IMAGE_MIME_TYPES)}.")] = None
    valid_from: Annotated[
        Time | None, Field(description="From when on it holds: epoch milliseconds or ISO 8601, UTC without a zone.")
    ] = None
    valid_until: Annotated[Time | None, Field(description="Until just before when it holds; the same forms.")] = None
    origin: Annotated[
        Literal["user_asserted", "agent_inferred", "legacy_import"] | None,
        Field(description="user_asserted if the user said it, agent_inferred (the default) if you concluded it."),
    ] = None
    source_session: Annotated[str | None, Field(description="The conversation or run it comes from.")] = None
    derived_from: Annotated[Texts | None, Field(description="The ids of memories it was made from.")] = None
    confidence: Annotated[float | None, Field(description="How sure you are, from 0 to 1.")] = None

    def to_draft(self) -> Draft:
        rules.check_validity(self.valid_from, self.valid_until)
        content = rules.content(self.content)
        image = rules.image(self.image_base64, self.image_mime_type)
        if not content and image is None:
            raise InvalidArgument("content is missing or blank; send the text to remember, or an image.")
        return Draft(
            content=content,
            topic=rules.topic(self.topic),
            branch_state=self._state(),
            image=image,
            artifact_refs=rules.artifact_refs(self.artifact_refs or ()),
            valid_from=self.valid_from,
            valid_until=self.valid_until,
            provenance=Provenance(
                origin=Origin(self.origin or Origin.AGENT_INFERRED),
                source_session=rules.short_text(self.source_session, "source_session", rules.SOURCE_SESSION_CHARACTERS),
                derived_from=rules.derived_from(self.derived_from or ()),
                confidence=rules.confidence(self.confidence),
            ),
        )

    def _state(self) -> BranchState:
        if self.draft is not None and self.branch_state is not None:
            raise InvalidArgument("draft and branch_state exclude each other; send one of them.")
        if self.draft:
            return BranchState.WIP
        return BranchState(self.branch_state or BranchState.ACTIVE)


class SaveResult(TypedDict):
    item: payloads.ItemPayload
    write_status: WriteStatus
    similar: NotRequired[list[payloads.SimilarPayload]]


async def run(
    service: MemoryService, profile: Profile, arguments: SaveArguments, event: Callable[[Saved], Event]
) -> Saved:
    return await service.save(profile, arguments.to_draft(), event)


def payload(_: SaveArguments, saved: Saved, profile: Profile) -> SaveResult:
    result: SaveResult = {"item": payloads.item(saved.memory, profile), "write_status": saved.write_status}
    if saved.similar:
        result["similar"] = [payloads.similar(match) for match in saved.similar]
    return result


def request_event(arguments: SaveArguments) -> Mapping[str, Any]:
    return {
        "topic": arguments.topic,
        "branch_state": arguments.branch_state,
        "origin": arguments.origin,
        "draft": arguments.draft,
        "content_length": len(arguments.content or ""),
        "image_present": arguments.image_base64 is not None,
        "artifact_ref_count": len(arguments.artifact_refs or ()),
        "valid_from": arguments.valid_from,
        "valid_until": arguments.valid_until,
    }


def response_event(saved: Saved) -> Mapping[str, Any]:
    metadata = saved.memory.metadata
    return {
        "id": saved.memory.id,
        "topic": metadata.topic,
        "branch_state": metadata.branch_state,
        "modality": metadata.modality,
        "write_status": saved.write_status,
    }


TOOL = Tool(
    name="save_context",
    title="Save to memory",
    description=(
        "Save one thing worth remembering across conversations: a decision, a preference, a fact, a lesson, the state of some "
        "work. Write it so that it can be understood on its own later, with names, dates and reasons. Saving the same thing "
        "again within 15 minutes is safe and returns the memory that is already there. If the answer lists similar memories, "
        "tell the user where this one makes one of them out of date. Never save passwords or keys."
    ),
    annotations=ToolAnnotations(
        read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    ),
    arguments=SaveArguments,
    result=SaveResult,
    run=run,
    payload=payload,
    request_event=request_event,
    response_event=response_event,
    event_is_committed=lambda saved: saved.write_status is WriteStatus.CREATED,
    hints=shown_while_running("Saving to memory", "Saved to memory"),
)
