"""Events as the connectors of Debezium and AWS DMS document them, up to the rows of a table."""

import json
from datetime import date, datetime
from decimal import Decimal

import pytest

AT = datetime(2023, 11, 14, 22, 13, 20)
MICROS = 1_700_000_000_000_000


def int32(name, value):
    return {"field": name, "type": "int32", "optional": False}, value, value, value


def column(name, kind, value, with_schema, without, logical="", **more):
    """A column: its type in the schema part, its value in the record, and in the table with and without a schema."""
    named = {"name": logical, "version": 1} if logical else {}
    return {"field": name, "type": kind, "optional": True, **named, **more}, value, with_schema, without


def text(name, value):
    return column(name, "string", value, value, value)


DECIMAL = {"logical": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
ZONED = "2023-11-14T22:13:20Z"
SCALED = {"scale": 1, "value": "AIA="}

# The source block of each connector, the columns of a row, and what `before` is in an update and in a deletion.
CONNECTORS = {
    "mysql": (
        {"table": "customers", "server_id": 223344, "gtid": None, "file": "mysql-bin.000003", "pos": 484, "row": 0,
         "thread": 7, "query": "UPDATE customers SET ..."},
        [int32("id", 1), text("first_name", "Anne"), column("born", "int32", 19000, date(2022, 1, 8), 19000,
         "io.debezium.time.Date"), column("price", "bytes", "B88=", Decimal("19.99"), "B88=", **DECIMAL),
         column("at", "string", ZONED, AT, ZONED, "io.debezium.time.ZonedTimestamp")],
        "full", "full",
    ),
    "postgresql": (  # REPLICA IDENTITY DEFAULT
        {"sequence": '["24023119","24023128"]', "schema": "public", "table": "customers", "txId": 556,
         "lsn": 46523128, "xmin": None},
        [int32("id", 1), text("name", "Anne"), text("uid", "b68a35a7-17ad-45b3-af2a-ae46edb4545a"),
         column("at", "int64", MICROS, AT, MICROS, "io.debezium.time.MicroTimestamp")],
        "none", "key",
    ),
}  # fmt: skip


def block(connector, source):
    return {"version": "3.0.0.Final", "connector": connector, "name": "server1", "ts_ms": 1559033904863,
            "snapshot": "false", "db": "inventory", **source}  # fmt: skip


def connect(has_schema, value, *fields, name="Envelope"):
    if not has_schema:
        return json.dumps(value)
    schema = {"type": "struct", "fields": fields, "optional": False, "name": f"server1.customers.{name}"}
    return json.dumps({"schema": schema, "payload": value}, separators=(",", ":"))


@pytest.mark.parametrize("has_schema", [True, False])
@pytest.mark.parametrize("connector", CONNECTORS)
def it_keeps_a_table_in_sync_with_a_relational_database(spark, make_ingest, static, connector, has_schema):
    source, columns, of_update, of_delete = CONNECTORS[connector]
    fields, values, *stored = zip(*columns, strict=True)
    key = fields[0]["field"]
    row = {field["field"]: value for field, value in zip(fields, values, strict=True)}
    befores = {"none": lambda row: None, "full": lambda row: row,
               "key": lambda row: {name: value if name == key else None for name, value in row.items()}}  # fmt: skip
    struct = {"type": "struct", "fields": fields, "optional": True, "name": "server1.customers.Value"}
    envelope = [{**struct, "field": "before"}, {**struct, "field": "after"}, {"field": "op", "type": "string"},
                {"field": "source", "type": "struct", "fields": [text("connector", "")[0]]}]  # fmt: skip

    def event(op, before, after):
        value = {"before": before, "after": after, "source": block(connector, source), "op": op, "ts_ms": 5,
                 "transaction": None}  # fmt: skip
        keyed = connect(has_schema, {key: (after or before)[key]}, fields[0], name="Key")
        return keyed, connect(has_schema, value, *envelope)

    old, other = {**row, fields[1]["field"]: "before"}, {**row, key: 2}
    deletion = event("d", befores[of_delete](other), None)
    events = [event("r", None, old), event("c", None, other), event("u", befores[of_update](old), row), deletion,
              (deletion[0], None)]  # fmt: skip
    config = make_ingest(format="debezium_json", mode="upsert", identifier_columns=key, auto_create=True)
    static(config).send(*(value for _, value in events), key=[each for each, _ in events])
    assert [tuple(each[name] for name in row) for each in spark.table(config.table).collect()] == [
        stored[0 if has_schema else 1]
    ]


@pytest.mark.parametrize("has_schema", [True, False])
def it_keeps_a_table_in_sync_with_mongodb(spark, sql, make_ingest, static, has_schema):
    kinds = [{"field": name, "type": "string", "optional": True, "name": "io.debezium.data.Json"}
             for name in ("before", "after")] + [{"field": "op", "type": "string"}]  # fmt: skip

    def event(op, number, **document):
        identifier = {"$oid": f"596e275826f08b2730779e{number}"}
        after = json.dumps({"_id": identifier, **document}) if document else None
        update = {"removedFields": None, "updatedFields": "{}", "truncatedArrays": None} if op == "u" else None
        source = block("mongodb", {"rs": "rs0", "collection": "customers", "ord": 31, "lsid": None, "txnNumber": None})
        value = {"before": None, "after": after, "updateDescription": update, "source": source, "op": op, "ts_ms": 5}
        keyed = connect(has_schema, {"id": json.dumps(identifier)}, {"field": "id", "type": "string"}, name="Key")
        return keyed, connect(has_schema, value, *kinds)

    sql("CREATE TABLE {t} (_id STRING, name STRING, orders ARRAY<BIGINT>) USING iceberg")
    events = [event("r", 10, name="Anne"), event("c", 11, name="Bob"), event("c", 12, name="Eve"),
              event("u", 10, name="Anna", orders=[1, 2]), event("d", 11), (event("d", 12)[0], None)]  # fmt: skip
    config = make_ingest(format="debezium_json", mode="upsert", identifier_columns="_id")
    static(config).send(*(value for _, value in events), key=[each for each, _ in events])
    expected = ('{"$oid":"596e275826f08b2730779e10"}', "Anna", [1, 2])
    assert [tuple(row) for row in spark.table(config.table).collect()] == [expected]
