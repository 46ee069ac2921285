"""Where metrics go: a file for Prometheus' textfile collector, or a push to a Pushgateway."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest, pushadd_to_gateway
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from icecdc_core.errors import ConfigError
from icecdc_core.reporting.metrics import RunMetrics


def check_folder(folder: str) -> None:
    """Create the folder of the metrics unless it exists."""
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


def write_metrics(metrics: RunMetrics, folder: str, job: str, index: str) -> str:
    """Replace the file of this job and index in one step; metrics that this run lacks keep their last value."""
    target = Path(folder).expanduser() / f"icecdc-{index}-{job}.prom"
    # The collector must neither see half a file nor take the draft for a second file of metrics.
    draft = target.with_name(f"icecdc-{uuid.uuid4().hex}.tmp")
    families = list(metrics.collect())
    names = {family.name for family in families}
    try:
        before = target.read_text(encoding="utf-8") if target.exists() else ""
        families += [family for family in text_string_to_metric_families(before) if family.name not in names]
        draft.write_bytes(prometheus_text(families).encode())
        draft.replace(target)
    except (OSError, ValueError) as error:
        return f"{target}: {getattr(error, 'strerror', None) or error}"
    return ""


def push_metrics(metrics: RunMetrics, url: str, job: str, index: str, seconds: float = 10.0) -> str:
    """Push to a Pushgateway; it replaces metrics of the same names only, so the time of the last success stays."""
    group = {"index": index, "icecdc_job": job}
    try:
        pushadd_to_gateway(url, "icecdc", _registry(metrics.collect()), grouping_key=group, timeout=seconds)
    except (OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def prometheus_text(families: Iterable[Family]) -> str:
    """Return metrics in Prometheus' text format."""
    return generate_latest(_registry(families)).decode()


class _Families(Collector):
    def __init__(self, families: Iterable[Family]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Family]:
        return self._families


def _registry(families: Iterable[Family]) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(_Families(families))
    return registry
