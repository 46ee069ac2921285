"""Every kind of table: how its files mark deleted rows makes no difference to what its changes are."""

import contextlib
import itertools
from dataclasses import replace

import pytest
from pyspark.errors import PySparkException

from icecdc_core import export_table, sync_changes, validate_table
from icecdc_core.carryover import remove_carryovers
from icecdc_core.changes import net_changes, read_changes
from icecdc_core.changes.net_changes import PlannedRange, compute_net_changes
from icecdc_core.changes.scan_planning import file_bytes, plan_scans
from icecdc_core.errors import DuplicateIdentifierError, IdentifierColumnsError
from icecdc_core.table.iceberg_table import IcebergTable
from icecdc_core.table.source import Selection
from tests.equality_deletes import EqualityWriter


@pytest.fixture
def table(spark, sql, name):
    """Make the test's table of a kind: (id INT, name STRING, region STRING)."""

    def make(version=2, mode="merge-on-read", file="parquet", partitioned=False, **properties):
        given = {
            "format-version": version,
            "write.format.default": file,
            **{f"write.{operation}.mode": mode for operation in ("delete", "update", "merge")},
            **properties,
        }
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
        by = "PARTITIONED BY (region)" if partitioned else ""
        sql(f"CREATE TABLE {{t}} (id INT, name STRING, region STRING) USING iceberg {by} TBLPROPERTIES ({listed})")

    return make


@pytest.fixture
def insert(sql):
    """Append rows in one file."""
    return lambda *rows: sql(f"INSERT INTO {{t}} SELECT /*+ COALESCE(1) */ * FROM VALUES {', '.join(map(str, rows))}")


@pytest.fixture
def raw(spark, name):
    """The raw changes between two snapshots: (id, name, change type), sorted."""

    def read(start, end=None):
        rows = read_changes(spark, f"lake.ns.{name}", start, end).collect()
        return sorted((row.id, row.name, row._change_type) for row in rows)

    return read


def whole_rows(table, scans):
    return PlannedRange(table, scans, ["id"], file_bytes(table, scans), Selection(tuple(table.column_names())))


class DescribeMergeOnRead:
    """What the Iceberg project settled for changes of merge-on-read tables holds before carryovers are removed."""

    @pytest.mark.parametrize("version", [2, pytest.param(3, marks=pytest.mark.long)])
    def it_shows_what_really_changed(self, table, insert, sql, snapshots, raw, spark, name, version):
        table(version, **{"write.delete.granularity": "partition"})
        # A delete file of many data files.
        for n in range(4):
            insert((n, "a", "x"), (n + 10, "b", "x"))
        start = snapshots()[-1]
        sql("DELETE FROM {t} WHERE id IN (0, 11)")
        assert raw(start) == [(0, "a", "DELETE"), (11, "b", "DELETE")]
        # What is added and deleted within the range.
        start = snapshots()[-1]
        insert((20, "b", "x"), (21, "c", "x"))
        sql("DELETE FROM {t} WHERE id = 20")
        assert raw(start) == [(21, "c", "INSERT")]
        # What was deleted earlier is not deleted again, and a rollback brings it back.
        first = snapshots()[-1]
        sql("DELETE FROM {t} WHERE id = 1")
        second = snapshots()[-1]
        sql("DELETE FROM {t} WHERE id = 2")
        last = snapshots()[-1]
        assert raw(second, last) == [(2, "a", "DELETE")]
        spark.sql(f"CALL lake.system.rollback_to_snapshot('ns.{name}', {first})")
        sql("DELETE FROM {t} WHERE id = 3")
        assert raw(last) == [(1, "a", "INSERT"), (2, "a", "INSERT"), (3, "a", "DELETE")]

    def it_reads_across_upgrades_of_the_format(self, table, insert, sql, snapshots, spark, name):
        mode = "merge-on-read"
        table(1, "copy-on-write")
        insert(*((n, "a", "x") for n in range(8)))
        sql("DELETE FROM {t} WHERE id = 0")
        start = snapshots()[-1]
        for version, dropped in ((2, 1), (3, 2), (3, 3)):
            sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('format-version' = '{version}', 'write.delete.mode' = '{mode}')")
            sql(f"DELETE FROM {{t}} WHERE id = {dropped}")
        frames = [read_changes(spark, f"lake.ns.{name}", start, mode=m) for m in ("net", "snapshot")]
        actual = [sorted((r.id, r._change_type) for r in remove_carryovers(frame).collect()) for frame in frames]
        assert actual == [[(1, "DELETE"), (2, "DELETE"), (3, "DELETE")]] * 2


class DescribeEqualityDeletes:
    @pytest.mark.parametrize(
        ("version", "file"),
        [*(pytest.param(2, file, marks=pytest.mark.long) for file in ("avro", "parquet")), (3, "orc")],
    )
    def it_gives_the_rows_that_were_hit(self, spark, sql, name, table, insert, snapshots, version, file):
        def last_changes():
            changes = read_changes(spark, f"lake.ns.{name}", snapshots()[-2])
            if file == "orc" and not IcebergTable(spark, f"lake.ns.{name}").marks_deletes:
                # Spark 4.0 shows neither marks nor row ids of ORC files: values are compared.
                changes = remove_carryovers(changes)
            return sorted((row.id, row.name, row._change_type) for row in changes.collect())

        table(version, file=file)
        writer = EqualityWriter(spark, f"lake.ns.{name}")
        insert((1, "a", "x"), (1, "b", "x"), (2, "c", "x"), (3, "d", "x"), (4, "e", "x"))
        insert((5, "f", "x"))
        writer.delete(["id"], [1], [9])
        assert last_changes() == [(1, "a", "DELETE"), (1, "b", "DELETE")]
        sql("DELETE FROM {t} WHERE id = 2")
        writer.delete(["id"], [2], [3])
        assert last_changes() == [(3, "d", "DELETE")]  # the other one was deleted before
        writer.upsert(["id"], {"id": 4, "name": "E", "region": "x"}, {"id": 6, "name": None, "region": "x"})
        assert last_changes() == [(4, "E", "INSERT"), (4, "e", "DELETE"), (6, None, "INSERT")]
        writer.delete(["name"], [None])
        assert last_changes() == [(6, None, "DELETE")]

    def it_hits_one_partition_only(self, table, insert, snapshots, raw, spark, name):
        table(2, partitioned=True)
        insert((1, "a", "x"))
        insert((1, "b", "y"))
        EqualityWriter(spark, f"lake.ns.{name}").delete(["id"], [1], partition=["y"])
        assert raw(snapshots()[1]) == [(1, "b", "DELETE")]


def it_identifies_rows_by_a_commit_after_an_upgrade(table, insert, sql, spark, make_config, indexed):
    table(2)
    config = make_config(identifier_columns=[])
    behind = config.replace(index=f"{config.index}-behind")
    insert((1, "a", "x"), (1, "a", "x"))
    export_table(spark, behind)
    insert((2, "b", "x"))
    sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')")
    for job, refused in ((export_table, config), (sync_changes, behind)):
        with pytest.raises(IdentifierColumnsError, match="no row id yet"):
            job(spark, refused)
    insert((3, "c", "x"))
    export_table(spark, config)
    insert((4, "d", "x"))
    for each in (config, behind):
        sync_changes(spark, each)
        actual = sorted(tuple(document.values()) for document in indexed(each.index).values())
        assert actual == [(1, "a", "x")] * 2 + [(2, "b", "x"), (3, "c", "x"), (4, "d", "x")]


COMPACT = "CALL lake.system.rewrite_data_files(table => '{n}', options => map('rewrite-all', 'true'))"


@pytest.fixture
def merged(spark, name, monkeypatch):
    """What is left to do after a range: rows by id (None: deleted), carryovers, and the strategy that found them."""

    monkeypatch.setattr(net_changes, "ROW_IDS_FROM_ROWS", 0)

    def read(start, end, mode="net"):
        table = IcebergTable(spark, f"lake.ns.{name}")
        scans = plan_scans(table, table.metadata(), start, end, mode)
        with contextlib.closing(compute_net_changes(whole_rows(table, scans))) as found:
            rows = {row.id: None if row._change_type == "DELETE" else tuple(row)[:3] for row in found.rows.collect()}
            assert (found.upserts + found.deletes, found.nulls) == (len(rows), 0)
        table.release()
        return rows, found.carryovers_removed, found.strategy

    return read


class DescribeRowIdsAlone:
    """What is left to do is found by the newer state's row ids."""

    def it_reads_both_sides_if_a_row_is_deleted_again(self, table, sql, insert, snapshots, spark, name, monkeypatch):
        monkeypatch.setattr(net_changes, "ROW_IDS_FROM_ROWS", 0)
        table(3, "copy-on-write")
        insert(*((n, "a", "x") for n in range(10)))
        first = snapshots()[-1]
        sql("DELETE FROM {t} WHERE id = 3")
        spark.sql(f"CALL lake.system.rollback_to_snapshot('ns.{name}', {first})")
        sql("DELETE FROM {t} WHERE id = 4", "DELETE FROM {t} WHERE id = 3")
        loaded = IcebergTable(spark, f"lake.ns.{name}")
        steps = itertools.pairwise(snapshots())
        scans = [scan for step in steps for scan in plan_scans(loaded, loaded.metadata(), *step, "net")]
        scans = [replace(scan, step=replace(scan.step, ordinal=ordinal)) for ordinal, scan in enumerate(scans)]
        # By row ids alone, row 3 is deleted twice: the step that brings it back seems to change nothing.
        found = compute_net_changes(whole_rows(loaded, scans))
        rows = sorted((row.id, row._change_type) for row in found.rows.collect())
        assert (rows, found.strategy) == ([(3, "DELETE"), (4, "DELETE")], "at-once")
        found.close()
        loaded.release()


@pytest.mark.parametrize(
    ("version", "mode", "skipped"),
    [
        (2, "copy-on-write", True),
        pytest.param(2, "merge-on-read", False, marks=pytest.mark.long),
        pytest.param(3, "copy-on-write", False, marks=pytest.mark.long),
    ],
)
def it_skips_equal_updates_where_values_are_compared(table, sql, insert, snapshots, merged, version, mode, skipped):
    table(version, mode)
    insert(*((n, "a", "x") for n in range(20)))
    for updated, name in (("id IN (2, 3)", "few"), ("true", "all")):
        sql(f"UPDATE {{t}} SET name = if(id = 2, '{name}', name) WHERE {updated}")
        upserts = {2} if skipped else {2, 3} if updated != "true" else set(range(20))
        rows, carryovers, _ = merged(*snapshots()[-2:])
        assert rows == {key: (key, name if key == 2 else "a", "x") for key in upserts}
        assert carryovers == (19 if skipped else 0)


class DescribeRowsOfOneIdentifier:
    """Two rows of one identifier are duplicates, equal or not, however changes are found."""

    @pytest.mark.parametrize(
        ("kind", "change_mode", "between"),
        [
            ((3, "copy-on-write"), "net", None),  # found by row ids
            ((2, "copy-on-write"), "net", COMPACT),
            pytest.param(  # by delete files
                (2, "merge-on-read"), "snapshot", "DELETE FROM {t} WHERE id = 1", marks=pytest.mark.long
            ),
        ],
    )
    def it_finds_equal_ones(self, table, sql, insert, merged, snapshots, name, kind, change_mode, between):
        table(*kind)
        insert(*((n, "a", "x") for n in range(5)))
        twins = [(7, "twin", "x")] * 2
        sql("UPDATE {t} SET name = 'b' WHERE id = 2")
        if between:
            insert(twins.pop())
            sql(between.replace("{n}", f"ns.{name}"))
        insert(*twins)
        start, *_, end = snapshots()
        with pytest.raises(PySparkException, match=r'duplicate identifier.*"id":"7"'):
            merged(start, end, change_mode)

    def it_refuses_equal_ones(self, table, sql, insert, new_index, spark, indexed):
        table(1, "copy-on-write")
        insert(*((n, "a", "x") for n in range(5)))
        config = new_index()
        sql("UPDATE {t} SET name = 'b' WHERE id = 2")
        insert(*[(7, "twin", "x")] * 2)
        with pytest.raises(DuplicateIdentifierError, match=r'"id":"7".*on_duplicate_identifier=last'):
            sync_changes(spark, config)
        assert "7" not in indexed()
        last = config.replace(on_duplicate_identifier="last")
        sync_changes(spark, last)
        assert indexed()["7"]["name"] == "twin"

        # So they are when they become one.
        assert validate_table(spark, last).ok
        found = validate_table(spark, config)
        assert (found.ok, found.source_rows, found.index_documents, found.stale_ids) == (False, 7, 6, ["7"])
        with pytest.raises(DuplicateIdentifierError, match=r"2 rows share \{'id': 7\}"):
            export_table(spark, config)
        sql("INSERT OVERWRITE {t} SELECT DISTINCT * FROM {t}")
        sync_changes(spark, config)
        actual = {key: document["name"] for key, document in indexed().items()}
        assert actual == {"0": "a", "1": "a", "2": "b", "3": "a", "4": "a", "7": "twin"}

    def it_accepts_one_row_that_is_deleted_and_comes_back(self, table, sql, insert, spark, new_index, indexed, name):
        table(2, "copy-on-write")
        insert(*((n, "a", "x") for n in range(5)))
        config = new_index(change_mode="snapshot")
        sql(
            "DELETE FROM {t} WHERE id = 3",
            "INSERT INTO {t} VALUES (3, 'a', 'x')",
            "UPDATE {t} SET name = name WHERE id < 4",
            "DELETE FROM {t} WHERE id = 3",
            COMPACT.replace("{n}", f"ns.{name}"),
            "INSERT INTO {t} VALUES (3, 'b', 'x')",
            "UPDATE {t} SET name = 'c' WHERE id IN (2, 3)",
        )
        sync_changes(spark, config)
        actual = {key: document["name"] for key, document in indexed().items()}
        assert actual == {"0": "a", "1": "a", "2": "c", "3": "c", "4": "a"}


class DescribeCraftedUpdates:
    def it_sees_them_only_when_keyed(self, table, sql, insert, spark, new_index, indexed):
        # After the identifier 7 both have the same xxhash64: what another beginning does to it, a later part undoes.
        starts = "a text like any other, and as good as it is", "00005046ike any other, and as gol~t=ru?g is"
        old, new = (f"{start}, with much in it...." for start in starts)
        table(2, "copy-on-write")
        insert((7, old, "x"), (8, "b", "x"))
        config = new_index()
        sql(f"UPDATE {{t}} SET name = '{new}' WHERE id = 7")
        keyed = sync_changes(spark, config.replace(row_hash="keyed"))
        assert (keyed.upserts, indexed()["7"]["name"]) == (1, new)
        sql(f"UPDATE {{t}} SET name = '{old}' WHERE id = 7")
        fast = sync_changes(spark, config)
        unseen = validate_table(spark, config)
        assert (fast.upserts, indexed()["7"]["name"], unseen.stale_ids) == (0, new, ["7"])
