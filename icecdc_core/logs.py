"""Structured logs: one JSON object a line; the logger `icecdc` has the same events, with `fields` in each record."""

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from icecdc_core.errors import unwritable_error
from icecdc_core.secrets import mask_secrets

LOGGER = logging.getLogger("icecdc")
LOGGER.addHandler(logging.NullHandler())

_fields: ContextVar[dict[str, Any]] = ContextVar("icecdc_log_fields", default={})  # noqa: B039 (it is never changed)
# Of the blocks around: runs in several threads have one each.
_logs: ContextVar[tuple[logging.Handler, ...]] = ContextVar("icecdc_logs", default=())
_open_logs: list[logging.Handler] = []


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        shown = {name: mask_secrets(value) if isinstance(value, str) else value for name, value in entry.items()}
        return json.dumps(shown, default=str, ensure_ascii=False)


@contextmanager
def log_fields(**fields: Any) -> Iterator[None]:
    token = _fields.set({**_fields.get(), **fields})
    try:
        yield
    finally:
        _fields.reset(token)


def set_fields(**fields: Any) -> None:
    _fields.set({**_fields.get(), **fields})


def event(message: str, level: int = logging.INFO, **fields: Any) -> None:
    extra = {"fields": {**_fields.get(), **fields}}
    LOGGER.log(level, message, extra=extra)
    record = LOGGER.makeRecord(LOGGER.name, level, __file__, 0, message, (), None, extra=extra)
    # A thread that got no context (Spark's callbacks, a pool) belongs to no log, so its events go to all of them.
    for log in _logs.get() or tuple(_open_logs):
        log.handle(record)


def current_fields() -> dict[str, Any]:
    return dict(_fields.get())


@contextmanager
def logging_to(path: str) -> Iterator[None]:
    """Append the events of the block to a file as JSON lines; `-` is the standard error, "" writes nothing."""
    if not path:
        yield
        return
    try:
        if path == "-":
            handler: logging.Handler = logging.StreamHandler(sys.stderr)
        else:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise unwritable_error("log_path", path, error) from error
    handler.setFormatter(JsonFormatter())
    token = _logs.set((*_logs.get(), handler))
    _open_logs.append(handler)
    try:
        yield
    finally:
        _logs.reset(token)
        _open_logs.remove(handler)
        with suppress(OSError, ValueError):  # of a full disk; a run does not end by its log
            handler.close()
