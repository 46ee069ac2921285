"""Structured logs: one JSON object a line, with the run, table, batch and stage of the event.

The logger is `icecdc` of the standard library, so handlers of the application receive the records as well, with the
fields in `record.fields`. Without `log_path` and without such a handler nothing is written.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from icecdc_core.errors import ConfigError
from icecdc_core.secrets import mask_secrets

LOGGER = logging.getLogger("icecdc")
LOGGER.addHandler(logging.NullHandler())

_fields: ContextVar[dict[str, Any]] = ContextVar("icecdc_log_fields", default={})  # noqa: B039 (it is never changed)
# The logs of the blocks around. Runs in several threads have a log each, although they share the logger.
_logs: ContextVar[tuple[logging.Handler, ...]] = ContextVar("icecdc_logs", default=())
_lock = threading.Lock()
_levels: list[int] = []
"""The level that the logger had when the first of the open logs was opened."""
_open_logs: set[logging.Handler] = set()


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object on one line; what looks like a secret is replaced."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        shown = {name: mask_secrets(value) if isinstance(value, str) else value for name, value in entry.items()}
        return json.dumps(shown, default=str, ensure_ascii=False)


@contextmanager
def log_fields(**fields: Any) -> Iterator[None]:
    """Add fields to every record of the block."""
    token = _fields.set({**_fields.get(), **fields})
    try:
        yield
    finally:
        _fields.reset(token)


def set_fields(**fields: Any) -> None:
    """Add fields to every further record of the surrounding block."""
    _fields.set({**_fields.get(), **fields})


def event(message: str, level: int = logging.INFO, **fields: Any) -> None:
    """Log an event with the fields of the surrounding blocks."""
    LOGGER.log(level, message, extra={"fields": {**_fields.get(), **fields}})


def current_fields() -> dict[str, Any]:
    """The fields of the surrounding blocks, to pass to another thread."""
    return dict(_fields.get())


@contextmanager
def logging_to(path: str) -> Iterator[None]:
    """Append the records of the block to a file as JSON lines; `-` is the standard error, "" writes nothing.

    Records of other blocks, as of a run in another thread, go to their own logs only.
    """
    if not path:
        yield
        return
    try:
        if path == "-":
            handler: logging.Handler = logging.StreamHandler(sys.stderr)
        else:
            target = Path(path).expanduser()
            target.parent.mkdir(parents=True, exist_ok=True)
            handler = logging.FileHandler(target, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"The log cannot be written: {error.strerror or error}",
            subject="log_path",
            value=path,
            remedy="give a path in a folder that may be written to, - for the standard error, or leave it empty",
        ) from error
    handler.setFormatter(JsonFormatter())
    # A thread that got no context (a pool of the application) belongs to no log, so its records go to all of them.
    handler.addFilter(lambda record: handler in (_logs.get() or (handler,)))
    token = _logs.set((*_logs.get(), handler))
    with _lock:
        if not _open_logs:
            _levels[:] = [LOGGER.level]
            LOGGER.setLevel(min(LOGGER.level or logging.INFO, logging.INFO))
        _open_logs.add(handler)
        LOGGER.addHandler(handler)
    try:
        yield
    finally:
        _logs.reset(token)
        with _lock:
            LOGGER.removeHandler(handler)
            _open_logs.discard(handler)
            if not _open_logs:
                LOGGER.setLevel(_levels.pop())
        handler.close()
