"""A run that is killed between any two of begin, write and commit: the next one ends with index == table."""

from __future__ import annotations

import signal
import threading

import pytest

from icecdc_core import export_table, sync_changes, validate_table
from icecdc_core.errors import IcecdcError, TableLockedError
from icecdc_core.reporting.reports import RunReport
from tests.broken_runs import forget_commit
from tests.faults.killing import Victim, of_one_core

CREATE = "CREATE TABLE {t} (id BIGINT NOT NULL, name STRING) USING iceberg TBLPROPERTIES ('format-version' = '2')"
FILL = "INSERT INTO {t} SELECT id, concat('n', id) FROM range(200)"
LONG = pytest.mark.long
"""For the samples that `make test` leaves to `make test SUITE=long` and `make test SUITE=faults`."""


@pytest.fixture
def changed(spark, sql, make_config):
    """An exported table that changed since."""
    sql(CREATE)
    sql(FILL)
    export_table(spark, make_config())
    change(sql)
    return make_config()


@pytest.fixture
def die(make_config):
    """Let a run be killed right after the n-th call of a function, in a process that starts while the table is made."""
    victim = Victim(of_one_core(make_config()))

    def killed(config, job, target, calls=1):
        given = {name: value for name, value in of_one_core(config).items() if name != "spark_conf"}
        victim.start(job, given, (target, calls))
        assert (victim.ended(), victim.process.wait()) == ("", -signal.SIGKILL)

    yield killed
    victim.kill()


def change(sql):
    """Some of everything: updates, deletes, inserts."""
    sql("UPDATE {t} SET name = 'changed' WHERE id % 10 = 0")
    sql("DELETE FROM {t} WHERE id % 7 = 0")
    sql("INSERT INTO {t} SELECT id, 'new' FROM range(1000, 1050)")


@pytest.mark.parametrize(
    ("target", "meaning"),
    [
        ("commits.lock.IndexLock.begin", "begun, nothing written"),
        ("jobs.sync.write_batch", "everything written, not committed"),
        pytest.param("commits.store.PositionStore.append_log", "logged, position not moved", marks=LONG),
    ],
    ids=lambda value: value.split(".")[-1] if "." in value else None,
)
def it_ends_a_killed_sync_with_index_equal_to_table(spark, sql, changed, die, target, meaning):
    die(changed, "sync", target)
    sql("INSERT INTO {t} VALUES (5000, 'after the crash')")
    sync_changes(spark, changed)
    assert validate_table(spark, changed).ok


@pytest.mark.parametrize(
    ("target", "calls"),
    [
        pytest.param("commits.lock.IndexLock.begin", 1, marks=LONG),
        ("commits.lock.IndexLock.record", 3),
        pytest.param("jobs.export.publish_index", 1, marks=LONG),
    ],
    ids=["begun", "two_groups_in", "published"],
)
def it_resumes_a_killed_export(spark, sql, make_config, die, target, calls):
    config = make_config(export_group_bytes=1)
    sql(CREATE)
    sql(FILL)
    sql("INSERT INTO {t} SELECT id, 'more' FROM range(3000, 3050)")
    sql("INSERT INTO {t} SELECT id, 'more' FROM range(4000, 4050)")
    die(config, "export", target, calls)
    change(sql)
    sync_changes(spark, config)
    assert validate_table(spark, config).ok


@LONG
def it_writes_only_the_missing_groups_of_a_killed_export(spark, sql, make_config, die):
    config = make_config(export_group_bytes=1)
    sql(CREATE)
    sql("INSERT INTO {t} VALUES (1, 'a')")
    sql("INSERT INTO {t} VALUES (2, 'b')")
    sql("INSERT INTO {t} VALUES (3, 'c')")
    die(config, "export", "commits.lock.IndexLock.record", 3)
    assert export_table(spark, config).upserts == 1


class DescribeReplay:
    def it_changes_nothing_when_a_batch_is_written_again(self, spark, changed, opensearch, indexed):
        first = sync_changes(spark, changed)
        before = indexed()
        forget_commit(opensearch, changed, first)
        again = sync_changes(spark, changed)
        counts = (again.upserts, again.deletes, again.already_applied)
        assert (counts, indexed()) == ((0, 0, first.upserts + first.deletes), before)

    def it_is_a_new_batch_when_rows_of_one_identifier_are_merged_now(self, spark, changed, opensearch, indexed):
        first = sync_changes(spark, changed)
        before = indexed()
        forget_commit(opensearch, changed, first)
        again = sync_changes(spark, changed.replace(on_duplicate_identifier="last"))
        assert (again.upserts, again.epoch > first.epoch, indexed()) == (first.upserts, True, before)


class DescribeTwoRunsAtOnce:
    def it_ends_equal_when_two_really_run_side_by_side(self, spark, changed):
        outcomes = []

        def run():
            try:
                outcomes.append(sync_changes(spark, changed))
            except IcecdcError as error:
                outcomes.append(error)

        threads = [threading.Thread(target=run) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        kinds = {type(outcome) for outcome in outcomes}
        assert (RunReport in kinds, kinds <= {RunReport, TableLockedError}) == (True, True), outcomes
        assert validate_table(spark, changed).ok
