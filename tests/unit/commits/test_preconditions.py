"""Which refusal a position meets: a truth table over plain data."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyiceberg.types import StructType as NestedType
from pyspark.sql.types import StructType

from icecdc_core.commits.position import Batch, Position
from icecdc_core.commits.preconditions import check_preconditions, policy_of
from icecdc_core.documents.spec import stored_spec
from icecdc_core.errors import HistoryGapError, SchemaChangeError, TableReplacedError
from icecdc_core.table.metadata import TableMetadata
from icecdc_core.table.source import Source

UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
ID = NestedField(1, "id", LongType(), required=True)
NAME = NestedField(2, "name", StringType())
SELECTION = {"branch": "main", "columns": [], "row_filter": "", "identifier_columns": ["id"]}


def source(snapshots=(1, 2), head=2, fields=(ID, NAME), row_filter="", identifier_columns=("id",)):
    """A source over a table with these snapshots and columns."""
    metadata = TableMetadata.from_json(
        {
            "format-version": 2,
            "table-uuid": UUID,
            "location": "file:/t",
            "last-sequence-number": 9,
            "last-updated-ms": 1,
            "last-column-id": 9,
            "current-schema-id": 0,
            "schemas": [json.loads(schema(*fields))],
            "default-spec-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "last-partition-id": 999,
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "snapshots": [
                {
                    "snapshot-id": number,
                    "sequence-number": number,
                    "timestamp-ms": number,
                    "manifest-list": "file:/t/list.avro",
                    "summary": {"operation": "append"},
                    "schema-id": 0,
                }
                for number in snapshots
            ],
        }
    )
    names = [field.name for field in fields]
    table = SimpleNamespace(name="lake.ns.t")
    return Source(table, metadata, head, names, list(identifier_columns), StructType(), row_filter, "main", [])


def schema(*fields):
    return Schema(*fields, schema_id=0).model_dump_json()


POSITION = Position("t", "lake.ns.t", UUID, 1, 3, "t--000003", SELECTION, schema(ID, NAME))


def batch(to_snapshot_id):
    return Batch("sync", 4, 1, to_snapshot_id, "t--000003")


class DescribeCheckPreconditions:
    @pytest.mark.parametrize(
        ("position", "source"),
        [
            (POSITION, source()),
            (replace(POSITION, snapshot_id=2), source()),
            (replace(POSITION, snapshot_id=None), source()),
            (replace(POSITION, snapshot_id=None), source(snapshots=(), head=None)),
            (replace(POSITION, snapshot_id=2), source(head=1)),
            (replace(POSITION, batch=batch(2)), source()),
            (replace(POSITION, schema=schema(ID)), source()),
            (replace(POSITION, schema=schema(NAME, ID)), source()),
            (replace(POSITION, schema=""), source()),
        ],
        ids=[
            "behind",
            "up to date",
            "empty table",
            "still an empty table",
            "rolled back",
            "a begun batch",
            "a column was added",
            "columns were moved",
            "a position without a schema",
        ],
    )
    def it_finds_no_failed_precondition(self, position, source):
        assert check_preconditions(position, source) is None

    @pytest.mark.parametrize(
        ("position", "source", "policy", "error", "message"),
        [
            (replace(POSITION, table_uuid="other"), source(), "on_history_gap", TableReplacedError, UUID),
            (POSITION, source(snapshots=(2,)), "on_history_gap", HistoryGapError, "snapshot=1"),
            (
                replace(POSITION, snapshot_id=2, batch=batch(1)),
                source(snapshots=(2,)),
                "on_history_gap",
                HistoryGapError,
                "snapshot=1",
            ),
            (POSITION, source(head=None), "on_history_gap", HistoryGapError, "branch='main'"),
            (POSITION, source(row_filter="id > 1"), "on_schema_change", SchemaChangeError, "row_filter='id > 1'"),
            (
                POSITION,
                source(identifier_columns=["name"]),
                "on_schema_change",
                SchemaChangeError,
                "identifier_columns=['name']",
            ),
            (POSITION, source(fields=[ID]), "on_schema_change", SchemaChangeError, "column 'name' was dropped"),
            (
                POSITION,
                source(fields=[ID, NestedField(2, "title", StringType())]),
                "on_schema_change",
                SchemaChangeError,
                "renamed to 'title'",
            ),
            (
                POSITION,
                source(fields=[ID, NestedField(2, "name", LongType())]),
                "on_schema_change",
                SchemaChangeError,
                "changed from string to long",
            ),
        ],
        ids=[
            "replaced",
            "expired",
            "begun batch expired",
            "emptied",
            "other filter",
            "other identifiers",
            "dropped",
            "renamed",
            "other type",
        ],
    )
    def it_names_the_problem_the_policy_and_the_remedy(self, position, source, policy, error, message):
        refusal = check_preconditions(position, source)
        text = str(refusal)
        keeps = "identifier_columns" not in message  # another identity: the remedy keeps the index as it is
        found = (policy_of(refusal), type(refusal), message in text, f"{policy}=reexport" in text)
        assert found == (policy, error, True, keeps)

    @pytest.mark.parametrize(
        ("known", "message"),
        [
            ({**SELECTION, "sample": 0.1}, "sample=0.1"),
            ({key: value for key, value in SELECTION.items() if key != "branch"}, "branch=None"),
        ],
        ids=["a part that only the position has", "a part that only the parameters have"],
    )
    def it_names_a_part_of_the_selection_that_only_one_side_has(self, known, message):
        refusal = check_preconditions(replace(POSITION, selection=known), source())
        assert (policy_of(refusal), message in str(refusal)) == ("on_schema_change", True)

    def it_lets_the_mapping_of_a_new_field_inside_a_struct_be_added(self):
        fields = {each: NestedField(key, each, StringType()) for key, each in enumerate(("city", "zip"), 4)}
        place = [NestedField(3, "place", NestedType(*each)) for each in ([fields["city"]], fields.values())]
        known = replace(POSITION, schema=schema(ID, place[0]))
        now = {name: stored_spec({f"place.{name}": {"type": "keyword"}}, {}) for name in fields}
        found = {
            name: check_preconditions(known, replace(source(fields=[ID, place[1]]), spec=spec))
            for name, spec in now.items()
        }
        assert (found["zip"], policy_of(found["city"])) == (None, "on_schema_change")

    @pytest.mark.parametrize(("shards", "policies"), [(3, []), (1, ["on_schema_change"])])
    def it_knows_the_shards_that_a_parameter_sets_now(self, shards, policies):
        known = replace(POSITION, selection={**SELECTION, **stored_spec({}, {"number_of_shards": 3})})
        found = check_preconditions(known, replace(source(), number_of_shards=shards))
        assert [policy_of(each) for each in [found] if each] == policies

    def it_treats_a_missing_part_like_an_empty_one(self):
        assert check_preconditions(replace(POSITION, selection={**SELECTION, "sample": None}), source()) is None

    def it_reports_the_worst_problem_first(self):
        refusal = check_preconditions(replace(POSITION, table_uuid="other"), source(snapshots=(2,), fields=[ID]))
        assert type(refusal) is TableReplacedError
