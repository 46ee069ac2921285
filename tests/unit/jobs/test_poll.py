"""Polling: how often, how long between, and one report over all."""

import io
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from icecdc_core.config import SyncConfig
from icecdc_core.errors import OpenSearchUnreachableError, SchemaChangeError, SparkJobError
from icecdc_core.jobs.poll import combine, follow_changes
from icecdc_core.reporting.reports import RunReport
from icecdc_core.session.processes import Stopped, stop_on_sigterm


def _config(**parameters: Any) -> SyncConfig:
    return SyncConfig(table="lake.ns.t", **parameters)


def _reports() -> Callable[..., RunReport]:
    snapshots = iter(range(1, 1000))

    def sync(spark: object, config: SyncConfig) -> RunReport:
        number = next(snapshots)
        counts = {"upserts": 10, "snapshots": 1, "seconds": 0.5, "stage_seconds": {"write": 0.25}}
        return RunReport("sync", config.table, config.index, number - 1, number, strategy="appends", **counts)

    return sync


@pytest.mark.parametrize(
    ("interval", "max_polls", "polls"), [(0, 1, 1), (0, 5, 1), (0, 0, 1), (2.5, 1, 1), (2.5, 3, 3)]
)
def it_polls_as_often_as_asked_and_waits_between_polls_but_not_after_the_last(interval, max_polls, polls):
    slept: list[float] = []
    config = _config(poll_interval_seconds=interval, max_polls=max_polls)
    actual = follow_changes(None, config, sync=_reports(), sleep=slept.append)
    assert (actual.snapshots, slept) == (polls, [2.5] * (polls - 1))


class DescribeAPollThatFails:
    def _sync(self, *failing: int) -> Callable[..., RunReport]:
        calls, made = iter(range(1, 1000)), _reports()

        def sync(spark: object, config: SyncConfig) -> RunReport:
            if next(calls) in failing:
                raise OpenSearchUnreachableError("away")
            return made(spark, config)

        return sync

    def it_ends_the_run_unless_a_retry_may_help(self, capsys):
        config = _config(poll_interval_seconds=1, max_polls=3)
        assert follow_changes(None, config, sync=self._sync(2), sleep=lambda _: None).snapshots == 2
        assert "poll 2 failed: away" in capsys.readouterr().out

        def sync(spark, config):
            raise SchemaChangeError("changed")

        with pytest.raises(SchemaChangeError):
            follow_changes(None, config, sync=sync, sleep=lambda _: None)

    def it_is_repeated_after_a_growing_pause(self):
        slept: list[float] = []
        seen: list[object] = []
        actual = follow_changes(
            None,
            _config(poll_interval_seconds=3, max_polls=12),
            sync=self._sync(*range(2, 10), 11),
            sleep=slept.append,
            on_poll=lambda report: seen.append(report.snapshots),
            on_failure=lambda error: seen.append(type(error).__name__),
        )
        assert slept == [3, 3, 4, 8, 16, 32, 60, 60, 60, 3, 3]
        assert (actual.snapshots, seen) == (
            3,
            [1, *["OpenSearchUnreachableError"] * 8, 2, "OpenSearchUnreachableError", 3],
        )

    def it_ends_the_run_when_the_java_process_has_ended(self):
        class Ended:
            @property
            def _jvm(self):
                raise ConnectionRefusedError

        def sync(spark, config):
            raise SparkJobError("ended")

        def no_further_poll(pause):
            raise AssertionError(pause)

        config = _config(poll_interval_seconds=1, max_polls=0)
        with pytest.raises(SparkJobError):
            follow_changes(Ended(), config, sync=sync, sleep=no_further_poll)

    def it_is_what_a_run_that_is_stopped_after_it_ends_with(self):
        config = _config(poll_interval_seconds=1, max_polls=0)
        with stop_on_sigterm() as stop, pytest.raises(OpenSearchUnreachableError):
            follow_changes(None, config, sync=self._sync(2), sleep=lambda pause: setattr(stop, "requested", pause == 2))


class FakeTime:
    """A clock that only syncs and pauses move; ``syncs`` are the seconds that a sync takes and the lag it reports."""

    def __init__(self, *syncs: tuple[float, float | None]) -> None:
        self.now, self.pauses = 0.0, []
        self._syncs = iter(syncs)

    def sync(self, spark: object, config: SyncConfig) -> RunReport:
        seconds, lag = next(self._syncs)
        self.now += seconds
        return RunReport(kind="sync", table=config.table, index=config.index, worst_lag_seconds=lag, seconds=seconds)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(round(seconds, 3))
        self.now += seconds

    def follow(self, **parameters: Any) -> RunReport:
        return follow_changes(None, _config(**parameters), sync=self.sync, sleep=self.sleep, clock=lambda: self.now)


class DescribeTargetLag:
    def it_still_says_whether_the_target_was_kept_when_it_is_stopped_before_a_poll(self):
        fake = FakeTime((2, 60.0), (9, 13.0), (1, 4.0))

        def sync(spark, config):
            if len(fake.pauses) == 2:
                raise Stopped
            return fake.sync(spark, config)

        report = follow_changes(
            None, _config(target_lag="10s", max_polls=0), sync=sync, sleep=fake.sleep, clock=lambda: fake.now
        )
        actual = (report.stopped, report.target_lag_seconds, report.lag_kept, report.worst_lag_seconds)
        assert actual == (True, 10.0, False, 13.0)

    def it_warns_once_when_the_target_is_not_kept_and_says_when_it_is_kept_again(self, tmp_path: Path):
        log = tmp_path / "log.jsonl"
        fake = FakeTime((1, None), (12, 14.0), (12, 14.0), (0.2, None), (1, 2.0), (1, 2.0))
        fake.follow(target_lag="10s", max_polls=6, log_path=str(log), metrics_folder=str(tmp_path))
        entries = [json.loads(line) for line in log.read_text().splitlines()]
        actual = [(entry["level"], entry["message"], entry["lag_seconds"]) for entry in entries]
        expected = [("warning", "the target lag is not kept", 14.0), ("info", "the target lag is kept again", 2.0)]
        assert actual == expected
        assert {"job", "table", "index", "run_id", "target_lag_seconds", "seconds"} <= entries[0].keys()
        metrics = (tmp_path / "icecdc-t-sync.prom").read_text().splitlines()
        kept, missed = (
            float(line.split()[-1])
            for each in ("kept", "missed")
            for line in metrics
            if line.startswith(f"icecdc_target_lag_{each}_seconds{{")
        )
        assert (kept, missed) == (pytest.approx(26.2), 8.0)


class DescribeCombine:
    def it_adds_counts_and_times_and_spans_the_range(self):
        nothing = RunReport("sync", "lake.ns.t", "t", 3, 3, strategy="none")
        sync = _reports()
        actual = reduce(combine, [*(sync(None, _config()) for _ in range(3)), nothing])
        names = ("from_snapshot_id", "to_snapshot_id", "upserts", "snapshots", "seconds", "stage_seconds", "strategy")
        expected = [0, 3, 30, 3, 1.5, {"write": 0.75}, "appends"]
        assert [getattr(actual, name) for name in names] == expected

    def it_does_not_grow_with_every_poll(self):
        each = RunReport("sync", "lake.ns.t", "t", steps=[{"ordinal": 0}], rejected_samples=[{"id": "1"}])
        actual = reduce(combine, [each] * 1000)
        assert (len(actual.steps), len(actual.rejected_samples)) == (100, 100)


def it_writes_the_report_after_every_poll(tmp_path: Path, capsys):
    path = tmp_path / "report.json"
    seen: list[int] = []

    def read(_: float) -> None:
        seen.append(json.loads(path.read_text())["upserts"])

    config = _config(poll_interval_seconds=1, max_polls=3, report_path=str(path))
    actual = follow_changes(None, config, sync=_reports(), sleep=read)
    assert (seen, actual.upserts) == ([10, 20], 30)
    assert capsys.readouterr().out.count("1 snapshots, 10 upserts") == 3


def it_goes_on_if_the_report_cannot_be_written_or_nobody_reads_its_lines(tmp_path, monkeypatch):
    gone = io.StringIO()
    gone.close()
    monkeypatch.setattr("sys.stdout", gone)
    config = _config(poll_interval_seconds=1, max_polls=3, report_path=str(tmp_path))
    assert follow_changes(None, config, sync=_reports(), sleep=lambda _: None).upserts == 30


def _signalled() -> None:
    """What the system does when somebody ends this process."""
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture
def earlier():
    """What SIGTERM did before: it is recorded here."""
    calls: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: calls.append(number))
    yield calls
    signal.signal(signal.SIGTERM, before)


class DescribeSigterm:
    def it_ends_polling_after_the_poll_under_way_with_the_report(self, tmp_path: Path, earlier):
        done, made = [], _reports()

        def sync(spark: object, config: SyncConfig) -> RunReport:
            if len(done) == 1:
                _signalled()
            done.append(made(spark, config))
            return done[-1]

        config = _config(poll_interval_seconds=0.01, max_polls=0, report_path=str(tmp_path / "report.json"))
        actual = follow_changes(None, config, sync=sync)
        written = json.loads((tmp_path / "report.json").read_text())
        assert (actual.stopped, actual.state, actual.upserts, len(done)) == (True, "ok", 20, 2)
        assert (written["stopped"], written["upserts"], written["to_snapshot_id"]) == (True, 20, 2)

    def it_ends_a_wait_for_the_next_poll_at_once(self, earlier):
        begin = time.monotonic()
        actual = follow_changes(
            None,
            _config(poll_interval_seconds=3600, max_polls=0),
            sync=_reports(),
            on_poll=lambda _: threading.Timer(0.3, _signalled).start(),
        )
        assert (actual.stopped, actual.upserts) == (True, 10)
        assert time.monotonic() - begin < 60

    def it_does_at_the_second_time_and_afterwards_what_it_did_before(self, earlier):
        with stop_on_sigterm() as stop:
            _signalled()
            first = (stop.requested, len(earlier))
            stop.requested = False
            _signalled()
            second = (stop.requested, len(earlier))
        _signalled()
        with stop_on_sigterm():
            pass
        _signalled()
        assert (first, second, len(earlier)) == ((True, 1), (False, 2), 4)
