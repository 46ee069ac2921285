"""What a stored position may look like: read, or refused by name; never a KeyError or a TypeError."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, ListType, LongType, MapType, NestedField, StringType, StructType

from icecdc_core.commits.lease import LeaseHolder
from icecdc_core.commits.position import (
    FORMAT,
    Batch,
    Position,
    parse_position,
    position_document,
    source_of,
    sources_of,
    version_of,
)
from icecdc_core.commits.store import MAPPING, require_mapping
from icecdc_core.errors import OpenSearchRequestError, PositionError

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "l", ListType(3, StructType(NestedField(4, "m", MapType(5, StringType(), 6, DecimalType(9, 2)))))),
).model_dump_json()


def schema_with(kind):
    """A schema with one column of this type."""
    return json.dumps({"type": "struct", "fields": [{"id": 1, "name": "c", "type": kind}]})


BATCH = Batch("export", 4, None, 9, "t--000004", "uuid", {"branch": "main"}, SCHEMA, groups_done=2, index_uuid="u")
POSITION = Position("t", "lake.ns.t", "uuid", 1, 4, "t--000003", {"branch": "main"}, SCHEMA, BATCH)
OLD = {
    "type": "position",
    "index": "t",
    "table": "lake.ns.t",
    "table_uuid": "uuid",
    "snapshot_id": 1,
    "epoch": 3,
    "physical_index": "t--000003",
    "selection": {},
    "schema": "",
    "batch": {"kind": "sync", "epoch": 3, "from_snapshot_id": None, "to_snapshot_id": 1, "physical_index": "t--000003"},
    "owner": {"run_id": "r", "host": "h", "pid": 1, "started": "", "since": "2026-01-01T00:00:00+00:00"},
    "updated_at": "2026-01-01T00:00:00+00:00",
}


class DescribeAStoredPosition:
    @pytest.mark.parametrize("position", [POSITION, replace(POSITION, batch=None), Position("t", "a.b.c", "")])
    @pytest.mark.parametrize("owner", [None, LeaseHolder.this_process("run", 60.0)], ids=["free", "held"])
    def it_is_read_as_it_was_written(self, position, owner):
        assert parse_position(position_document(position, owner)) == position

    def it_says_its_format(self):
        assert position_document(POSITION, None)["format"] == FORMAT

    def it_is_read_as_an_older_release_wrote_it(self):
        found = parse_position(OLD)
        assert (found.snapshot_id, found.batch.kind, found.batch.index_uuid) == (1, "sync", "")

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"format": FORMAT + 1}, f"has format {FORMAT + 1}, this release knows up to {FORMAT}"),
            ({"format": "two"}, "has format 'two'"),
            ({"shards": 3}, "shards is unknown"),
            ({"batch": {**OLD["batch"], "shard": 3}}, "batch.shard is unknown"),
            ({"owner": {**OLD["owner"], "token": 3}}, "owner.token is unknown"),
            ({"owner": "me"}, "owner: it is not an object"),
            ({"owner": {**OLD["owner"], "run_id": ["r"]}}, "owner.run_id: it is not a string"),
            ({"epoch": "many"}, "epoch: Input should be a valid integer"),
            ({"batch": {"kind": "sync"}}, "batch.epoch: Field required"),
            ({"batch": []}, "batch"),
            ({"selection": None}, "selection"),
            ({"table": None}, "table: Input should be a valid string"),
            ({"schema": "not json"}, "schema: it is not an Iceberg schema"),
            ({"schema": "{}"}, "schema: it is not an Iceberg schema"),
            ({"schema": "[]"}, "schema: it is not an Iceberg schema"),
            ({"schema": '{"fields":{}}'}, "schema: it is not an Iceberg schema"),
            ({"schema": '{"fields":["id"]}'}, "schema: it is not an Iceberg schema"),
            ({"schema": '{"fields":[{"id":"1","name":"c","type":"long"}]}'}, "schema: it is not an Iceberg schema"),
            ({"schema": schema_with(5)}, "schema: it is not an Iceberg schema"),
            ({"schema": schema_with({"type": "struct"})}, "schema: it is not an Iceberg schema"),
            ({"schema": schema_with({"type": "list", "element": "long"})}, "schema: it is not an Iceberg schema"),
            ({"schema": schema_with({"type": ["x"]})}, "schema: it is not an Iceberg schema"),
            ({"schema": "[" * 200_000}, "schema: it is not an Iceberg schema"),
            ({"batch": {**OLD["batch"], "schema": "{}"}}, "batch.schema: it is not an Iceberg schema"),
        ],
    )
    def it_is_refused_by_name(self, change, message):
        with pytest.raises(PositionError) as caught:
            parse_position({**OLD, **change})
        assert (message in str(caught.value), caught.value.value, "Remedy" in str(caught.value)) == (True, "t", True)


class DescribeAnAnswer:
    @pytest.mark.parametrize("answer", [None, "", "text", [], {}, {"_source": None}, {"found": True}])
    def it_is_a_typed_error_without_a_document(self, answer):
        with pytest.raises(OpenSearchRequestError, match="no usable answer while reading"):
            source_of(answer, "reading")

    def it_names_an_index_that_stores_no_sources(self):
        with pytest.raises(PositionError, match=r"'p' does not store `_source`.*template"):
            source_of({"_index": "p", "_id": "x", "_seq_no": 1, "_primary_term": 1, "found": True}, "reading")

    @pytest.mark.parametrize("answer", [None, "text", {}, {"_seq_no": 1}, {"_seq_no": None, "_primary_term": 1}])
    def it_is_a_typed_error_without_a_version(self, answer):
        with pytest.raises(OpenSearchRequestError, match="no usable answer while writing"):
            version_of(answer, "writing")

    @pytest.mark.parametrize("answer", [None, {}, {"hits": {}}, {"hits": None}, {"hits": {"hits": [None]}}])
    def it_is_a_typed_error_without_hits(self, answer):
        with pytest.raises(OpenSearchRequestError):
            sources_of(answer, "searching")


class DescribeAMapping:
    def it_is_accepted_in_the_form_that_the_server_returns(self):
        require_mapping("p", {**MAPPING, "dynamic": "false"})

    @pytest.mark.parametrize(
        ("mapping", "message"),
        [
            ({}, "its mapping was guessed"),
            ({"properties": {"type": {"type": "text"}}}, "type is mapped as text"),
            ({**MAPPING, "dynamic": "true"}, "its mapping was guessed"),
            ({**MAPPING, "_source": {"enabled": False}}, "does not store whole sources"),
            ({**MAPPING, "_source": {"excludes": ["batch"]}}, "does not store whole sources"),
        ],
    )
    def it_is_refused_when_it_differs(self, mapping, message):
        with pytest.raises(PositionError, match=message):
            require_mapping("p", mapping)
