"""Polling with a target lag, against real services: commits become searchable in time, and idle polls are cheap."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from icecdc_core import export_table, sync_changes
from icecdc_core.jobs.poll import follow_changes

TARGET_LAG = 3.0
MEASURED_LATER = 1.0
"""Seconds that this test, on a slow machine, may notice a document later than the run does."""


class Commits:
    """Commits a row every two seconds, from a thread of its own, while the block runs."""

    def __init__(self, sql) -> None:
        self._sql = sql
        self.committed: dict[str, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._commit)

    def __enter__(self) -> Commits:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _commit(self) -> None:
        while not self._ended.wait(2):
            number = len(self.committed) + 1
            self._sql(f"INSERT INTO {{t}} VALUES ({number}, 'n{number}')")
            self.committed[str(number)] = time.monotonic()


@pytest.fixture
def exported(spark, sql, make_config, tmp_path):
    """A table of one row and its index; the session has synced once, so the first measured sync is no slower."""
    config = make_config(
        target_lag=f"{TARGET_LAG:g}s",
        max_polls=7,
        log_path=str(tmp_path / "log.jsonl"),
        metrics_folder=str(tmp_path / "metrics"),
    )
    sql("CREATE TABLE {t} (id BIGINT NOT NULL, name STRING) USING iceberg")
    sql("INSERT INTO {t} VALUES (0, 'n0')")
    export_table(spark, config)
    sql("INSERT INTO {t} VALUES (-1, 'n')")
    sync_changes(spark, config)
    return config


def metric(config, name):
    text = (Path(config.metrics_folder) / f"icecdc-{config.index}-sync.prom").read_text()
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name}{{")]
    return float(line.rpartition(" ")[2])


def warnings(config):
    entries = [json.loads(line) for line in Path(config.log_path).read_text().splitlines()]
    return [entry["message"] for entry in entries if entry["level"] == "warning"]


@pytest.mark.timeout(300)
class DescribeTargetLag:
    @pytest.mark.long
    def it_makes_every_commit_searchable_in_time_with_few_polls(self, spark, sql, exported, indexed):
        searchable: dict[str, float] = {}
        began: list[float] = []

        def sync(spark, config):
            began.append(time.monotonic())
            report = sync_changes(spark, config)
            now = time.monotonic()
            searchable.update({number: now for number in indexed() if number not in searchable})
            return report

        with Commits(sql) as commits:
            report = follow_changes(spark, exported, sync=sync)
        due = {number: at for number, at in commits.committed.items() if at < began[-1]}
        waited = [searchable[number] - at for number, at in due.items()]
        elapsed = began[-1] - began[0]
        assert len(waited) >= 2
        assert max(waited) <= report.worst_lag_seconds + MEASURED_LATER
        assert report.worst_lag_seconds <= 2 * TARGET_LAG  # a slow machine
        assert (report.target_lag_seconds, "the target lag is not kept" in warnings(exported)) == (
            TARGET_LAG,
            not report.lag_kept,
        )
        assert (len(began), elapsed > len(began)) == (exported.max_polls, True)
        kept, missed = (metric(exported, f"icecdc_target_lag_{name}_seconds") for name in ("kept", "missed"))
        assert (kept + missed >= elapsed - TARGET_LAG, kept > missed) == (True, True)

    def it_reads_only_metadata_while_there_is_nothing_new(self, spark, exported):
        tracker = spark.sparkContext.statusTracker()
        pauses: list[float] = []
        before = set(tracker.getJobIdsForGroup())
        report = follow_changes(spark, exported.replace(max_polls=4), sleep=pauses.append)
        assert set(tracker.getJobIdsForGroup()) == before
        assert (report.strategy, report.worst_lag_seconds, report.lag_kept) == ("none", None, None)
        assert min(pauses) > TARGET_LAG / 10
