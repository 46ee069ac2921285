"""The stream of micro-batches out of Kafka, by Spark Structured Streaming, each with the offsets it covers.

The checkpoint lives as long as the query. The start offsets come from the tables and the commit log, so no second
record of them can be lost or contradict the first.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from icecdc_core.errors import IcecdcError
from icecdc_core.ingest.kafka import offsets
from icecdc_core.ingest.kafka.offsets import Offsets

if TYPE_CHECKING:
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


def run_stream(
    spark: SparkSession,
    config: IngestConfig,
    topics: list[str],
    start: Offsets,
    process: ProcessBatch,
    should_end: Callable[[], bool],
) -> None:
    """Run a stream until all records are processed, or until `should_end` returns True between two batches.

    Args:
        spark: The session.
        config: The job's parameters.
        topics: The topics to read.
        start: Where the stream starts.
        process: Processes a batch.
        should_end: Whether the stream should end before the next batch.

    Raises:
        Exception: What `process` raised.
        PySparkException: What Spark raised itself.
    """
    checkpoint = Path(tempfile.mkdtemp(prefix="icecdc-ingest-"))
    at = start
    failures: list[BaseException] = []
    # The stream ends only between batches: a batch that is stopped halfway would be processed again.
    lock, is_processing, is_ending = threading.Lock(), False, False

    def may_start_batch() -> bool:
        nonlocal is_processing, is_ending
        with lock:
            # Checked here too: if batches follow each other at once, the loop below finds no moment between them.
            is_ending = is_ending or should_end()
            is_processing = not is_ending
        return is_processing

    def may_end() -> bool:
        nonlocal is_ending
        with lock:
            is_ending = is_ending or (not is_processing and should_end())
        return is_ending

    def process_batch(records: DataFrame, number: int) -> None:
        nonlocal at, is_processing
        if not may_start_batch():
            return  # Spark regards the batch as done, but its checkpoint is deleted
        end = offsets.furthest(at, _end_of(checkpoint, number))
        try:
            process(records, at, end)
        except BaseException as error:
            failures.append(error)
            # Spark waits forever for a callback that ends with SystemExit or KeyboardInterrupt.
            raise IcecdcError("The batch was cut off") from error
        finally:
            is_processing = False
        at = end

    query: StreamingQuery | None = None
    try:
        writer = _reader(spark, config, topics, start).load().writeStream.foreachBatch(process_batch)
        writer = writer.option("checkpointLocation", checkpoint.as_uri()).queryName(f"icecdc ingest {config.job}")
        if config.trigger == "available_now":
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{config.trigger_interval_seconds} seconds")
        query = writer.start()
        while not query.awaitTermination(_CHECK_SECONDS):  # type: ignore[arg-type]
            if may_end():
                query.stop()
                break
    except PySparkException:
        if failures:
            raise failures[0] from None
        raise
    finally:
        if query is not None and query.isActive:
            query.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)


def _reader(spark: SparkSession, config: IngestConfig, topics: list[str], start: Offsets) -> Any:
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
