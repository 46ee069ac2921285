"""Debezium's unavailable values, and truncations of the source: what stays of a row, and which rows stay."""

import base64
import json
from itertools import product

import pytest
from pyspark.sql import functions as F

from icecdc_core.errors import SourceTruncatedError
from icecdc_core.ingest import ingest, table, writes
from icecdc_core.ingest.writes import rows_after_truncates
from tests.checks.ingested import reasons, rows as stored

LOST = "__debezium_unavailable_value"
FULL, NULL, PARTIAL, DELETE = "full", "null", "partial", "delete"


def event(op, row=None, **more):
    return json.dumps({"before": row if op == "d" else None, "after": None if op == "d" else row, "op": op, **more})


@pytest.fixture
def make_upsert(make_ingest):
    standard = {"mode": "upsert", "identifier_columns": "id", "format": "debezium_json"}
    return lambda **overrides: make_ingest(**{**standard, **overrides})


def after_batch(row, records):
    """The row and the dead letters after records (place, kind, order) of one batch; a row is (order, v, c)."""
    timeline = sorted(records, key=lambda each: (each[2], each[0]))
    if row:
        older = [each for each in timeline if each[2] < row[0]]
        timeline = [*older, (None, row, row[0]), *timeline[len(older) :]]
    row, dead = None, []
    for place, kind, order in timeline:
        if place is None or kind != PARTIAL:
            dead = []  # what it overwrites needs no value
        if place is None:
            row = kind
        elif kind == DELETE:
            row = None
        elif kind == PARTIAL and (row is None or row[2] is None):
            dead.append(place)
        else:
            row = order, place, row[2] if kind == PARTIAL else None if kind == NULL else f"c{place}"
    return row, dead


@pytest.mark.parametrize("has_order", [False, True])
def it_gives_an_update_the_value_that_its_row_had_in_every_history_and_cut(spark, sql, make_upsert, static, has_order):
    sql("CREATE TABLE {t} (id INT, ts INT, v INT, c STRING) USING iceberg")
    sql("INSERT INTO {t} SELECT id * 3 + 1, 0, -1, 'old' FROM range(2000)")
    sql("INSERT INTO {t} SELECT id * 3 + 2, 0, -1, NULL FROM range(2000)")
    kinds = [(kind, order) for kind in (FULL, NULL, PARTIAL) for order in (1, 2)] if has_order else [
        (kind, 1) for kind in (FULL, NULL, PARTIAL, DELETE)]  # fmt: skip
    cases = [
        (history, [sum(cuts[:place]) for place in range(3)])
        for history in product(kinds, repeat=3)
        for cuts in product([False, True], repeat=2)
    ]
    config = make_upsert(**({"ordering_column": "ts"} if has_order else {}))
    topic, expected, dead, sent = static(config), {}, set(), 0
    rows = {
        number * 3 + start: (0, -1, "old") if start == 1 else (0, -1, None)
        for number in range(2000)
        for start in (1, 2)
    }
    for batch in range(3):
        values, places = [], {}
        for number, (history, batches) in enumerate(cases):
            for start in range(3):
                own = [(place, *history[place]) for place in range(3) if batches[place] == batch]
                key = number * 3 + start
                for place, kind, order in own:
                    row = {"id": key, "ts": order, "v": place, "c": {FULL: f"c{place}", PARTIAL: LOST}.get(kind)}
                    places[key, place] = sent + len(values)
                    values.append(event("d", {"id": key}) if kind == DELETE else event("u", row))
                rows[key], lost = after_batch(rows.get(key), own) if own else (rows.get(key), [])
                dead |= {places[key, place] for place in lost}
        topic.send(*values)
        sent += len(values)
    expected = {key: row for key, row in rows.items() if row}
    found = {row.id: (row.ts, row.v, row.c) for row in spark.table(config.table).collect()}
    if not has_order:
        expected, found = ({key: row[1:] for key, row in each.items()} for each in (expected, found))
    assert {
        key: (found.get(key), expected.get(key)) for key in {*found, *expected} if found.get(key) != expected.get(key)
    } == {}
    assert {offset for offset, _ in reasons(spark, config)} == dead


FORMS = {"body": LOST, "data": base64.b64encode(LOST.encode()).decode(), "tags": [LOST], "pairs": {LOST: LOST}}
VALUES = {"body": "long", "data": "AQI=", "tags": ["a"], "pairs": {"a": "b"}}


def it_keeps_values_of_every_form_out_of_a_topic(spark, sql, make_upsert, topic):
    sql("CREATE TABLE {t} (id INT, v INT, body STRING, data BINARY, tags ARRAY<STRING>, pairs MAP<STRING, STRING>) "
        "USING iceberg")  # fmt: skip
    config = make_upsert()
    first, second = {"id": 1, "v": 1, **VALUES}, {"id": 2, "v": 1, **VALUES}
    topic.send(*map(str.encode, [event("c", first), event("c", second)]))
    assert ingest(spark, config).state == "ok"
    updates = {"id": 1, "v": 2, **FORMS}, {"id": 2, "v": 2, **FORMS, "body": "second"}, {"id": 2, "v": 3, **FORMS}
    topic.send(*(event("u", row).encode() for row in (*updates, {"id": 3, "v": 1, **FORMS})))
    assert ingest(spark, config).state == "ok"
    rows = spark.table(config.table).orderBy("id").collect()
    kept = "long", b"\1\2", ["a"], {"a": "b"}
    assert [tuple(row) for row in rows] == [(1, 2, *kept), (2, 3, "second", *kept[1:])]
    assert [reason for _, reason in reasons(spark, config)] == [
        "a value is unavailable: unchanged, and neither in the source's log nor in the row here"
    ]


def it_rejects_an_update_without_a_value_that_no_row_can_give(spark, sql, make_upsert, static):
    sql("CREATE TABLE {t} (id STRING, ts STRING, c STRING, s STRUCT<a: STRING>) USING iceberg")
    sql("INSERT INTO {t} VALUES ('1', 'a', 'c', NULL)")
    rows = [{"id": LOST, "ts": "b"}, {"id": "1", "ts": LOST}, {"id": "1", "ts": "b", "s": {"a": LOST}},
            {"id": "2", "ts": "b", "c": LOST}]  # fmt: skip
    config = make_upsert(ordering_column="ts")
    renamed = json.dumps({"op": "u", "before": {"id": "1"}, "after": rows[3]})
    static(config).send(*(event("u", row) for row in rows[:3]), renamed)
    lost = "a value is __debezium_unavailable_value: unchanged, and not in the source's log"
    assert reasons(spark, config) == [(offset, lost) for offset in range(4)]
    assert [tuple(row) for row in spark.table(config.table).collect()] == [("1", "a", "c", None)]
    other = config.replace(mode="append", ordering_column="", job=f"{config.job}_append")
    static(other).send(event("u", {"id": "1", "c": LOST}))
    assert reasons(spark, other) == [(0, lost)]


def it_looks_again_at_a_row_that_another_writer_changed(spark, sql, make_upsert, static, monkeypatch):
    sql("CREATE TABLE {t} (id INT, v INT, c STRING) USING iceberg")
    sql("INSERT INTO {t} VALUES (1, 1, 'old')")
    config, real, looks = make_upsert(), writes.fill_unavailable, []

    def filled(*given):
        looks.append(real(*given))
        if len(looks) == 1:
            sql("UPDATE {t} SET c = 'new'")
        return looks[-1]

    monkeypatch.setattr(writes, "fill_unavailable", filled)
    static(config).send(event("u", {"id": 1, "v": 2, "c": LOST}))
    assert [tuple(row) for row in spark.table(config.table).collect()] == [(1, 2, "new")]


class DescribeTruncations:
    @pytest.mark.parametrize("mode", ["append", "upsert"])
    def it_empties_the_table_at_its_place_in_the_log(self, spark, sql, make_upsert, static, monkeypatch, mode):
        sql("CREATE TABLE {t} (id INT, v INT) USING iceberg")
        sql("INSERT INTO {t} VALUES (1, 1), (2, 1)")
        rows = [event("u", {"id": number, "v": 2}) for number in (2, 3)]
        config = make_upsert(mode=mode, on_truncate="apply")
        topic, publish, others = static(config), table.publish, ["INSERT INTO {t} VALUES (8, 8)"]

        def late(*given):
            if others:
                sql(others.pop())
            publish(*given)

        monkeypatch.setattr(table, "publish", late)
        topic.send(*rows, event("t"), rows[0], event("t"), rows[1])
        assert (stored(spark, config.table), others) == ([(3, 2)], [])
        topic.send(event("t"))
        topic.send(rows[0])
        assert stored(spark, config.table) == [(2, 2)]

    def it_fails_by_default_or_rejects_the_record(self, spark, sql, make_upsert, static):
        sql("CREATE TABLE {t} (id INT, v INT) USING iceberg")
        row, config = event("c", {"id": 1, "v": 1}), make_upsert()
        static(config).send(row, event("t"), error=SourceTruncatedError)
        assert spark.table(config.table).count() == 0
        static(config.replace(on_truncate="reject")).send(row, event("t"))
        assert spark.table(config.table).count() == 1
        rejected = "the source table was truncated; delete its rows here by hand if they should go"
        assert reasons(spark, config) == [(1, rejected)]

    def it_cannot_be_routed_by_a_field_of_rows(self, spark, make_upsert, static):
        config = make_upsert(route_by="field", route_field="t", table="", namespace="lake.ingests", on_truncate="apply")
        static(config).send(event("t"))
        assert reasons(spark, config) == [(0, "no table: a truncation has no row with the field t; route it otherwise")]

    def it_is_after_records_of_other_partitions_that_are_older(self, spark):
        rows = [(0, 1, 9, "c"), (0, 2, 5, "truncate"), (0, 3, 1, "c"), (1, 1, 4, "c"), (1, 2, 5, "c"), (1, 3, 4, "c")]
        frame = spark.createDataFrame(rows, "partition int, offset long, second long, op string")
        frame = frame.select(F.lit("t").alias("topic"), "*", F.timestamp_seconds("second").alias("timestamp"))
        found = [(row.partition, row.offset) for row in rows_after_truncates(frame).collect()]
        assert sorted(found) == [(0, 3), (1, 2)]
