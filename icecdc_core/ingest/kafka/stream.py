"""The stream of batches out of Kafka, by Spark Structured Streaming; each with the offsets it covers.

The checkpoint lives as long as the query. Where to start is known from the tables and the commit log, so there is no
second truth that could be lost or contradict the first.
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

_LOOK_SECONDS = 0.2
# A consumer reads from its socket only while it is asked for records. With Kafka's defaults, made for services that
# handle one at a time (500 records, 64 KB), asking takes a third of the time of reading. Bytes but for the first.
_BULK_READING = {
    "max.poll.records": "5000",
    "max.partition.fetch.bytes": str(4 * 1024 * 1024),
    "receive.buffer.bytes": str(1024 * 1024),
}

Work = Callable[[DataFrame, Offsets, Offsets], None]
"""Gets the records of a batch, where it starts and where it ends."""


def run_stream(
    spark: SparkSession,
    config: IngestConfig,
    topics: list[str],
    start: Offsets,
    work: Work,
    should_end: Callable[[], bool],
) -> None:
    """Give batch after batch to `work`, until everything is read, or `should_end` says so, between two batches.

    Raises:
        Exception: What `work` raised.
        PySparkException: What Spark raised by itself.
    """
    checkpoint = Path(tempfile.mkdtemp(prefix="icecdc-ingest-"))
    at = start
    failures: list[BaseException] = []
    # A stream that is stopped in the middle of a batch would do the whole of it again.
    moment, working, ending = threading.Lock(), False, False

    def may_work() -> bool:
        nonlocal working, ending
        with moment:
            # Asked here too: between batches that follow one another at once nobody else may find the time to.
            ending = ending or should_end()
            working = not ending
        return working

    def may_end() -> bool:
        nonlocal ending
        with moment:
            ending = ending or (not working and should_end())
        return ending

    def one_batch(records: DataFrame, number: int) -> None:
        nonlocal at, working
        if not may_work():
            return  # what Spark takes for done is forgotten with the checkpoint
        end = offsets.furthest(at, _end_of(checkpoint, number))
        try:
            work(records, at, end)
        except BaseException as error:
            failures.append(error)
            # Spark waits for ever for the answer of a callback that ends in anything but an exception of this kind.
            raise IcecdcError("The batch was cut off") from error
        finally:
            working = False
        at = end

    query: StreamingQuery | None = None
    try:
        writer = _reader(spark, config, topics, start).load().writeStream.foreachBatch(one_batch)
        writer = writer.option("checkpointLocation", checkpoint.as_uri()).queryName(f"icecdc ingest {config.job}")
        if config.trigger == "available_now":
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{config.trigger_interval_seconds} seconds")
        query = writer.start()
        while not query.awaitTermination(_LOOK_SECONDS):  # type: ignore[arg-type]
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
        "startingOffsets": offsets.text(start),
        "includeHeaders": "true",
        # What is gone must not be skipped in silence: the plan for the next stream decides about it.
        "failOnDataLoss": "true",
    }
    options |= {"subscribePattern": config.topic_pattern} if config.topic_pattern else {"subscribe": ",".join(topics)}
    if config.max_records_per_batch:
        options["maxOffsetsPerTrigger"] = str(config.max_records_per_batch)
    return spark.readStream.format("kafka").options(**options)


def _end_of(checkpoint: Path, number: int) -> Offsets:
    """Where a batch ends: Spark writes it down before it runs the batch."""
    return offsets.parse((checkpoint / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()[2])
