"""The stream of micro-batches out of Kafka, by Spark Structured Streaming, each with the offsets it covers.

The checkpoint lives as long as the query. The start offsets come from the tables and the commit log, so no second
record of them can be lost or contradict the first.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from icecdc_core.errors import IcecdcError
from icecdc_core.ingest.kafka import offsets
from icecdc_core.ingest.kafka.offsets import Offsets
from icecdc_core.session.jvm import SPARK_HAS_ENDED

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

    from icecdc_core.ingest.config import IngestConfig

_CHECK_SECONDS = 0.2
# A consumer reads from its socket only while it is polled. With Kafka's defaults (500 records, 64 KB), which suit
# services that process single records, polling takes a third of the time. The two last values are bytes.
_BULK_READING = {
    "max.poll.records": "5000",
    "max.partition.fetch.bytes": str(4 * 1024 * 1024),
    "receive.buffer.bytes": str(1024 * 1024),
}

ProcessBatch = Callable[[DataFrame, Offsets, Offsets], None]
"""Gets the records of a batch, where it starts and where it ends."""


class StreamGate:
    """Lets a stream end only between two batches, as a batch that is stopped halfway would be processed again.

    Spark's thread asks before each batch, the thread that started the stream between them.
    """

    def __init__(self, should_end: Callable[[], bool]) -> None:
        self._should_end = should_end
        self._lock = threading.Lock()
        self._is_processing = self._is_ending = False

    def start_batch(self) -> bool:
        """Return whether a batch may start; the caller then calls `end_batch` after it."""
        with self._lock:
            # Asked here too: if batches follow each other at once, `may_end` finds no moment between them.
            self._is_ending = self._is_ending or self._should_end()
            self._is_processing = not self._is_ending
            return self._is_processing

    def end_batch(self) -> None:
        """Note that the batch is over, also if it failed."""
        self._is_processing = False

    def may_end(self) -> bool:
        """Return whether the stream may be stopped now."""
        with self._lock:
            self._is_ending = self._is_ending or (not self._is_processing and self._should_end())
            return self._is_ending


class BatchCallback:
    """What Spark calls for each batch; it adds the offsets at which the batch starts and ends."""

    def __init__(self, process: ProcessBatch, gate: StreamGate, checkpoint: Path, start: Offsets) -> None:
        self._process = process
        self._gate = gate
        self._checkpoint = checkpoint
        self._at = start
        self.failure: BaseException | None = None

    def process_batch(self, records: DataFrame, number: int) -> None:
        """Process a batch, unless the stream is to end before it."""
        if not self._gate.start_batch():
            return  # Spark regards the batch as done, but its checkpoint is deleted
        end = offsets.furthest(self._at, _end_of(self._checkpoint, number))
        try:
            self._process(records, self._at, end)
        except BaseException as error:
            self.failure = self.failure or error
            # Spark waits forever for a callback that ends with SystemExit or KeyboardInterrupt.
            raise IcecdcError("The batch was cut off") from error
        finally:
            self._gate.end_batch()
        self._at = end


def run_stream(
    spark: SparkSession,
    config: IngestConfig,
    topics: list[str],
    start: Offsets,
    process: ProcessBatch,
    should_end: Callable[[], bool],
) -> None:
    """Run a stream until all records are processed, or until `should_end` returns True between two batches."""
    checkpoint = Path(tempfile.mkdtemp(prefix="icecdc-ingest-"))
    gate = StreamGate(should_end)
    callback = BatchCallback(process, gate, checkpoint, start)
    query: StreamingQuery | None = None
    try:
        query = _writer(spark, config, topics, start, checkpoint).foreachBatch(callback.process_batch).start()
        while not query.awaitTermination(_CHECK_SECONDS):  # type: ignore[arg-type]
            if gate.may_end():
                query.stop()
                break
    except PySparkException:
        if callback.failure is not None:
            raise callback.failure from None
        raise
    finally:
        if query is not None:
            with suppress(*SPARK_HAS_ENDED):
                query.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)


def _writer(
    spark: SparkSession, config: IngestConfig, topics: list[str], start: Offsets, checkpoint: Path
) -> DataStreamWriter:
    writer = _reader(spark, config, topics, start).load().writeStream.queryName(f"icecdc ingest {config.job}")
    writer = writer.option("checkpointLocation", checkpoint.as_uri())
    if config.trigger == "available_now":
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=f"{config.trigger_interval_seconds} seconds")


def _reader(spark: SparkSession, config: IngestConfig, topics: list[str], start: Offsets) -> DataStreamReader:
    options = {f"kafka.{key}": value for key, value in {**_BULK_READING, **config.client_properties}.items()}
    options |= {
        "startingOffsets": offsets.to_json(start),
        "includeHeaders": "true",
        # Spark must not skip removed records: the start of the next stream decides about them.
        "failOnDataLoss": "true",
    }
    options |= {"subscribePattern": config.topic_pattern} if config.topic_pattern else {"subscribe": ",".join(topics)}
    if config.max_records_per_batch:
        options["maxOffsetsPerTrigger"] = str(config.max_records_per_batch)
    return spark.readStream.format("kafka").options(**options)


def _end_of(checkpoint: Path, number: int) -> Offsets:
    """Return where a batch ends. Spark writes it into the checkpoint before it runs the batch."""
    return offsets.from_json((checkpoint / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()[2])
