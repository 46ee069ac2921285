"""What is selected of a table, against real services: columns, row filter, branch and start, alone and together."""

from datetime import UTC, datetime

import pytest

from icecdc_core import sync_changes, validate_table
from icecdc_core.errors import ConfigError, IdentifierColumnsError, SchemaChangeError
from tests.faults.tables import rows_as_documents

CREATE = """CREATE TABLE {{t}} (id INT, v STRING, amount INT, region STRING) USING iceberg
TBLPROPERTIES ('format-version' = '{version}', 'write.update.mode' = '{mode}', 'write.delete.mode' = '{mode}',
'write.merge.mode' = '{mode}')"""
FILL = "INSERT INTO {t} SELECT CAST(id AS INT), concat('v', id), CAST(id * 10 AS INT), 'north' FROM range(6)"
BRANCH = "ALTER TABLE {t} CREATE BRANCH audit"


def it_follows_rows_of_a_branch_that_come_and_go(spark, sql, new_index, indexed, monkeypatch):
    monkeypatch.setattr("icecdc_core.changes.net_changes.ROW_IDS_FROM_ROWS", 0)
    chosen = {"columns": ["v", "id"], "row_filter": "amount < 30 AND region = 'north'", "branch": "audit"}
    config = new_index(CREATE.format(version=3, mode="copy-on-write"), FILL, BRANCH, **chosen)
    exported = indexed()
    # Row 1 stops matching, 5 starts, 4 never matched, and of 0 the condition is neither true nor false.
    amounts = "CASE id WHEN 1 THEN 99 WHEN 5 THEN 1 WHEN 4 THEN 98 ELSE amount END"
    sql(f"UPDATE {{t}}.branch_audit SET amount = {amounts} WHERE id IN (1, 4, 5)")
    sql("UPDATE {t}.branch_audit SET region = NULL WHERE id = 0")
    sql("INSERT INTO {t}.branch_audit VALUES (6, 'in', 2, 'north'), (7, 'out', 2, 'south')")
    sql("DELETE FROM {t} WHERE id = 2")  # elsewhere
    report = sync_changes(spark, config)
    counts = report.upserts, report.deletes, validate_table(spark, config).ok
    assert (exported, indexed(), counts) == (
        {str(number): {"v": f"v{number}", "id": number} for number in (0, 1, 2)},
        {"2": {"v": "v2", "id": 2}, "5": {"v": "v5", "id": 5}, "6": {"v": "in", "id": 6}},
        (2, 2, True),
    )
    # No changed row meets the condition.
    sql("UPDATE {t}.branch_audit SET amount = 99 WHERE id = 4", "DELETE FROM {t}.branch_audit WHERE id = 7")
    before, other = indexed(), config.replace(change_mode="snapshot", on_duplicate_identifier="last")
    report = sync_changes(spark, other)
    [head] = sql("SELECT snapshot_id FROM {t}.refs WHERE name = 'audit'").collect()
    counts = report.upserts, report.deletes, report.carryovers_removed
    assert (counts, report.to_snapshot_id, indexed()) == ((0, 0, 0), head[0], before)
    assert sync_changes(spark, other).strategy == "none"
    with pytest.raises(ConfigError, match=rf"set table={config.table}, and branch"):
        sync_changes(spark, config.replace(table=f"{config.table}.branch_audit"))
    with pytest.raises(ConfigError, match=r"metadata.*Remedy: leave out \.files"):
        sync_changes(spark, config.replace(table=f"{config.table}.files"))
    # The branch is replaced by one that went another way.
    sql("UPDATE {t} SET v = 'main' WHERE id = 1", "ALTER TABLE {t} REPLACE BRANCH audit")
    report = sync_changes(spark, config)
    counts = report.upserts, report.deletes
    assert (indexed(), counts) == ({"0": {"v": "v0", "id": 0}, "1": {"v": "main", "id": 1}}, (2, 3))


def it_refuses_a_row_filter_whose_column_is_another_one_or_gone(spark, sql, new_index, indexed):
    create = CREATE.format(version=2, mode="merge-on-read")
    config = new_index(create, FILL, columns=["id"], row_filter="amount < 30")
    sql("ALTER TABLE {t} RENAME COLUMN amount TO price", "ALTER TABLE {t} ADD COLUMN amount INT")
    sql("UPDATE {t} SET amount = 1 WHERE id IN (4, 5)")
    with pytest.raises(SchemaChangeError, match="'amount' was dropped and another column took its name"):
        sync_changes(spark, config)
    before = sorted(indexed())
    sync_changes(spark, config.replace(on_schema_change="reexport"))
    assert (before, sorted(indexed())) == (["0", "1", "2"], ["4", "5"])
    sql("ALTER TABLE {t} DROP COLUMN amount", "DELETE FROM {t} WHERE id = 1")
    with pytest.raises(ConfigError, match=r"`amount`.*\[row_filter='amount < 30'\]"):
        sync_changes(spark, config)
    sync_changes(spark, config.replace(row_filter="price < 30", on_schema_change="reexport"))
    assert indexed() == {key: {"id": int(key)} for key in "02"}


def it_refuses_a_start_that_has_expired_but_reads_all_that_is_left(spark, sql, make_config, indexed, java_table):
    sql(CREATE.format(version=2, mode="merge-on-read"), FILL)
    first = sql("SELECT snapshot_id FROM {t}.snapshots").first()[0]
    sql("DELETE FROM {t} WHERE id = 1")
    java_table().expireSnapshots().expireSnapshotId(first).commit()
    for start in (datetime(2001, 1, 1, tzinfo=UTC).isoformat(), str(first)):
        with pytest.raises(ConfigError, match=r"start_from=.*Remedy: .*latest"):
            sync_changes(spark, make_config(start_from=start))
    # Also what only the plan of the first batch shows: there is no index yet, and another start is followed.
    second = sql("SELECT snapshot_id FROM {t}.snapshots").first()[0]
    sql("DELETE FROM {t} WHERE id = 5")
    gap = make_config(start_from="earliest", change_mode="snapshot")
    without = make_config(start_from=str(second), identifier_columns=[])
    for config, error in ((gap, ConfigError), (without, IdentifierColumnsError)):
        for dry_run in (True, False):
            with pytest.raises(error):
                sync_changes(spark, config.replace(dry_run=dry_run))
    config = make_config(start_from="earliest")
    sync_changes(spark, config)
    assert indexed() == rows_as_documents(spark, config.table)
