"""What can happen to a table or an index between two syncs: it stops the run before any write, and the remedy works."""

from __future__ import annotations

import pytest

from icecdc_core import export_table, sync_changes, validate_table
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import (
    HistoryGapError,
    IndexConflictError,
    IndexNotFoundError,
    RejectedDocumentsError,
    SchemaChangeError,
    TableReplacedError,
)
from tests.exported_tables import exported_table

CREATE = "CREATE TABLE {t} (id BIGINT, name STRING, ratio FLOAT) USING iceberg TBLPROPERTIES ('format-version' = '2')"
FILL = "INSERT INTO {t} VALUES (1, 'a', 0.5), (2, 'b', 1.5), (3, 'c', 2.5)"


@pytest.fixture
def exported(spark, sql, make_config):
    """A table of three rows and its index."""
    return exported_table(spark, sql, make_config(), CREATE, FILL)


@pytest.fixture
def position(opensearch, make_config):
    """Read the position."""
    return PositionStore(opensearch, make_config()).read


def by_id(sql):
    return {str(row.id): row.asDict() for row in sql("SELECT * FROM {t}").collect()}


class DescribeAnExpiredPosition:
    @pytest.fixture
    def expired(self, spark, sql, exported, snapshots, name):
        """The same, one commit later, and the snapshot of the position is gone."""
        sql("DELETE FROM {t} WHERE id = 2")
        spark.sql(f"CALL lake.system.expire_snapshots(table => 'ns.{name}', snapshot_ids => array({snapshots()[0]}))")
        return exported

    def it_is_refused_and_nothing_is_written(self, spark, expired, indexed, position):
        before = indexed(), position()
        with pytest.raises(HistoryGapError, match=rf"snapshot={before[1].snapshot_id}\]\. .*on_history_gap=reexport"):
            sync_changes(spark, expired)
        assert (indexed(), position()) == before

    def it_is_exported_again_on_request(self, spark, sql, expired, indexed, opensearch, name):
        report = sync_changes(spark, expired.replace(on_history_gap="reexport"))
        physical = list(opensearch.indices.get(index=f"{name}--*"))
        assert (report.strategy, len(physical), indexed()) == ("reexport", 1, by_id(sql))

    def it_is_refused_by_a_validation_at_the_position(self, spark, expired):
        with pytest.raises(HistoryGapError):
            validate_table(spark, expired.replace(validate_at="position"))


class DescribeATableThatWasReplaced:
    @pytest.fixture
    def replaced(self, sql, exported):
        """The table was dropped and another one has its name."""
        sql("DROP TABLE {t}")
        sql(CREATE)
        sql("INSERT INTO {t} VALUES (9, 'z', 9.5)")
        return exported

    def it_is_refused_and_nothing_is_written(self, spark, replaced, indexed, position):
        before = indexed(), position()
        with pytest.raises(TableReplacedError, match=r"table_uuid=.*Remedy: .*on_history_gap=reexport"):
            sync_changes(spark, replaced)
        assert (indexed(), position()) == before

    def it_is_exported_again_on_request(self, spark, sql, replaced, indexed):
        sync_changes(spark, replaced.replace(on_history_gap="reexport"))
        assert indexed() == by_id(sql)

    def it_is_exported_again_by_an_export(self, spark, sql, replaced, indexed):
        export_table(spark, replaced)
        assert indexed() == by_id(sql)


class DescribeAChangedSchema:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ("RENAME COLUMN name TO title", "column 'name' was renamed to 'title'"),
            ("DROP COLUMN name", "column 'name' was dropped"),
            ("ALTER COLUMN ratio TYPE DOUBLE", "column 'ratio' was widened from float to double"),
        ],
        ids=["rename", "drop", "widen"],
    )
    def it_is_refused_then_exported_again_on_request(self, spark, sql, exported, indexed, position, change, message):
        before = indexed(), position()
        sql(f"ALTER TABLE {{t}} {change}")
        with pytest.raises(SchemaChangeError, match=f"{message}.*Remedy: .*on_schema_change=reexport"):
            sync_changes(spark, exported)
        untouched = (indexed(), position()) == before
        report = sync_changes(spark, exported.replace(on_schema_change="reexport"))
        assert (untouched, report.strategy, indexed()) == (True, "reexport", by_id(sql))

    def it_is_refused_when_a_dry_run_asks(self, spark, sql, exported):
        sql("ALTER TABLE {t} DROP COLUMN name")
        with pytest.raises(SchemaChangeError):
            sync_changes(spark, exported.replace(dry_run=True))

    def it_does_not_matter_for_columns_that_are_not_indexed(self, spark, sql, exported, name, indexed):
        config = exported.replace(index=f"{name}-few", columns=["id", "ratio"])
        export_table(spark, config)
        sql("ALTER TABLE {t} RENAME COLUMN name TO title")
        sql("DELETE FROM {t} WHERE id = 2")
        sync_changes(spark, config)
        assert sorted(indexed(f"{name}-few")) == ["1", "3"]


class DescribeAnotherSelection:
    def it_is_refused_then_exported_again_on_request(self, spark, exported, indexed):
        with pytest.raises(SchemaChangeError, match=r"other row_filter.*row_filter=''.*Remedy: .*on_schema_change"):
            sync_changes(spark, exported.replace(row_filter="id < 3"))
        before = sorted(indexed())
        sync_changes(spark, exported.replace(row_filter="id < 3", on_schema_change="reexport"))
        assert (before, sorted(indexed())) == (["1", "2", "3"], ["1", "2"])


class DescribeAnotherTimeZone:
    def it_is_refused_if_the_row_filter_depends_on_it(self, spark, sql, make_config, position, indexed):
        sql("CREATE TABLE {t} (id BIGINT NOT NULL, seen TIMESTAMP) USING iceberg")
        sql("INSERT INTO {t} VALUES (1, timestamp '2026-01-31T11:30:00Z'), (2, timestamp '2026-01-31T03:00:00Z')")
        config = make_config(row_filter="hour(seen) < 12")
        export_table(spark, config)
        sql("DELETE FROM {t} WHERE id = 1")
        zone = spark.conf.get("spark.sql.session.timeZone")
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        try:
            with pytest.raises(SchemaChangeError, match=f"another time_zone: time_zone='{zone}'"):
                sync_changes(spark, config)
        finally:
            spark.conf.set("spark.sql.session.timeZone", zone)
        assert (position().selection["time_zone"], set(indexed())) == (zone, {"1", "2"})
        assert sync_changes(spark, config).deletes == 1


class DescribeALostIndex:
    @pytest.fixture
    def lost(self, exported, opensearch, name):
        """The physical index was deleted."""
        opensearch.indices.delete(index=f"{name}--*")
        return exported

    @pytest.mark.parametrize("job", [sync_changes, validate_table])
    def it_is_refused_and_not_created_by_accident(self, spark, sql, lost, opensearch, name, job):
        sql("DELETE FROM {t} WHERE id = 2")
        with pytest.raises(IndexNotFoundError, match=rf"index='{name}'\]\. Remedy: run the export again"):
            job(spark, lost)
        assert list(opensearch.indices.get(index=f"{name}*")) == []

    def it_comes_back_with_an_export(self, spark, sql, lost, indexed):
        export_table(spark, lost)
        sql("DELETE FROM {t} WHERE id = 2")
        sync_changes(spark, lost)
        assert indexed() == by_id(sql)


@pytest.fixture(scope="class")
def shared(spark, shared_config):
    """A table of three rows and its index, for the tests of a class that leave both as they are."""
    for statement in (CREATE, FILL):
        spark.sql(statement.replace("{t}", shared_config.table))
    export_table(spark, shared_config)
    return shared_config


@pytest.fixture
def realias(opensearch):
    """Change the readers' alias of an index: take it away, then do these actions; afterwards it is as it was."""
    changed = []

    def change(alias, *actions):
        (physical,) = opensearch.indices.get_alias(name=alias)
        opensearch.indices.create(index=f"other-of-{alias}")
        changed.append((alias, physical))
        remove = {"remove": {"index": physical, "alias": alias}}
        opensearch.indices.update_aliases(body={"actions": [remove, *(action(physical) for action in actions)]})

    yield change
    for alias, physical in changed:
        opensearch.indices.delete(index=f"other-of-{alias}")
        if opensearch.indices.exists(index=physical):
            opensearch.indices.update_aliases(body={"actions": [{"add": {"index": physical, "alias": alias}}]})


def add(alias, index="", **part):
    """The action that gives an index an alias; without an index, the one behind the alias."""
    return lambda physical: {"add": {"index": index or physical, "alias": alias, **part}}


class DescribeReadersThatSeeSomethingElse:
    """The table and its index are the same for all tests; each changes only the alias, and puts it back."""

    @pytest.mark.parametrize("job", [sync_changes, validate_table])
    @pytest.mark.parametrize("and_ours", [False, True], ids=["another", "two"])
    def it_is_refused_when_the_alias_was_moved(self, spark, shared, realias, opensearch, job, and_ours):
        alias = shared.index
        (physical,) = opensearch.indices.get_alias(name=alias)
        realias(alias, add(alias, f"other-of-{alias}"), *([add(alias)] if and_ours else []))
        with pytest.raises(IndexConflictError, match=rf"see other-of-{alias}.*'{physical}'.*Remedy: .*POST /_aliases"):
            job(spark, shared)

    @pytest.mark.parametrize("job", [sync_changes, validate_table])
    def it_is_refused_when_an_index_took_the_name(self, spark, shared, opensearch, realias, job):
        realias(shared.index)
        opensearch.indices.create(index=shared.index)
        try:
            with pytest.raises(IndexConflictError, match=r"see an index of that name"):
                job(spark, shared)
        finally:
            opensearch.indices.delete(index=shared.index)

    @pytest.mark.parametrize("job", [sync_changes, validate_table])
    @pytest.mark.parametrize("part", [{"filter": {"term": {"id": 1}}}, {"routing": "1"}], ids=["filter", "routing"])
    def it_is_refused_when_the_alias_shows_a_part(self, spark, shared, realias, job, part):
        realias(shared.index, add(shared.index, **part))
        with pytest.raises(IndexConflictError, match=r"only a part .*Remedy: "):
            job(spark, shared)

    @pytest.mark.parametrize("job", [sync_changes, validate_table])
    def it_goes_on_when_the_alias_was_put_back(self, spark, shared, realias, job):
        realias(shared.index, add(shared.index))
        assert job(spark, shared) is not None


class DescribeReadersThatSeeNothing:
    @pytest.mark.parametrize("changed", [False, True], ids=["up to date", "changed"])
    @pytest.mark.parametrize("job", [sync_changes, validate_table])
    def it_is_refused_when_the_alias_was_removed_and_comes_back_with_an_export(
        self, spark, sql, exported, realias, indexed, name, job, changed
    ):
        if changed:
            sql("DELETE FROM {t} WHERE id = 2")
        realias(name)
        with pytest.raises(IndexNotFoundError, match=rf"alias '{name}'.* is gone.*Remedy: .*POST /_aliases"):
            job(spark, exported)
        export_table(spark, exported)
        assert (job(spark, exported) is not None, indexed()) == (True, by_id(sql))


class DescribeLostPositions:
    @pytest.mark.parametrize("version", [1, 2])
    def it_is_exported_into_an_index_of_its_own(
        self, spark, sql, make_config, opensearch, indexed, name, snapshots, version
    ):
        sql(CREATE.replace("'2'", f"'{version}'"))
        sql(FILL)
        export_table(spark, make_config())
        sql("UPDATE {t} SET name = 'changed' WHERE id = 2")
        if version == 2:
            export_table(spark, make_config())
            spark.sql(f"CALL lake.system.rollback_to_snapshot('ns.{name}', {snapshots()[0]})")
        opensearch.indices.delete(index=f"positions-{name}")
        export_table(spark, make_config())
        physical = list(opensearch.indices.get(index=f"{name}--*"))
        assert (indexed(), len(physical)) == (by_id(sql), 1)


class DescribeARejectedDocument:
    @pytest.fixture
    def rejecting(self, spark, sql, exported):
        """One row of the next batch holds what no number field of the index takes."""
        sql("INSERT INTO {t} VALUES (4, 'good', 4.5), (5, 'bad', CAST('NaN' AS FLOAT))")
        with pytest.raises(RejectedDocumentsError, match=r"'5': .*max_rejected_documents=0\]\. Remedy: correct"):
            sync_changes(spark, exported)
        return exported

    def it_leaves_the_position_where_it_was(self, rejecting, position, snapshots):
        assert (position().snapshot_id, "'5'" in position().batch.failure) == (snapshots()[0], True)

    def it_is_reported_with_id_and_reason_when_so_many_are_allowed(
        self, spark, rejecting, position, snapshots, indexed
    ):
        report = sync_changes(spark, rejecting.replace(max_rejected_documents=1))
        samples = [(sample["id"], sample["status"]) for sample in report.rejected_samples]
        assert (report.rejected, samples, position().snapshot_id) == (1, [("5", 400)], snapshots()[1])
        assert sorted(indexed()) == ["1", "2", "3", "4"]
        assert "NaN" in report.rejected_samples[0]["reason"]

    @pytest.mark.parametrize("repair", ["DELETE FROM {t} WHERE id = 5", "UPDATE {t} SET ratio = 5.5 WHERE id = 5"])
    def it_is_over_when_the_row_is_corrected(self, spark, sql, rejecting, indexed, position, snapshots, repair):
        sql(repair)
        sync_changes(spark, rejecting)
        assert (indexed(), position().snapshot_id) == (by_id(sql), snapshots()[2])

    def it_stops_an_export_and_readers_keep_the_old_index(self, spark, rejecting, indexed):
        before = indexed()
        with pytest.raises(RejectedDocumentsError):
            export_table(spark, rejecting)
        assert indexed() == before

    def it_is_over_after_a_failed_export_too(self, spark, sql, rejecting, indexed):
        with pytest.raises(RejectedDocumentsError):
            export_table(spark, rejecting)
        sql("DELETE FROM {t} WHERE id = 5")
        sync_changes(spark, rejecting)
        assert (indexed(), validate_table(spark, rejecting).ok) == (by_id(sql), True)
