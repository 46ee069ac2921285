"""Soft deletes and histories: a delete is a row, in whatever table and from whatever format."""

import pytest

from icecdc_core.errors import ColumnNotFoundError, ConfigError
from icecdc_core.ingest import ingest
from tests.checks.doc_blocks import all_blocks

HISTORY = {"mode": "history", "identifier_columns": "id", "format": "debezium_json"}
SOFT = {"mode": "upsert", "identifier_columns": "id", "op_field": "op", "deletes": "soft", "deleted_column": "gone"}


def change(op, before, after):
    return {"op": op, "before": before, "after": after}


def it_fills_a_current_table_and_its_history_from_one_read_whose_view_shows_versions(spark, make_ingest, topic, name):
    now, history = f"lake.ns.{name}_now", f"lake.ns.{name}_history"
    config = make_ingest(
        format="debezium_json", route_by="regex", routes={now: ".*", history: ".*"}, mode="upsert", auto_create=True,
        identifier_columns="id", ordering_column="ts", tables={"*_history": {"mode": "history"}}, tombstones="ignore",
    )  # fmt: skip
    seconds = iter(range(1, 9))
    for event in [
        change("c", None, {"id": 1, "ts": 1, "v": "a"}),
        change("u", {"id": 1, "ts": 1, "v": "a"}, {"id": 1, "ts": 2, "v": "b"}),
        change("u", {"id": 1, "ts": 2, "v": "b"}, {"id": 2, "ts": 3, "v": "c"}),
        change("d", {"id": 2, "ts": 4, "v": "c"}, None),
    ]:
        topic.send(event, partition=0, timestamp=1000 * next(seconds))
    assert ingest(spark, config).behind == []
    where = "_kafka_topic", "_kafka_partition", "_kafka_offset", "unix_seconds(_kafka_timestamp)"
    found = sorted(
        tuple(row) for row in spark.table(history).selectExpr("_kafka_offset", "_op", "id", "ts", "v").collect()
    )
    assert found == [
        (0, "upsert", 1, 1, "a"),
        (1, "upsert", 1, 2, "b"),
        (2, "delete", 1, None, None),
        (2, "upsert", 2, 3, "c"),
        (3, "delete", 2, 4, "c"),
    ]
    places = {tuple(row) for row in spark.table(history).selectExpr(*where).collect()}
    assert (spark.table(now).count(), places) == (0, {(topic.name, 0, offset, offset + 1) for offset in range(4)})
    [view] = (each.text for each in all_blocks() if each.page == "docs/kafka.md" and "valid_from" in each.text)
    versions = spark.sql(view.replace("lake.shop.orders_history", history))
    times = versions.selectExpr("id", "v", "unix_seconds(valid_from)", "unix_seconds(valid_to)").collect()
    assert sorted(tuple(row) for row in times) == [(1, "a", 1, 2), (1, "b", 2, 3), (2, "c", 3, 4)]


@pytest.mark.parametrize("given", [SOFT, HISTORY], ids=["soft", "history"])
def it_refuses_tables_in_which_a_delete_cannot_be_a_row(spark, sql, make_ingest, static, given):
    config = make_ingest(**{**given, "format": "json"})
    sql("CREATE TABLE {t} (id BIGINT, v BIGINT NOT NULL) USING iceberg")
    record = {"id": 1, "v": 1, "op": "u"}
    static(config).send(record, error=ColumnNotFoundError)
    static(config.replace(evolve_schema=True)).send(record, error=ConfigError)
    sql("ALTER TABLE {t} ALTER COLUMN v DROP NOT NULL")
    static(config).send(record)
    assert spark.table(config.table).selectExpr("id", "v").collect() == [(1, 1)]
