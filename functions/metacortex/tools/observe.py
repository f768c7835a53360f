"""The one observer around every tool call: it validates, runs, answers and leaves an event, whatever happens."""

import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcp_types import CallToolResult, TextContent

from metacortex.errors import InvalidArgument, MetaCortexError
from metacortex.events import Event, ToolCall
from metacortex.profiles import Profile
from metacortex.service import MemoryService
from metacortex.tools import payloads
from metacortex.tools.schema import parse
from metacortex.tools.tool import AnyTool
from metacortex.trail import Recorder

LONGEST_TEXT = 200
LONGEST_LIST = 100

logger = logging.getLogger(__name__)


class Observer:
    def __init__(
        self,
        service: Callable[[], Awaitable[MemoryService]],
        recorder: Recorder,
        clock: Callable[[], int],
        telemetry_of: str | None,
    ) -> None:
        """`telemetry_of` names the collection that retrieval events tell of; None for no such events."""
        self._service = service
        self._recorder = recorder
        self._clock = clock
        self._telemetry_of = telemetry_of

    async def call(self, tool: AnyTool, profile: Profile, given: Mapping[str, Any] | None) -> CallToolResult:
        """Runs one call. Errors become tool errors; what was not foreseen is logged and answered without its details."""
        call = ToolCall(profile.id, tool.name, self._clock)
        try:
            return await self._run(tool, profile, given, call)
        except MetaCortexError as error:
            await self._recorder.record(call.failed(error, payloads.status_code(error)))
            return _failure(payloads.error(error))
        except Exception as error:
            request_id = uuid.uuid4().hex
            logger.exception("%s failed unexpectedly (requestId %s)", tool.name, request_id)
            await self._recorder.record(call.failed(error, 500))
            return _failure(payloads.internal_error(request_id))

    async def _run(
        self, tool: AnyTool, profile: Profile, given: Mapping[str, Any] | None, call: ToolCall
    ) -> CallToolResult:
        arguments = parse(tool.arguments, given)
        call.request = _known(tool.request_event(arguments))

        def event(result: Any) -> Event:
            return call.committed(_known(tool.response_event(result)))

        result = await tool.run(await self._service(), profile, arguments, event)
        payload = dict(tool.payload(arguments, result, profile))
        if tool.event_is_committed(result):
            self._recorder.log(call.succeeded(_known(tool.response_event(result))))
        else:
            await self._recorder.record(*self._events(tool, arguments, result, call))
        return CallToolResult(content=[TextContent(text=payloads.to_json(payload))], structured_content=payload)

    def _events(self, tool: AnyTool, arguments: Any, result: Any, call: ToolCall) -> list[Event]:
        events = [call.succeeded(_known(tool.response_event(result)))]
        if self._telemetry_of and tool.retrieval_event is not None:
            fields = {"collection": self._telemetry_of, **tool.retrieval_event(arguments, result)}
            events.append(call.retrieval(fields))
        return events

    async def refused(self, name: str, profile: Profile, message: str) -> None:
        """Leaves the event of a call that reached no tool."""
        call = ToolCall(profile.id, name[:64], self._clock)
        await self._recorder.record(call.failed(InvalidArgument(message), 400))


def _known(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What there is to tell. A refused call may hold texts and lists of any length: the trail keeps their beginning."""
    return {name: _cut(value) for name, value in fields.items() if value is not None}


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return value[:LONGEST_TEXT]
    return value[:LONGEST_LIST] if isinstance(value, list) else value


def _failure(payload: Mapping[str, Any]) -> CallToolResult:
    # No structuredContent: clients would hold it against the outputSchema.
    return CallToolResult(content=[TextContent(text=payloads.to_json(payload))], is_error=True)
