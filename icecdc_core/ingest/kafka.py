"""Kafka: the topics of the brokers, the stream of micro-batches, and the errors of both."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partialmethod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from icecdc_core import errors
from icecdc_core.ingest import offsets
from icecdc_core.ingest.config import IngestConfig
from icecdc_core.ingest.offsets import Offsets
from icecdc_core.secrets import mask_secrets
from icecdc_core.session.compat import has_class
from icecdc_core.session.jvm import SPARK_HAS_ENDED, causes, java_class, root_cause
from icecdc_core.table.catalogs import describe_failure
from icecdc_core.table.failures import known_failure

# A consumer reads from its socket only while it is polled. With Kafka's defaults (500 records, 64 KB), which suit
# services that process single records, polling takes a third of the time. The two last values are bytes.
_BULK_READING = {
    "max.poll.records": "5000",
    "max.partition.fetch.bytes": str(4 * 1024 * 1024),
    "receive.buffer.bytes": str(1024 * 1024),
}

ProcessBatch = Callable[[DataFrame, Offsets, Offsets], None]
"""Gets the records of a batch, where it starts and where it ends."""


@dataclass
class StreamCallback:
    """What Spark calls for each batch; it adds the offsets at which the batch starts and ends."""

    # The stream ends only between two batches, as one that is stopped halfway would be processed again: Spark's thread
    # asks before each batch, the thread that started the stream between them.

    process: ProcessBatch
    should_end: Callable[[], bool]
    checkpoint: Path
    at: Offsets
    failure: BaseException | None = None
    is_ending: bool = False
    processing: threading.Lock = field(default_factory=threading.Lock)

    def process_batch(self, records: DataFrame, number: int) -> None:
        with self.processing:
            self.is_ending = self.is_ending or self.should_end()
            if self.is_ending:
                return  # Spark regards the batch as done, but its checkpoint is deleted
            # Spark writes the end into the checkpoint before it runs the batch.
            written = (self.checkpoint / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()[2]
            end = offsets.furthest(self.at, offsets.from_json(written))
            try:
                self.process(records, self.at, end)
            except BaseException as error:
                self.failure = self.failure or error
                # Spark waits forever for a callback that ends with SystemExit or KeyboardInterrupt.
                raise errors.IcecdcError("The batch was cut off") from error
            self.at = end

    def may_end(self) -> bool:
        if not self.processing.acquire(blocking=False):
            return False
        try:
            self.is_ending = self.is_ending or self.should_end()
            return self.is_ending
        finally:
            self.processing.release()


def run_stream(
    spark: SparkSession,
    config: IngestConfig,
    topics: list[str],
    start: Offsets,
    process: ProcessBatch,
    should_end: Callable[[], bool],
) -> None:
    """Run a stream until all records are processed, or until `should_end` returns True between two batches."""
    # Spark takes a topic in which it finds the pattern; the whole name must match it.
    whole = {"subscribePattern": rf"^(?:{config.topic_pattern})\z"}
    limit = config.max_records_per_batch
    options = {
        **{f"kafka.{key}": value for key, value in {**_BULK_READING, **config.client_properties}.items()},
        **(whole if config.topic_pattern else {"subscribe": ",".join(topics)}),
        **({"maxOffsetsPerTrigger": str(limit)} if limit else {}),
        "startingOffsets": offsets.to_json(start),
        "includeHeaders": "true",
        # Spark must not skip removed records: the start of the next stream decides about them.
        "failOnDataLoss": "true",
    }
    records = spark.readStream.format("kafka").options(**options).load()
    writer = records.writeStream.queryName(f"icecdc ingest {config.job}")
    if config.trigger == "available_now":
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{config.trigger_interval_seconds} seconds")
    with TemporaryDirectory(prefix="icecdc-ingest-", ignore_cleanup_errors=True) as folder:
        callback = StreamCallback(process, should_end, Path(folder), start)
        writer = writer.option("checkpointLocation", Path(folder).as_uri()).foreachBatch(callback.process_batch)
        query = writer.start()
        try:
            while not query.awaitTermination(0.2) and not callback.may_end():  # type: ignore[arg-type]
                pass
        except PySparkException:
            if callback.failure is not None:
                raise callback.failure from None
            raise
        finally:
            with suppress(*SPARK_HAS_ENDED):
                query.stop()


_PACKAGE, _OF_DATABRICKS = "org.apache.kafka", "kafkashaded.org.apache.kafka"
_NO_ID = "A" * 22
_NO_ACCESS = re.compile(r"\w*(Authentication|Authorization|Sasl)\w*Exception")
_UNREACHABLE = frozenset({"TimeoutException", "DisconnectException", "NetworkException"})
# A host name that cannot be resolved has the class of any wrong property.
_NO_SUCH_HOST = "No resolvable bootstrap"


class Topics:
    """A Kafka client that reads metadata only; it belongs to no consumer group."""

    def __init__(self, spark: SparkSession, config: IngestConfig) -> None:
        self._config, self._spark = config, spark
        loader = java_class(spark, "org.apache.spark.util.Utils").getContextOrSparkClassLoader()
        shaded = has_class(loader, f"{_OF_DATABRICKS}.clients.consumer.KafkaConsumer")
        self._package = _OF_DATABRICKS if shaded else _PACKAGE
        given = config.client_properties
        # Kafka refuses a request timeout that is longer than the API timeout.
        timeout = given.get("request.timeout.ms", "20000")
        properties = {"request.timeout.ms": timeout, "default.api.timeout.ms": timeout, **given}
        reader = f"{self._package}.common.serialization.ByteArrayDeserializer"
        properties |= {"key.deserializer": reader, "value.deserializer": reader}
        with kafka_errors(config.bootstrap_servers):
            self._consumer = self._class("clients.consumer.KafkaConsumer")(properties)
            self._admin = self._class("clients.admin.AdminClient").create(properties)

    def names(self) -> list[str]:
        by_pattern = bool(self._config.topic_pattern)
        with kafka_errors(self._config.bootstrap_servers):
            # The administrator's list is the one that Spark matches with a pattern: it has no internal topics.
            listed = self._admin.listTopics().names().get() if by_pattern else self._consumer.listTopics().keySet()
            existing = sorted(str(name) for name in listed)
        if by_pattern:
            pattern = java_class(self._spark, "java.util.regex.Pattern").compile(self._config.topic_pattern)
            wanted = [name for name in existing if pattern.matcher(name).matches()]
        else:
            wanted = self._config.topics
        if missing := [name for name in wanted if name not in existing] or not wanted:
            raise errors.TopicNotFoundError(
                "There is no such topic on the brokers",
                subject="topic_pattern" if by_pattern else "topics",
                value=self._config.topic_pattern or missing,
                remedy="check the name, and that these credentials may read the topic; it must exist before the run",
            )
        return wanted

    def ids(self, names: list[str]) -> dict[str, str]:
        """Return the id of each topic; brokers before Kafka 2.8 have none."""
        with kafka_errors(self._config.bootstrap_servers):
            described = self._describe(names)
            ids = {name: str(described.get(name).topicId().toString()) for name in names}
        return {name: identifier for name, identifier in ids.items() if identifier != _NO_ID}

    def _describe(self, names: list[str]) -> Any:
        return self._admin.describeTopics(names).allTopicNames().get()

    def at(self, names: list[str], moment: datetime) -> Offsets:
        """Return the first offset of each partition since a moment, or the latest offset."""
        latest, partition = self.latest(names), self._class("common.TopicPartition")
        times = {partition(topic, number): int(moment.timestamp() * 1000) for topic, number, _ in offsets.each(latest)}
        with kafka_errors(self._config.bootstrap_servers):
            answer = self._consumer.offsetsForTimes(times).items()
            since = [(key.topic(), key.partition(), entry.offset()) for key, entry in answer if entry is not None]
        return offsets.at_most(latest, offsets.from_entries(since))

    def ages(self, start: Offsets, end: Offsets, until: float) -> dict[tuple[str, int], float]:
        """The age of the first record from each offset on, 0 at the end; without those that take longer than until."""
        make, found = self._class("common.TopicPartition"), {(t, p): 0.0 for t, p, _ in offsets.each(end)}
        wanted = {(t, p): make(t, p) for t, p, last in offsets.each(end) if offsets.get(start, t, p) < last}
        wait = java_class(self._spark, "java.time.Duration").ofMillis(200)
        with kafka_errors(self._config.bootstrap_servers):
            self._consumer.unsubscribe()  # or partitions would stay paused
            self._consumer.assign(list(wanted.values()))
            for (topic, number), partition in wanted.items():
                self._consumer.seek(partition, offsets.get(start, topic, number))
            while wanted and time.monotonic() < until:
                polled = self._consumer.poll(wait)
                for (topic, number), partition in list(wanted.items()):
                    records, last = polled.records(partition), end[topic][number]
                    if not records.isEmpty() and records.get(0).offset() < last:
                        found[topic, number] = max(0.0, round(time.time() - records.get(0).timestamp() / 1000, 3))
                    elif self._consumer.position(partition) < last:
                        continue
                    self._consumer.pause([wanted.pop((topic, number))])
        return {place: age for place, age in found.items() if place not in wanted}

    def close(self) -> None:
        with suppress(*SPARK_HAS_ENDED):
            self._consumer.close()
            self._admin.close()

    def _offsets(self, method: str, names: list[str]) -> Offsets:
        with kafka_errors(self._config.bootstrap_servers):
            # Not by the consumer, which learns of new partitions after minutes.
            make, described = self._class("common.TopicPartition"), self._describe(names)
            sizes = {name: described.get(name).partitions().size() for name in names}
            partitions = [make(name, number) for name, size in sizes.items() for number in range(size)]
            # As one text: with thousands of partitions, a call for each would take seconds.
            text = str(getattr(self._consumer, method)(partitions).toString())
        entries = re.findall(r"([\w.-]+)-(\d+)=(\d+)", text)
        return offsets.from_entries((topic, int(number), int(offset)) for topic, number, offset in entries)

    earliest = partialmethod(_offsets, "beginningOffsets")
    # The offset after the last readable record of each partition.
    latest = partialmethod(_offsets, "endOffsets")

    def _class(self, name: str) -> Any:
        return java_class(self._spark, f"{self._package}.{name}")


@contextmanager
def kafka_errors(bootstrap_servers: str) -> Iterator[None]:
    try:
        yield
    except Py4JError as error:
        raise typed_error(error, bootstrap_servers) from error


def typed_error(error: PySparkException | Py4JError, bootstrap_servers: str) -> errors.KafkaError:
    chain = causes(error)
    reason = describe_failure(error)[:500]
    if any(_NO_ACCESS.fullmatch(cause.kind) for cause in chain):
        return errors.KafkaAuthError(
            f"The brokers refuse the credentials, or this user lacks a permission: {reason}",
            subject="kafka_options",
            remedy="check security.protocol and sasl.* in kafka_options, and that this user may read the topics",
        )
    if any(cause.kind in _UNREACHABLE or _NO_SUCH_HOST in cause.text for cause in chain):
        return errors.KafkaUnreachableError(
            f"No broker answers: {reason}",
            subject="bootstrap_servers",
            value=bootstrap_servers,
            remedy="check address, network and security.protocol; nothing was lost, run again",
        )
    return errors.KafkaError(
        f"Kafka failed: {reason}",
        subject="bootstrap_servers",
        value=bootstrap_servers,
        remedy="see the reason, and check kafka_options; on Databricks the names of login modules begin with "
        "kafkashaded.",
    )


# Spark's own message. Other failures of its Kafka source have the same class.
_LOST_TEXT = re.compile("data may have been lost|failOnDataLoss")
_ADDED_TEXT = re.compile("you must specify all TopicPartitions|KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED")
# By text: many exceptions of Kafka have no stack trace, so only the text has their package.
_KAFKA = re.compile(r"org\.apache\.kafka\.|kafkashaded\.")


def typed_failure(error: Exception, table: str) -> errors.IcecdcError:
    if (typed := known_cause(error)) is not None:
        return typed
    is_java = isinstance(error, (PySparkException, Py4JError))
    text = root_cause(error) if is_java else f"{type(error).__name__}: {error}"
    reason = mask_secrets(text.strip().partition("\n")[0])[:500]
    failure = errors.IngestWriteError(
        f"The table could not be written: {reason}",
        subject="table",
        value=table,
        remedy="remove the cause; the next run reads the records again. If it is one record that nothing else rejects, "
        "a lower max_records_per_batch (1 in the end) finds it: the commit log has the offsets of each batch",
    )
    failure.__cause__ = error
    return failure


def typed_stream_failure(error: PySparkException | Py4JError, bootstrap_servers: str) -> errors.IcecdcError | None:
    """Return the typed error for a failure of the stream itself; None for an unknown one."""
    if (known := known_cause(error)) is not None:
        return known
    text = root_cause(error)
    if _ADDED_TEXT.search(text):
        return errors.KafkaError(
            "A topic or partition was just added", subject="topics", remedy="run again, nothing is lost"
        )
    return typed_error(error, bootstrap_servers) if _KAFKA.search(text) else None


def known_cause(error: Exception) -> errors.IcecdcError | None:
    if not isinstance(error, (PySparkException, Py4JError)):
        return error if isinstance(error, errors.IcecdcError) else None
    text = root_cause(error)
    if (known := known_failure(text)) is not None:
        return known
    if not _LOST_TEXT.search(text) and all(cause.kind != "OffsetOutOfRangeException" for cause in causes(error)):
        return None
    return errors.LostOffsetsError(
        "Records were removed from the topic just before they were read",
        subject="topics",
        remedy="run again: the error of that run names the lost records; on_lost_offsets decides what happens then",
    )
