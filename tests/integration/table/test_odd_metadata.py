"""Tables whose metadata only Iceberg's own library understands: what Spark reads is exported, synced and validated."""

import json
from pathlib import Path

import pytest

from icecdc_core import status, sync_changes, validate_table


def _version_2(metadata):
    """A sort order and operations that no release knows."""
    order = {"transform": "bucketv2[4]", "source-id": 1, "direction": "asc", "null-order": "nulls-first"}
    metadata["sort-orders"] = [{"order-id": 0, "fields": []}, {"order-id": 1, "fields": [order]}]
    for snapshot in metadata["snapshots"]:
        snapshot["summary"]["operation"] = "compaction"


def _version_4(metadata):
    metadata["format-version"] = 4
    metadata["location"] = "file:" + metadata["location"].removeprefix("file:")


def _drop_nanoseconds(table, jvm):
    types, literal = jvm.org.apache.iceberg.types.Types, jvm.org.apache.iceberg.expressions.Literal
    for name, kind in (("ns", types.TimestampNanoType.withoutZone()), ("tz", types.TimestampNanoType.withZone())):
        default = literal.of("2026-01-31T12:00:00" + ("+00:00" if name == "tz" else "")).to(kind)
        table.updateSchema().addColumn(name, kind, default).commit()
        table.updateSchema().deleteColumn(name).commit()


@pytest.fixture
def registered(sql, java_table, name):
    """Register the table again, with edited metadata."""

    def run(edit):
        file = Path(java_table().operations().current().metadataFileLocation().removeprefix("file:"))
        metadata = json.loads(file.read_text())
        edit(metadata)
        number = int(file.name.split("-")[0])
        odd = file.with_name(f"{number + 1:05}-odd.metadata.json")
        odd.write_text(json.dumps(metadata))
        sql("DROP TABLE {t}", f"CALL lake.system.register_table(table => 'ns.{name}', metadata_file => '{odd}')")

    return run


@pytest.mark.parametrize(
    ("version", "edit", "evolve"),
    [
        pytest.param(2, _version_2, None, marks=pytest.mark.long),
        # Dropped columns whose type Spark does not have.
        (3, _version_4, _drop_nanoseconds),
    ],
)
def it_is_synced(spark, sql, registered, java_table, new_index, indexed, version, edit, evolve):
    sql(f"CREATE TABLE {{t}} (id INT, name STRING) USING iceberg TBLPROPERTIES ('format-version' = '{version}')")
    sql(*(f"INSERT INTO {{t}} VALUES {rows}" for rows in ("(1, 'a'), (2, 'b')", "(3, 'c')", "(5, 'e')")))
    if evolve:
        evolve(java_table(), spark._jvm)
        sql("REFRESH TABLE {t}")
    registered(edit)
    assert sql("SELECT * FROM {t}").count() == 4
    config = new_index()
    sql("UPDATE {t} SET name = 'B' WHERE id = 2", "INSERT INTO {t} VALUES (4, 'd')", "DELETE FROM {t} WHERE id = 3")
    registered(edit)
    report = sync_changes(spark, config)
    assert (report.upserts, report.deletes) == (2, 1)
    assert {key: row["name"] for key, row in indexed().items()} == {"1": "a", "2": "B", "4": "d", "5": "e"}
    assert validate_table(spark, config).ok
    (index,) = [each for each in status(spark, config).indexes if each.index == config.index]
    assert (index.problem, index.lag_snapshots) == ("", 0)
