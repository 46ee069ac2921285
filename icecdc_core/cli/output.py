"""What the command line prints: a table or JSON, and one line for a failure on the standard error."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from icecdc_core.config import SyncConfig
from icecdc_core.errors import ConfigError
from icecdc_core.reporting.reports import Report, report_json, write_report
from icecdc_core.reporting.reports.many import ManyReport


def print_report(report: Report | Mapping[str, Any], as_json: bool) -> None:
    """Print a report: as one JSON object on one line, or as a table; a failure has no table."""
    if as_json:
        print(report_json(dict(report) if isinstance(report, Mapping) else report.to_dict()), flush=True)  # noqa: T201
    elif isinstance(report, Report):
        print(report.text(), flush=True)  # noqa: T201


def print_failure(program: str, message: str, remedy: str = "", log: str = "") -> None:
    """Print why a run failed, with the remedy and Spark's log, as one line on the standard error."""
    text = message if not remedy or "Remedy: " in message else f"{message.rstrip('.')}. Remedy: {remedy}"
    text = re.sub(r"\s+", " ", text.replace("\n- ", " ")).strip()
    text += f"{'' if text.endswith('.') else '.'} Spark's log: {log}" if log else ""
    sys.stderr.write(f"{program}: {text}\n")
    sys.stderr.flush()


def write_summaries(report: ManyReport, configs: Mapping[str, SyncConfig]) -> None:
    """Write the summary of the indexes that name a `report_path` to it."""
    for path in dict.fromkeys(config.report_path for config in configs.values() if config.report_path):
        names = [name for name, config in configs.items() if config.report_path == path]
        write_report(report.of(names), path)


def replace_report(report: Mapping[str, Any], path: str) -> None:
    """Write the failure of a job that did not begin: the report of an older run must not stay."""
    if path:
        with suppress(ConfigError):  # it must not hide why the run failed
            write_report(report, path)
