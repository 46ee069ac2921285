"""Metrics as Prometheus text: rendered, written in one step, pushed, documented."""

from __future__ import annotations

import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from icecdc_core.config import SyncConfig
from icecdc_core.errors import ConfigError
from icecdc_core.reporting.instrumentation import publish
from icecdc_core.reporting.metrics import (
    METRICS,
    LagMetrics,
    ProgressMetrics,
    RunMetrics,
    check_folder,
    push_metrics,
    write_metrics,
)

PAGE = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
FACTS = {"job": "sync", "table": "lake.ns.t", "index": "t", "state": "ok", "seconds": 2.5}
LABELS = {"job": "sync", "table": "lake.ns.t", "index": "t"}


def samples(text):
    """Metric and labels to value, as a Prometheus server reads them."""
    found = re.findall(r'^(\w+)\{((?:\w+="(?:[^"\\]|\\.)*",?)*)\} (\S+)$', text, re.MULTILINE)
    assert len(found) == len([line for line in text.splitlines() if not line.startswith("#")])
    own = r'(?:table|index|icecdc_job|job)="(?:[^"\\]|\\.)*",?'
    return {(name, re.sub(own, "", labels).rstrip(",")): float(value) for name, labels, value in found}


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


class DescribeRunMetrics:
    def it_counts_documents_by_result(self):
        found = samples(RunMetrics({**FACTS, "upserts": 3, "rejected": 1}, 100.0).text())
        key = "icecdc_documents"
        assert (found[key, 'result="upserts"'], found[key, 'result="rejected"']) == (3, 1)

    def it_says_how_the_run_ended(self):
        found = samples(RunMetrics({**FACTS, "state": "retry"}, 100.0).text())
        ended = [found["icecdc_run_success", ""], found["icecdc_run_state", 'state="retry"']]
        assert (ended, ("icecdc_success_timestamp_seconds", "") in found) == ([0, 1], False)

    def it_says_nothing_else_of_a_run_that_found_the_index_locked(self):
        found = samples(RunMetrics({**FACTS, "state": "locked", "upserts": 0, "lag_seconds": 9}, 100.0).text())
        assert ({name for name, _ in found}, sum(found.values())) == ({"icecdc_run_state"}, 1)

    @pytest.mark.parametrize(("state", "dry_run", "at_end"), [("ok", False, 0), ("retry", False, 4), ("ok", True, 4)])
    def it_has_the_lag_before_and_after(self, state, dry_run, at_end):
        found = samples(RunMetrics({**FACTS, "state": state, "dry_run": dry_run, "lag_snapshots": 4}, 100.0).text())
        assert (found["icecdc_lag_snapshots", 'at="start"'], found["icecdc_lag_snapshots", 'at="end"']) == (4, at_end)

    def it_escapes_labels(self):
        assert r'table="lake.\"a\\b\"\n.t"' in RunMetrics({**FACTS, "table": 'lake."a\\b"\n.t'}, 100.0).text()

    def it_repeats_the_job_in_a_label_that_no_scrape_overwrites(self):
        text = RunMetrics(FACTS, 100.0).text()
        assert text.count('{icecdc_job="sync",index="t",job="sync"') == text.count("lake.ns.t")

    def it_documents_every_metric_with_its_unit(self):
        documented = re.findall(r"\| `(icecdc_\w+)` \| ([^|]+) \| ([^|]+) \|", PAGE)
        assert documented == [tuple(metric) for metric in METRICS]


class DescribeLagMetrics:
    @pytest.mark.parametrize(("achieved", "expected"), [(None, {}), (2.5, {"icecdc_lag_achieved_seconds": 2.5})])
    def it_says_how_long_the_target_lag_was_kept(self, achieved, expected):
        found = samples(LagMetrics(LABELS, 10.0, achieved, 60.0, 1.5).text())
        target = {"icecdc_target_lag_seconds": 10}
        times = {"icecdc_target_lag_kept_seconds": 60, "icecdc_target_lag_missed_seconds": 1.5}
        assert {name: value for (name, _), value in found.items()} == target | expected | times

    def it_leaves_the_metrics_of_the_poll_in_the_file(self, tmp_path):
        write_metrics(RunMetrics(FACTS, 100.0), str(tmp_path), "sync", "t")
        write_metrics(LagMetrics(LABELS, 10.0, 2.5, 60.0, 1.5), str(tmp_path), "sync", "t")
        found = samples((tmp_path / "icecdc-t-sync.prom").read_text())
        assert (found["icecdc_run_seconds", ""], found["icecdc_lag_achieved_seconds", ""]) == (2.5, 2.5)


class DescribeProgressMetrics:
    def it_says_how_far_an_ingest_is(self):
        found = samples(ProgressMetrics(LABELS, {"records": 7, "complete_through": 99.5, "tables": {}}).text())
        assert found == {
            ("icecdc_ingest_records", ""): 7,
            ("icecdc_ingest_complete_through_timestamp_seconds", ""): 99.5,
        }


class DescribeTheFile:
    def it_is_replaced_and_keeps_metrics_that_the_last_run_lacks(self, tmp_path):
        write_metrics(RunMetrics(FACTS, 100.0), str(tmp_path), "sync", "t")
        write_metrics(RunMetrics({**FACTS, "state": "retry"}, 200.0), str(tmp_path), "sync", "t")
        found = samples((tmp_path / "icecdc-t-sync.prom").read_text())
        times = found["icecdc_success_timestamp_seconds", ""], found["icecdc_run_timestamp_seconds", ""]
        assert (times, [path.name for path in tmp_path.iterdir()]) == ((100, 200), ["icecdc-t-sync.prom"])

    @pytest.mark.parametrize(("dry_run", "succeeded"), [(False, 200), (True, 100)])
    def it_is_left_alone_by_a_dry_run(self, tmp_path, dry_run, succeeded):
        write_metrics(RunMetrics(FACTS, 100.0), str(tmp_path), "sync", "t")
        publish(RunMetrics(FACTS, 200.0), SyncConfig(table="lake.ns.t", metrics_folder=str(tmp_path), dry_run=dry_run))
        found = samples((tmp_path / "icecdc-t-sync.prom").read_text())
        assert found["icecdc_success_timestamp_seconds", ""] == succeeded

    def it_says_when_it_cannot_be_written(self, tmp_path):
        (tmp_path / "icecdc-t-sync.prom").mkdir()
        assert "icecdc-t-sync.prom" in write_metrics(RunMetrics(FACTS, 1.0), str(tmp_path), "sync", "t")

    def it_refuses_a_folder_that_cannot_be(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(ConfigError, match="metrics_folder"):
            check_folder(str(tmp_path / "file"))


class DescribeThePush:
    def it_is_left_out_by_a_dry_run(self, gateway):
        publish(RunMetrics(FACTS, 100.0), SyncConfig(table="lake.ns.t", metrics_url=gateway[0], dry_run=True))
        assert gateway[1] == []

    def it_posts_under_the_index_and_the_job(self, gateway):
        url, got = gateway
        problem = push_metrics(RunMetrics(FACTS, 1.0), url, "sync", "t")
        assert (problem, got[0]) == ("", ("/metrics/job/icecdc/icecdc_job/sync/index/t", RunMetrics(FACTS, 1.0).text()))

    def it_says_what_went_wrong(self):
        assert "URLError" in push_metrics(RunMetrics(FACTS, 1.0), "http://127.0.0.1:1", "sync", "t")
