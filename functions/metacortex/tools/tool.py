"""What every tool is made of. One file per tool fills one of these records."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from mcp_types import ToolAnnotations

from metacortex.events import Event
from metacortex.profiles import Profile
from metacortex.service import MemoryService
from metacortex.tools.schema import Arguments

A = TypeVar("A", bound=Arguments)
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Tool(Generic[A, R]):
    """A tool: what clients are told of it, what it does, and what the audit trail keeps of a call."""

    name: str
    title: str
    description: str
    annotations: ToolAnnotations
    arguments: type[A]
    result: Any
    """The TypedDict whose JSON schema is the outputSchema."""
    run: Callable[[MemoryService, Profile, A, Callable[[R], Event]], Awaitable[R]]
    """Calls the service. The last argument makes the event that a write stores in its own commit."""
    payload: Callable[[A, R, Profile], Mapping[str, Any]]
    """The result as clients see it."""
    request_event: Callable[[A], Mapping[str, Any]]
    response_event: Callable[[R], Mapping[str, Any]]
    retrieval_event: Callable[[A, R], Mapping[str, Any]] | None = None
    """The opt-in telemetry of a retrieval; None for tools that retrieve nothing."""
    event_is_committed: Callable[[R], bool] = lambda _: False
    """Whether this result's event was stored with it."""
    hints: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The `_meta` of the tool: hints that known clients read."""


AnyTool = Tool[Any, Any]


def shown_while_running(invoking: str, invoked: str) -> dict[str, str]:
    """ChatGPT shows these two texts (at most 64 characters) while a tool runs and when it has run."""
    return {"openai/toolInvocation/invoking": invoking, "openai/toolInvocation/invoked": invoked}
