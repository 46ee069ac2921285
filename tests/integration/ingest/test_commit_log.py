"""What all jobs of a namespace share: the commit log, dead letters, and appends staged again over commits of others."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from pyspark.sql import functions as F

from icecdc_core.errors import IngestWriteError
from icecdc_core.ingest import commit_log
from icecdc_core.ingest.commit_log import BEHIND, LogEntry, TableEntry
from icecdc_core.ingest.dead_letters import DeadLetters
from icecdc_core.ingest.publish import WAP_ID, append, publish, restage, stage
from icecdc_core.session.spark import settings_unless_set
from icecdc_core.table.catalogs import load_table
from tests.given.kafka_records import records


def entry(job, batch):
    return LogEntry(job=job, batch=batch, run_id="r", kind="batch", offsets={"t": {0: batch}})


def rejected(spark, offset=0):
    headers = F.lit(None).cast("array<struct<key: string, value: binary>>")
    more = {"headers": headers, "problem": F.lit("x"), "offset": F.col("offset") + offset}
    return records(spark, [(None, "{}")]).withColumns(more)


def it_reports_tables_of_its_own_that_cannot_be_used(spark, name):
    log, nowhere = f"lake.ns.{name}", SimpleNamespace(job="j", quoted_dead_letters="nowhere.ns.letters")
    for use, what in (
        (lambda: commit_log.read(spark, log, "j"), "commit log"),
        (lambda: commit_log.write(spark, log, entry("j", 0)), "commit log"),
        (lambda: commit_log.create(spark, log.replace("lake", "nowhere")), "commit log"),
        (lambda: DeadLetters(nowhere, "r").write(rejected(spark)), "dead letter table"),
    ):
        with pytest.raises(IngestWriteError, match=rf"The {what} cannot be used: \S") as caught:
            use()
        assert caught.value.subject == f"{what.removesuffix(' table').replace(' ', '_')}_table"


def it_stays_small_and_says_the_same_however_many_batches_there_were(spark, sql, name):
    log = f"lake.ns.{name}"
    commit_log.create(spark, log)
    commit_log.write(spark, log, entry("other", 0))
    letters = f"{log}_letters"
    with settings_unless_set(spark, {WAP_ID: "icecdc-test"}):
        of_job = DeadLetters(SimpleNamespace(job="j", quoted_dead_letters=letters), "r")
        assert [of_job.write(rejected(spark, offset)) for offset in (0, 1, 1)] == [1, 1, 0]
        # Nothing is staged for what is there already.
        assert spark.table(f"{letters}.snapshots").count() == 2
    behind = TableEntry("b", "u", 9, state=BEHIND, offsets={"t": {0: 4}}, error="x")
    for batch in range(12):
        table = behind if batch == 0 else TableEntry("a", "u", batch)
        ids = {"t": "id", **({"gone": "g"} if batch < 3 else {})}
        offsets, time = {"t": {0: batch}}, datetime(2026, 1, 1, batch, tzinfo=UTC)
        ends = {"ends_read_at": time, "behind": ["b"]} if batch else {"valid_through": time, "ends_read_at": time}
        batch_entry = LogEntry("j", batch, "r", "batch", offsets, topic_ids=ids, tables=[table], **ends)
        commit_log.write(spark, log, batch_entry)
        if batch % 6 == 5:
            said = commit_log.read(spark, log, "j")
            commit_log.trim(spark, log, "j", letters, keep=5, readers_minutes=0)
            assert commit_log.read(spark, log, "j") == said
    # Of table b it still knows the time before it was left behind.
    times = {table: time.hour for table, time in commit_log.valid_through(spark, log, "j").items()}
    assert times == {"a": 11, "b": 0}
    assert (said.batch, said.offsets, said.topic_ids) == (11, {"t": {0: 11}}, {"t": "id", "gone": "g"})
    assert said.tables == {"a": TableEntry("a", "u", 11), "b": behind}
    kinds = [row.kind for row in spark.table(log).where("job = 'j'").orderBy("batch").collect()]
    assert kinds == ["checkpoint", *["batch"] * 5]
    left = f"{log}.files", f"{log}.snapshots", letters, f"{letters}.snapshots"
    assert [spark.table(each).count() for each in left] == [2, 1, 2, 1]
    assert spark.table(f"{log}.metadata_log_entries").count() <= 101
    assert commit_log.read(spark, log, "other").exists


def it_does_not_trim_what_another_copy_of_the_job_writes_meanwhile(spark, sql, name, monkeypatch):
    log = f"lake.ns.{name}"
    commit_log.create(spark, log)
    for batch in range(3):
        commit_log.write(spark, log, entry("j", batch))
    row = commit_log._row

    def row_after_another_entry(session, made):
        if made.kind == "checkpoint":
            row(session, LogEntry("j", 0, "r", "batch", {"t": {0: 0}}, topic_ids={"x": "y"})).writeTo(log).append()
        return row(session, made)

    monkeypatch.setattr(commit_log, "_row", row_after_another_entry)
    commit_log.trim(spark, log, "j", f"{log}_letters", keep=1)
    assert commit_log.read(spark, log, "j").topic_ids == {"x": "y"}
    assert spark.table(log).count() == 4


_CREATE = "CREATE TABLE {t} (id BIGINT) USING iceberg"
_ALL = 2**62
"""A time later than every snapshot."""


def _stage_one_row(spark, name):
    rows = spark.range(1).coalesce(1)
    with settings_unless_set(spark, {WAP_ID: "icecdc-test"}):
        return stage(spark, name, load_table(spark, name), {}, lambda properties: append(rows, name, {}, properties))


class DescribeAnAppendThatIsStagedAgain:
    def it_names_the_snapshot_that_added_its_files_so_that_no_expiry_deletes_them(self, spark, sql, name):
        table = f"lake.ns.{name}"
        sql(_CREATE)
        first = staged = _stage_one_row(spark, table)
        for number in range(2):
            sql(f"INSERT INTO {{t}} VALUES ({10 + number})")
            staged = restage(spark, table, staged)
            summary = load_table(spark, table).snapshot(staged.entry.snapshot_id).summary()
            assert summary.get("source-snapshot-id") == str(first.entry.snapshot_id)
        publish(spark, table, staged)
        load_table(spark, table).expireSnapshots().expireOlderThan(_ALL).commit()
        spark.catalog.refreshTable(table)
        assert sorted(row.id for row in spark.table(table).collect()) == [0, 10, 11]

    def it_is_not_staged_again_once_it_has_expired(self, spark, sql, name):
        table = f"lake.ns.{name}"
        sql(_CREATE)
        staged = _stage_one_row(spark, table)
        sql("INSERT INTO {t} VALUES (10)")
        load_table(spark, table).expireSnapshots().expireOlderThan(_ALL).commit()
        assert restage(spark, table, staged) is None
