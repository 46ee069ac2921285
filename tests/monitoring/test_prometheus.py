"""The dashboard and the alert rules in a real Prometheus that scrapes the metrics of reports: SUITE=monitoring.

These tests need `prometheus` and `promtool` on the PATH, or their folder in ICECDC_PROMETHEUS.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from icecdc_core.reporting.metrics import PlainMetrics, RunMetrics, write_metrics
from tests.unit.reporting.test_monitoring_files import FOLDER, LAG, QUERIES
from tests.waiting import await_true

ORDERS = {"job": "sync", "table": "lake.shop.orders", "index": "orders"}
RAW = {"job": "ingest", "table": "lake.raw", "index": "raw"}
SYNCED = {
    **{
        "state": "ok",
        "seconds": 4.0,
        "stage_seconds": {"plan": 1.0, "write": 2.0},
        "lag_snapshots": 2,
        "lag_seconds": 5,
    },
    **{"upserts": 80, "deletes": 20, "already_applied": 0, "rejected": 0, "carryovers_removed": 7, "snapshots": 2},
    **{"requests": 4, "retries": 1, "bytes": 6000},
}
EXPECTED = {
    "Last run": {1.0},
    "Documents written per second, in the last run": {25.0},
    "Bytes per second sent to OpenSearch": {3000.0},
    "Share of bulk requests that were retried": {0.25},
    "Validation: documents that differ": {3.0},
    "Rejected documents": {0.0},
}


def program(name):
    found = shutil.which(name, path=os.environ.get("ICECDC_PROMETHEUS")) or shutil.which(name)
    assert found, f"{name} is missing: install Prometheus, or name its folder in ICECDC_PROMETHEUS"
    return found


@pytest.fixture(scope="module")
def query(tmp_path_factory):
    """A function that asks a Prometheus which has scraped the files of a sync, a validation and an ingest."""
    folder, now = tmp_path_factory.mktemp("metrics"), time.time()
    write_metrics(RunMetrics({**ORDERS, **SYNCED}, now), str(folder), "sync", "orders")
    write_metrics(PlainMetrics(ORDERS, LAG), str(folder), "sync", "orders")
    checked = {**ORDERS, "job": "validate", "state": "differs", "missing": 1, "extra": 0, "stale": 2}
    write_metrics(RunMetrics(checked, now), str(folder), "validate", "orders")
    ingested = {"records": 9, "rows_written": 8, "dead_letters": 1, "tables_behind": 0, "complete_through": now - 30}
    write_metrics(PlainMetrics(RAW, ingested), str(folder), "ingest", "raw")
    files = sorted(path.name for path in folder.glob("*.prom"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    Thread(target=server.serve_forever, daemon=True).start()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(FOLDER / "alerts.yml")],
        "scrape_configs": [
            {
                "job_name": name,
                "metrics_path": f"/{name}",
                "static_configs": [{"targets": [f"127.0.0.1:{server.server_port}"]}],
            }
            for name in files
        ],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    arguments = [
        "--config.file",
        "prometheus.yml",
        "--storage.tsdb.path",
        "data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([program("prometheus"), *arguments], cwd=folder, stderr=log, stdout=log)

    def ask(path, **given):
        url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(given)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                scraped = {each["metric"]["job"] for each in ask("query", query="up == 1")["result"]}
                if scraped == set(files) and ask("query", query="ALERTS")["result"]:
                    break
            except OSError:
                pass
            is_alive = process.poll() is None and time.monotonic() < deadline
            assert is_alive, (folder / "prometheus.log").read_text()
            time.sleep(0.2)
        yield ask
    finally:
        process.terminate()
        process.wait(30)
        server.shutdown()
        server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def guess_type(self, path):
        return "text/plain; version=0.0.4"

    def log_message(self, *arguments):
        """Say nothing."""


def it_accepts_the_rules():
    subprocess.run([program("promtool"), "check", "rules", "alerts.yml"], cwd=FOLDER, check=True)


def it_fires_each_alert_when_it_must_and_not_otherwise():
    subprocess.run([program("promtool"), "test", "rules", "alerts_test.yml"], cwd=FOLDER, check=True)


@pytest.mark.parametrize(("title", "expression"), QUERIES, ids=[f"{title}-{n}" for n, (title, _) in enumerate(QUERIES)])
def it_answers_the_queries_of_the_dashboard(query, title, expression):
    result = query("query", query=expression.replace("$index", "orders|raw"))["result"]
    values = {float(each["value"][1]) for each in result}
    assert values
    if title in EXPECTED:
        assert values >= EXPECTED[title]


def it_keeps_the_jobs_apart_although_a_scrape_overwrites_their_label(query):
    found = query("query", query="icecdc_run_success")["result"]
    names = {(each["metric"]["icecdc_job"], each["metric"]["exported_job"]) for each in found}
    assert names == {("sync", "sync"), ("validate", "validate")}


def it_raises_only_the_alerts_of_what_is_wrong(query):
    def firing():
        return {each["labels"]["alertname"] for each in query("alerts")["alerts"] if each["state"] == "firing"}

    expected = {"IcecdcIndexDiffers", "IcecdcIngestDeadLetters"}
    await_true(lambda: firing() >= expected)
    assert firing() == expected
