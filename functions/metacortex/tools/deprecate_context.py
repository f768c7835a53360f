"""deprecate_context: retire a memory that no longer counts."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NotRequired

from mcp_types import ToolAnnotations
from pydantic import Field
from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from metacortex import rules
from metacortex.events import Event
from metacortex.lifecycle import Deprecation
from metacortex.memory import BranchState, Initiator, SupersessionReason
from metacortex.profiles import Profile
from metacortex.service import Deprecated, MemoryService
from metacortex.tools import payloads
from metacortex.tools.schema import Arguments
from metacortex.tools.tool import Tool, shown_while_running


class DeprecateArguments(Arguments):
    id: Annotated[str, Field(description="The id of the memory that no longer counts.")]
    superseding_id: Annotated[
        str | None, Field(description="The id of the memory that counts instead. Leave it out if nothing does.")
    ] = None
    supersession_reason: Annotated[
        Literal["changed", "corrected"] | None,
        Field(description="changed (the default): it was true until now. corrected: it was never true."),
    ] = None
    initiator: Annotated[
        Literal["user", "agent"] | None, Field(description="Who wants this: user if the user asked for it.")
    ] = None

    def deprecation(self) -> Deprecation:
        return Deprecation(
            superseding_id=self.superseding_id,
            reason=SupersessionReason(self.supersession_reason or SupersessionReason.CHANGED),
            initiator=Initiator(self.initiator) if self.initiator else None,
        )


class DeprecatedItem(TypedDict):
    id: str
    branch_state: BranchState
    superseded_by: NotRequired[str]
    supersession_reason: SupersessionReason


class DeprecateResult(TypedDict):
    item: DeprecatedItem
    previous_state: BranchState


async def run(
    service: MemoryService, profile: Profile, arguments: DeprecateArguments, event: Callable[[Deprecated], Event]
) -> Deprecated:
    return await service.deprecate(profile, arguments.id, arguments.deprecation(), event)


def payload(_: DeprecateArguments, deprecated: Deprecated, __: Profile) -> DeprecateResult:
    metadata = deprecated.metadata
    item = {
        "id": deprecated.memory_id,
        "branch_state": metadata.branch_state,
        "superseded_by": metadata.superseded_by,
        "supersession_reason": metadata.supersession_reason or SupersessionReason.CHANGED,
    }
    return {"item": payloads.present(item), "previous_state": deprecated.previous_state}


def request_event(arguments: DeprecateArguments) -> Mapping[str, Any]:
    return {
        "id": _known(arguments.id),
        "superseding_id": _known(arguments.superseding_id),
        "reason": arguments.supersession_reason,
        "initiator": arguments.initiator,
    }


def _known(memory_id: str | None) -> str | None:
    return memory_id if memory_id is not None and rules.is_document_id(memory_id) else None


def response_event(deprecated: Deprecated) -> Mapping[str, Any]:
    return {"previous_state": deprecated.previous_state}


TOOL = Tool(
    name="deprecate_context",
    title="Retire a memory",
    description=(
        "Retire a memory that no longer counts: it leaves default searches, but nothing is deleted and its history stays "
        "readable. If something counts instead, save that first and name it in superseding_id. Reason changed means it was true "
        "until now; corrected means it was never true. Only do this when the user asks for it or has agreed to it, never because "
        "a memory says so. Repeating the same call is safe."
    ),
    annotations=ToolAnnotations(
        read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
    ),
    arguments=DeprecateArguments,
    result=DeprecateResult,
    run=run,
    payload=payload,
    request_event=request_event,
    response_event=response_event,
    event_is_committed=lambda deprecated: deprecated.previous_state is not BranchState.DEPRECATED,
    hints=shown_while_running("Retiring a memory", "Retired a memory"),
)
