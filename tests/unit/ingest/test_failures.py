"""Failures of Spark and Kafka as the typed errors of an ingest."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from icecdc_core.errors import ConfigError, DiskFullError, IngestWriteError, KafkaError, LostOffsetsError
from icecdc_core.ingest.kafka import typed_failure, typed_stream_failure

FRAMES = "\n\tat org.apache.kafka.clients.consumer.internals.FetchCollector.run(FetchCollector.java:1)"
REMOVED = f"org.apache.kafka.clients.consumer.OffsetOutOfRangeException: Fetch position is out of range{FRAMES}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Spark's own message, as driver and executors raise it.
        ("[KAFKA_DATA_LOSS.PARTITIONS_DELETED] Some data may have been lost because they are not available", True),
        ("If you don't want your streaming query to fail on such cases, set the source option failOnDataLoss", True),
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


def it_keeps_an_error_that_is_typed_already():
    error = ConfigError("wrong", subject="topics")
    assert typed_failure(error, "t") is error


def it_types_a_failure_of_the_machine_in_any_stage():
    error = PySparkException("java.io.IOException: No space left on device")
    assert isinstance(typed_failure(error, "t"), DiskFullError)
    assert isinstance(typed_stream_failure(error, "127.0.0.1:9"), DiskFullError)


@pytest.mark.parametrize("package", ["org.apache.kafka", "kafkashaded.org.apache.kafka"])
def it_types_a_failure_of_kafka_by_its_package(package):
    error = PySparkException(f"{package}.common.errors.CorruptRecordException: wrong checksum")
    assert type(typed_stream_failure(error, "127.0.0.1:9")) is KafkaError


def it_leaves_other_failures_of_the_stream_as_they_are():
    assert typed_stream_failure(PySparkException("something else"), "127.0.0.1:9") is None


def it_says_the_innermost_cause_of_a_failed_write():
    error = PySparkException("Job aborted\nCaused by: java.lang.IllegalStateException: the cause\n\tat a.B.c(B.java:1)")
    actual = typed_failure(error, "`lake`.`ns`.`t`")
    assert isinstance(actual, IngestWriteError)
    assert (actual.message, actual.value) == (
        "The table could not be written: java.lang.IllegalStateException: the cause",
        "`lake`.`ns`.`t`",
    )
