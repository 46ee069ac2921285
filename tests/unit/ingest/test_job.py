"""How an ingest goes from stream to stream and from batch to batch, and failures as typed errors."""

from contextlib import nullcontext
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkException

from icecdc_core.errors import ConfigError, DiskFullError, IngestWriteError, KafkaError, LostOffsetsError
from icecdc_core.ingest import IngestConfig, job
from icecdc_core.ingest.commit_log import BEHIND, LoggedJob, TableEntry
from icecdc_core.ingest.job import IngestRun
from icecdc_core.ingest.kafka import StreamCallback, typed_failure, typed_stream_failure
from icecdc_core.ingest.offsets import to_json
from icecdc_core.ingest.start_offsets import StreamStart


@pytest.fixture(autouse=True)
def _no_dead_letters(monkeypatch):
    monkeypatch.setattr(job, "judged_before", lambda *given: {})


def config(**given):
    standard = {"job": "j", "bootstrap_servers": "127.0.0.1:9", "topics": "t", "table": "lake.ns.t"}
    return IngestConfig(**{**standard, **given})


@pytest.fixture(autouse=True)
def without_telemetry(monkeypatch):
    """Other tests may have loaded it; then a run measures its lag."""
    monkeypatch.setattr(job.telemetry, "is_loaded", lambda: False)


@pytest.mark.parametrize(
    ("batches_before", "expected"),
    [([True] * 20, nullcontext()), ([False] * 6, pytest.raises(LostOffsetsError))],
    ids=["a batch between losses", "nothing between losses"],
)
def it_goes_on_after_lost_records_until_nothing_is_written_between_losses(monkeypatch, batches_before, expected):
    run, streams = IngestRun(None, config(on_lost_offsets="continue")), iter(batches_before)
    monkeypatch.setattr(job.commit_log, "read", lambda *given: LoggedJob(True))
    monkeypatch.setattr(job.start_offsets, "find_start", lambda *given: StreamStart(["t"], {}))
    entry = SimpleNamespace(offsets={}, valid_through=None)
    made = lambda *given: SimpleNamespace(last=None, behind={}, recovering={})  # noqa: E731
    monkeypatch.setattr(run, "_new_batches", made)

    def stream(start, batches, pause):
        """Lose records, after a batch was written or before; one more stream ends well."""
        has_batch = next(streams, None)
        if has_batch is None:
            return
        batches.last = entry if has_batch else None
        raise LostOffsetsError("lost")

    monkeypatch.setattr(run, "_stream", stream)
    with expected:
        run._run_streams(None)


@pytest.mark.parametrize(("policy", "behind"), [("fail", ["t"]), ("continue", [])])
def it_says_that_a_table_is_behind_also_if_nothing_is_new(monkeypatch, policy, behind):
    written = []
    lacks = TableEntry("t", state=BEHIND, offsets={"a": {0: 6}, "b": {0: 7}}, error="lacks records of b")
    logged = LoggedJob(True, 1, {"a": {0: 6}, "b": {0: 9}}, {}, {"t": lacks})
    monkeypatch.setattr(job.commit_log, "read", lambda *given: logged)
    monkeypatch.setattr(job.commit_log, "write", lambda spark, name, entry: written.append(entry))
    monkeypatch.setattr(job.start_offsets, "known_tables", lambda *given: [])
    run, ends = IngestRun(None, config(topics="a", on_lost_offsets=policy)), lambda names: {"a": {0: 6}}
    topics = SimpleNamespace(names=lambda: ["a"], ids=lambda names: {}, earliest=ends, latest=ends)
    report = run._report(*run._run_streams(topics))
    assert (report.state, report.behind) == ("partial" if behind else "ok", behind)
    assert [table["error"] for table in report.tables.values()] == ["lacks records of b"] * len(behind)
    lost = [{"topic": "b", "partition": 0, "from": 7, "to": 9}]
    assert report.lost == ([] if behind else lost)
    reached = {"a": {0: 6}, "b": {0: 9}}
    assert [entry.tables for entry in written] == ([] if behind else [[TableEntry("t", offsets=reached)]])


THROUGH = datetime(2026, 11, 24, tzinfo=UTC)


def it_publishes_counts_and_the_time_that_the_tables_have_reached_and_what_they_lack(tmp_path, monkeypatch):
    lag = {"lag_records": 7, "lag_seconds": 60.5}
    measured = [{"topic": "t", "partition": 3, **lag}], [{"destination": "raw", **lag, "lag_seconds": None}]
    monkeypatch.setattr(job, "measure", lambda *given, seconds: measured)
    monkeypatch.setattr(job.commit_log, "read", lambda *given: LoggedJob())
    chosen = config(job="raw", table="lake.ns.raw", trigger="continuous", metrics_folder=str(tmp_path))
    run = IngestRun(None, chosen, lambda: 0.0)
    run.counts |= {"records": 5, "rows_written": 4, "dead_letters": 1}
    through = {"complete_through": lambda: THROUGH, "topics": None}
    run._publish_progress(SimpleNamespace(**through, behind={"t": None}, recovering={"t": {}}))
    lines = (tmp_path / "icecdc-raw-ingest.prom").read_text().splitlines()
    found = {line.partition("{")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}
    assert found["icecdc_ingest_complete_through_timestamp_seconds"] == THROUGH.timestamp()
    names = "records", "rows", "dead_letters", "filtered", "tables_behind", "lag_seconds", "table_lag_records"
    assert [found[f"icecdc_ingest_{name}"] for name in names] == [5, 4, 1, 0, 1, 60.5, 7]


START = {"t": {0: 2, 1: 5}}


@pytest.fixture
def callback(tmp_path):
    """Make a callback beside a checkpoint in which Spark wrote the ends of two batches."""
    (tmp_path / "offsets").mkdir()
    for number, end in enumerate(({"t": {0: 4, 1: 5}}, {"t": {0: 4, 1: 9}})):
        (tmp_path / "offsets" / str(number)).write_text(f"v1\n{{}}\n{to_json(end)}", encoding="utf-8")
    return lambda process, should_end=lambda: False: StreamCallback(process, should_end, tmp_path, START)


class DescribeStreamCallback:
    def it_lets_the_stream_end_between_two_batches_only(self, callback):
        during, answers = [], [True, False]
        made = callback(lambda *given: during.append(made.may_end()), answers.pop)
        made.process_batch("first", 0)
        # Not even asked while a batch was running.
        assert (during, list(answers), made.may_end()) == ([False], [True], True)

    def it_skips_batches_once_the_stream_is_to_end_whatever_is_answered_later(self, callback):
        batches, answers = [], [False, True]
        made = callback(batches.append, answers.pop)
        made.process_batch("first", 0)
        made.process_batch("second", 1)
        assert (batches, made.may_end()) == ([], True)
        # It may also end before the first batch.
        assert [callback(None, [wanted].pop).may_end() for wanted in (True, False)] == [True, False]


FRAMES = "\n\tat org.apache.kafka.clients.consumer.internals.FetchCollector.run(FetchCollector.java:1)"
REMOVED = f"org.apache.kafka.clients.consumer.OffsetOutOfRangeException: Fetch position is out of range{FRAMES}"


def it_types_failures_of_kafka_and_of_the_machine_and_leaves_others():
    for text, of_stream, of_table in (
        # Removed records: Spark's own message, and Kafka's exception, as driver and executors raise it.
        ("[KAFKA_DATA_LOSS.PARTITIONS_DELETED] Some data may have been lost because they are not available",
            LostOffsetsError, LostOffsetsError),
        (f"Job aborted due to stage failure: Lost task 0.0 in stage 1.0 (TID 1)\nCaused by: {REMOVED}",
            LostOffsetsError, LostOffsetsError),
        ("kafkashaded.org.apache.kafka.common.errors.CorruptRecordException: wrong", KafkaError, IngestWriteError),
        # A partition that was just added.
        ("assertion failed: If startingOffsets contains specific offsets, you must specify all TopicPartitions.",
            KafkaError, IngestWriteError),
        ("[KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED] Partitions specified for Kafka start offsets don't match",
            KafkaError, IngestWriteError),
        ("java.io.IOException: No space left on device", DiskFullError, DiskFullError),
        ("Job aborted due to stage failure", type(None), IngestWriteError),
    ):  # fmt: skip
        assert type(typed_stream_failure(PySparkException(text), "127.0.0.1:9")) is of_stream
        assert type(typed_failure(PySparkException(text), "t")) is of_table
    error = ConfigError("wrong", subject="topics")
    assert typed_failure(error, "t") is error
