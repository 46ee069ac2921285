"""What can happen to a table or an index between two syncs: it stops the run before any write, and the remedy works."""

from __future__ import annotations

import pytest

from icecdc_core import export_table, sync_changes, validate_table
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import (
    HistoryGapError,
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
