"""Upserts and deletes out of Kafka: the last record of a key is its row, in whatever order they arrive."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from functools import partial

import pytest

from icecdc_core import sync_changes, validate_table
from icecdc_core.errors import ConcurrentIngestError, IdentifierColumnsError
from icecdc_core.ingest import dead_letters, ingest, job, table
from icecdc_core.ingest.publish import MovedError

CREATE = "CREATE TABLE {t} (id BIGINT, v BIGINT) USING iceberg TBLPROPERTIES ('write.merge.mode' = '{mode}')"


@pytest.fixture
def make_upsert(make_ingest):
    """Build an IngestConfig that upserts by id."""

    def build(**overrides):
        return make_ingest(**{"mode": "upsert", "identifier_columns": "id", "op_field": "op", **overrides})

    return build


def upsert(number, value):
    return {"id": number, "v": value, "op": "u"}


def delete(number):
    return {"id": number, "op": "d"}


def rows(spark, config):
    return {row.id: row.v for row in spark.table(config.table).collect()}


class DescribeUpserts:
    @pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
    def it_keeps_the_last_record_of_a_key_and_deletes(self, spark, sql, make_upsert, topic, mode):
        config = make_upsert()
        sql(CREATE.replace("{mode}", mode))
        topic.send(upsert(1, 1), upsert(2, 1), upsert(1, 2), delete(2), upsert(3, 1), delete(4))
        first = ingest(spark, config)
        found = rows(spark, config)
        topic.send(delete(1), upsert(1, 3), upsert(2, 2), delete(3), {"v": 5, "op": "u"})
        second = ingest(spark, config)
        assert (found, rows(spark, config)) == ({1: 2, 3: 1}, {1: 3, 2: 2})
        assert (first.rows_written, first.deletes) == (2, 2)
        assert (second.rows_written, second.deletes, second.dead_letters) == (2, 1, 1)

    def it_uses_the_ordering_column_between_partitions_and_batches(self, spark, make_upsert, topic):
        config = make_upsert(ordering_column="v", auto_create=True)
        topic.send(upsert(1, 5), partition=0)
        topic.send(upsert(1, 9), upsert(1, 7), partition=1)
        ingest(spark, config)
        topic.send(upsert(1, 8), upsert(2, 1), partition=0)
        ingest(spark, config)
        found = rows(spark, config)
        topic.send(delete(2), partition=1)
        topic.send(upsert(1, 10), partition=0)
        ingest(spark, config)
        assert (found, rows(spark, config)) == ({1: 9, 2: 1}, {1: 10})

    def it_uses_the_timestamp_when_a_key_changed_its_partition(self, spark, make_upsert, topic):
        config = make_upsert(auto_create=True)
        topic.send(upsert(1, 2), partition=0, timestamp=2_000_000)
        topic.send(upsert(1, 1), partition=1, timestamp=1_000_000)
        ingest(spark, config)
        assert rows(spark, config) == {1: 2}

    def it_deletes_by_tombstones(self, spark, make_upsert, topic):
        config = make_upsert(auto_create=True, op_field="")
        topic.send({"id": 1, "v": 1}, key='{"id": 1}')
        topic.send({"id": 2, "v": 1}, key='{"id": 2}')
        ingest(spark, config)
        topic.send(None, key='{"id": 1}')
        ingest(spark, config)
        assert rows(spark, config) == {2: 1}

    @pytest.mark.parametrize("cuts", [(), (1,), (2,), (1, 2)])
    def it_deletes_by_a_tombstone_after_a_late_record_in_any_batches(self, spark, sql, make_upsert, topic, cuts):
        sql(CREATE.replace("{mode}", "copy-on-write"))
        config = make_upsert(op_field="", ordering_column="v")
        for place, value in enumerate(({"id": 1, "v": 10}, {"id": 1, "v": 5}, None)):
            if place in cuts:
                ingest(spark, config)
            topic.send(value, key="1", partition=0)
            topic.send({"id": 2, "v": place}, partition=0)
        ingest(spark, config)
        assert rows(spark, config) == {2: 2}

    def it_deletes_the_row_of_a_plain_text_key_and_no_other(self, spark, make_upsert, topic):
        config = make_upsert(auto_create=True, op_field="")
        names = ["1.1", "1.10", "1e3", "1000.0", "-0", "0", '"q"', "q", " 5", "5", "null"]
        topic.send(*({"id": name, "v": 1} for name in names), partition=0)
        ingest(spark, config)
        for key in ("1.10", "1e3", "-0", '"q"', " 5", "null"):
            topic.send(None, key=key, partition=0)
        report = ingest(spark, config)
        assert (sorted(rows(spark, config)), report.deletes) == (["0", "1.1", "1000.0", "5", "q"], 6)

    @pytest.mark.parametrize("evolve_schema", [False, True])
    def it_deletes_the_row_that_a_debezium_update_renamed(self, spark, sql, make_upsert, topic, evolve_schema):
        def event(op, before, after):
            return {"op": op, "before": before, "after": after}

        sql("CREATE TABLE {t} (id BIGINT, v BIGINT) USING iceberg PARTITIONED BY (id)")
        config = make_upsert(format="debezium_json", op_field="", evolve_schema=evolve_schema, ordering_column="v")
        topic.send(event("c", None, upsert(1, 1)), event("c", None, upsert(2, 1)), partition=0)
        ingest(spark, config)
        topic.send(event("u", {"id": 1}, {"id": 3, "v": 2}), event("u", {"id": 2}, {"id": 4, "v": 2}), partition=0)
        topic.send(event("c", None, {"id": 1, "v": 3}), event("u", {"id": 9}, {"id": 5}), partition=0)
        report = ingest(spark, config)
        assert (rows(spark, config), report.rows_written, report.deletes, report.dead_letters) == (
            {1: 3, 3: 2, 4: 2}, 3, 1, 1,
        )  # fmt: skip

    def it_needs_identifier_columns(self, spark, sql, make_upsert, topic):
        sql(CREATE.replace("{mode}", "copy-on-write"))
        topic.send(upsert(1, 1))
        with pytest.raises(IdentifierColumnsError):
            ingest(spark, make_upsert(identifier_columns=""))

    def it_merges_nothing_twice_over_the_commits_of_others(self, spark, sql, make_upsert, topic, monkeypatch):
        config = make_upsert()
        sql(CREATE.replace("{mode}", "copy-on-write"))
        topic.send(upsert(1, 1), upsert(2, 1))
        publish, others = table.publish, []

        def publish_second(*given):
            if not others:
                others.append(sql("INSERT INTO {t} VALUES (9, 9)"))
            return publish(*given)

        monkeypatch.setattr(table, "publish", publish_second)
        report = ingest(spark, config)
        assert (rows(spark, config), report.rows_written) == ({1: 1, 2: 1, 9: 9}, 2)


@pytest.fixture
def meanwhile(monkeypatch, tmp_path):
    """Let another writer commit during a merge: after the merge has read the table, before its own commit."""

    def schedule(act, times=1):
        real, threads, failed = table.merge_rows, [], []

        def merging(last, *given):
            if len(threads) < times:
                begun, done = tmp_path / f"begun{len(threads)}", tmp_path / f"done{len(threads)}"

                def somebody():
                    try:
                        while not begun.exists():
                            time.sleep(0.05)
                        act()
                    except Exception as error:
                        failed.append(error)
                    finally:
                        done.touch()

                def waiting(batches):
                    # The merge reads its source more than once; only one task waits, as the others need the rest.
                    with contextlib.suppress(FileExistsError):
                        begun.touch(exist_ok=False)
                        for _ in range(1200):
                            if done.exists():
                                break
                            time.sleep(0.05)
                    yield from batches

                threads.append(threading.Thread(target=somebody, daemon=True))
                threads[-1].start()
                last = last.coalesce(1).mapInArrow(waiting, last.schema)
            else:
                threads.append(None)
            return real(last, *given)

        monkeypatch.setattr(table, "merge_rows", merging)
        return threads, failed

    return schedule


FOREIGN = {
    "append": "INSERT INTO {t} VALUES (5, 7), (9, 9)",
    "compaction": "CALL lake.system.rewrite_data_files(table => '{t}', options => map('rewrite-all', 'true'))",
}


class DescribeCommitsOfOthersUnderAMerge:
    @pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
    @pytest.mark.parametrize("foreign", FOREIGN)
    def it_is_done_again(self, spark, sql, make_upsert, topic, meanwhile, mode, foreign):
        config = make_upsert()
        sql(CREATE.replace("{mode}", mode))
        sql("INSERT INTO {t} VALUES (1, 1), (2, 1)")
        sql("INSERT INTO {t} VALUES (3, 1), (4, 1)")
        topic.send(upsert(1, 2), delete(2), upsert(5, 1), {"v": 5, "op": "u"})
        merges, failed = meanwhile(lambda: sql(FOREIGN[foreign]))
        report = ingest(spark, config)
        expected = {1: 2, 3: 1, 4: 1, 5: 1} | ({9: 9} if foreign == "append" else {})
        found = sorted((row.id, row.v) for row in spark.table(config.table).collect())
        assert (failed, len(merges), found) == ([], 2, sorted(expected.items()))
        assert (report.state, report.rows_written, report.deletes, report.dead_letters) == ("ok", 2, 1, 1)
        assert ingest(spark, config).rows_written == 0

    def it_gives_up_after_some_attempts_and_the_next_run_reads_the_records(
        self, spark, sql, make_upsert, topic, meanwhile, monkeypatch
    ):
        config = make_upsert()
        sql(CREATE.replace("{mode}", "copy-on-write"))
        sql("INSERT INTO {t} VALUES (1, 1)")
        topic.send(upsert(1, 2))
        monkeypatch.setattr(job, "Writer", partial(table.Writer, attempts=2))
        merges, failed = meanwhile(lambda: sql("INSERT INTO {t} VALUES (9, 9)"), times=2)
        with pytest.raises(ConcurrentIngestError, match=r"table first, 2 times.*Remedy: .* let others"):
            ingest(spark, config)
        assert (failed, len(merges), sorted(row.v for row in spark.table(config.table).collect())) == ([], 2, [1, 9, 9])
        ingest(spark, config)
        assert sorted(row.v for row in spark.table(config.table).collect()) == [2, 9, 9]


class DescribeDeadLettersThatMeetAnotherCommit:
    def it_keeps_them_without_another_merge(self, spark, sql, make_upsert, topic, monkeypatch):
        config = make_upsert()
        sql(CREATE.replace("{mode}", "copy-on-write"))
        topic.send(upsert(1, 1), {"v": 5, "op": "u"})
        staged, moved, merge, merges = dead_letters.stage, [], table.merge_rows, []

        def somebody_was_faster(*given):
            if not moved:
                moved.append(MovedError("Another writer committed in between"))
                raise moved[0]
            return staged(*given)

        monkeypatch.setattr(dead_letters, "stage", somebody_was_faster)
        monkeypatch.setattr(table, "merge_rows", lambda *given: merges.append(merge(*given)))
        report = ingest(spark, config)
        kept = spark.table(config.quoted_dead_letters).where(f"job = '{config.job}'").count()
        assert (report.state, report.dead_letters, kept, len(moved), len(merges)) == ("ok", 1, 1, 1, 1)
        assert rows(spark, config) == {1: 1}


class DescribeKafkaToOpenSearch:
    def it_finds_in_opensearch_what_was_produced(self, spark, make_upsert, make_config, indexed, topic, name):
        config = make_upsert(auto_create=True, max_records_per_batch=60)
        sync = make_config(identifier_columns=["id"])
        rng, expected = random.Random(7), {}
        for _ in range(3):
            for _ in range(100):
                number = rng.randrange(40)
                if rng.random() < 0.25:
                    topic.send(delete(number))
                    expected.pop(number, None)
                else:
                    expected[number] = rng.randrange(1000)
                    topic.send(upsert(number, expected[number]))
            ingest(spark, config)
            sync_changes(spark, sync)
        documents = {int(key): document["v"] for key, document in indexed().items()}
        assert (rows(spark, config), documents) == (expected, expected)
        assert validate_table(spark, sync).ok
