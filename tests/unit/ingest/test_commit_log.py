"""What the commit log says of a job, by its entries in any order, and what the snapshots of a table say."""

import json
from dataclasses import asdict

import pytest
from pyspark.sql import functions as F

from icecdc_core.ingest import commit_log
from icecdc_core.ingest.commit_log import (
    BEHIND,
    LAST,
    SCHEMA,
    LoggedJob,
    TableEntry,
    current_snapshot_id,
    find_recorded,
    is_ancestor,
)
from icecdc_core.ingest.offsets import to_json
from tests.unit.ingest.snapshot_history import Snapshot, Table, at


def entry(batch, offset, *tables, job="j", run="r", second=0, topic_ids=None):
    """A row of the log; offsets are those of one partition."""
    return {
        "job": job,
        "batch": batch,
        "run_id": run,
        "kind": "batch",
        "committed_at": f"2026-01-01T00:00:{second:02}Z",
        "offsets": to_json({"t": {0: offset}}),
        "topic_ids": json.dumps({"t": "id"} if topic_ids is None else topic_ids),
        "tables": [{**asdict(table), "offsets": to_json(table.offsets)} for table in tables],
    }


@pytest.fixture
def read(spark, name):
    def run(*entries):
        lines = spark.createDataFrame([(json.dumps(entry),) for entry in entries], "line string")
        rows = lines.select(F.from_json("line", SCHEMA).alias("entry")).select("entry.*")
        rows.createOrReplaceTempView(f"log_{name}")
        return commit_log.read(spark, f"log_{name}", "j")

    yield run
    spark.catalog.dropTempView(f"log_{name}")


def it_reads_the_last_batch_of_the_job_and_its_highest_offsets_in_whatever_order_entries_are(read):
    assert read(entry(3, 9, TableEntry("a"), job="k")) == LoggedJob()
    # Two runs wrote the last batch.
    last = entry(3, 9, second=1), entry(3, 7, second=2)
    actual = read(entry(7, 99, job="k"), entry(2, 8, second=3), *last, entry(1, 3))
    assert actual == LoggedJob(True, 3, {"t": {0: 9}}, {"t": "id"}, {})


def it_knows_what_one_of_two_runs_left_behind_until_the_table_has_all_that_it_read(read):
    def written(batch, offset, run):
        return entry(batch, offset, TableEntry("a", offsets={"t": {0: offset}}), run=run)

    left = entry(3, 300, TableEntry("a", state=BEHIND, offsets={"t": {0: 200}}), run="x")
    assert read(left, written(4, 250, "y")).behind == {"a": {"t": {0: 250}}}
    assert read(left, written(4, 350, "y")).behind == {}
    # The run reads on without the table.
    entries = [left, written(4, 350, "y"), entry(5, 500, run="x")]
    assert read(*entries).behind == {"a": {"t": {0: 350}}}
    assert read(*entries, written(6, 500, "z")).behind == {}


class DescribeTableOffsets:
    def it_finds_the_newest_of_the_job_among_the_ancestors(self):
        # Newer commits of others and of another job, and a snapshot that was rolled back.
        table = Table(Snapshot(1, None, 5), Snapshot(2, 1, 9), Snapshot(3, 1), Snapshot(4, 3, 9, job="k"))
        found = TableEntry("n", "u", 1, 1, offsets=at(5), snapshot_ms=1000)
        assert find_recorded("n", table, "j") == found

    @pytest.mark.parametrize(
        ("snapshots", "uuid", "is_found"),
        [
            # A compaction whose parent has expired, and one of another table.
            ([Snapshot(3, 2)], "u", True),
            ([Snapshot(3, 2)], "copy", False),
            # Rolled back, and rolled back to what has expired since.
            ([Snapshot(2, 1, 5), Snapshot(1, None)], "u", False),
            ([Snapshot(3, 1)], "u", False),
        ],
    )
    def it_finds_what_the_table_keeps_of_the_newest_if_that_has_expired(self, snapshots, uuid, is_found):
        last = TableEntry("n", "u", 2, 2, offsets=at(5), snapshot_ms=2000)
        kept = {f"{LAST}j": json.dumps(last.values())}
        found = TableEntry("n", uuid, offsets=at(5) if is_found else {})
        assert find_recorded("n", Table(*snapshots, uuid=uuid, properties=kept), "j") == found

    def it_finds_ancestors(self):
        table = Table(Snapshot(1, None), Snapshot(2, 1), Snapshot(3, 1), Snapshot(4, 3))
        actual = [is_ancestor(table, number) for number in (1, 2, 3, 4)]
        assert (actual, is_ancestor(table, 1, back_to=3)) == ([True, False, True, True], False)
        assert (current_snapshot_id(table), current_snapshot_id(Table())) == (4, None)
