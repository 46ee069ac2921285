"""Polling: how often, how long between, and one report over all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from icecdc_core.config import SyncConfig
from icecdc_core.jobs.poll import combine, follow_changes
from icecdc_core.reporting.reports import RunReport
from icecdc_core.session.shutdown import stop_on_sigterm


def _config(**parameters: Any) -> SyncConfig:
    return SyncConfig(table="lake.ns.t", **parameters)


def _reports() -> Callable[..., RunReport]:
    """A sync that finds one new snapshot each time."""
    snapshots = iter(range(1, 1000))

    def sync(spark: object, config: SyncConfig) -> RunReport:
        number = next(snapshots)
        return RunReport(
            kind="sync",
            table=config.table,
            index=config.index,
            from_snapshot_id=number - 1,
            to_snapshot_id=number,
            strategy="appends",
            upserts=10,
            snapshots=1,
            seconds=0.5,
            stage_seconds={"write": 0.25},
        )

    return sync


class DescribePolls:
    @pytest.mark.parametrize(
        ("interval", "max_polls", "expected"), [(0, 1, 1), (0, 5, 1), (0, 0, 1), (2, 1, 1), (2, 3, 3)]
    )
    def it_polls_as_often_as_asked(self, interval, max_polls, expected):
        config = _config(poll_interval_seconds=interval, max_polls=max_polls)
        actual = follow_changes(None, config, sync=_reports(), sleep=lambda _: None)
        assert actual.snapshots == expected

    def it_goes_on_without_a_limit_when_max_polls_is_zero(self):
        polls, made = [], _reports()

        def sync(spark: object, config: SyncConfig) -> RunReport:
            polls.append(made(spark, config))
            if len(polls) == 50:
                raise KeyboardInterrupt
            return polls[-1]

        config = _config(poll_interval_seconds=1, max_polls=0)
        with pytest.raises(KeyboardInterrupt):
            follow_changes(None, config, sync=sync, sleep=lambda _: None)
        assert len(polls) == 50

    def it_waits_between_polls_but_not_after_the_last(self):
        slept: list[float] = []
        config = _config(poll_interval_seconds=2.5, max_polls=3)
        follow_changes(None, config, sync=_reports(), sleep=slept.append)
        assert slept == [2.5, 2.5]


class DescribeCombine:
    def it_adds_counts_and_times_and_spans_the_range(self):
        sync = _reports()
        source = [sync(None, _config()) for _ in range(3)]
        actual = combine(source)
        expected = (0, 3, 30, 3, 1.5, {"write": 0.75}, "appends")
        assert (
            actual.from_snapshot_id,
            actual.to_snapshot_id,
            actual.upserts,
            actual.snapshots,
            actual.seconds,
            actual.stage_seconds,
            actual.strategy,
        ) == expected

    def it_keeps_the_strategy_of_the_poll_that_found_something(self):
        found = RunReport(kind="sync", table="t", index="t", strategy="appends", upserts=1)
        nothing = RunReport(kind="sync", table="t", index="t", strategy="none")
        assert combine([nothing, found, nothing]).strategy == "appends"


class DescribeFollowChanges:
    def it_writes_the_report_after_every_poll(self, tmp_path: Path, capsys):
        path = tmp_path / "report.json"
        seen: list[int] = []

        def read(_: float) -> None:
            seen.append(json.loads(path.read_text())["upserts"])

        config = _config(poll_interval_seconds=1, max_polls=3, report_path=str(path))
        actual = follow_changes(None, config, sync=_reports(), sleep=read)
        assert (seen, actual.upserts) == ([10, 20], 30)
        assert capsys.readouterr().out.count("1 snapshots, 10 upserts") == 3


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
        threading.Timer(0.3, _signalled).start()
        begin = time.monotonic()
        actual = follow_changes(None, _config(poll_interval_seconds=3600, max_polls=0), sync=_reports())
        assert (actual.stopped, actual.upserts) == (True, 10)
        assert time.monotonic() - begin < 5

    def it_lets_a_single_sync_end_and_tells(self, earlier):
        made = _reports()

        def sync(spark: object, config: SyncConfig) -> RunReport:
            _signalled()
            return made(spark, config)

        assert follow_changes(None, _config(), sync=sync).stopped

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

    def it_ends_the_process_at_the_second_time(self):
        script = """
import os, signal
from icecdc_core.session.shutdown import stop_on_sigterm
with stop_on_sigterm() as stop:
    os.kill(os.getpid(), signal.SIGTERM)
    print(stop.requested, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    print("still there", flush=True)
"""
        ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert (ended.stdout, ended.returncode) == ("True\n", -signal.SIGTERM)

    def it_leaves_sigterm_alone_outside_of_the_main_thread(self, earlier):
        found: list[object] = []

        def work() -> None:
            with stop_on_sigterm():
                found.append(signal.getsignal(signal.SIGTERM))

        before = signal.getsignal(signal.SIGTERM)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert found == [before]
