"""The contract of ``read_changes``, and with ``remove_carryovers`` the true changes of every snapshot."""

import itertools
from collections import Counter

import pytest

from icecdc_core.carryover import remove_carryovers
from icecdc_core.changes import read_changes
from icecdc_core.changes.row_changes import changes_frame
from icecdc_core.changes.scan_planning import plan_scans
from icecdc_core.errors import ConfigError, HistoryGapError, TableNotFoundError
from icecdc_core.table.iceberg_table import IcebergTable
from icecdc_core.table.source import Selection
from tests.equality_deletes import EqualityWriter

pytestmark = pytest.mark.usefixtures("sql")

CREATE = """CREATE TABLE {{t}} (id BIGINT, name STRING, region STRING) USING iceberg PARTITIONED BY (region)
TBLPROPERTIES ('format-version' = '{version}', 'write.update.mode' = '{mode}', 'write.delete.mode' = '{mode}',
'write.merge.mode' = '{mode}')"""
FILL = "INSERT INTO {t} VALUES (1, 'a', 'north'), (2, 'b', 'north'), (3, 'c', 'south'), (3, 'c', 'south')"
MOR = "merge-on-read"
CHANGE_COLUMNS = [("_change_type", "string"), ("_change_ordinal", "int"), ("_commit_snapshot_id", "bigint")]


@pytest.fixture
def commit(sql, spark, name):
    def run(*statements, version=2, mode="copy-on-write", create=True):
        if create:
            sql(CREATE.format(version=version, mode=mode))
        for statement in statements:
            sql(statement.replace("{n}", f"ns.{name}"))
        return [row[0] for row in sql("SELECT snapshot_id FROM {t}.snapshots ORDER BY committed_at").collect()]

    return run


@pytest.fixture
def changes(spark, name):
    def read(start=None, end=None, mode="net"):
        return [
            tuple(row) for row in remove_carryovers(read_changes(spark, f"lake.ns.{name}", start, end, mode)).collect()
        ]

    return read


class DescribeReadChanges:
    def it_gives_the_columns_of_the_table_and_three_of_its_own_also_without_changes(self, spark, commit, name):
        commit()
        empty = read_changes(spark, f"lake.ns.{name}")
        (first,) = commit(FILL, create=False)
        frames = [empty, read_changes(spark, f"lake.ns.{name}", first, first), read_changes(spark, f"lake.ns.{name}")]
        expected = [("id", "bigint"), ("name", "string"), ("region", "string"), *CHANGE_COLUMNS]
        assert [frame.dtypes for frame in frames] == [expected] * 3
        assert [frame.count() for frame in frames[:2]] == [0, 0]

    def it_reads_from_a_start_that_is_excluded_to_an_end_that_is_included(self, commit, changes):
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

    @pytest.mark.parametrize(
        ("mode", "undone"),
        [("net", "INSERT INTO {t} VALUES (4, 'd', 'x')"), ("snapshot", "DELETE FROM {t} WHERE id = 1")],
    )
    def it_undoes_what_was_rolled_back(self, spark, commit, changes, name, mode, undone):
        first, second = commit(FILL, undone)
        spark.sql(f"CALL lake.system.rollback_to_snapshot('ns.{name}', {first})")
        expected = (4, "d", "x", "DELETE") if "INSERT" in undone else (1, "a", "north", "INSERT")
        assert [row[:4] for row in changes(second, mode=mode)] == [expected]

    def it_refuses_what_is_not_there(self, spark, commit, name):
        commit(FILL)
        with pytest.raises(ConfigError, match=r"mode='fast'.*use one of net, snapshot"):
            read_changes(spark, f"lake.ns.{name}", mode="fast")
        with pytest.raises(TableNotFoundError, match=r"table='lake\.ns\.nowhere'"):
            read_changes(spark, "lake.ns.nowhere")
        with pytest.raises(HistoryGapError, match="snapshot=42"):
            read_changes(spark, f"lake.ns.{name}", 42, 42)

    def it_reads_the_state_at_the_end_but_no_snapshots_when_the_beginning_has_expired(
        self, spark, commit, changes, name
    ):
        first, _ = commit(FILL, "DELETE FROM {t} WHERE id = 3")
        spark.sql(f"CALL lake.system.expire_snapshots(table => 'ns.{name}', snapshot_ids => array({first}))")
        assert sorted(row[:4] for row in changes()) == [(1, "a", "north", "INSERT"), (2, "b", "north", "INSERT")]
        with pytest.raises(HistoryGapError, match="before the first snapshot"):
            read_changes(spark, f"lake.ns.{name}", mode="snapshot")


# Data files are added, rewritten, compacted and hit by delete files, some twice, some of them rewritten later.
PLANNED_HISTORY = (
    "INSERT INTO {t} SELECT id, 'a', 'north' FROM range(100)",
    "INSERT INTO {t} SELECT id, 'b', 'south' FROM range(100, 200)",
    "DELETE FROM {t} WHERE id IN (1, 101)",
    "ALTER TABLE {t} ADD PARTITION FIELD bucket(2, id)",
    "INSERT INTO {t} SELECT id, 'c', 'south' FROM range(200, 300)",
    "UPDATE {t} SET name = 'changed' WHERE id IN (2, 202, 203)",
    "DELETE FROM {t} WHERE id IN (3, 4, 204)",
    "CALL lake.system.rewrite_data_files(table => '{n}', options => map('rewrite-all', 'true'), where => 'id < 150')",
    "UPDATE {t} SET name = 'again' WHERE id IN (5, 205)",
    "DELETE FROM {t} WHERE region = 'north'",
)


class DescribePlanningByCommits:
    @staticmethod
    def planned(spark, name, start, end, trust_commits=True):
        """What to read between two snapshots: files, rows and delete files of each side, and how rows are compared."""
        table = IcebergTable(spark, f"lake.ns.{name}")
        found = plan_scans(table, table.metadata(), start, end, "net", trust_commits)
        facts = [
            getattr(table, name) for name in ("locations", "row_counts", "sizes", "sequence_numbers", "delete_digests")
        ]

        def sides(scan):
            return [
                sorted(zip(*(fact(tasks) for fact in facts), strict=True))
                for tasks in (*scan.read_older, *scan.read_newer)
            ]

        return [(sides(scan), scan.unchanged_until, scan.by_value) for scan in found]

    @pytest.fixture
    def plans(self, monkeypatch):
        """The snapshots that were planned since."""
        planned, plan = [], IcebergTable.plan

        def planning(table, snapshot_id, *args, **kwargs):
            planned.append(snapshot_id)
            return plan(table, snapshot_id, *args, **kwargs)

        monkeypatch.setattr(IcebergTable, "plan", planning)
        return planned

    @pytest.mark.parametrize(("version", "mode"), [pytest.param(1, "copy-on-write", marks=pytest.mark.long), (2, MOR)])
    def it_finds_what_planning_both_ends_finds(self, spark, commit, name, plans, version, mode):
        snapshots = commit(*PLANNED_HISTORY, version=version, mode=mode)
        for start, end in [*itertools.combinations([None, *snapshots], 2)][::4]:
            plans.clear()
            found = self.planned(spark, name, start, end)
            assert start not in plans
            assert self.planned(spark, name, start, end, trust_commits=False) == found

    @pytest.mark.parametrize("granularity", ["file", "partition"])
    def it_finds_the_deletes_that_a_deletion_vector_replaced(self, spark, commit, name, changes, plans, granularity):
        commit("INSERT INTO {t} SELECT id, 'a', 'north' FROM range(100)", version=2, mode=MOR)
        options = f"'write.delete.granularity' = '{granularity}', 'write.distribution-mode' = 'none'"
        *_, first = commit(
            f"ALTER TABLE {{t}} SET TBLPROPERTIES ({options})",
            "INSERT INTO {t} SELECT id, 'b', 'north' FROM range(100, 200)",
            "DELETE FROM {t} WHERE id IN (1, 101)",
            "ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')",
            create=False,
        )
        *_, last = commit("DELETE FROM {t} WHERE id IN (2, 102)", create=False)
        ((found, *_),) = self.planned(spark, name, first, last)
        assert plans == ([last] if granularity == "file" else [first, last])
        # The older state itself does not know yet which ids its rows have, so what is done with them may differ.
        assert sorted((row[0], row[3]) for row in changes(first)) == [(2, "DELETE"), (102, "DELETE")]
        ((expected, *_),) = self.planned(spark, name, first, last, trust_commits=False)
        assert found == expected

    def it_plans_nothing_for_an_append_whatever_delete_files_there_are(self, spark, commit, name, plans):
        commit("INSERT INTO {t} SELECT id, 'a', 'north' FROM range(100)")
        EqualityWriter(spark, f"lake.ns.{name}").delete(["name"], ["a"], partition=["north"])
        *_, before, _ = commit("INSERT INTO {t} VALUES (7, 'a', 'north'), (8, 'x', 'x')", create=False)
        assert sorted(row.id for row in read_changes(spark, f"lake.ns.{name}", before).collect()) == [7, 8]
        assert plans == []


class DescribeTasks:
    """How many of Spark's tasks share the reading."""

    def it_gives_every_core_a_part_of_large_files_as_a_plain_scan_does(self, spark, commit, name):
        sizes = "'write.parquet.row-group-size-bytes' = '65536', 'read.split.target-size' = '262144'"
        commit(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({sizes})")
        rows = spark.range(0, 30_000, 1, 8).selectExpr("id", "sha2(string(id), 512) AS name", "'north' AS region")
        rows.writeTo(f"lake.ns.{name}").option("distribution-mode", "none").append()
        parts = read_changes(spark, f"lake.ns.{name}").rdd.getNumPartitions()
        assert parts == spark.table(f"lake.ns.{name}").rdd.getNumPartitions() > 1


class DescribeReadingDeletes:
    """What merge-on-read costs: files are read by the marks of their delete files, whatever these are."""

    @pytest.mark.parametrize("version", [2, 3])
    def it_reads_a_file_once_where_only_the_newer_state_has_deletes(self, spark, commit, name, version):
        first, _ = commit(FILL, "DELETE FROM {t} WHERE id = 1", version=version, mode=MOR)
        if not IcebergTable(spark, f"lake.ns.{name}").marks_deletes:
            pytest.skip(
                "Spark 4.0 shows no marks on format version 3: row lineage finds the changes, by reading more often"
            )
        frame = read_changes(spark, f"lake.ns.{name}", first)
        assert ([row.id for row in frame.collect()], self.scans_of(frame)) == ([1], 1)

    def it_reads_what_only_format_version_3_has(self, spark, sql, name):
        sql(
            "CREATE TABLE {t} (id BIGINT, v VARIANT) USING iceberg TBLPROPERTIES ('format-version' = '3', "
            "'write.delete.mode' = 'merge-on-read')"
        )
        sql("INSERT INTO {t} SELECT id, parse_json(concat('[', id, ']')) FROM range(3)")
        iceberg = spark._jvm.org.apache.iceberg
        table = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, f"lake.ns.{name}")
        first, kinds = table.currentSnapshot().snapshotId(), iceberg.types.Types
        seven = iceberg.expressions.Literal.of(7)
        table.updateSchema().addColumn("added", kinds.IntegerType.get(), seven).commit()
        sql("REFRESH TABLE {t}")
        sql("DELETE FROM {t} WHERE id = 1")
        table.refresh()
        if IcebergTable(spark, f"lake.ns.{name}").marks_deletes:
            # Spark has no type for it, so the copy of the metadata lacks it too; Spark 4.0 reads no table that has it.
            table.updateSchema().addColumn("nanos", kinds.TimestampNanoType.withoutZone()).commit()
        loaded = IcebergTable(spark, f"lake.ns.{name}")
        planned = plan_scans(loaded, loaded.metadata(), first, loaded.metadata().current_snapshot_id, "net")
        frame = changes_frame(loaded, planned, Selection(("id", "v", "added")))
        (row,) = frame.selectExpr("id", "to_json(v) AS v", "added", "_change_type AS kind").collect()
        assert tuple(row) == (1, "[1]", 7, "DELETE")

    @staticmethod
    def scans_of(frame):
        return frame._jdf.queryExecution().executedPlan().toString().count("BatchScan")


class DescribeDeletesThatCannotBeMarked:
    def it_finds_them_by_row_lineage(self, sql, commit, changes):
        # Keys do not come with the copy of the metadata that marks are read by.
        first, *_, last = commit(
            "ALTER TABLE {t} SET TBLPROPERTIES ('encryption.key-id' = 'unused')",
            FILL,
            "INSERT INTO {t} VALUES (4, NULL, 'south'), (5, 'e', NULL)",
            "UPDATE {t} SET name = 'changed' WHERE id IN (2, 4)",
            "UPDATE {t} SET region = 'moved' WHERE id = 1",
            "DELETE FROM {t} WHERE id = 2",
            version=3,
            mode=MOR,
        )
        before, after = (
            Counter(tuple(row) for row in sql(f"SELECT * FROM {{t}} VERSION AS OF {snapshot}").collect())
            for snapshot in (first, last)
        )
        expected = [(*row, "DELETE") for row in (before - after).elements()]
        expected += [(*row, "INSERT") for row in (after - before).elements()]
        assert Counter(tuple(row[:4]) for row in changes(first)) == Counter(expected)
