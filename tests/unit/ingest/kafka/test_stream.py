"""When a stream may end, and which offsets a batch covers; without a broker."""

from __future__ import annotations

import pytest

from icecdc_core.errors import IcecdcError
from icecdc_core.ingest.kafka import BatchCallback, StreamGate
from icecdc_core.ingest.offsets import to_json

START = {"t": {0: 2, 1: 5}}


class DescribeStreamGate:
    def it_lets_a_stream_end_between_two_batches_only(self):
        answers = []
        gate = StreamGate(lambda: answers.pop())
        answers.append(False)
        assert gate.start_batch()
        # Not even asked while a batch is running.
        assert not gate.may_end()
        gate.end_batch()
        answers.append(True)
        assert gate.may_end()

    def it_starts_no_batch_once_the_stream_is_to_end(self):
        answers = [False, True]
        gate = StreamGate(lambda: answers.pop())
        # The stream ends for good, whatever is answered later.
        assert [gate.start_batch(), gate.start_batch(), gate.may_end()] == [False, False, True]

    def it_may_end_before_the_first_batch(self):
        assert StreamGate(lambda: True).may_end()
        assert not StreamGate(lambda: False).may_end()


@pytest.fixture
def checkpoint(tmp_path):
    """A checkpoint in which Spark wrote the ends of two batches."""
    (tmp_path / "offsets").mkdir()
    for number, end in enumerate(({"t": {0: 4, 1: 5}}, {"t": {0: 4, 1: 9}})):
        (tmp_path / "offsets" / str(number)).write_text(f"v1\n{{}}\n{to_json(end)}", encoding="utf-8")
    return tmp_path


class DescribeBatchCallback:
    def it_gives_each_batch_the_offsets_from_the_end_of_the_one_before(self, checkpoint):
        batches = []
        callback = BatchCallback(lambda *given: batches.append(given), StreamGate(lambda: False), checkpoint, START)
        callback.process_batch("first", 0)
        callback.process_batch("second", 1)
        assert batches == [
            ("first", START, {"t": {0: 4, 1: 5}}),
            ("second", {"t": {0: 4, 1: 5}}, {"t": {0: 4, 1: 9}}),
        ]

    def it_skips_a_batch_after_the_stream_was_to_end(self, checkpoint):
        batches = []
        BatchCallback(lambda *given: batches.append(given), StreamGate(lambda: True), checkpoint, START).process_batch(
            "first", 0
        )
        assert batches == []

    @pytest.mark.parametrize("failure", [ValueError("wrong"), SystemExit("killed"), KeyboardInterrupt()])
    def it_keeps_the_failure_of_a_batch_and_lets_the_stream_end(self, checkpoint, failure):
        def fail(*given):
            raise failure

        answers = [True, False]
        gate = StreamGate(lambda: answers.pop())
        callback = BatchCallback(fail, gate, checkpoint, START)
        # An error that Spark can pass on: it waits forever for a callback that ends with SystemExit.
        with pytest.raises(IcecdcError, match="cut off"):
            callback.process_batch("first", 0)
        assert (callback.failure, gate.may_end()) == (failure, True)
