"""Log lines: JSON as Cloud Logging reads it in production, one readable line each at a terminal."""

import json
import logging
import re
import sys
from collections.abc import Mapping
from contextvars import ContextVar

trace_id: ContextVar[str | None] = ContextVar("trace_id", default=None)
"""The trace of the request that is being served, so that its lines are shown together."""

_TRACE_HEADERS = {
    "x-cloud-trace-context": re.compile(r"(?P<trace>[0-9a-f]{32})\b.*", re.DOTALL),
    "traceparent": re.compile(r"[0-9a-f]{2}-(?P<trace>[0-9a-f]{32})-.*", re.DOTALL),
}


def trace_of(headers: Mapping[str, str]) -> str | None:
    """The trace id of a request, as the platform or a caller sent it."""
    for name, form in _TRACE_HEADERS.items():
        if found := form.fullmatch(headers.get(name, "")):
            return found["trace"]
    return None


class JsonFormatter(logging.Formatter):
    def __init__(self, project: str | None) -> None:
        super().__init__()
        self._project = project

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "severity": record.levelname,
            "message": record.getMessage(),
            "logger": record.name,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if (trace := trace_id.get()) and self._project:
            line["logging.googleapis.com/trace"] = f"projects/{self._project}/traces/{trace}"
        line |= getattr(record, "event", {})
        return json.dumps(line, ensure_ascii=False, default=str)


class TerminalFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """One line, whatever a caller wrote into it: a line feed in a tool's name must not look like a line of ours."""
        return "".join(
            character if character.isprintable() else "\N{REPLACEMENT CHARACTER}"
            for character in super().formatMessage(record)
        )

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        event: Mapping[str, object] = getattr(record, "event", {})
        names = ("client_id", "status", "status_code", "latency_ms", "error")
        return line + "".join(f" {name}={_shown(event[name])}" for name in names if name in event)


def _shown(value: object) -> object:
    return f"{value['code']}: {value['message']}" if isinstance(value, Mapping) else value


def configure(*, project: str | None, readable: bool) -> None:
    """Replaces whatever the host set up: one handler on standard output, and quiet libraries."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(TerminalFormatter() if readable else JsonFormatter(project))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("metacortex").setLevel(logging.INFO)
