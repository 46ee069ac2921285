"""Reports as JSON, in files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from icecdc_core.errors import ConfigError
from icecdc_core.reporting.reports.base import Report


def report_json(report: Report | Mapping[str, Any]) -> str:
    """A report, or the plain values of one, as one JSON object on one line."""
    return json.dumps(dict(report), default=str) if isinstance(report, Mapping) else report.to_json()


def check_report_path(path: str) -> None:
    """Prove that a report can be written there, before there is one; a file that is there stays as it is."""
    if not path:
        return
    with _writable(path) as target:
        known = target.exists()
        target.open("a", encoding="utf-8").close()
        if not known:
            target.unlink()


def write_report(report: Report | Mapping[str, Any], path: str) -> Path:
    """Write the report as JSON to a file, folders made as needed."""
    with _writable(path) as target:
        target.write_text(report_json(report) + "\n", encoding="utf-8")
    return target


@contextmanager
def _writable(path: str) -> Iterator[Path]:
    try:
        target = Path(path).expanduser()
        target.parent.mkdir(parents=True, exist_ok=True)
        yield target
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"The report cannot be written: {getattr(error, 'strerror', None) or error}",
            subject="report_path",
            value=path,
            remedy="give a path in a folder that exists and may be written to, or leave it empty",
        ) from error
