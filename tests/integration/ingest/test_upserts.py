"""Upserts and deletes out of Kafka: the last record of a key is its row, in whatever order they arrive."""

import contextlib
import random
import threading

import pytest

from icecdc_core import sync_changes
from icecdc_core.ingest import dead_letters, ingest, upserts
from icecdc_core.ingest.publish import MovedError
from tests.checks.waiting import await_true

CREATE = "CREATE TABLE {t} (id BIGINT, v BIGINT) USING iceberg TBLPROPERTIES ('write.merge.mode' = '{mode}')"


@pytest.fixture
def make_upsert(make_ingest):
    """Build an IngestConfig that upserts by id."""
    standard = {"mode": "upsert", "identifier_columns": "id", "op_field": "op"}
    return lambda **overrides: make_ingest(**{**standard, **overrides})


def upsert(number, value):
    return {"id": number, "v": value, "op": "u"}


def delete(number):
    return {"id": number, "op": "d"}


def rows(spark, config):
    return {row.id: row.v for row in spark.table(config.table).collect()}


class DescribeUpserts:
    def it_keeps_the_last_record_of_a_key_and_deletes(self, spark, sql, make_upsert, static, monkeypatch):
        config = make_upsert(identifier_columns="")
        sql(CREATE.replace("{mode}", "copy-on-write").replace("id BIGINT", "id BIGINT NOT NULL"))
        sql("ALTER TABLE {t} SET IDENTIFIER FIELDS id")
        topic = static(config)
        [first] = topic.send(upsert(1, 1), upsert(2, 1), upsert(1, 2), delete(2), upsert(3, 1), delete(4)).tables
        assert (rows(spark, config), first.rows, first.deletes) == ({1: 2, 3: 1}, 2, 2)
        staged, merge, merges = dead_letters.stage, upserts.merge_rows, []
        moved = [MovedError("Another writer committed in between")]

        def somebody_was_faster(*given):
            if moved:
                raise moved.pop()
            return staged(*given)

        # A commit of another to the table of dead letters makes no other merge.
        monkeypatch.setattr(dead_letters, "stage", somebody_was_faster)
        monkeypatch.setattr(upserts, "merge_rows", lambda *given: merges.append(merge(*given)))
        last = topic.send(delete(1), upsert(1, 3), upsert(2, 2), delete(3), {"v": 5, "op": "u"})
        kept = spark.table(config.quoted_dead_letters).where(f"job = '{config.job}'").count()
        assert (rows(spark, config), kept, moved, len(merges)) == ({1: 3, 2: 2}, 1, [], 1)
        assert (last.tables[0].rows, last.tables[0].deletes, last.dead_letters) == (2, 1, 1)

    @pytest.mark.parametrize(
        "given",
        [{}, {"format": "dms", "evolve_schema": True, "column_case": "lower"}, {"coercion": "lenient"}],
        ids=str,
    )
    def it_deletes_the_row_that_an_update_renamed(self, spark, sql, make_upsert, static, given):
        def update(before, after, op="update"):
            if "coercion" in given:
                before = before and {name: str(value) for name, value in before.items()}
            if "format" in given:
                return {"data": after, "before-image": before, "metadata": {"operation": op}}
            return {"op": op, "before": before, "after": after}

        sql("CREATE TABLE {t} (id BIGINT, v BIGINT) USING iceberg PARTITIONED BY (id)")
        sql("INSERT INTO {t} VALUES (1, 0), (3, 0), (5, 0), (7, 0), (8, 0), (9, 0)")
        config = make_upsert(**{"format": "debezium_json", "op_field": "", "ordering_column": "v", **given})
        entry = static(config).send(
            update({"id": 1}, {"id": 2, "v": 1}), update(None, {"id": 1, "v": 5}, "insert"),
            update({"id": 3}, {"id": 4, "v": 1}), update({"id": 5}, {"id": 5, "v": 1}),
            update(None, {"id": 6, "v": 1}), update({"v": 1}, {"id": 7, "v": 1}),
            update({"id": 8}, {"id": "one"}), update({"id": 9}, {"id": 10, "v": None}),
        )  # fmt: skip
        assert rows(spark, config) == {1: 5, 2: 1, 4: 1, 5: 1, 6: 1, 7: 1, 8: 0, 9: 0}
        assert (entry.tables[0].rows, entry.tables[0].deletes, entry.dead_letters) == (6, 1, 2)
        reasons = spark.table(config.quoted_dead_letters).where(f"job = '{config.job}'").select("reason").collect()
        no_order = "field v, the ordering column, is missing or null"
        no_number = f"field id: 'one' is not of type bigint{' (coercion=lenient)' if 'coercion' in given else ''}"
        assert sorted(row.reason for row in reasons) == [no_number, no_order]


@pytest.fixture
def meanwhile(monkeypatch, tmp_path):
    """Let another writer commit during a merge: after the merge has read the table, before its own commit."""

    def schedule(act):
        real, merges, failed = upserts.merge_rows, [], []
        begun, done = tmp_path / "begun", tmp_path / "done"

        def somebody():
            try:
                await_true(begun.exists, seconds=60)
                act()
            except Exception as error:
                failed.append(error)
            finally:
                done.touch()

        def waiting(batches):
            # The merge reads its source more than once; only one task waits, as the others need the rest.
            with contextlib.suppress(FileExistsError):
                begun.touch(exist_ok=False)
                await_true(done.exists, seconds=60)
            yield from batches

        def merging(last, *given):
            merges.append(last)
            if len(merges) == 1:
                threading.Thread(target=somebody, daemon=True).start()
                last = last.coalesce(1).mapInArrow(waiting, last.schema)
            return real(last, *given)

        monkeypatch.setattr(upserts, "merge_rows", merging)
        return merges, failed

    return schedule


COMPACTION = "CALL lake.system.rewrite_data_files(table => '{t}', options => map('rewrite-all', 'true'))"


@pytest.mark.parametrize(
    ("mode", "foreign", "added"),
    [
        pytest.param("copy-on-write", "INSERT INTO {t} VALUES (5, 7), (9, 9)", {9: 9}, marks=pytest.mark.long),
        ("merge-on-read", COMPACTION, {}),
    ],
)
def it_merges_again_over_the_commits_of_others(spark, sql, make_upsert, static, meanwhile, mode, foreign, added):
    config = make_upsert()
    topic = static(config)
    sql(CREATE.replace("{mode}", mode))
    sql("INSERT INTO {t} VALUES (1, 1), (2, 1)")
    sql("INSERT INTO {t} VALUES (3, 1), (4, 1)")
    merges, failed = meanwhile(lambda: sql(foreign))
    entry = topic.send(upsert(1, 2), delete(2), upsert(5, 1), {"v": 5, "op": "u"})
    found = sorted((row.id, row.v) for row in spark.table(config.table).collect())
    assert (failed, len(merges), found) == ([], 2, [(1, 2), (3, 1), (4, 1), (5, 1), *added.items()])
    assert (entry.tables[0].rows, entry.tables[0].deletes, entry.dead_letters) == (2, 1, 1)


def it_finds_in_opensearch_what_was_produced(spark, make_upsert, make_config, indexed, topic, name):
    config = make_upsert(auto_create=True)
    sync = make_config(identifier_columns=["id"])
    rng, expected = random.Random(7), {100: 2}
    # A key that changed its partition: the later timestamp counts.
    topic.send(upsert(100, 2), partition=0, timestamp=2_000_000)
    topic.send(upsert(100, 1), partition=1, timestamp=1_000_000)
    for _ in range(2):
        records = []
        for _ in range(60):
            number = rng.randrange(40)
            if rng.random() < 0.25:
                records.append(delete(number))
                expected.pop(number, None)
            else:
                expected[number] = rng.randrange(1000)
                records.append(upsert(number, expected[number]))
        topic.send(*records)
        ingest(spark, config)
        sync_changes(spark, sync)
    documents = {int(key): document["v"] for key, document in indexed().items()}
    assert (rows(spark, config), documents) == (expected, expected)
