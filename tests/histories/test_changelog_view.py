"""Where Spark's own changelog works, the reader and the transforms give the same rows."""

from __future__ import annotations

from collections import Counter

import pytest

from icecdc_core.carryover import remove_carryovers
from icecdc_core.changes import read_changes
from icecdc_core.updates import merge_updates
from tests.histories.lake import Kind, Lake

HISTORY = ("append", "append", "update", "move", "delete", "append", "compact", "merge", "swap")


@pytest.fixture(scope="module", params=[(1, "parquet"), (2, "orc"), (3, "parquet")], ids=lambda kind: f"v{kind[0]}")
def lake(request, spark, warehouse):
    version, file = request.param
    lake = Lake(spark, warehouse, f"compared_v{version}", Kind("compared", version, file=file))
    for n, change in enumerate(HISTORY):
        getattr(lake, change)(n)
    yield lake
    lake.drop()


def view(lake, **arguments):
    """The rows of ``create_changelog_view``: values, change type and snapshot."""
    listed = "".join(f", {name} => {value}" for name, value in arguments.items())
    lake.sql(f"CALL lake.system.create_changelog_view(table => '{{n}}', changelog_view => 'compared'{listed})")
    return lake.sql("SELECT id, name, amount, region, _change_type, _commit_snapshot_id FROM compared").collect()


class DescribeSparksChangelog:
    def it_has_the_same_rows_for_every_snapshot(self, spark, lake):
        changes = remove_carryovers(read_changes(spark, lake.table, mode="snapshot")).drop("_change_ordinal")
        assert Counter(tuple(row) for row in changes.collect()) == Counter(tuple(row) for row in view(lake))

    def it_has_the_same_net_changes(self, spark, lake):
        start = lake.snapshots()[0]
        changes = remove_carryovers(read_changes(spark, lake.table, start, mode="snapshot"))
        actual = {row["id"]: tuple(row)[:5] for row in merge_updates(changes, ["id"]).collect()}
        rows = view(lake, net_changes="true", options=f"map('start-snapshot-id', '{start}')")
        inserted = {row["id"]: tuple(row)[:5] for row in rows if row["_change_type"] == "INSERT"}
        deleted = {row["id"]: row["id"] for row in rows if row["_change_type"] == "DELETE"}
        lasting = {key: row for key, row in actual.items() if row[4] == "INSERT"}
        gone = {key for key, row in actual.items() if row[4] == "DELETE"}
        # An identifier that came and went within the range is a delete for an index, and nothing for a net view.
        assert (lasting, set(deleted) - set(inserted) - gone) == (inserted, set())
