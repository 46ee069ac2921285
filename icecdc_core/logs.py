"""Structured logs: one JSON object a line, with the run, table, batch and stage it belongs to.

The logger is `icecdc` of the standard library, so any handler of the application gets the records too; their fields are
in the record's `fields`. Nothing is written anywhere unless `log_path` or the application says so.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from icecdc_core.errors import ConfigError
from icecdc_core.secrets import masked

LOGGER = logging.getLogger("icecdc")
LOGGER.addHandler(logging.NullHandler())

_fields: ContextVar[dict[str, Any]] = ContextVar("icecdc_log_fields", default={})  # noqa: B039 (it is never changed)


class JsonFormatter(logging.Formatter):
    """A record as one JSON object on one line; what looks like a secret in a text is left out."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        shown = {name: masked(value) if isinstance(value, str) else value for name, value in entry.items()}
        return json.dumps(shown, default=str, ensure_ascii=False)


@contextmanager
def log_fields(**fields: Any) -> Iterator[None]:
    """Give every record of the block these fields."""
    token = _fields.set({**_fields.get(), **fields})
    try:
        yield
    finally:
        _fields.reset(token)


def set_fields(**fields: Any) -> None:
    """Give every further record of the block around these fields."""
    _fields.set({**_fields.get(), **fields})


def event(message: str, level: int = logging.INFO, **fields: Any) -> None:
    """Log something that happened, with the fields of the blocks around it."""
    LOGGER.log(level, message, extra={"fields": {**_fields.get(), **fields}})


def current_fields() -> dict[str, Any]:
    """The fields of the blocks around, for a thread that was started within them."""
    return dict(_fields.get())


@contextmanager
def logging_to(path: str) -> Iterator[None]:
    """Append the records of the block to a file as JSON lines; `-`: to the standard error; empty: nowhere.

    Raises:
        ConfigError: The file cannot be written.
    """
    if not path:
        yield
        return
    try:
        handler: logging.Handler = logging.StreamHandler(sys.stderr) if path == "-" else _file_handler(path)
    except OSError as error:
        raise ConfigError(
            f"The log cannot be written: {error.strerror or error}",
            subject="log_path",
            value=path,
            remedy="give a path in a folder that may be written to, - for the standard error, or leave it empty",
        ) from error
    handler.setFormatter(JsonFormatter())
    level = LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(min(level or logging.INFO, logging.INFO))
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(level)
        handler.close()


def _file_handler(path: str) -> logging.FileHandler:
    target = Path(path).expanduser()
    target.parent.mkdir(parents=True, exist_ok=True)
    return logging.FileHandler(target, encoding="utf-8")
