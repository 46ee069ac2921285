"""Jobs that are asked to end, and jobs whose Java process is killed: what they report, and what the next run does."""

import signal
import time

import pytest

from icecdc_core import sync_changes
from icecdc_core.ingest import ingest
from icecdc_core.ingest.commit_log import current_snapshot_id
from icecdc_core.table.catalogs import load_table
from tests.checks.waiting import await_true
from tests.faults.processes import Job
from tests.faults.tables import CREATE, FILL
from tests.servers.loopback_proxy import at_first, loopback_proxy

pytestmark = pytest.mark.long


@pytest.fixture
def start(tmp_path):
    jobs = []

    def started(job, config, **parameters):
        jobs.append(Job(job, config, tmp_path / "report.json", **parameters))
        return jobs[-1]

    yield started
    for job in jobs:
        job.kill()


TO_BE_RUN_AGAIN = (5, "retry", "SparkJobError")


def it_ends_an_ingest_between_two_batches_when_it_is_asked_to(spark, sql, make_ingest, topic, start):
    sql("CREATE TABLE {t} (id BIGINT, v STRING) USING iceberg")
    topic.send(*({"id": number, "v": "a"} for number in range(400)))
    # Small batches that follow one another without a pause.
    config = make_ingest(trigger="continuous", trigger_interval_seconds=0.1, max_records_per_batch=5)
    job = start("ingest", config)
    job.await_log('"batch ended"')
    job.process.send_signal(signal.SIGTERM)
    code, report = job.ended()
    ids = [row.id for row in spark.table(config.table).collect()]
    assert (code, report["state"], report["stopped"]) == (0, "ok", True)
    assert 0 < len(ids) == len(set(ids)) == report["rows_written"] == report["records"] < 400
    rest = ingest(spark, config.replace(trigger="available_now", max_records_per_batch=0))
    assert rest.records == 400 - len(ids)
    assert sorted(row.id for row in spark.table(config.table).collect()) == list(range(400))


def it_ends_an_ingest_between_two_tables_of_a_batch_and_the_next_run_writes_the_others(
    spark, make_ingest, topic, name, start
):
    spark.sql(f"CREATE NAMESPACE lake.{name}")
    tables = {each: f"lake.{name}.{each}" for each in "abcdefgh"}
    for table in tables.values():
        spark.sql(f"CREATE TABLE {table} (id BIGINT) USING iceberg")
    topic.send(*({"id": number, "to": "abcdefgh"[number % 8]} for number in range(160)))
    topic.send(*({"id": "x", "to": each} for each in tables), {"id": 160})
    config = make_ingest(route_by="field", route_field="to", table_concurrency=1)

    def written():
        found = {each: sorted(row.id for row in spark.table(table).collect()) for each, table in tables.items()}
        return {each: ids for each, ids in found.items() if ids}

    def letters():
        kept = spark.table(config.quoted_dead_letters).where(f"job = '{config.job}'")
        return sorted((row.offset, row.partition) for row in kept.collect())

    job = start("ingest", config)
    await_true(lambda: current_snapshot_id(load_table(spark, tables["b"])) is not None, 120)
    job.process.send_signal(signal.SIGTERM)
    code, report = job.ended()
    before = written()
    assert (code, report["state"], report["stopped"], report["batches"], report["records"]) == (0, "ok", True, 0, 0)
    assert 2 <= len(before) < 8
    assert sum(map(len, before.values())) == report["rows_written"]
    assert (len(letters()), len(report["tables"])) == (report["dead_letters"], len(before))
    assert spark.table(config.quoted_commit_log).where("kind = 'batch'").isEmpty()
    rest = ingest(spark, config)
    assert written() == {each: list(range(first, 160, 8)) for first, each in enumerate(tables)}
    assert (rest.rows_written, len(letters())) == (160 - report["rows_written"], 9)


def it_ends_a_sync_that_waits_for_its_next_poll_when_it_is_asked_to(exported, equal, start):
    job = start("sync", exported, poll_interval_seconds=3600, max_polls=0)
    job.await_log('"run ended"')
    begin = time.monotonic()
    job.process.send_signal(signal.SIGTERM)
    code, report = job.ended()
    assert (code, report["state"], report["stopped"], report["upserts"] > 0) == (0, "ok", True, True)
    assert (time.monotonic() - begin < 20, equal(exported)) == (True, True)


def it_is_to_be_run_again_when_java_is_killed_in_mid_batch(spark, exported, equal, opensearch_url, start):
    with loopback_proxy(opensearch_url, trouble=at_first("_bulk", lambda: job.kill_java())) as proxy:
        job = start("sync", exported.replace(opensearch_url=proxy.url))
        code, report = job.ended()
    assert (code, report["state"], report["error"]) == TO_BE_RUN_AGAIN
    sync_changes(spark, exported)
    assert equal(exported)


@pytest.mark.parametrize("name_of_job", ["sync", "ingest"])
def it_is_to_be_run_again_when_java_is_killed_between_two_polls(
    sql, make_config, make_ingest, topic, start, name_of_job
):
    """The next poll must neither be an unexpected error nor go on for ever."""
    sql(CREATE, FILL)
    topic.send({"id": 1, "name": "x"})
    ingesting = make_ingest(trigger="continuous", trigger_interval_seconds=0.1)
    polling = make_config(poll_interval_seconds=1, max_polls=0)
    job = start(name_of_job, polling if name_of_job == "sync" else ingesting)
    job.await_log('"run ended"' if name_of_job == "sync" else '"batch ended"')
    job.kill_java()
    code, report = job.ended()
    assert (code, report["state"], report["error"]) == TO_BE_RUN_AGAIN
