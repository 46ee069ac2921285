"""When a stream may end, which offsets a batch covers, and failures of Spark and Kafka as typed errors."""

from unittest.mock import Mock

import pytest
from pyspark.errors import PySparkException

from icecdc_core.errors import ConfigError, DiskFullError, IcecdcError, KafkaError, LostOffsetsError
from icecdc_core.ingest.kafka import StreamCallback, typed_failure, typed_stream_failure
from icecdc_core.ingest.offsets import to_json

START = {"t": {0: 2, 1: 5}}


@pytest.fixture
def callback(tmp_path):
    """Make a callback beside a checkpoint in which Spark wrote the ends of two batches."""
    (tmp_path / "offsets").mkdir()
    for number, end in enumerate(({"t": {0: 4, 1: 5}}, {"t": {0: 4, 1: 9}})):
        (tmp_path / "offsets" / str(number)).write_text(f"v1\n{{}}\n{to_json(end)}", encoding="utf-8")
    return lambda process, should_end=lambda: False: StreamCallback(process, should_end, tmp_path, START)


class DescribeStreamCallback:
    def it_gives_each_batch_the_offsets_from_the_end_of_the_one_before(self, callback):
        batches = []
        made = callback(lambda *given: batches.append(given))
        made.process_batch("first", 0)
        made.process_batch("second", 1)
        assert batches == [("first", START, {"t": {0: 4, 1: 5}}), ("second", {"t": {0: 4, 1: 5}}, {"t": {0: 4, 1: 9}})]

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

    @pytest.mark.parametrize("failure", [ValueError("wrong"), SystemExit("killed"), KeyboardInterrupt()])
    def it_keeps_the_failure_of_a_batch_and_lets_the_stream_end(self, callback, failure):
        made = callback(Mock(side_effect=failure), [True, False].pop)
        # An error that Spark can pass on: it waits forever for a callback that ends with SystemExit.
        with pytest.raises(IcecdcError, match="cut off"):
            made.process_batch("first", 0)
        assert (made.failure, made.may_end()) == (failure, True)


FRAMES = "\n\tat org.apache.kafka.clients.consumer.internals.FetchCollector.run(FetchCollector.java:1)"
REMOVED = f"org.apache.kafka.clients.consumer.OffsetOutOfRangeException: Fetch position is out of range{FRAMES}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Spark's own message, as driver and executors raise it.
        ("[KAFKA_DATA_LOSS.PARTITIONS_DELETED] Some data may have been lost because they are not available", True),
        # Kafka's exception, known by its class.
        (f"Job aborted due to stage failure: Lost task 0.0 in stage 1.0 (TID 1)\nCaused by: {REMOVED}", True),
        (f"Lost task 0.0 in stage 1.0 (TID 1): {REMOVED}", True),
        ("Job aborted due to stage failure", False),
    ],
)
def it_recognizes_records_that_were_removed_while_a_batch_read_them(text, expected):
    actual = typed_stream_failure(PySparkException(text), "127.0.0.1:9")
    assert isinstance(actual, LostOffsetsError) == expected
    assert isinstance(typed_failure(PySparkException(text), "t"), LostOffsetsError) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("org.apache.kafka.common.errors.CorruptRecordException: wrong checksum", KafkaError),
        ("kafkashaded.org.apache.kafka.common.errors.CorruptRecordException: wrong checksum", KafkaError),
        # A partition that was just added.
        ("assertion failed: If startingOffsets contains specific offsets, you must specify all TopicPartitions.",
            KafkaError),
        ("[KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED] Partitions specified for Kafka start offsets don't match",
            KafkaError),
        ("java.io.IOException: No space left on device", DiskFullError),
        ("something else", type(None)),
    ],
)  # fmt: skip
def it_types_failures_of_kafka_and_of_the_machine_and_leaves_others(text, expected):
    assert type(typed_stream_failure(PySparkException(text), "127.0.0.1:9")) is expected
    if expected is DiskFullError:
        assert type(typed_failure(PySparkException(text), "t")) is expected
    error = ConfigError("wrong", subject="topics")
    assert typed_failure(error, "t") is error
