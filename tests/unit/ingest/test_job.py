"""How a run of the ingest goes from stream to stream."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from icecdc_core.errors import LostOffsetsError
from icecdc_core.ingest import IngestConfig, job
from icecdc_core.ingest.commit_log import LoggedJob
from icecdc_core.ingest.job import IngestRun
from icecdc_core.ingest.start_offsets import StreamStart


class DescribeLostRecords:
    def run(self, monkeypatch, batches_before):
        """A run whose streams lose records, each after it wrote a batch or before; one more ends well."""
        config = IngestConfig(
            job="j", bootstrap_servers="127.0.0.1:9", topics="t", table="lake.ns.t", on_lost_offsets="continue"
        )
        run, streams = IngestRun(None, config), iter(batches_before)
        monkeypatch.setattr(job.commit_log, "read", lambda *given: LoggedJob(True))
        monkeypatch.setattr(job, "find_start", lambda *given: StreamStart(["t"], {}, {}))
        entry = SimpleNamespace(offsets={}, valid_through=None)
        made = lambda *given: SimpleNamespace(last=None, behind={}, refills=set())  # noqa: E731
        monkeypatch.setattr(run, "_new_batches", made)

        def stream(start, batches, retry_at):
            has_batch = next(streams, None)
            if has_batch is None:
                return
            batches.last = entry if has_batch else None
            raise LostOffsetsError("lost")

        monkeypatch.setattr(run, "_stream", stream)
        run._run_streams(None)

    def it_goes_on_however_often_records_are_lost_between_batches(self, monkeypatch):
        self.run(monkeypatch, [True] * 20)

    def it_ends_when_nothing_is_written_between_losses(self, monkeypatch):
        with pytest.raises(LostOffsetsError):
            self.run(monkeypatch, [False] * 6)
