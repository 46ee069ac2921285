"""Deleted keys stay deleted: with an ordering column the table depends on the records alone, not on batches.

``ICECDC_FUZZ`` says how many examples (one by default), ``ICECDC_SEED`` which.
"""

import itertools
import json
import os
import random
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from pyspark.sql import functions as F

from icecdc_core.ingest import deleted_keys, table
from icecdc_core.ingest.config import quoted_table
from icecdc_core.ingest.deleted_keys import apply_deleted_keys, write_deleted_keys
from icecdc_core.ingest.upserts import CLEARED, IDENTIFIER, ORDER
from icecdc_core.session.job_session import job_session
from tests.checks.examples import for_examples

MANY = int(os.environ.get("ICECDC_FUZZ", "1"))
SCHEMA = pa.schema(
    {
        **{"key": pa.binary(), "value": pa.binary(), "topic": pa.string(), "partition": pa.int32()},
        **{"offset": pa.int64(), "timestamp": pa.timestamp("us", "UTC")},
    }
)
# Of a key in one partition the later of two equal values counts, and a delete may have none.
IN_ONE = st.lists(
    st.sampled_from([("u", 0), ("u", 1), ("u", 2), ("u", 3), ("d", 1), ("d", 2), ("d", None)]), max_size=7
)
IN_ANY = st.lists(st.tuples(st.sampled_from("uud"), st.integers(0, 9)), max_size=7, unique_by=lambda event: event[1])


def row_after(events, is_soft):
    """The row in the end: its ordering value, the record with its other values, and when it was deleted."""
    highest, values, gone, is_row = None, None, None, False
    for number, (op, order, at) in enumerate(events):
        if order is None or highest is None or order >= highest:
            highest, gone = highest if order is None else order, at if op == "d" else None
            values, is_row = number if op == "u" else values, op == "u" or is_soft
    return (highest, values, gone) if is_row else None


def written(key, number, op, order):
    value = None if op == "d" and order is None else {"id": key, "ts": order, "n": number, "op": op}
    return {"key": str(key).encode(), "value": value and json.dumps(value).encode(), "topic": "topic"}


@pytest.mark.timeout(6 * 3600)
def it_makes_the_same_table_whatever_batches_crashes_and_copies_there_are(
    spark, sql, make_ingest, static, name, monkeypatch
):
    numbers, publish = itertools.count(), table.publish

    def check(in_one, in_any, seed, is_soft):
        rng, number = random.Random(seed), next(numbers)
        config = make_ingest(
            job=f"{name}_{number}", table=f"lake.ns.{name}_{number}", mode="upsert", identifier_columns="id",
            ordering_column="ts", op_field="op", **({"deletes": "soft", "deleted_column": "gone"} if is_soft else {}),
        )  # fmt: skip
        spark.sql(f"CREATE TABLE {config.table} (id BIGINT, ts BIGINT, n INT, gone TIMESTAMP) USING iceberg")
        places = [key % 3 for key in range(len(in_one))]
        left = {key: list(enumerate(events)) for key, events in enumerate([*in_one, *in_any])}
        parts, clock, produced = [[], [], []], itertools.count(), {key: [] for key in left}
        while left := {key: events for key, events in left.items() if events}:
            key = rng.choice([*left])
            place = places[key] if key < len(places) else rng.randrange(3)
            number, (op, order) = left[key].pop(0)
            at = datetime.fromtimestamp(next(clock) if is_soft else rng.randrange(100), UTC)
            produced[key].append((op, order, at))
            where = {"partition": place, "offset": len(parts[place]), "timestamp": at}
            parts[place].append({**written(key, number, op, order), **where})
        ends = [len(part) for part in parts]

        def killed(*given):
            """The run dies before it publishes, or after another copy of the job has published the batch."""
            if rng.random() < 0.5:
                publish(*given)
            raise RuntimeError("killed")

        run, start = static(config), [0, 0, 0]
        while start != ends:
            end = [rng.randint(low, high) for low, high in zip(start, ends, strict=True)]
            records = [each for part, low, high in zip(parts, start, end, strict=True) for each in part[low:high]]
            frame = run.spark.createDataFrame(pa.Table.from_pylist(records, SCHEMA))
            frame = frame.withColumn("headers", F.expr("CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>)"))
            is_killed = rng.random() < 0.3
            monkeypatch.setattr(table, "publish", killed if is_killed else publish)
            run.batches.process(frame, *({"topic": dict(enumerate(each))} for each in (start, end)))
            if is_killed:  # the next run reads from there again, in other batches
                assert all("RuntimeError: killed" in str(error) for error in run.batches.behind.values())
                run = static(config)
            else:
                start = end
        found = {
            row.id: (row.ts, row.n, row.gone and row.gone.astimezone(UTC))
            for row in spark.table(config.table).collect()
        }
        expected = {key: row_after(events, is_soft) for key, events in produced.items()}
        for key in [key for key in found if key >= len(in_one) and found[key][2]]:
            # The other values of a deleted row are those that it had when the delete came.
            found[key], expected[key] = ((row[0], row[2]) for row in (found[key], expected[key]))
        assert found == {key: row for key, row in expected.items() if row is not None}

    lists = st.lists(IN_ONE, min_size=20, max_size=40), st.lists(IN_ANY, min_size=20, max_size=40)
    for_examples(check, MANY, in_one=lists[0], in_any=lists[1], seed=st.integers(0, 2**32), is_soft=st.booleans())


@pytest.fixture
def make_upsert(make_ingest, name):
    standard = {"mode": "upsert", "identifier_columns": "id", "ordering_column": "ts", "op_field": "op"}
    return lambda **given: make_ingest(**{**standard, "deletes_table": f"lake.ns.{name}_deletes", **given})


def upsert(key, order):
    return {"id": key, "ts": order, "op": "u"}


def delete(key, order):
    return {"id": key, "ts": order, "op": "d"}


def rows(spark, config):
    return {row.id: row.ts for row in spark.table(config.table).collect()}


@pytest.mark.parametrize("given", [{"ordering_column": ""}, {"delete_retention_seconds": 0}], ids=str)
def it_keeps_no_deleted_keys_without_an_ordering_column_or_a_retention(spark, make_upsert, static, given):
    config = make_upsert(auto_create=True, **given)
    topic = static(config)
    for record in (upsert(1, 5), delete(1, 6), upsert(1, 4)):
        topic.send(record)
    assert (rows(spark, config), spark.catalog.tableExists(config.deletes_table)) == ({1: 4}, False)


def it_forgets_deleted_keys_after_their_retention_and_rewrites_small_files(spark, make_upsert, static):
    longer = {"long": {"delete_retention_seconds": 3e7}}
    config = make_upsert(auto_create=True, delete_retention_seconds=86_400, tables=longer)
    topic, deletes, own = static(config), config.deletes_table, quoted_table(config.table)
    for key in range(8):
        topic.send(upsert(key, 5), delete(key, 6))
    first = "offset < 4 AND deleted_at > current_timestamp() - INTERVAL '1' DAY"
    of_first = "job, '%s', key, ordering, ordering_number, topic, partition, offset, deleted_at - INTERVAL '9' DAY"
    for of_table in (own, "`lake`.`ns`.`long`"):
        spark.sql(f"INSERT INTO {deletes} SELECT {of_first % of_table} FROM {deletes} WHERE {first}")
    spark.sql(f"DELETE FROM {deletes} WHERE {first}")
    deleted_keys.trim(spark, config)
    found = sorted((row.table == own, row.key) for row in spark.table(deletes).collect())
    assert found == [(key > 1, f'{{"id":{key}}}') for key in range(8)]
    assert spark.table(f"{deletes}.files").where(F.col("partition")["table"] == own).count() == 1
    topic.send(*(upsert(key, 4) for key in range(8)))
    assert rows(spark, config) == {0: 4, 1: 4}


ORDERS = {
    "bigint": [-(2**63), 2**53, 2**53 + 1, 2**63 - 1],
    "double": [float("-inf"), -0.0, 5e-324, 0.1, 1.7976931348623157e308, float("inf"), float("nan")],
    "decimal(38,18)": [Decimal("-99999999999999999999.999999999999999999"), Decimal("1e-18"), Decimal("2e-18")],
    "string": ["", " ", '"', "NaN", "\\", "a", "aa", "é", "\uffff", "\U0001f600"],
    "binary": [b"", b"\0", b"\0\0", b"\xff"],
    "boolean": [False, True],
    "date": [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)],
    "timestamp": [datetime(1, 1, 1, 0, 0, 0, 1, UTC), *(datetime(2026, 10, 25, 1, 0, 0, each, UTC) for each in (1, 2))],
    "timestamp_ntz": [datetime(1, 1, 1), *(datetime(2026, 10, 25, 2, 0, 0, each) for each in (1, 2))],
}


def it_compares_ordering_values_and_keys_of_every_type_exactly(spark, make_upsert, name):
    config, names = make_upsert(), list(ORDERS)
    with job_session(spark) as session:
        session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
        for kind, orders in ORDERS.items():
            # Every pair of a delete and a later upsert; the key is of the type, too.
            pairs = [(*pair, number) for number, pair in enumerate(itertools.product(orders, repeat=2))]
            made = session.createDataFrame(pairs, f"deleted {kind}, upserted {kind}, number int")
            common = {f"{IDENTIFIER}0": "number", CLEARED: "false", "topic": "'t'", "partition": "0", "offset": "0L"}
            equal = "deleted + 0" if kind == "double" else "deleted"  # -0.0 is 0.0
            deletes, upserts = (
                made.selectExpr(*(f"{value} AS {alias}" for alias, value in {**common, **own}.items()))
                for own in (
                    {f"{IDENTIFIER}1": "deleted", ORDER: "deleted", "op": "'delete'"},
                    {f"{IDENTIFIER}1": equal, ORDER: "upserted", "op": "'upsert'"},
                )
            )
            of_kind = f"{name}.{names.index(kind)}"
            _, deleted = apply_deleted_keys(deletes, of_kind, ["n", "k"], config)
            write_deleted_keys(deleted, config)
            left, _ = apply_deleted_keys(upserts, of_kind, ["n", "k"], config)
            newer = made.where("upserted >= deleted").select("number")
            assert sorted(left.select(f"{IDENTIFIER}0").collect()) == sorted(newer.collect()), kind
