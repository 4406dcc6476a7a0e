"""The log of the process on stderr: its configuration and its formatters."""

import json
import logging
from datetime import UTC, datetime
from traceback import format_tb
from types import TracebackType
from typing import Any, TypeAlias

from rules_engine.server.timing import rfc3339

ExceptionInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
"""Return type of sys.exc_info()."""


class LineFormatter(logging.Formatter):
    """Omits exception messages, which may quote a pod, and keeps type and traceback."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802, ARG002
        return rfc3339(datetime.fromtimestamp(record.created, UTC), "milliseconds")

    def formatException(self, ei: ExceptionInfo) -> str:  # noqa: N802 - the name that logging calls
        error = ei[1]
        parts: list[str] = []
        while error is not None:
            # Messages of the operating system quote no pod.
            reason = f": {error.strerror}" if isinstance(error, OSError) and error.strerror else ""
            parts.append("".join(format_tb(error.__traceback__)) + type(error).__qualname__ + reason)
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        return "\ncaused by\n".join(parts)


class JsonFormatter(LineFormatter):
    """Format a log record as a line of JSON; `extra={"members": {...}}` adds members."""

    def format(self, record: logging.LogRecord) -> str:
        members = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        members |= getattr(record, "members", {})
        if record.exc_info:
            members["exception"] = self.formatException(record.exc_info)
        return json.dumps(members, ensure_ascii=False)


def logging_config(form: str) -> dict[str, Any]:
    """Return the logging configuration: format `line` or `json` on stderr, for libraries too."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {"()": LineFormatter, "fmt": "%(asctime)s %(levelname)s %(name)s: %(message)s"},
            "json": {"()": JsonFormatter},
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": form, "stream": "ext://sys.stderr"}},
        "root": {"handlers": ["stderr"], "level": "WARNING"},
        "loggers": {"rules_engine.server": {"level": "INFO"}},
    }
