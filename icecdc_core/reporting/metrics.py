"""The Prometheus metrics of a run: their names, units and values, and where they go."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from prometheus_client import pushadd_to_gateway, write_to_textfile
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from icecdc_core.reporting.exit_states import EXIT_STATES

# The fact and the meaning of every metric; all are gauges of the last run, labelled with table, index and job.
# Prometheus, a Pushgateway and OTLP put their own value into `job`, so the job has a second label, `icecdc_job`.
METRICS = {
    "icecdc_run_timestamp_seconds": ("", "When the last run ended."),
    "icecdc_success_timestamp_seconds": ("", "When a run last succeeded."),
    "icecdc_run_success": ("", "Whether the last run succeeded."),
    "icecdc_run_state": ("", "How the last run ended. A run that found the index locked publishes only this metric."),
    "icecdc_run_seconds": ("seconds", "How long the last run took."),
    "icecdc_stage_seconds": ("", "How long each stage of the last run took."),
    "icecdc_lag_snapshots": ("", "Snapshots the index was behind, at the start and at the end of the run."),
    "icecdc_lag_seconds": ("", "Age of the oldest commit that the index lacked, at the start and end of the run."),
    "icecdc_target_lag_seconds": ("target_lag", "The target lag of a polling run."),
    "icecdc_lag_achieved_seconds": ("lag_achieved", "Longest time until a commit was searchable, in the last poll."),
    "icecdc_target_lag_kept_seconds": ("target_lag_kept", "How long the polling run has kept its target lag."),
    "icecdc_target_lag_missed_seconds": ("target_lag_missed", "How long the polling run has missed its target lag."),
    "icecdc_freshness_seconds": ("freshness_seconds", "Age of the oldest commit that searches lacked at a check."),
    "icecdc_freshness_slo_seconds": ("freshness_slo", "The promised freshness."),
    "icecdc_documents": ("", "Documents by result: upserts, deletes, already_applied, rejected."),
    "icecdc_drifted_documents": ("drifted", "Updates and deletes that did not find their document."),
    "icecdc_carryovers": ("carryovers_removed", "Unchanged rows of rewritten files that were found and not sent."),
    "icecdc_snapshots": ("snapshots", "Snapshots in the range that was read."),
    "icecdc_bulk_requests": ("requests", "Bulk requests sent."),
    "icecdc_bulk_retries": ("retries", "Bulk requests that were retried."),
    "icecdc_bulk_bytes": ("bytes", "Bytes of the bulk requests, without retries."),
    "icecdc_rows_compared": ("source_rows", "Rows of the table that a validation compared."),
    "icecdc_differences": ("", "Differences found by a validation: missing, extra, stale."),
    "icecdc_ingest_records": ("records", "Records that an ingest read."),
    "icecdc_ingest_rows": ("rows_written", "Rows that an ingest wrote."),
    "icecdc_ingest_dead_letters": ("dead_letters", "Records that an ingest could not route or parse."),
    "icecdc_ingest_filtered": ("filtered", "Records that the condition of an ingest dropped."),
    "icecdc_ingest_tables_behind": ("tables_behind", "Tables that an ingest could not write."),
    "icecdc_ingest_complete_through_timestamp_seconds": ("complete_through", "Time up to which tables are complete."),
    "icecdc_ingest_lag_records": ("", "Offsets of a partition that an ingest has not read."),
    "icecdc_ingest_lag_seconds": ("", "Age of the first record of a partition that an ingest has not read."),
    "icecdc_ingest_table_lag_records": ("", "Offsets that a table lacks of its topics."),
    "icecdc_ingest_table_lag_seconds": ("", "Age of the first record that a table may lack."),
}
_MOST_SERIES = 200


def _lag_samples(prefix: str, lags: Sequence[Mapping[str, Any]], *labels: str) -> dict[str, Any]:
    if len(lags) > _MOST_SERIES:
        ages = [lag["lag_seconds"] for lag in lags]
        # Partitions have different records, tables lack the same ones.
        unread = (sum if "partition" in labels else max)(lag["lag_records"] for lag in lags)
        age = None if None in ages else max(ages)
        lags = [{**dict.fromkeys(labels, "all"), "lag_records": unread, "lag_seconds": age}]
    return {
        f"{prefix}_{unit}": [
            ({label: str(lag[label]) for label in labels}, lag[f"lag_{unit}"])
            for lag in lags
            if lag[f"lag_{unit}"] is not None
        ]
        for unit in ("records", "seconds")
    }


@dataclass(frozen=True)
class RunMetrics:
    """The metrics of a run; without a state in the facts, those without labels of their own: how far a run is."""

    facts: Mapping[str, Any]
    now: float = 0.0

    def collect(self) -> Iterable[Family]:
        job, table, index = (str(self.facts[name]) for name in ("job", "table", "index"))
        labels = {"job": job, "table": table, "index": index, "icecdc_job": job}
        found = self._samples()
        for name, (_, text) in METRICS.items():
            if samples := found.get(name):
                family = GaugeMetricFamily(name, text, labels=[*labels, *samples[0][0]])
                for own, value in samples:
                    family.add_metric([*labels.values(), *own.values()], float(value))
                yield family

    def _samples(self) -> dict[str, list[tuple[dict[str, str], float]]]:
        facts = self.facts
        samples: dict[str, Any] = {
            name: [({}, facts[fact])] for name, (fact, _) in METRICS.items() if facts.get(fact) is not None
        }
        if "partition_lags" in facts:
            samples |= _lag_samples("icecdc_ingest_lag", facts["partition_lags"], "topic", "partition")
            samples |= _lag_samples("icecdc_ingest_table_lag", facts["table_lags"], "destination")
        if "state" not in facts:
            return samples
        succeeded = facts["state"] == "ok"
        states = {"icecdc_run_state": [({"state": state}, float(state == facts["state"])) for state in EXIT_STATES]}
        if facts["job"] == "status":
            return {**samples, **states}
        if facts["state"] == "locked":
            return states  # the rest describes the run that holds the lock, or the one before it
        samples |= {
            **states,
            "icecdc_run_timestamp_seconds": [({}, self.now)],
            "icecdc_success_timestamp_seconds": [({}, self.now)] if succeeded else [],
            "icecdc_run_success": [({}, float(succeeded))],
            "icecdc_stage_seconds": [({"stage": k}, v) for k, v in (facts.get("stage_seconds") or {}).items()],
            "icecdc_documents": [
                ({"result": each}, facts[each])
                for each in ("upserts", "deletes", "already_applied", "rejected")
                if each in facts
            ],
            "icecdc_differences": [
                ({"verdict": each}, facts[each]) for each in ("missing", "extra", "stale") if each in facts
            ],
        }
        for lag in ("lag_snapshots", "lag_seconds"):
            if facts.get(lag) is not None:
                at_end = 0 if succeeded and not facts.get("dry_run") else facts[lag]
                samples[f"icecdc_{lag}"] = [({"at": "start"}, facts[lag]), ({"at": "end"}, at_end)]
        return samples


def write_metrics(metrics: RunMetrics, folder: str) -> None:
    """Replace the file of this job and index in one step; metrics that this run lacks keep their last value."""
    target = Path(folder) / f"icecdc-{metrics.facts['index']}-{metrics.facts['job']}.prom"
    target.parent.mkdir(parents=True, exist_ok=True)
    families = list(metrics.collect())
    names = {family.name for family in families}
    before = target.read_text(encoding="utf-8") if target.exists() else ""
    families += [family for family in text_string_to_metric_families(before) if family.name not in names]
    registry: Any = SimpleNamespace(collect=lambda: families)
    write_to_textfile(str(target), registry)


def push_metrics(metrics: RunMetrics, url: str) -> None:
    """Push to a Pushgateway; it replaces metrics of the same names only, so the time of the last success stays."""
    group = {"index": metrics.facts["index"], "icecdc_job": metrics.facts["job"]}
    pushadd_to_gateway(url, "icecdc", metrics, grouping_key=group, timeout=10.0)
