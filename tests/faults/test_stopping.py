"""SIGTERM, as a scheduler or a shutdown sends it: a run ends at its next safe point, with report and exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from icecdc_core import export_table
from icecdc_core.ingest import ingest
from tests.faults.killing import of_one_core, rows_as_documents

ROOT = Path(__file__).parents[2]


class Job:
    """A job of the command line in a process of its own, whose log lines can be waited for."""

    def __init__(self, job, config, report_path, **parameters):
        given = {**of_one_core(config), **parameters, "report_path": str(report_path), "log_path": "-"}
        texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}
        options = [text for name, value in texts.items() if value for text in (f"--{name}", value)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "icecdc_core", job, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )
        self.lines, self.report_path = [], Path(report_path)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)

    def says(self, words, seconds=120):
        deadline = time.monotonic() + seconds
        while not any(words in line for line in list(self.lines)):
            assert self.process.poll() is None, "".join(self.lines)[-3000:]
            assert time.monotonic() < deadline, "".join(self.lines)[-3000:]
            time.sleep(0.05)

    def terminated(self):
        """Send SIGTERM; the exit code, the report on the last line, that at `report_path`, and how long it took."""
        begin = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        printed = self.process.stdout.read()
        code = self.process.wait(60)
        took = time.monotonic() - begin
        return code, json.loads(printed.splitlines()[-1]), json.loads(self.report_path.read_text()), took

    def kill(self):
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def kill_java(job):
    found = subprocess.check_output(["pgrep", "-x", "-g", str(job.process.pid), "java"], text=True)
    for number in found.split():
        os.kill(int(number), signal.SIGKILL)


@pytest.fixture
def start(tmp_path):
    """Start a job; it is gone after the test."""
    jobs = []

    def started(job, config, **parameters):
        jobs.append(Job(job, config, tmp_path / "report.json", **parameters))
        return jobs[-1]

    yield started
    for job in jobs:
        job.kill()


class DescribeSigterm:
    def it_ends_an_ingest_between_two_batches_and_the_next_run_takes_the_rest(
        self, spark, sql, make_ingest, topic, start
    ):
        sql("CREATE TABLE {t} (id BIGINT, v STRING) USING iceberg")
        topic.send(*({"id": number, "v": "a"} for number in range(400)))
        # Small batches that follow one another without a pause.
        config = make_ingest(trigger="continuous", trigger_interval_seconds=0.1, max_records_per_batch=5)
        job = start("ingest", config)
        job.says('"batch ended"')
        code, report, left, _ = job.terminated()
        ids = [row.id for row in spark.table(config.table).collect()]
        assert (code, report["state"], report["stopped"], report == left) == (0, "ok", True, True)
        assert 0 < len(ids) == len(set(ids)) == report["rows_written"] == report["records"] < 400
        rest = ingest(spark, config.replace(trigger="available_now", max_records_per_batch=0))
        assert rest.records == 400 - len(ids)
        assert sorted(row.id for row in spark.table(config.table).collect()) == list(range(400))

    def it_ends_a_sync_that_waits_for_its_next_poll(self, spark, sql, make_config, indexed, start):
        config = make_config()
        sql("CREATE TABLE {t} (id BIGINT, v STRING) USING iceberg")
        sql("INSERT INTO {t} VALUES (1, 'a'), (2, 'b')")
        export_table(spark, config)
        sql("INSERT INTO {t} VALUES (3, 'c')")
        job = start("sync", config, poll_interval_seconds=3600, max_polls=0)
        job.says('"run ended"')
        code, report, left, took = job.terminated()
        assert (code, report["state"], report["stopped"], report["upserts"]) == (0, "ok", True, 1)
        assert report == left
        assert took < 20
        assert indexed(config.index) == rows_as_documents(spark, config.table)


class DescribeAJavaProcessThatIsKilled:
    def it_ends_a_polling_sync_that_is_to_be_run_again(self, spark, sql, make_config, start):
        config = make_config()
        sql("CREATE TABLE {t} (id BIGINT) USING iceberg")
        sql("INSERT INTO {t} VALUES (1)")
        export_table(spark, config)
        # The process dies between two polls; the next one must neither be an unexpected error nor go on for ever.
        job = start("sync", config, poll_interval_seconds=1, max_polls=0)
        job.says('"run ended"')
        kill_java(job)
        code = job.process.wait(60)
        report = json.loads(job.report_path.read_text())
        assert (code, report["state"], report["error"]) == (5, "retry", "SparkJobError")

    def it_ends_an_ingest_that_is_to_be_run_again(self, spark, sql, make_ingest, topic, start):
        sql("CREATE TABLE {t} (id BIGINT) USING iceberg")
        topic.send({"id": 1})
        job = start("ingest", make_ingest(trigger="continuous", trigger_interval_seconds=0.1))
        job.says('"batch ended"')
        kill_java(job)
        code = job.process.wait(120)
        report = json.loads(job.report_path.read_text())
        assert (code, report["state"], report["error"]) == (5, "retry", "SparkJobError")
