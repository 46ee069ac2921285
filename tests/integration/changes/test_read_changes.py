"""The contract of ``read_changes``, and with ``remove_carryovers`` the true changes of every snapshot."""

import pytest

from icecdc_core.carryover import remove_carryovers
from icecdc_core.changes import read_changes
from icecdc_core.changes.row_changes import changes_frame
from icecdc_core.changes.scan_planning import plan_scans
from icecdc_core.errors import ConfigError, HistoryGapError, TableNotFoundError, UnsupportedTypeError
from icecdc_core.table.iceberg_table import IcebergTable
from icecdc_core.table.source import Selection

pytestmark = pytest.mark.usefixtures("sql")

CREATE = "CREATE TABLE {t} (id BIGINT, name STRING, region STRING) USING iceberg PARTITIONED BY (region)"
FILL = "INSERT INTO {t} VALUES (1, 'a', 'north'), (2, 'b', 'north'), (3, 'c', 'south'), (3, 'c', 'south')"
CHANGE_COLUMNS = [("_change_type", "string"), ("_change_ordinal", "int"), ("_commit_snapshot_id", "bigint")]


@pytest.fixture
def commit(sql, snapshots):
    sql(CREATE)

    def run(*statements):
        sql(*statements)
        return snapshots()

    return run


@pytest.fixture
def changes(spark, name):
    def read(start=None, end=None, mode="net"):
        found = remove_carryovers(read_changes(spark, f"lake.ns.{name}", start, end, mode))
        return [tuple(row) for row in found.collect()]

    return read


class DescribeReadChanges:
    def it_gives_the_columns_of_the_table_and_three_of_its_own_or_refuses_what_is_not_there(self, spark, commit, name):
        table = f"lake.ns.{name}"
        empty = read_changes(spark, table)
        (first,) = commit(FILL)
        frames = [empty, read_changes(spark, table, first, first), read_changes(spark, table)]
        expected = [("id", "bigint"), ("name", "string"), ("region", "string"), *CHANGE_COLUMNS]
        assert [frame.dtypes for frame in frames] == [expected] * 3
        assert [frame.count() for frame in frames[:2]] == [0, 0]
        with pytest.raises(ConfigError, match=r"mode='fast'.*use one of net, snapshot"):
            read_changes(spark, table, mode="fast")
        with pytest.raises(TableNotFoundError, match=r"table='lake\.ns\.nowhere'"):
            read_changes(spark, "lake.ns.nowhere")
        with pytest.raises(HistoryGapError, match="snapshot=42"):
            read_changes(spark, table, 42, 42)
        commit("ALTER TABLE {t} ADD COLUMN _Change_Type STRING")
        with pytest.raises(UnsupportedTypeError, match="'_Change_Type' has the name of a column of changes"):
            read_changes(spark, table)

    def it_reads_from_a_start_that_is_excluded_to_an_end_that_is_included(
        self, spark, name, commit, changes, java_table
    ):
        first, second, third = commit(
            FILL, "INSERT INTO {t} VALUES (4, 'd', 'x')", "DELETE FROM {t} WHERE id IN (1, 4)"
        )
        # By default before the first snapshot, and the current one.
        whole = [(row[0], *row[3:]) for row in changes()]
        assert sorted(whole) == [(id, "INSERT", 0, third) for id in (2, 3, 3)]
        assert changes(first, second) == [(4, "d", "x", "INSERT", 0, second)]
        assert changes(first) == [(1, "a", "north", "DELETE", 0, third)]
        assert sorted(changes(first, mode="snapshot"), key=lambda row: (row[4], row[0])) == [
            (4, "d", "x", "INSERT", 0, second),
            (1, "a", "north", "DELETE", 1, third),
            (4, "d", "x", "DELETE", 1, third),
        ]
        # The beginning has expired: there is the state at the end, but no snapshots.
        java_table().expireSnapshots().expireSnapshotId(first).commit()
        south = (3, "c", "south", "INSERT")
        assert sorted(row[:4] for row in changes()) == [(2, "b", "north", "INSERT"), south, south]
        with pytest.raises(HistoryGapError, match="before the first snapshot"):
            read_changes(spark, f"lake.ns.{name}", mode="snapshot")


def it_reads_what_only_format_version_3_has(spark, sql, name, java_table):
    sql(
        "CREATE TABLE {t} (id BIGINT, v VARIANT) USING iceberg TBLPROPERTIES ('format-version' = '3', "
        "'write.delete.mode' = 'merge-on-read')"
    )
    sql("INSERT INTO {t} SELECT id, parse_json(concat('[', id, ']')) FROM range(3)")
    iceberg, table = spark._jvm.org.apache.iceberg, java_table()
    first, seven = table.currentSnapshot().snapshotId(), iceberg.expressions.Literal.of(7)
    table.updateSchema().addColumn("added", iceberg.types.Types.IntegerType.get(), seven).commit()
    sql("REFRESH TABLE {t}", "DELETE FROM {t} WHERE id = 1")
    loaded = IcebergTable(spark, f"lake.ns.{name}")
    planned = plan_scans(loaded, loaded.metadata(), first, loaded.metadata().current_snapshot_id, "net")
    frame = changes_frame(loaded, planned, Selection(("id", "v", "added")))
    (row,) = frame.selectExpr("id", "to_json(v) AS v", "added", "_change_type AS kind").collect()
    assert tuple(row) == (1, "[1]", 7, "DELETE")
