"""How a run of the ingest goes from stream to stream, and which metrics it publishes."""

from contextlib import nullcontext
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from icecdc_core.errors import LostOffsetsError
from icecdc_core.ingest import IngestConfig, job
from icecdc_core.ingest.commit_log import BEHIND, LogEntry, LoggedJob, TableEntry
from icecdc_core.ingest.job import IngestRun
from icecdc_core.ingest.start_offsets import StreamStart


def config(**given):
    standard = {"job": "j", "bootstrap_servers": "127.0.0.1:9", "topics": "t", "table": "lake.ns.t"}
    return IngestConfig(**{**standard, **given})


@pytest.mark.parametrize(
    ("batches_before", "expected"),
    [([True] * 20, nullcontext()), ([False] * 6, pytest.raises(LostOffsetsError))],
    ids=["a batch between losses", "nothing between losses"],
)
def it_goes_on_after_lost_records_until_nothing_is_written_between_losses(monkeypatch, batches_before, expected):
    run, streams = IngestRun(None, config(on_lost_offsets="continue")), iter(batches_before)
    monkeypatch.setattr(job.commit_log, "read", lambda *given: LoggedJob(True))
    monkeypatch.setattr(job, "find_start", lambda *given: StreamStart(["t"], {}, {}))
    entry = SimpleNamespace(offsets={}, valid_through=None)
    made = lambda *given: SimpleNamespace(last=None, behind={}, recovering={}, refills=set())  # noqa: E731
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
    monkeypatch.setattr(job, "known_tables", lambda *given: [])
    run, ends = IngestRun(None, config(topics="a", on_lost_offsets=policy)), lambda names: {"a": {0: 6}}
    run._run_streams(SimpleNamespace(names=lambda: ["a"], ids=lambda names: {}, earliest=ends, latest=ends))
    report = run._report()
    assert (report.state, report.behind) == ("partial" if behind else "ok", behind)
    assert [table["error"] for table in report.tables.values()] == ["lacks records of b"] * len(behind)
    lost = [{"topic": "b", "partition": 0, "from": 7, "to": 9}]
    assert report.lost == ([] if behind else lost)
    reached = {"a": {0: 6}, "b": {0: 9}}
    assert [entry.tables for entry in written] == ([] if behind else [[TableEntry("t", offsets=reached)]])


def it_reads_the_keys_of_tombstones_by_the_identifier_fields_of_the_table(monkeypatch):
    schema = SimpleNamespace(identifierFieldNames=lambda: {"id"})
    monkeypatch.setattr(job, "load_table", lambda spark, name: SimpleNamespace(schema=lambda: schema))
    made = []
    for mode in ("upsert", "append"):
        run = IngestRun(None, config(mode=mode))
        batches = run._new_batches(SimpleNamespace(earliest=lambda names: {}), StreamStart([], {}, {}), LoggedJob())
        made.append((batches.config.identifier_columns, batches.writer.config.identifier_columns))
    assert made == [(["id"], ["id"]), ([], [])]


@pytest.mark.parametrize(("start", "ends"), [(0, [False, False, False, True]), (6, [False, False, True, True])])
def it_retries_a_table_only_after_the_others_had_time_with_new_records(monkeypatch, start, ends):
    clock = [0.0]
    run = IngestRun(None, config(trigger="continuous"), lambda: clock[0])
    entry = LogEntry("j", 0, "r", "batch", {})
    batches = SimpleNamespace(number=0, behind={"a": None}, recovering={}, complete={"t": {0: 6}})
    batches.process, batches.complete_through = lambda *given: entry, lambda: None
    actual = []

    def stream(spark, config, topics, begin, process, should_end):
        for end in (3, 6, 7):
            actual.append(should_end())
            clock[0] += 10
            process(None, {}, {"t": {0: end}})
        clock[0] += 10
        actual.append(should_end())

    monkeypatch.setattr(job, "run_stream", stream)
    run._stream(StreamStart(["t"], {"t": {0: start}}, {"t": {0: 9}}), batches, 15.0)
    assert actual == ends


THROUGH = datetime(2026, 11, 24, tzinfo=UTC)


def it_publishes_counts_and_the_time_that_the_tables_have_reached(tmp_path):
    chosen = config(job="raw", table="lake.ns.raw", trigger="continuous", metrics_folder=str(tmp_path))
    run = IngestRun(None, chosen, lambda: 0.0)
    run.written.counts |= {"records": 5, "rows_written": 4, "dead_letters": 1}
    run._publish_progress(SimpleNamespace(complete_through=lambda: THROUGH, behind={"t": None}, recovering={"t": {}}))
    lines = (tmp_path / "icecdc-raw-ingest.prom").read_text().splitlines()
    found = {line.partition("{")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}
    assert found == {
        "icecdc_ingest_records": 5,
        "icecdc_ingest_rows": 4,
        "icecdc_ingest_dead_letters": 1,
        "icecdc_ingest_tables_behind": 1,
        "icecdc_ingest_complete_through_timestamp_seconds": THROUGH.timestamp(),
    }
