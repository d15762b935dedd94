"""Structured logs for machines: one JSON object per line on stderr. People get progress and tables."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

_log = logging.getLogger("cerebro")


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        body = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            body["error"] = self.formatException(record.exc_info)
        return json.dumps(body, default=str)


def start(level: int = logging.INFO) -> None:
    """Send this process's events to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    _log.handlers[:] = [handler]
    _log.setLevel(level)
    _log.propagate = False


class EventLog:
    """Logs events with the fields that it was bound to: run, node, config, unit, attempt."""

    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def bind(self, **fields: Any) -> EventLog:
        """A log with these fields as well."""
        return EventLog(**{**self._fields, **fields})

    def info(self, event: str, **fields: Any) -> None:
        _log.info(event, extra={"fields": {**self._fields, **fields}})

    def warning(self, event: str, **fields: Any) -> None:
        _log.warning(event, extra={"fields": {**self._fields, **fields}})

    def error(self, event: str, **fields: Any) -> None:
        _log.error(event, extra={"fields": {**self._fields, **fields}})

    def exception(self, event: str, **fields: Any) -> None:
        """Log an event with the traceback of the exception being handled."""
        _log.exception(event, extra={"fields": {**self._fields, **fields}})
