"""Polling: how often, how long between, and one report over all."""

import io
import json
import os
import signal
from dataclasses import replace
from functools import reduce
from unittest.mock import Mock

import pytest
from hypothesis import given, strategies as st

from icecdc_core.config import SyncConfig
from icecdc_core.errors import OpenSearchUnreachableError, SchemaChangeError, SparkJobError
from icecdc_core.jobs.poll import PollInterval, audited, combine, follow_changes
from icecdc_core.reporting.reports import RunReport, ValidationReport
from icecdc_core.session.processes import Stopped, stop_on_sigterm
from tests.checks.metric_samples import samples


def _config(**parameters):
    return SyncConfig(table="lake.ns.t", **parameters)


def _reports():
    snapshots = iter(range(1, 1000))

    def sync(spark, config):
        number = next(snapshots)
        counts = {"upserts": 10, "snapshots": 1, "seconds": 0.5, "stage_seconds": {"write": 0.25}}
        return RunReport("sync", config.table, config.index, number - 1, number, strategy="appends", **counts)

    return sync


@pytest.mark.parametrize(
    ("interval", "max_polls", "polls"), [(0, 1, 1), (0, 5, 1), (0, 0, 1), (2.5, 1, 1), (2.5, 3, 3)]
)
def it_polls_as_often_as_asked_and_waits_between_polls_but_not_after_the_last(interval, max_polls, polls):
    slept = []
    config = _config(poll_interval_seconds=interval, max_polls=max_polls)
    actual = follow_changes(None, config, sync=_reports(), sleep=slept.append)
    assert (actual.snapshots, slept) == (polls, [2.5] * (polls - 1))
    assert len(actual.notes) == (polls != max_polls)  # that the limit has no effect
    only_a_pause = follow_changes(None, _config(poll_interval_seconds=2.5), sync=_reports())
    assert "max_polls" in only_a_pause.notes[0]


class DescribeAPollThatFails:
    def _sync(self, *failing):
        calls, made = iter(range(1, 1000)), _reports()

        def sync(spark, config):
            if next(calls) in failing:
                raise OpenSearchUnreachableError("away")
            return made(spark, config)

        return sync

    def it_ends_the_run_unless_a_retry_may_help(self, capsys):
        config = _config(poll_interval_seconds=1, max_polls=3)
        assert follow_changes(None, config, sync=self._sync(2), sleep=lambda _: None).snapshots == 2
        assert "poll 2 failed: away" in capsys.readouterr().out
        with pytest.raises(SchemaChangeError):
            follow_changes(None, config, sync=Mock(side_effect=SchemaChangeError("changed")), sleep=lambda _: None)

    def it_is_repeated_after_a_growing_pause(self):
        slept, seen = [], []
        config, sync = _config(poll_interval_seconds=3, max_polls=12), self._sync(*range(2, 10), 11)
        watch = {"on_poll": lambda report: seen.append(report.snapshots), "sleep": slept.append}
        watch |= {"on_failure": lambda error: seen.append(type(error))}
        actual = follow_changes(None, config, sync=sync, **watch)
        away = OpenSearchUnreachableError
        assert slept == [3, 3, 4, 8, 16, 32, 60, 60, 60, 3, 3]
        assert (actual.snapshots, seen) == (3, [1, *[away] * 8, 2, away, 3])

    @pytest.mark.parametrize("is_stopped", [Mock(return_value=True), Mock(side_effect=ConnectionRefusedError)])
    def it_ends_the_run_when_spark_was_stopped_or_its_java_process_has_ended(self, is_stopped):
        spark = Mock(**{"_jsparkSession.sparkContext.return_value.isStopped": is_stopped})
        config, sync = _config(poll_interval_seconds=1, max_polls=0), Mock(side_effect=SparkJobError("ended"))
        with pytest.raises(SparkJobError):
            follow_changes(spark, config, sync=sync, sleep=Mock(side_effect=AssertionError("a further poll")))

    def it_is_what_a_run_that_is_stopped_after_it_ends_with(self):
        config = _config(poll_interval_seconds=1, max_polls=0)
        with stop_on_sigterm() as stop, pytest.raises(OpenSearchUnreachableError):
            follow_changes(None, config, sync=self._sync(2), sleep=lambda pause: setattr(stop, "requested", pause == 2))


class FakeTime:
    """A clock that only syncs and pauses move; ``syncs`` are the seconds that a sync takes and the lag it reports."""

    def __init__(self, *syncs):
        self.now, self.pauses = 0.0, []
        self._syncs = list(syncs)

    def sync(self, spark, config):
        if not self._syncs:
            raise Stopped
        seconds, lag = self._syncs.pop(0)
        self.now += seconds
        return RunReport(kind="sync", table=config.table, index=config.index, worst_lag_seconds=lag, seconds=seconds)

    def sleep(self, seconds):
        self.pauses.append(round(seconds, 3))
        self.now += seconds

    def follow(self, **parameters):
        return follow_changes(None, _config(**parameters), sync=self.sync, sleep=self.sleep, clock=lambda: self.now)


class DescribeTargetLag:
    def it_still_says_whether_the_target_was_kept_when_it_is_stopped_before_a_poll(self):
        report = FakeTime((2, 60.0), (9, 13.0)).follow(target_lag="10s", max_polls=0)
        actual = (report.stopped, report.target_lag_seconds, report.lag_kept, report.worst_lag_seconds)
        assert actual == (True, 10.0, False, 13.0)

    def it_warns_once_when_the_target_is_not_kept_and_says_when_it_is_kept_again(self, tmp_path):
        log = tmp_path / "log.jsonl"
        fake = FakeTime((1, None), (12, 14.0), (12, 14.0), (0.2, None), (1, 2.0), (1, 2.0))
        given = {"target_lag": "10s", "max_polls": 6, "log_path": str(log), "metrics_folder": str(tmp_path)}
        assert not fake.follow(**given).stopped
        entries = [json.loads(line) for line in log.read_text().splitlines()]
        actual = [(entry["level"], entry["message"], entry["lag_seconds"]) for entry in entries]
        expected = [("warning", "the target lag is not kept", 14.0), ("info", "the target lag is kept again", 2.0)]
        assert actual == expected
        assert {"job", "table", "index", "run_id", "target_lag_seconds", "seconds"} <= entries[0].keys()
        metrics = samples((tmp_path / "icecdc-t-sync.prom").read_text())
        found = [metrics[f"icecdc_target_lag_{each}_seconds", ""] for each in ("kept", "missed")]
        assert found == [pytest.approx(26.2), 8.0]


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


def it_writes_the_report_after_every_poll(tmp_path, capsys):
    path = tmp_path / "report.json"
    seen = []

    def read(_):
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


def _signalled():
    """What the system does when somebody ends this process."""
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture
def earlier():
    """What SIGTERM did before: it is recorded here."""
    calls = []
    before = signal.signal(signal.SIGTERM, lambda number, _: calls.append(number))
    yield calls
    signal.signal(signal.SIGTERM, before)


class DescribeSigterm:
    def it_ends_polling_after_the_poll_under_way_with_the_report(self, tmp_path, earlier):
        done, made = [], _reports()

        def sync(spark, config):
            if len(done) == 1:
                _signalled()
                _signalled()  # has its usual effect
            done.append(made(spark, config))
            return done[-1]

        config = _config(poll_interval_seconds=0.01, max_polls=0, report_path=str(tmp_path / "report.json"))
        actual = follow_changes(None, config, sync=sync)
        written = json.loads((tmp_path / "report.json").read_text())
        assert (actual.stopped, actual.state, actual.upserts, len(done)) == (True, "ok", 20, 2)
        assert (written["stopped"], written["upserts"], written["to_snapshot_id"]) == (True, 20, 2)
        _signalled()
        assert len(earlier) == 3


def interval_after(*polls, target=10.0, longest=0.0):
    """An interval that has seen these polls: begin, end and lag."""
    interval = PollInterval(target, longest)
    for poll in polls:
        interval.poll_ended(*poll)
    return interval


class DescribeThePause:
    @pytest.mark.parametrize(
        ("target", "longest", "expected"), [(1.0, 0, 0.1), (300.0, 0, 1.0), (10.0, 0.05, 0.05), (0.0, 2.5, 2.5)]
    )
    def it_has_bounds_and_is_the_poll_interval_without_a_target(self, target, longest, expected):
        late = (0, 1, 9.0), (2, 1000, 999.0)
        assert interval_after(*late, target=target, longest=longest).pause == pytest.approx(expected)


class DescribeTheLag:
    @pytest.mark.parametrize(
        ("polls", "expected"),
        [
            # The first poll's commits waited before the run began.
            ([(0, 2, 3600.0)], (None, None, False)),
            ([(0, 1, None), (5, 6, 4.0)], (4.0, True, False)),
            ([(0, 1, None), (9, 14, 10.1)], (10.1, False, True)),
            # The poll before began 6 s ago and did not see the commit, whatever its time says.
            ([(0, 1, None), (5, 6, 3600.0)], (6.0, True, False)),
            # A commit of now would be late, though there was none.
            ([(0, 1, None), (5, 17, None)], (None, False, True)),
        ],
    )
    def it_counts_from_the_commit_and_from_the_poll_before_at_most(self, polls, expected):
        interval = interval_after(*polls[:-1])
        assert interval.poll_ended(*polls[-1]) == expected

    def it_adds_up_how_long_the_target_was_kept_and_missed_if_there_is_one(self):
        assert interval_after((0, 1, None), target=0.0).poll_ended(100, 101, 50.0) == (50.0, None, False)
        interval = interval_after((0, 100, 9000.0), (104, 105, 3.0), (124, 125, 18.0), (126, 127, 12.5))
        # 27 s after the first poll; commits waited 8 s beyond the target, and no more than the last 2 s.
        assert (interval.seconds_kept, interval.seconds_missed) == (17 + 2, 8 + 0)


class DescribeTheWorstCase:
    @pytest.mark.parametrize(("target", "share"), [(3.0, 0.4), (10.0, 0.2), (300.0, 0.02)])
    def it_keeps_the_target_for_a_commit_just_after_each_read(self, target, share):
        sync, now, interval, committed = target * share, 0.0, PollInterval(target), None
        lags = []
        for _ in range(50):
            began, ended = now, now + sync
            lag, _, _ = interval.poll_ended(began, ended, None if committed is None else ended - committed)
            lags.append(lag or 0.0)
            committed, now = began + 0.001, ended + interval.pause
        assert (interval.seconds_missed, max(lags) <= target, max(lags) > target * 0.7) == (0.0, True, True)


@given(budget=st.floats(0.5, 10), seconds=st.lists(st.floats(0.1, 50), min_size=1, max_size=9))
def it_audits_for_a_budget_on_average_and_begins_no_part_when_that_is_spent(budget, seconds):
    clock, began = [0.0], []

    def validate(spark, config):
        assert (config.part, config.report_path) == ("auto", "")
        began.append(clock[0])
        clock[0] += seconds[len(began) % len(seconds)]
        return ValidationReport(False, 1, 1, missing=2)

    sync, config, reports = audited(_reports(), validate, lambda: clock[0]), _config(audit_seconds=budget), []
    for poll in range(1, 7):
        reports.append(sync(None, config.replace(report_path="r")))
        assert not began or began[-1] <= poll * budget
    assert reports[0].audit["parts"] >= 1
    assert reduce(combine, reports).audit == {"parts": len(began), "differences": 2 * len(began), "failure": ""}


def it_reports_a_failed_audit_and_goes_on():
    validate = Mock(side_effect=OpenSearchUnreachableError("It is away"))
    report = audited(_reports(), validate)(None, _config(audit_seconds=5))
    assert (report.upserts, report.audit) == (10, {"parts": 0, "differences": 0, "failure": "It is away."})
    later = replace(report, audit={"parts": 2, "differences": 1, "failure": ""})
    assert combine(report, later).audit == {"parts": 2, "differences": 1, "failure": "It is away."}
