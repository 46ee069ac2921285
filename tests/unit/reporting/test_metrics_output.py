"""Metrics are written in one step, and pushed."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from icecdc_core.config import SyncConfig
from icecdc_core.errors import ConfigError
from icecdc_core.reporting.instrumentation import publish_run_metrics
from icecdc_core.reporting.metrics import PlainMetrics, RunMetrics, check_folder, push_metrics, write_metrics
from tests.metric_samples import samples, text_of

FACTS = {"job": "sync", "table": "lake.ns.t", "index": "t", "state": "ok", "seconds": 2.5}
LABELS = {"job": "sync", "table": "lake.ns.t", "index": "t"}


@pytest.fixture
def gateway():
    """A server on loopback that takes what is pushed; yields its URL and what it got."""
    got = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            got.append((self.path, self.rfile.read(int(self.headers["Content-Length"])).decode()))
            self.send_response(200 if "t" in self.path else 500)
            self.end_headers()

        def log_message(self, *arguments):
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", got
    server.shutdown()
    server.server_close()
    thread.join()


class DescribeTheFile:
    def it_is_replaced_and_keeps_metrics_that_the_last_run_lacks(self, tmp_path):
        write_metrics(RunMetrics(FACTS, 100.0), str(tmp_path), "sync", "t")
        write_metrics(RunMetrics({**FACTS, "state": "retry"}, 200.0), str(tmp_path), "sync", "t")
        found = samples((tmp_path / "icecdc-t-sync.prom").read_text())
        times = found["icecdc_success_timestamp_seconds", ""], found["icecdc_run_timestamp_seconds", ""]
        assert (times, [path.name for path in tmp_path.iterdir()]) == ((100, 200), ["icecdc-t-sync.prom"])

    def it_keeps_the_metrics_of_the_run_beside_those_of_the_target_lag(self, tmp_path):
        write_metrics(RunMetrics(FACTS, 100.0), str(tmp_path), "sync", "t")
        write_metrics(PlainMetrics(LABELS, {"lag_achieved": 2.5}), str(tmp_path), "sync", "t")
        found = samples((tmp_path / "icecdc-t-sync.prom").read_text())
        assert (found["icecdc_run_seconds", ""], found["icecdc_lag_achieved_seconds", ""]) == (2.5, 2.5)

    def it_says_when_it_cannot_be_written(self, tmp_path):
        (tmp_path / "icecdc-t-sync.prom").mkdir()
        assert "icecdc-t-sync.prom" in write_metrics(RunMetrics(FACTS, 1.0), str(tmp_path), "sync", "t")

    def it_refuses_a_folder_that_cannot_be(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(ConfigError, match="metrics_folder"):
            check_folder(str(tmp_path / "file"))


class DescribeThePush:
    def it_posts_under_the_index_and_the_job(self, gateway):
        url, got = gateway
        metrics = RunMetrics(FACTS, 1.0)
        problem = push_metrics(metrics, url, "sync", "t")
        assert (problem, got[0]) == ("", ("/metrics/job/icecdc/icecdc_job/sync/index/t", text_of(metrics)))

    def it_says_what_went_wrong(self):
        assert "URLError" in push_metrics(RunMetrics(FACTS, 1.0), "http://127.0.0.1:1", "sync", "t")


@pytest.mark.parametrize(("dry_run", "succeeded"), [(False, 200), (True, 100)])
def it_is_neither_written_nor_pushed_by_a_dry_run(tmp_path, gateway, dry_run, succeeded):
    url, got = gateway
    write_metrics(RunMetrics(FACTS, 100.0), str(tmp_path), "sync", "t")
    config = SyncConfig(table="lake.ns.t", metrics_folder=str(tmp_path), metrics_url=url, dry_run=dry_run)
    publish_run_metrics(RunMetrics(FACTS, 200.0), config)
    found = samples((tmp_path / "icecdc-t-sync.prom").read_text())
    assert (found["icecdc_success_timestamp_seconds", ""], len(got)) == (succeeded, 0 if dry_run else 1)
