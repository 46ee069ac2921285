"""What histories do not draw: raw changes, tables without identifiers, and collisions of hashes."""

import pytest

from icecdc_core import export_table, sync_changes, validate_table
from icecdc_core.changes import read_changes
from icecdc_core.errors import IdentifierColumnsError


@pytest.fixture
def table(spark, sql, name):
    """Make the test's table of a kind: (id INT, name STRING, region STRING)."""

    def make(version=2, mode="merge-on-read", **properties):
        given = {
            "format-version": version,
            **{f"write.{operation}.mode": mode for operation in ("delete", "update", "merge")},
            **properties,
        }
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
        sql(f"CREATE TABLE {{t}} (id INT, name STRING, region STRING) USING iceberg TBLPROPERTIES ({listed})")

    return make


@pytest.fixture
def insert(sql):
    """Append rows in one file."""
    return lambda *rows: sql(f"INSERT INTO {{t}} SELECT /*+ COALESCE(1) */ * FROM VALUES {', '.join(map(str, rows))}")


def it_shows_what_really_changed_of_merge_on_read_before_carryovers_are_removed(
    table, insert, sql, snapshots, spark, name
):
    """What the Iceberg project settled for such tables."""

    def raw(start, end=None):
        rows = read_changes(spark, f"lake.ns.{name}", start, end).collect()
        return sorted((row.id, row.name, row._change_type) for row in rows)

    table(**{"write.delete.granularity": "partition"})
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


def it_sees_crafted_updates_only_when_keyed(table, sql, insert, spark, new_index, indexed):
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
