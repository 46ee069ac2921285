"""Heads, times and rows of snapshots, the lag, and hidden history: snapshot n is committed at n seconds; no Spark."""

from contextlib import nullcontext
from unittest.mock import Mock

import pytest
from py4j.protocol import Py4JError

from icecdc_core.errors import HiddenHistoryError, HistoryGapError
from icecdc_core.table.catalogs import require_visible_history
from icecdc_core.table.snapshots import (
    TableMetadata,
    head_snapshot_id,
    history_gap_error,
    lag,
    rows_added,
    rows_removed,
    sequence_number,
    snapshot_as_of,
)
from tests.given.table_metadata import SCHEMA, UUID, metadata, metadata_of

LINE = ((1, None, "append"), (2, 1, "overwrite"), (3, 2, "replace"), (4, 3, "append"))


def it_counts_the_deletes_of_a_replaced_delete_file_once():
    for summary, expected in (
        ({}, (0, 0)),
        ({"added-records": "60", "deleted-records": "61"}, (60, 61)),
        ({"added-position-deletes": "7", "removed-position-deletes": "3"}, (0, 4)),
        ({"removed-position-deletes": "3", "added-records": "9", "deleted-records": "12"}, (9, 12)),
        ({"added-equality-deletes": "2", "added-records": "2"}, (2, 2)),
    ):
        snapshot = metadata_of([(1, None, "overwrite", 1000, summary)], {"main": 1}).snapshots[0]
        assert (rows_added(snapshot), rows_removed(snapshot)) == expected


def it_finds_the_head_of_a_branch_or_names_those_there_are():
    table = metadata(*LINE, current=4, branches={"audit": 2})
    assert (head_snapshot_id(table, "audit"), sequence_number(table, 3)) == (2, 3)
    with pytest.raises(HistoryGapError, match="audit, main"):
        head_snapshot_id(table, "nope")


def it_finds_the_snapshot_of_a_moment_unless_its_history_has_expired():
    table = metadata(*LINE, current=4)
    assert (snapshot_as_of(table, 3500), snapshot_as_of(table, 500)) == (3, None)
    with pytest.raises(HistoryGapError, match="start_from"):
        snapshot_as_of(metadata(*LINE[1:], current=4), 1500)


def it_names_the_oldest_snapshot_though_its_writer_took_microseconds_for_milliseconds():
    error = history_gap_error(metadata_of([(1, None, "append", 1_700_000_000_000_000, {})], {"main": 1}), 7)
    assert "the oldest is 1 of 9999-12-31" in str(error)


APPENDS = metadata((1, None, "append"), (2, 1, "append"), (3, 2, "append"), current=3)
# 3 was rolled back to 1, then 4 came.
ROLLED_BACK = metadata((1, None, "append"), (3, 1, "append"), (4, 1, "append"), current=4)


def it_counts_the_snapshots_and_the_age_of_the_oldest():
    for case, table, position, head, behind in (
        ("equal", APPENDS, 3, 3, (0, 0.0)), ("behind", APPENDS, 1, 3, (2, 8.0)),
        ("nothing exported", APPENDS, None, 3, (3, 9.0)), ("empty table", APPENDS, None, None, (0, 0.0)),
        ("rolled back", ROLLED_BACK, 3, 4, (1, 6.0)), ("ahead", ROLLED_BACK, 4, 1, (0, 0.0)),
        ("position expired", APPENDS, 99, 3, (3, 9.0)),
    ):  # fmt: skip
        assert lag(table, position, head, now=10.0) == behind, case


EARLIER = [{"metadata-file": "m0.json", "timestamp-ms": 1}]
FIRST = (1, 1, None)
"""A snapshot: its id, its sequence number, its parent's id."""


def history(*snapshots, log=()):
    made = [(identity, parent, "append", number, {}) for identity, number, parent in snapshots]
    branches = {"main": snapshots[-1][0]} if snapshots else {}
    return metadata_of(made, branches, log=log, first_number=snapshots[0][1] if snapshots else 1)


def java_table(recorded=0, is_rest=True, nessie=False, readable=True):
    """A table as its catalog's client shows it; ``recorded`` snapshots are in its metadata file."""
    table = Mock()
    client = "org.apache.iceberg.rest.RESTTableOperations" if is_rest else "org.apache.iceberg.hive.HiveOperations"
    table.operations().getClass().getName.return_value = client
    table.operations().io().properties().containsKey = lambda name: nessie and name == "nessie.is-nessie-catalog"
    read = getattr(table.spark._jvm, "org.apache.iceberg.TableMetadataParser").read
    read.return_value.snapshots().size.return_value = recorded
    read.side_effect = None if readable else Py4JError("no such file")
    return table


NESSIE, MORE = "Nessie's REST endpoint shows only the latest snapshot", "the table's metadata file has more"
EXPIRED = history((7, 3, 6), log=EARLIER)


@pytest.mark.parametrize(
    ("known", "table", "reason"),
    [
        (history(FIRST), java_table(nessie=True), NESSIE),
        # Nessie shows more than one, or what is left of more.
        (history(FIRST, (2, 2, 1)), java_table(nessie=True), ""), (EXPIRED, java_table(1, nessie=True), ""),
        # The answer has fewer than the metadata file.
        (EXPIRED, java_table(3), f"only snapshot 7, but {MORE}"), (EXPIRED, java_table(3, readable=False), ""),
        (history((7, 3, None), log=EARLIER), java_table(2), MORE), (EXPIRED, java_table(3, is_rest=False), ""),
        (history(), java_table(), ""), (history(FIRST), java_table(3), ""),
    ],
)  # fmt: skip
def it_names_a_history_that_is_hidden(known, table, reason):
    words = rf"'lake\.ns\.t' hides its history: .*{reason}.*Remedy: "
    with pytest.raises(HiddenHistoryError, match=words) if reason else nullcontext():
        require_visible_history(table.spark, "lake.ns.t", table, known)


def it_reads_the_facts_of_metadata():
    content = {"table-uuid": UUID, "location": "file:/t", "schemas": [SCHEMA], "current-schema-id": 0}
    more = {"metadata-log": [{}], "properties": {"schema.name-mapping.default": "[]"}}
    found = [TableMetadata.from_json(each | {"current-snapshot-id": -1}) for each in (content, content | more)]
    facts = [(each.current_snapshot_id, each.has_metadata_log, each.has_name_mapping) for each in found]
    assert facts == [(None, False, False), (None, True, True)]
