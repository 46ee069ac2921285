"""Metrics are written in one step, and pushed."""

import pytest

from icecdc_core.config import SyncConfig
from icecdc_core.reporting.instrumentation import publish_run_metrics
from icecdc_core.reporting.metrics import RunMetrics, write_metrics
from tests.metric_samples import samples, text_of
from tests.monitoring_receivers import receiver

FACTS = {"job": "sync", "table": "lake.ns.t", "index": "t", "state": "ok", "seconds": 2.5}
LABELS = {"job": "sync", "table": "lake.ns.t", "index": "t"}


class DescribeTheFile:
    def it_is_replaced_and_keeps_metrics_that_the_last_run_lacks(self, tmp_path):
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


def it_is_a_warning_in_the_log_if_neither_can_be_reached(tmp_path, caplog):
    (tmp_path / "icecdc-t-sync.prom").mkdir()
    config = SyncConfig(table="lake.ns.t", metrics_folder=str(tmp_path), metrics_url="http://127.0.0.1:1")
    publish_run_metrics(RunMetrics(FACTS, 1.0), config)
    file, push = (record.getMessage() for record in caplog.records)
    assert ("icecdc-t-sync.prom" in file, "URLError" in push) == (True, True)
