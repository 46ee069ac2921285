"""The commit log, which all jobs of a namespace share: commits of other jobs, and failures."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from icecdc_core.errors import IngestWriteError
from icecdc_core.ingest.tables.commits import commit_log
from icecdc_core.ingest.tables.commits.commit_log import LogEntry
from icecdc_core.session.jvm import iceberg_class
from icecdc_core.table.catalogs import load_table


def entry(job, batch):
    return LogEntry(job=job, batch=batch, run_id="r", kind="batch", offsets={"t": {0: batch}})


def it_takes_the_entries_of_many_jobs_at_once(spark, sql, name):
    log, jobs = f"lake.ns.{name}", [f"job{number}" for number in range(4)]
    commit_log.create(spark, log)

    def run(job):
        session = spark.newSession()
        for batch in range(3):
            commit_log.write(session, log, entry(job, batch))

    with ThreadPoolExecutor(len(jobs)) as pool:
        list(pool.map(run, jobs))
    spark.catalog.refreshTable(log)
    assert [commit_log.read(spark, log, job).batch for job in jobs] == [2] * len(jobs)


def it_tries_to_commit_more_often_than_iceberg_does(spark, sql, name):
    commit_log.create(spark, f"lake.ns.{name}")
    defaults = iceberg_class(spark, "TableProperties")
    actual = dict(load_table(spark, f"lake.ns.{name}").properties())
    assert int(actual["commit.retry.num-retries"]) > defaults.COMMIT_NUM_RETRIES_DEFAULT
    assert int(actual["commit.retry.max-wait-ms"]) < defaults.COMMIT_MAX_RETRY_WAIT_MS_DEFAULT


@pytest.mark.parametrize(
    "use",
    [
        lambda spark, log: commit_log.read(spark, log, "j"),
        lambda spark, log: commit_log.write(spark, log, entry("j", 0)),
        lambda spark, log: commit_log.create(spark, log.replace("lake", "nowhere")),
    ],
    ids=["read", "write", "create"],
)
def it_reports_a_log_that_cannot_be_used(spark, name, use):
    with pytest.raises(IngestWriteError, match=r"The commit log cannot be used: \S") as caught:
        use(spark, f"lake.ns.{name}")
    assert caught.value.subject == "commit_log_table"
