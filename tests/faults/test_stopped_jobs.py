"""Jobs that are asked to end, and jobs whose Java process is killed: what they report, and what the next run does."""

import signal
import time

import pytest

from icecdc_core import sync_changes
from icecdc_core.ingest import ingest
from tests.faults.processes import Job
from tests.loopback_proxy import at_first, loopback_proxy

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


class DescribeSigterm:
    def it_ends_an_ingest_between_two_batches(self, spark, sql, make_ingest, topic, start):
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

    def it_ends_a_sync_that_waits_for_its_next_poll(self, spark, exported, equal, start):
        job = start("sync", exported, poll_interval_seconds=3600, max_polls=0)
        job.await_log('"run ended"')
        begin = time.monotonic()
        job.process.send_signal(signal.SIGTERM)
        code, report = job.ended()
        assert (code, report["state"], report["stopped"], report["upserts"] > 0) == (0, "ok", True, True)
        assert (time.monotonic() - begin < 20, equal(exported)) == (True, True)


class DescribeAJavaProcessThatIsKilled:
    TO_BE_RUN_AGAIN = (5, "retry", "SparkJobError")

    def it_ends_a_sync_in_mid_batch_that_is_to_be_run_again(self, spark, exported, equal, opensearch_url, start):
        with loopback_proxy(opensearch_url, trouble=at_first("_bulk", lambda: job.kill_java())) as proxy:
            job = start("sync", exported.replace(opensearch_url=proxy.url))
            code, report = job.ended()
        assert (code, report["state"], report["error"]) == self.TO_BE_RUN_AGAIN
        sync_changes(spark, exported)
        assert equal(exported)

    def it_ends_a_polling_sync_that_is_to_be_run_again(self, spark, exported, start):
        # The process dies between two polls; the next one must neither be an unexpected error nor go on for ever.
        job = start("sync", exported, poll_interval_seconds=1, max_polls=0)
        job.await_log('"run ended"')
        job.kill_java()
        code, report = job.ended()
        assert (code, report["state"], report["error"]) == self.TO_BE_RUN_AGAIN

    def it_ends_an_ingest_that_is_to_be_run_again(self, spark, sql, make_ingest, topic, start):
        sql("CREATE TABLE {t} (id BIGINT) USING iceberg")
        topic.send({"id": 1})
        job = start("ingest", make_ingest(trigger="continuous", trigger_interval_seconds=0.1))
        job.await_log('"batch ended"')
        job.kill_java()
        code, report = job.ended()
        assert (code, report["state"], report["error"]) == self.TO_BE_RUN_AGAIN
