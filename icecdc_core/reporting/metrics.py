"""Metrics of the last run as Prometheus text: a file for the textfile collector, or a push to a Pushgateway."""

from __future__ import annotations

import os
import re
import ssl
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from icecdc_core.errors import ConfigError
from icecdc_core.reporting.exit_states import EXIT_STATES


class Metric(NamedTuple):
    """A metric: what it is called, its unit, and what it says."""

    name: str
    unit: str
    help: str


METRICS = [
    Metric("icecdc_run_timestamp_seconds", "seconds since 1970", "When the last run ended."),
    Metric("icecdc_success_timestamp_seconds", "seconds since 1970", "When a run last ended well."),
    Metric("icecdc_run_success", "0 or 1", "Whether the last run ended well."),
    Metric("icecdc_run_state", "0 or 1 for each state", "How the last run ended."),
    Metric("icecdc_run_seconds", "seconds", "How long the last run took."),
    Metric("icecdc_stage_seconds", "seconds", "How long each of its stages took."),
    Metric(
        "icecdc_lag_snapshots", "snapshots", "Snapshots the index was behind, at the start and at the end of the run."
    ),
    Metric(
        "icecdc_lag_seconds",
        "seconds",
        "Age of the oldest commit that the index did not hold, at the start and at the end of the run.",
    ),
    Metric("icecdc_documents", "documents", "What became of them: upserts, deletes, already_applied, rejected."),
    Metric("icecdc_carryovers", "rows", "Unchanged rows of rewritten files that were found and not sent."),
    Metric("icecdc_snapshots", "snapshots", "Snapshots that were taken."),
    Metric("icecdc_bulk_requests", "requests", "Bulk requests sent."),
    Metric("icecdc_bulk_retries", "requests", "Bulk requests sent again."),
    Metric("icecdc_bulk_bytes", "bytes", "Bytes of the bulk requests, without repetitions."),
    Metric("icecdc_rows_compared", "rows", "Rows of the table that a validation compared."),
    Metric("icecdc_differences", "documents", "What a validation found: missing, extra, stale."),
    Metric("icecdc_ingest_records", "records", "Records that an ingest read."),
    Metric("icecdc_ingest_rows", "rows", "Rows that it wrote."),
    Metric("icecdc_ingest_dead_letters", "records", "Records that fitted nowhere."),
    Metric("icecdc_ingest_tables_behind", "tables", "Tables that it could not write."),
]
"""Every metric; all are gauges of the last run, labelled with table, index and job."""

_FATES = ("upserts", "deletes", "already_applied", "rejected")
_VERDICTS = ("missing", "extra", "stale")
_PLAIN = {
    "seconds": "icecdc_run_seconds",
    "carryovers_removed": "icecdc_carryovers",
    "snapshots": "icecdc_snapshots",
    "requests": "icecdc_bulk_requests",
    "retries": "icecdc_bulk_retries",
    "bytes": "icecdc_bulk_bytes",
    "source_rows": "icecdc_rows_compared",
    "records": "icecdc_ingest_records",
    "rows_written": "icecdc_ingest_rows",
    "dead_letters": "icecdc_ingest_dead_letters",
    "tables_behind": "icecdc_ingest_tables_behind",
}


def render(facts: Mapping[str, Any], now: float) -> str:
    """The metrics of a run as Prometheus text.

    Args:
        facts: What is known of it, by the names of its report; `job`, `table`, `index` and `state` are always there.
        now: The time, in seconds since 1970.
    """
    labels = {name: str(facts[name]) for name in ("job", "table", "index")}
    well = facts["state"] == "ok"
    samples: dict[str, list[tuple[dict[str, str], float]]] = {
        "icecdc_run_timestamp_seconds": [({}, now)],
        "icecdc_success_timestamp_seconds": [({}, now)] if well else [],
        "icecdc_run_success": [({}, float(well))],
        "icecdc_run_state": [({"state": state}, float(state == facts["state"])) for state in EXIT_STATES],
        "icecdc_stage_seconds": [({"stage": k}, v) for k, v in (facts.get("stage_seconds") or {}).items()],
        "icecdc_documents": [({"fate": fate}, facts[fate]) for fate in _FATES if fate in facts],
        "icecdc_differences": [({"verdict": verdict}, facts[verdict]) for verdict in _VERDICTS if verdict in facts],
    }
    for lag in ("lag_snapshots", "lag_seconds"):
        if facts.get(lag) is not None:
            at_end = 0 if well and not facts.get("dry_run") else facts[lag]
            samples[f"icecdc_{lag}"] = [({"at": "start"}, facts[lag]), ({"at": "end"}, at_end)]
    for name, plain in _PLAIN.items():
        if facts.get(name) is not None:
            samples[plain] = [({}, facts[name])]
    lines = []
    for metric in METRICS:
        if found := samples.get(metric.name):
            lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} gauge"]
            lines += [f"{metric.name}{{{_labels({**labels, **own})}}} {float(value):.15g}" for own, value in found]
    return "\n".join(lines) + "\n"


def check_folder(folder: str) -> None:
    """Make the folder of the metrics if it is not there.

    Raises:
        ConfigError: It cannot be written.
    """
    target = Path(folder).expanduser()
    try:
        target.mkdir(parents=True, exist_ok=True)
        reason = "" if os.access(target, os.W_OK) else "no permission"
    except OSError as error:
        reason = error.strerror or str(error)
    if reason:
        raise ConfigError(
            f"The metrics cannot be written: {reason}",
            subject="metrics_folder",
            value=folder,
            remedy="give a folder that may be written to, or leave it empty",
        )


def write_metrics(text: str, folder: str, job: str, index: str) -> str:
    """Replace the file of this job and index in one step; metrics that this run does not have keep their last value.

    Returns:
        What went wrong, "" for nothing.
    """
    target = Path(folder).expanduser() / f"icecdc-{index}-{job}.prom"
    # The collector must never see half a file, nor take the draft for a second file of metrics.
    draft = target.with_name(f"icecdc-{uuid.uuid4().hex}.tmp")
    try:
        before = target.read_text(encoding="utf-8") if target.exists() else ""
        draft.write_text(text + _families_not_in(before, text), encoding="utf-8")
        draft.replace(target)
    except OSError as error:
        return f"{target}: {error.strerror or error}"
    return ""


def push_metrics(text: str, url: str, job: str, index: str, seconds: float = 10.0) -> str:
    """Push to a Pushgateway.

    Returns:
        What went wrong, "" for nothing.
    """
    target = f"{url.rstrip('/')}/metrics/job/icecdc/index/{quote(index, safe='')}/icecdc_job/{quote(job, safe='')}"
    # POST replaces the metrics of these names only, so that the time of the last success stays.
    headers = {"Content-Type": "text/plain; version=0.0.4"}
    request = urllib.request.Request(target, text.encode(), headers, method="POST")  # noqa: S310 (checked: http or https)
    try:
        with urllib.request.urlopen(request, timeout=seconds, context=_context(url)):  # noqa: S310
            return ""
    except (OSError, ValueError, urllib.error.URLError) as error:
        return f"{type(error).__name__}: {error}"


def _context(url: str) -> ssl.SSLContext | None:
    return ssl.create_default_context() if url.startswith("https") else None


def _labels(labels: Mapping[str, str]) -> str:
    def escaped(value: str) -> str:
        return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

    return ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items())


def _families_not_in(before: str, text: str) -> str:
    present = set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))
    kept = [block for block in re.split(r"(?m)^(?=# HELP )", before) if block.startswith("# HELP ")]
    return "".join(block for block in kept if block.split()[2] not in present)
