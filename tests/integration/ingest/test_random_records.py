"""Random records, kills, compactions, expiry and lost logs: each record is written once or is a dead letter.

``ICECDC_FUZZ`` says how many examples (one by default), ``ICECDC_SEED`` which. A dictionary says what must be in the
table, which PyIceberg reads.
"""

import itertools
import json
import os
from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import strategies as st
from pyiceberg.table import StaticTable

from icecdc_core.ingest import commit_log, ingest
from icecdc_core.table.catalogs import load_table
from tests.checks.examples import for_examples
from tests.servers.schema_registry import NULL, SOME, framed, registry_of, text, zigzag

MANY = int(os.environ.get("ICECDC_FUZZ", "1"))
OWN, USERS, EXPIRE, DROP_LOG, KILLED = "own compaction", "a user's compaction", "expiry", "dropped log", "killed"
UPSERT, DELETE, BAD = "upsert", "delete", "bad"
FIELDS = [{"name": "id", "type": "long"}, {"name": "v", "type": ["null", "string"]}]
SCHEMA = {"schema": json.dumps({"type": "record", "name": "R", "fields": FIELDS})}

RECORDS = st.lists(
    st.tuples(
        st.sampled_from([UPSERT, UPSERT, UPSERT, UPSERT, DELETE, BAD]),
        st.integers(0, 12),
        st.none() | st.text(max_size=8) | st.sampled_from(["", '"', "null", "é\U0001f600"]),
    ),
    min_size=1,
    max_size=12,
)
PARTS = st.lists(
    st.tuples(RECORDS, st.lists(st.sampled_from([OWN, USERS, EXPIRE, DROP_LOG, KILLED]), max_size=3)), max_size=2
)


def written(format_, kind, key, value):
    """The bytes of a record; a bad one ends too early."""
    row = {"id": key, "v": value}
    if format_ == "avro":
        data = bytes(framed(1, zigzag(key) + (NULL if value is None else SOME + text(value))))
    elif format_ == "dms":
        metadata = {"operation": "delete" if kind == DELETE else "insert"}
        data = json.dumps({"data": row, "metadata": metadata}).encode()
    elif format_ == "debezium_json":
        before, after = (row, None) if kind == DELETE else (None, row)
        data = json.dumps({"before": before, "after": after, "op": "d" if before else "c"}).encode()
    else:
        data = json.dumps(row).encode()
    return data[:-1] if kind == BAD else data


def run(spark, config, steps, monkeypatch):
    if KILLED in steps:
        write = commit_log.write
        with monkeypatch.context() as killed, suppress(SystemExit):
            own = lambda s, n, entry: write(s, n, entry) if entry.kind == "start" else exit("killed")  # noqa: E731
            killed.setattr(commit_log, "write", own)
            ingest(spark, config)
    assert ingest(spark, config.replace(compact_min_files=2 if OWN in steps else 0)).state == "ok"
    if USERS in steps:
        options = "map('rewrite-all', 'true')"
        spark.sql(f"CALL lake.system.rewrite_data_files(table => '{config.table}', options => {options})")
    if EXPIRE in steps:
        load_table(spark, config.table).expireSnapshots().expireOlderThan(2**62).commit()
        spark.catalog.refreshTable(config.table)
    if DROP_LOG in steps:
        spark.sql(f"DROP TABLE {config.quoted_commit_log}")


@pytest.mark.timeout(6 * 3600)
def it_writes_every_record_once_whatever_becomes_of_snapshots_and_log(spark, make_ingest, topic, name, monkeypatch):
    numbers = itertools.count()

    def check(format_, parts, last, limit, mode, compaction):
        number = next(numbers)
        namespace, own = f"lake.{name}_{number}", type(topic)(topic.servers)
        # In the end, nothing but the table says how far it came; its files are more than one.
        six = [(UPSERT, key, "x") for key in range(6)]
        is_upsert = mode == "upsert"
        parts = [*parts, (six, []), (last + six, [compaction, EXPIRE, DROP_LOG]), ([(UPSERT, 1, "y")], [])]
        print(f"{number}: {format_}, {mode}, limit {limit}: {parts}", flush=True)
        spark.sql(f"CREATE NAMESPACE {namespace}")
        spark.sql(f"CREATE TABLE {namespace}.t (id BIGINT, v STRING) USING iceberg")
        rows, dead_letters, ends = {}, [], Counter()
        with registry_of({1: SCHEMA}) as registry:
            config = make_ingest(
                job=f"{name}_{number}", topics=[own.name], table=f"{namespace}.t", namespace=namespace, format=format_,
                schema_registry_url=registry.url, max_records_per_batch=limit, commit_log_table="",
                **({"mode": "upsert", "identifier_columns": "id"} if is_upsert else {}),
            )  # fmt: skip
            for records, steps in parts:
                for kind, key, value in records:
                    place = key % 2, ends[key % 2]
                    ends[key % 2] += 1
                    own.send(written(format_, kind, key, value), partition=place[0])
                    is_delete = kind == DELETE and format_ in ("debezium_json", "dms")
                    if kind == BAD or (is_delete and not is_upsert):
                        dead_letters.append(place)
                    elif is_delete:
                        rows.pop(key, None)
                    else:
                        rows[key if is_upsert else place] = (key, value)
                run(spark, config, steps, monkeypatch)
                location = load_table(spark, config.table).operations().current().metadataFileLocation()
                found = StaticTable.from_metadata(location).scan().to_arrow().to_pylist()
                actual, expected = Counter((row["id"], row["v"]) for row in found), Counter(rows.values())
                kept = []
                if spark.catalog.tableExists(config.quoted_dead_letters):
                    kept = spark.table(config.quoted_dead_letters).where(f"job = '{config.job}'").collect()
                assert (expected - actual, actual - expected) == (Counter(), Counter())
                assert sorted((each.partition, each.offset) for each in kept) == sorted(dead_letters)

    for_examples(
        check,
        MANY,
        format_=st.sampled_from(["json", "avro", "debezium_json", "dms"]),
        parts=PARTS,
        last=RECORDS,
        limit=st.sampled_from([0, 7]),
        mode=st.sampled_from(["append", "upsert"]),  # of what is read again, appended rows are there twice
        compaction=st.sampled_from([OWN, USERS]),
    )
