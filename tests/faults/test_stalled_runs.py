"""Runs that meet another run at the worst moment, as the model of the protocol and the simulation found them."""

from __future__ import annotations

from unittest import mock

import pytest

from icecdc_core import export_table, replay_dead_letters, sync_changes, validate_table
from icecdc_core.commits.lock import active_runs
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import FencedError, TableLockedError
from icecdc_core.jobs import export, sync, validate
from icecdc_core.runs import batch
from icecdc_core.runs import batch as index_changes
from icecdc_core.runs.run import Run

CREATE = "CREATE TABLE {t} (id BIGINT NOT NULL, name STRING) USING iceberg TBLPROPERTIES ('format-version' = '2')"


@pytest.fixture
def config(spark, sql, make_config):
    """A table of one row and its index."""
    sql(CREATE)
    sql("INSERT INTO {t} VALUES (1, 'v')")
    export_table(spark, make_config())
    return make_config()


class Killed(Exception):  # noqa: N818 (it is no error of the package)
    """What a kill looks like to the code that it hits."""


def kill(*_, **__):
    raise Killed


def killed_at(module, name, work):
    """Run something that is killed at a function of a module."""
    with mock.patch.object(module, name, kill), pytest.raises(Killed):
        work()


def end_lease(opensearch, config):
    """Let the run that has locked the index look dead to others."""
    position = opensearch.get(index=config.positions_index, id=f"position:{config.index}")["_source"]
    active_runs.discard(position["owner"]["run_id"])


@pytest.fixture
def names(indexed):
    """The names in the index, by id."""
    return lambda: {identity: document["name"] for identity, document in sorted(indexed().items())}


class DescribeARepair:
    def it_writes_nothing_when_a_sync_committed_after_the_comparison(self, spark, sql, config, names, opensearch):
        sql("INSERT INTO {t} VALUES (2, 'b')")
        repair = validate.repair_differences

        def sync_first(*arguments):
            sync_changes(spark, config)
            return repair(*arguments)

        physical = PositionStore(opensearch, config).read().physical_index
        opensearch.index(index=physical, id="9", body={"name": "extra"}, refresh=True)
        refused = pytest.raises(TableLockedError, match="Another run wrote")
        with mock.patch.object(validate, "repair_differences", sync_first), refused:
            validate_table(spark, config.replace(repair=True))
        assert "2" in names()
        assert validate_table(spark, config.replace(repair=True)).ok

    def it_waits_until_a_begun_sync_is_finished(self, spark, sql, config, names):
        sql("INSERT INTO {t} VALUES (2, 'b')")
        killed_at(sync, "commit_batch", lambda: sync_changes(spark, config))
        with pytest.raises(TableLockedError, match=r"A begun sync .* sync first"):
            validate_table(spark, config.replace(repair=True))
        sync_changes(spark, config)
        assert validate_table(spark, config.replace(repair=True)).ok


class DescribeABatchThatIsNotRepeated:
    def it_is_undone_although_the_batch_after_it_is_killed_too(self, spark, sql, config, names):
        sql("UPDATE {t} SET name = 'w'")
        killed_at(sync, "commit_batch", lambda: sync_changes(spark, config))
        sql("UPDATE {t} SET name = 'v'")
        other = config.replace(on_duplicate_identifier="last")
        killed_at(sync, "write_batch", lambda: sync_changes(spark, other))
        sync_changes(spark, other)
        assert names() == {"1": "v"}

    def it_is_not_forgotten_before_an_export_begins(self, spark, sql, config, names, name):
        config = config.replace(on_history_gap="reexport")
        snapshots = "SELECT snapshot_id FROM {t}.snapshots ORDER BY committed_at"
        (first,) = (row[0] for row in sql(snapshots).collect())
        sql("INSERT INTO {t} VALUES (2, 'x')")
        second = sql(snapshots).collect()[1][0]
        killed_at(sync, "commit_batch", lambda: sync_changes(spark, config))
        spark.sql(f"CALL lake.system.rollback_to_snapshot('ns.{name}', {first})")
        spark.sql(f"CALL lake.system.expire_snapshots(table => 'ns.{name}', snapshot_ids => ARRAY({second}))")
        killed_at(sync, "export_locked", lambda: sync_changes(spark, config))
        sync_changes(spark, config)
        assert names() == {"1": "v"}


class DescribeARunThatAnotherOvertakes:
    @pytest.fixture(params=["during its look", "before its lock"])
    def overtaken(self, request, spark, sql, config):
        """Return a run that another one overtakes between its looks at position and table, or before its lock."""
        sql("INSERT INTO {t} VALUES (2, 'b')")
        method = {"during its look": "_open_source", "before its lock": "lock"}[request.param]
        original, calls = getattr(Run, method), []

        def overtake(run, *arguments):
            # The other run comes between the two looks, whichever of them is the first.
            first = original(run, *arguments) if method == "_open_source" and not calls else None
            if not calls:
                calls.append(run)
                sql("INSERT INTO {t} VALUES (3, 'c')")
                sync_changes(spark, config)
            return original(run, *arguments) if first is None else first

        def run(job, **parameters):
            with mock.patch.object(Run, method, overtake):
                return job(spark, config.replace(**parameters))

        return run

    @pytest.mark.parametrize("parameters", [{}, {"on_history_gap": "reexport"}])
    def it_finds_nothing_left_to_sync(self, overtaken, names, parameters):
        report = overtaken(sync_changes, **parameters)
        assert (report.strategy, names()) == ("none", {"1": "v", "2": "b", "3": "c"})

    def it_exports_the_snapshot_that_the_index_has_already(self, overtaken, names):
        overtaken(export_table)
        assert names() == {"1": "v", "2": "b", "3": "c"}

    def it_replays_at_the_position_of_the_other_run(self, overtaken, spark, opensearch):
        report = overtaken(replay_dead_letters)
        assert report.strategy == "none"

    def it_counts_changes_that_were_there_at_the_look(self, overtaken):
        assert overtaken(sync_changes, dry_run=True).upserts <= 2

    def it_validates_at_a_position_that_the_table_knows(self, overtaken):
        overtaken(validate_table, validate_at="position")

    def it_repairs_nothing_that_it_compared_with_the_older_position(self, overtaken, make_config, names, opensearch):
        opensearch.index(index=make_config().index, id="9", body={"name": "extra"}, refresh=True)
        with pytest.raises(TableLockedError, match="Another run wrote"):
            overtaken(validate_table, repair=True)
        assert names() == {"1": "v", "2": "b", "3": "c", "9": "extra"}
        assert overtaken(validate_table, repair=True).ok
        assert names() == {"1": "v", "2": "b", "3": "c"}


class DescribeASyncThatCreatesItsIndex:
    def it_leaves_one_index_although_it_dies_before_its_position_is_recorded(
        self, spark, sql, make_config, names, opensearch
    ):
        sql(CREATE)
        sql("INSERT INTO {t} VALUES (1, 'v')")
        config = make_config(start_from="latest")
        killed_at(index_changes, "position_at", lambda: sync_changes(spark, config))
        (abandoned,) = opensearch.indices.get_alias(name=config.index)
        # There is nothing new, and yet nothing of the index that readers saw for a while is left.
        sync_changes(spark, config)
        physical = PositionStore(opensearch, config).read().physical_index
        assert physical != abandoned
        assert list(opensearch.indices.get(index=f"{config.index}--*")) == [physical]
        sql("INSERT INTO {t} VALUES (2, 'w')")
        sync_changes(spark, config)
        assert names() == {"2": "w"}


class DescribeAStalledExport:
    def it_leaves_the_index_of_the_export_after_it(self, spark, sql, make_config, opensearch):
        sql(CREATE)
        sql("INSERT INTO {t} VALUES (1, 'v')")
        config = make_config()
        drop = batch.drop_leftovers

        def stalled(*arguments):
            with mock.patch.object(batch, "drop_leftovers", drop):
                end_lease(opensearch, config)
                export_table(spark, config)
            drop(*arguments)

        with mock.patch.object(batch, "drop_leftovers", stalled):
            export_table(spark, config)
        (physical,) = opensearch.indices.get_alias(name=config.index)
        assert PositionStore(opensearch, config).read().physical_index == physical

    def it_does_not_move_the_alias_back(self, spark, sql, config, opensearch):
        publish = export.publish_index

        def stalled(*arguments):
            with mock.patch.object(export, "publish_index", publish):
                end_lease(opensearch, config)
                sql("UPDATE {t} SET name = 'w'")
                export_table(spark, config.replace(export_group_bytes=1))
            publish(*arguments)

        with mock.patch.object(export, "publish_index", stalled), pytest.raises(FencedError):
            export_table(spark, config)
        (physical,) = opensearch.indices.get_alias(name=config.index)
        assert PositionStore(opensearch, config).read().physical_index == physical
        assert validate_table(spark, config.replace(validate_at="position")).ok


class DescribeAnExportAfterOneThatMovedTheAlias:
    def it_does_not_keep_syncs_from_going_on(self, spark, sql, config, names):
        killed_at(export, "commit_batch", lambda: export_table(spark, config))
        other = config.replace(on_duplicate_identifier="last")
        killed_at(export, "publish_index", lambda: export_table(spark, other))
        sql("INSERT INTO {t} VALUES (2, 'w')")
        sync_changes(spark, other)
        assert names() == {"1": "v", "2": "w"}
        assert validate_table(spark, other.replace(validate_at="position")).ok


class DescribeASyncDuringAnExport:
    def it_looks_at_the_position_again_when_the_export_commits_during_its_check(self, spark, sql, config, names):
        sql("INSERT INTO {t} VALUES (2, 'w')")
        check, checks = sync.require_readable_index, []

        def export_first(*arguments):
            checks.append(arguments)
            if len(checks) == 1:
                export_table(spark, config)
            check(*arguments)

        with mock.patch.object(sync, "require_readable_index", export_first):
            sync_changes(spark, config)
        assert names() == {"1": "v", "2": "w"}
