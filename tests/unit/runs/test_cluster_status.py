"""How a position stands to its tables, from their metadata alone."""

import json
from dataclasses import replace

import pytest

from icecdc_core.commits.position import Batch, NestedPosition, Position, position_document
from icecdc_core.config import SyncConfig
from icecdc_core.errors import HistoryGapError, SchemaChangeError, StatusUnknownError, TableReplacedError
from icecdc_core.runs import cluster_status
from icecdc_core.runs.cluster_status import table_facts
from icecdc_core.table.metadata_reader import read_metadata
from tests.given.table_metadata import SCHEMA, UUID, metadata, metadata_of

SELECTION = {"branch": "main", "columns": [], "row_filter": "", "identifier_columns": ["id"]}
AT_1 = Position("t", "l.n.t", UUID, 1, 3, "t--1", SELECTION, json.dumps(SCHEMA))
TWO = metadata((1, None, "append"), (2, 1, "append"), current=2)


def facts(position=AT_1, table=TWO, **parameters):
    return table_facts(lambda name: table, SyncConfig(table="l.n.t", **parameters), position_document(position, None))


def altered(*fields, **selection):
    """A position, and its table with other fields since."""
    schema = {**SCHEMA, "schema-id": 1, "fields": [*fields]}
    table = metadata_of([(1, None, "append", 1, {})], {"main": 1}, schema=schema)
    return replace(AT_1, selection={**SELECTION, **selection}), table


A = SCHEMA["fields"][0]
B = {"id": 2, "name": "b", "required": False, "type": "string"}
ROW_FILTER = {"row_filter": "a > 1"}
REFUSED = {
    "expired": ((replace(AT_1, snapshot_id=9),), HistoryGapError),
    "expired of a nested table": ((replace(AT_1, nested={"l.n.u": NestedPosition(UUID, 9, "")}),), HistoryGapError),
    "created again": ((replace(AT_1, table_uuid="other"),), TableReplacedError),
    "renamed": (altered({**A, "name": "z"}), SchemaChangeError),
    "an expression of all columns": (altered(A, B, select=["to_json(struct(*)) AS j"]), StatusUnknownError),
}


class DescribeTableFacts:
    @pytest.mark.parametrize(("given", "error"), REFUSED.values(), ids=REFUSED)
    def it_raises_why_the_next_sync_cannot_go_on_unless_it_exports(self, given, error):
        with pytest.raises(error):
            facts(*given)
        if error is not StatusUnknownError:
            found = facts(*given, on_history_gap="reexport", on_schema_change="reexport")
            assert (found["problem"][:21], "lag_snapshots" in found) == ("The next sync exports", False)

    @pytest.mark.parametrize(
        ("given", "lacks", "problem"),
        [
            ((AT_1,), 1, False),
            ((replace(AT_1, snapshot_id=2),), 0, False),
            ((replace(AT_1, snapshot_id=2), metadata((1, None, "append"), (2, 1, "append"), current=1)), 0, True),
            (altered(A, B, **ROW_FILTER), 0, False),
            (altered(A, B, select=["* EXCEPT (a)", "a * 2 AS c"]), 0, False),
        ],
    )
    def it_counts_the_snapshots_that_the_index_lacks(self, given, lacks, problem):
        found = facts(*given)
        assert (found["lag_snapshots"], bool(found.get("problem"))) == (lacks, problem)
        never = replace(AT_1, physical_index="", snapshot_id=None, table_uuid="")
        assert facts(never) == {"problem": "not exported yet"}


class DescribeAStatus:
    @pytest.mark.parametrize(
        ("changes", "found", "state"),
        [
            ({}, {"lag_snapshots": 0}, "ok"),
            ({}, {"lag_snapshots": 1}, "behind"),
            ({}, {"lag_snapshots": 0, "problem": "rolled back"}, "behind"),
            ({}, {}, "unknown"),
            ({"batch": Batch("sync", 4, 1, 2, "t--1")}, {"lag_snapshots": 0}, "behind"),
            ({"drifted": 2}, {"lag_snapshots": 0}, "differs"),
        ],
    )
    def it_is_ok_only_if_the_index_is_known_to_be_in_sync(self, changes, found, state):
        source = position_document(replace(AT_1, **changes), None)
        actual = cluster_status._status(SyncConfig(table="l.n.t"), source, {}, (lambda *_: dict(found),))
        assert actual.state == state


class DescribeReadMetadata:
    @pytest.mark.parametrize(
        ("given", "says"),
        [
            ({"catalog_properties": {"type": "hadoop", "warehouse": "/w"}}, "this is hadoop"),
            ({"catalog_properties": {"catalog-impl": "com.acme.Catalog"}}, "this is a class of its own"),
            ({"spark_conf": {"spark.sql.catalog.m.type": "hive"}}, "no parameter describes the catalog l"),
            ({"catalog_properties": {"type": "rest", "uri": "http://127.0.0.1:1"}}, "ConnectionError"),
            (
                {"catalog_properties": {"type": "jdbc", "uri": "jdbc:sqlite:/no/such.db"}},
                "unable to open database file",
            ),
            ({"catalog_properties": {"type": "rest", "uri": "env:NOWHERE_TO_BE_FOUND"}}, "SecretError"),
        ],
    )
    def it_says_why_it_cannot_know(self, given, says):
        config = SyncConfig(table="k.n.t" if "spark_conf" in given else "l.n.t", **given)
        with pytest.raises(StatusUnknownError, match=says):
            read_metadata(config, "l.n.t")

    def it_shows_no_secret(self, monkeypatch):
        monkeypatch.setenv("PASSWORD", "hunter2")
        properties = {"type": "jdbc", "uri": "jdbc:sqlit://h/d", "jdbc.user": "u", "jdbc.password": "env:PASSWORD"}
        with pytest.raises(StatusUnknownError) as caught:
            read_metadata(SyncConfig(table="l.n.t", catalog_properties=properties), "l.n.t")
        assert ("hunter2" in str(caught.value), "sqlit" in str(caught.value)) == (False, True)
