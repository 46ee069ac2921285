"""Polling: how often, how long between, and one report over all."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from icecdc_core import polling
from icecdc_core.config import SyncConfig
from icecdc_core.polling import combine, follow_changes, poll_changes
from icecdc_core.report import RunReport


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


class DescribePollChanges:
    @pytest.mark.parametrize(
        ("interval", "max_polls", "expected"), [(0, 1, 1), (0, 5, 1), (0, 0, 1), (2, 1, 1), (2, 3, 3)]
    )
    def it_polls_as_often_as_asked(self, interval, max_polls, expected):
        config = _config(poll_interval_seconds=interval, max_polls=max_polls)
        actual = list(poll_changes(None, config, sync=_reports(), sleep=lambda _: None))
        assert len(actual) == expected

    def it_goes_on_without_a_limit_when_max_polls_is_zero(self):
        config = _config(poll_interval_seconds=1, max_polls=0)
        actual = list(islice(poll_changes(None, config, sync=_reports(), sleep=lambda _: None), 50))
        assert len(actual) == 50

    def it_waits_between_polls_but_not_after_the_last(self):
        slept: list[float] = []
        config = _config(poll_interval_seconds=2.5, max_polls=3)
        list(poll_changes(None, config, sync=_reports(), sleep=slept.append))
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
    def it_writes_the_report_after_every_poll(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
        path = tmp_path / "report.json"
        seen: list[int] = []

        def read(_: float) -> None:
            seen.append(json.loads(path.read_text())["upserts"])

        sync = _reports()
        monkeypatch.setattr(polling, "poll_changes", lambda s, c: poll_changes(s, c, sync=sync, sleep=read))
        config = _config(poll_interval_seconds=1, max_polls=3, report_path=str(path))
        actual = follow_changes(None, config)
        assert (seen, actual.upserts) == ([10, 20], 30)
        assert capsys.readouterr().out.count("1 snapshots, 10 upserts") == 3
