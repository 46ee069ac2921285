"""Metrics as Prometheus reads them, written and pushed; dashboard and alert rules use only what runs leave."""

import json
import re
from http.client import BadStatusLine
from pathlib import Path
from unittest.mock import Mock
from urllib.request import OpenerDirector

import pytest
import yaml

from icecdc_core.config import SyncConfig
from icecdc_core.ingest.report import IngestReport
from icecdc_core.local.opensearch import cluster_at
from icecdc_core.opensearch.counts import COUNTERS
from icecdc_core.reporting.metrics import RunMetrics, write_metrics
from icecdc_core.reporting.reports import RunReport, ValidationReport
from icecdc_core.reporting.telemetry import publish_run_metrics
from tests.checks.metric_samples import samples, samples_of, text_of
from tests.servers.monitoring_receivers import receiver

FACTS = {"job": "sync", "table": "lake.ns.t", "index": "t", "state": "ok", "seconds": 2.5}
LABELS = {"job": "sync", "table": "lake.ns.t", "index": "t"}


class DescribeRunMetrics:
    def it_counts_documents_by_result_and_has_every_counter(self):
        counted = samples_of(RunMetrics({**FACTS, **{name: 7_000 + at for at, name in enumerate(COUNTERS)}}, 100.0))
        for name in ("upserts", "rejected"):
            assert counted["icecdc_documents", f'result="{name}"'] == 7_000 + list(COUNTERS).index(name)
        assert {7_000.0 + at for at in range(len(COUNTERS))} <= set(counted.values())

    def it_says_how_the_run_ended_and_nothing_else_of_one_that_found_the_index_locked(self):
        found = samples_of(RunMetrics({**FACTS, "state": "retry"}, 100.0))
        ended = [found["icecdc_run_success", ""], found["icecdc_run_state", 'state="retry"']]
        assert (ended, ("icecdc_success_timestamp_seconds", "") in found) == ([0, 1], False)
        found = samples_of(RunMetrics({**FACTS, "state": "locked", "upserts": 0, "lag_seconds": 9}, 100.0))
        assert ({name for name, _ in found}, sum(found.values())) == ({"icecdc_run_state"}, 1)

    @pytest.mark.parametrize(("count", "series"), [(2, [0, 1]), (200, [*range(200)]), (201, [20100, 200])])
    def it_has_a_series_for_each_partition_and_table_or_one_for_all_if_these_are_more_than_200(self, count, series):
        named = [{"topic": "t", "partition": number, "destination": number} for number in range(count)]
        lags = [{**each, "lag_records": each["partition"], "lag_seconds": 5.0} for each in named]
        found = samples_of(RunMetrics({**LABELS, "partition_lags": lags, "table_lags": lags}))
        of_partitions, of_tables = (
            [value for (name, _), value in found.items() if name == f"icecdc_ingest_{which}_records"]
            for which in ("lag", "table_lag")
        )
        assert (of_partitions, of_tables) == ((series[:1], series[1:]) if count > 200 else (series, series))
        labels = 'partition="1",topic="t"' if count <= 200 else 'partition="all",topic="all"'
        assert found["icecdc_ingest_lag_seconds", labels] == 5

    def it_escapes_labels_and_repeats_the_job_in_one_that_no_scrape_overwrites(self):
        text = text_of(RunMetrics({**FACTS, "table": 'lake."a\\b"\n.t'}, 100.0))
        assert r'table="lake.\"a\\b\"\n.t"' in text
        assert text.count('{icecdc_job="sync",index="t",job="sync"') == text.count("table=")


def it_replaces_the_file_and_keeps_metrics_that_the_last_run_lacks(tmp_path):
    folder = tmp_path / "new"
    write_metrics(RunMetrics(FACTS, 100.0), str(folder))
    write_metrics(RunMetrics({**FACTS, "state": "retry"}, 200.0), str(folder))
    write_metrics(RunMetrics({**LABELS, "lag_achieved": 2.5}), str(folder))
    found = samples((folder / "icecdc-t-sync.prom").read_text())
    times = found["icecdc_success_timestamp_seconds", ""], found["icecdc_run_timestamp_seconds", ""]
    assert (times, [path.name for path in folder.iterdir()]) == ((100, 200), ["icecdc-t-sync.prom"])
    assert (found["icecdc_run_seconds", ""], found["icecdc_lag_achieved_seconds", ""]) == (2.5, 2.5)


@pytest.mark.parametrize(("dry_run", "succeeded"), [(False, 200), (True, 100)])
def it_is_written_and_pushed_under_the_index_and_the_job_but_not_by_a_dry_run(tmp_path, dry_run, succeeded):
    write_metrics(RunMetrics(FACTS, 100.0), str(tmp_path))
    metrics = RunMetrics(FACTS, 200.0)
    with receiver() as gateway:
        config = SyncConfig(table="lake.ns.t", metrics_folder=str(tmp_path), metrics_url=gateway.url, dry_run=dry_run)
        publish_run_metrics(metrics, config)
    found = samples((tmp_path / "icecdc-t-sync.prom").read_text())
    pushed = [] if dry_run else [("/metrics/job/icecdc/icecdc_job/sync/index/t", text_of(metrics))]
    assert found["icecdc_success_timestamp_seconds", ""] == succeeded
    assert [(path, body.decode()) for path, _, body in gateway.posts] == pushed


def it_is_a_warning_in_the_log_if_neither_can_be_reached_or_what_answers_speaks_no_http(tmp_path, monkeypatch, caplog):
    (tmp_path / "icecdc-t-sync.prom").mkdir()
    config = SyncConfig(table="lake.ns.t", metrics_folder=str(tmp_path), metrics_url="http://127.0.0.1:1")
    publish_run_metrics(RunMetrics(FACTS, 1.0), config)
    monkeypatch.setattr(OpenerDirector, "open", Mock(side_effect=BadStatusLine("220 ready")))
    publish_run_metrics(RunMetrics(FACTS, 1.0), config.replace(metrics_folder=""))
    file, push, odd = (record.getMessage() for record in caplog.records)
    assert ("icecdc-t-sync.prom" in file, "URLError" in push, "BadStatusLine" in odd) == (True, True, True)
    assert cluster_at("http://127.0.0.1:1") == {}


FOLDER = Path(__file__).parents[3] / "docs" / "monitoring"
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
RULES = [rule for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
LAG = {"target_lag": 10.0, "lag_achieved": 2.5, "target_lag_kept": 60.0, "target_lag_missed": 1.5}
FRESHNESS = {"freshness_seconds": 1.0, "freshness_slo": 5.0}

PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]
EXPRESSIONS = [*QUERIES, *((rule["alert"], rule["expr"]) for rule in RULES)]


def emitted() -> dict[str, set[str]]:
    """Every metric that reports of all kinds leave, with the names of its labels."""
    run = RunReport("sync", "lake.ns.t", "t", stage_seconds={"write": 1.0}, lag_snapshots=1, lag_seconds=2.0)
    reports = [run, ValidationReport(ok=True, source_rows=1, index_documents=1), IngestReport("t")]
    unread = {"topic": "t", "partition": 0, "destination": "t", "lag_records": 1, "lag_seconds": 1.0}
    others = {**LAG, **FRESHNESS, "complete_through": 1.0, "partition_lags": [unread], "table_lags": [unread]}
    facts = [*({**each.to_dict(), **LABELS} for each in reports), {**LABELS, **others}]
    families = [family for each in facts for family in RunMetrics(each, 100.0).collect()]
    return {family.name: {*family.samples[0].labels} for family in families if family.samples}


METRICS = emitted()


def selectors(expression: str) -> list[tuple[str, list[tuple[str, str, str]]]]:
    found = re.findall(r"(icecdc_(?!job\b)\w+)(?:\{([^}]*)\})?", expression)
    return [(name, re.findall(r'(\w+)\s*(=~|!=|!~|=)\s*"([^"]*)"', matchers)) for name, matchers in found]


@pytest.mark.parametrize(("title", "expression"), EXPRESSIONS, ids=[title for title, _ in EXPRESSIONS])
def it_uses_metrics_and_labels_that_runs_leave(title, expression):
    used = selectors(expression)
    unknown = [name for name, _ in used if name not in METRICS]
    labels = [(name, label) for name, matchers in used for label, _, _ in matchers if label not in METRICS[name]]
    assert (bool(used), unknown, labels) == (True, [], [])
