"""Which refusal a position meets: a truth table over plain data."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql.types import StructType

from icecdc_core.commits.position import Batch, Position
from icecdc_core.commits.preconditions import check_preconditions
from icecdc_core.errors import HistoryGapError, SchemaChangeError, TableReplacedError
from icecdc_core.runs.plan import needs_reexport
from icecdc_core.table.source import Source
from tests.given.table_metadata import UUID, metadata_of

ID = NestedField(1, "id", LongType(), required=True)
NAME = NestedField(2, "name", StringType())
SELECTION = {"branch": "main", "columns": [], "row_filter": "", "identifier_columns": ["id"]}


def source(snapshots=(1, 2), head=2, fields=(ID, NAME), identifier_columns=("id",), properties=()):
    made = [(number, None, "append", number, {}) for number in snapshots]
    metadata = metadata_of(made, {}, schema=json.loads(schema(*fields)), properties=dict.fromkeys(properties, "[]"))
    names = [field.name for field in fields]
    table = SimpleNamespace(name="lake.ns.t")
    return Source(table, metadata, head, names, list(identifier_columns), StructType(), "", "main", [])


def schema(*fields):
    return Schema(*fields, schema_id=0).model_dump_json()


POSITION = Position("t", "lake.ns.t", UUID, 1, 3, "t--000003", SELECTION, schema(ID, NAME))
BATCH = Batch("sync", 4, 1, 1, "t--000003")
EXPORT = replace(BATCH, kind="export")
ACCEPTED = {
    "empty table": (replace(POSITION, snapshot_id=None), source(snapshots=(), head=None)),
    "a begun export expired": (replace(POSITION, snapshot_id=2, batch=EXPORT), source(snapshots=(2,))),
    "a part of the selection that is empty": (replace(POSITION, selection={**SELECTION, "sample": None}), source()),
}
GAP, SCHEMA = "on_history_gap", "on_schema_change"
KEY = NestedField(1, "key", LongType(), required=True)
NUMBER = NestedField(2, "name", LongType())
SAMPLED = replace(POSITION, selection={**SELECTION, "sample": 0.1})
BEGUN = replace(POSITION, snapshot_id=2, batch=BATCH)
REFUSED = {
    "begun batch expired": (BEGUN, source(snapshots=(2,)), GAP, HistoryGapError, "snapshot=1"),
    "emptied": (POSITION, source(head=None), GAP, HistoryGapError, "branch='main'"),
    "a part that this release does not know": (SAMPLED, source(), SCHEMA, SchemaChangeError, "sample=0.1"),
    "dropped": (POSITION, source(fields=[ID]), SCHEMA, SchemaChangeError, "column 'name' was dropped"),
    "an identifier column renamed": (*(POSITION, source(fields=[KEY, NAME], identifier_columns=["key"])),
        *(SCHEMA, SchemaChangeError, "'id' was renamed to 'key'")),
    "an identifier column dropped": (*(POSITION, source(fields=[NAME], identifier_columns=["name"])),
        *(SCHEMA, SchemaChangeError, "identifier_columns=['name']]. Remedy: if this is the table of the index, run")),
    "added, perhaps with values": (*(replace(POSITION, schema=schema(ID)),
        source(properties=["schema.name-mapping.default"])),
        *(SCHEMA, SchemaChangeError, "column 'name' was added, and old files may have it")),
    "other type": (POSITION, source(fields=[ID, NUMBER]), SCHEMA, SchemaChangeError, "changed from string to long"),
    "the worst of several": (*(replace(POSITION, table_uuid="other"), source(snapshots=(2,), fields=[ID])),
        *(GAP, TableReplacedError, UUID)),
}  # fmt: skip


class DescribeCheckPreconditions:
    @pytest.mark.parametrize(("position", "source"), ACCEPTED.values(), ids=ACCEPTED)
    def it_finds_no_failed_precondition(self, position, source):
        assert check_preconditions(position, source) is None

    @pytest.mark.parametrize(("position", "source", "policy", "error", "message"), REFUSED.values(), ids=REFUSED)
    def it_names_the_problem_the_policy_and_the_remedy(self, position, source, policy, error, message):
        refusal = check_preconditions(position, source)
        text = str(refusal)
        keeps = "identifier_columns" not in message  # another identity: the remedy keeps the index as it is
        assert (type(refusal), message in text, f"{policy}=reexport" in text) == (error, True, keeps)
        follows = SimpleNamespace(**{GAP: "fail", SCHEMA: "fail", policy: "reexport"})
        assert type(needs_reexport(position, source, follows)) is error
        with pytest.raises(error):
            needs_reexport(position, source, SimpleNamespace(**{GAP: "reexport", SCHEMA: "reexport", policy: "fail"}))
        assert needs_reexport(replace(position, batch=EXPORT), source, follows) is None

    def it_names_the_parameters_that_keep_the_index(self):
        for stored, remedy in (
            ({"select": ["AS f", "f.id"]}, 'give alias="f", select=["f.id"]'),
            ({"select": ["AS f"], "columns": ["id"]}, 'give columns=["id"]; give alias="f"'),
            ({"columns": ["id"], "row_filter": "id > 1"}, "give columns=[\"id\"]; give row_filter='id > 1'"),
            ({"index_column": "id", "routing": "id"}, "give routing='id'; give index_column='id'"),
            (
                {"identifier_columns": []},
                "leave identifier_columns out; if the table has identifier fields now, run the "
                "export with replace_index=true, because they make other document ids",
            ),
            ({"embed": {"v": {"text": "name"}}}, 'give embed with {"v": {"text": "name"}} and its function'),
        ):
            refusal = check_preconditions(replace(POSITION, selection={**SELECTION, **stored}), source())
            assert refusal.remedy == remedy
