"""Topics, partitions and offsets as the brokers report them, through the Kafka client in the JVM."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from icecdc_core.errors import KafkaAuthError, KafkaError, KafkaUnreachableError, TopicNotFoundError
from icecdc_core.ingest.kafka import offsets
from icecdc_core.ingest.kafka.offsets import Offsets
from icecdc_core.secrets import mask_secrets
from icecdc_core.session.java_causes import Cause, causes
from icecdc_core.session.jvm import SPARK_HAS_ENDED, java_class

if TYPE_CHECKING:
    from icecdc_core.ingest.config import IngestConfig

# Databricks ships the same classes in another package.
_PACKAGES = ("org.apache.kafka", "kafkashaded.org.apache.kafka")
_BYTES = "common.serialization.ByteArrayDeserializer"
_TIMEOUT_MS = "20000"
_NO_ID = "A" * 22
_NO_ACCESS = re.compile(r"\w*(Authentication|Authorization|Sasl)\w*Exception")
_UNREACHABLE = frozenset({"TimeoutException", "DisconnectException", "NetworkException"})
# A host name that cannot be resolved has the class of any wrong property.
_NO_SUCH_HOST = "No resolvable bootstrap"


class Topics:
    """A Kafka client that reads metadata only; it belongs to no consumer group."""

    def __init__(self, spark: SparkSession, config: IngestConfig) -> None:
        self._config = config
        self._spark = spark
        self._package = _package(spark)
        self._properties = java_class(self._spark, "java.util.HashMap")()
        given = config.client_properties
        # Kafka refuses a request timeout that is longer than the API timeout.
        timeout = given.get("request.timeout.ms", _TIMEOUT_MS)
        for key, value in {"request.timeout.ms": timeout, "default.api.timeout.ms": timeout, **given}.items():
            self._properties.put(key, value)
        readers = java_class(self._spark, "java.util.HashMap")(self._properties)
        for part in ("key", "value"):
            readers.put(f"{part}.deserializer", f"{self._package}.{_BYTES}")
        with kafka_errors(config.bootstrap_servers):
            self._consumer = self._class("clients.consumer.KafkaConsumer")(readers)
            self._admin = self._class("clients.admin.AdminClient").create(self._properties)

    def names(self) -> list[str]:
        """Return the names of the topics to read."""
        with kafka_errors(self._config.bootstrap_servers):
            existing = sorted(str(name) for name in self._consumer.listTopics().keySet())
        if self._config.topic_pattern:
            pattern = java_class(self._spark, "java.util.regex.Pattern").compile(self._config.topic_pattern)
            wanted = [name for name in existing if pattern.matcher(name).matches()]
        else:
            wanted = self._config.topics
        if missing := [name for name in wanted if name not in existing] or not wanted:
            raise TopicNotFoundError(
                "There is no such topic on the brokers",
                subject="topic_pattern" if self._config.topic_pattern else "topics",
                value=self._config.topic_pattern or missing,
                remedy="check the name, and that these credentials may read the topic; it must exist before the run",
            )
        return wanted

    def ids(self, names: list[str]) -> dict[str, str]:
        """Return the id of each topic; brokers before Kafka 2.8 have none."""
        with kafka_errors(self._config.bootstrap_servers):
            requested = java_class(self._spark, "java.util.ArrayList")()
            for name in names:
                requested.add(name)
            described = self._admin.describeTopics(requested).allTopicNames().get()
            ids = {name: str(described.get(name).topicId().toString()) for name in names}
        return {name: identifier for name, identifier in ids.items() if identifier != _NO_ID}

    def earliest(self, names: list[str]) -> Offsets:
        """Return the first offset that each partition still has."""
        return self._offsets("beginningOffsets", names)

    def latest(self, names: list[str]) -> Offsets:
        """Return the offset after the last readable record of each partition."""
        return self._offsets("endOffsets", names)

    def at(self, names: list[str], moment: datetime) -> Offsets:
        """Return the first offset of each partition since a moment, or the latest offset."""
        first = self.latest(names)
        times = java_class(self._spark, "java.util.HashMap")()
        partition = self._class("common.TopicPartition")
        for topic, number, _ in offsets.each(first):
            times.put(partition(topic, number), int(moment.timestamp() * 1000))
        with kafka_errors(self._config.bootstrap_servers):
            answer = self._consumer.offsetsForTimes(times)
            for topic, number, _ in list(offsets.each(first)):
                entry = answer.get(partition(topic, number))
                if entry is not None:
                    first[topic][number] = int(entry.offset())
        return first

    def close(self) -> None:
        """Close the connections."""
        with suppress(*SPARK_HAS_ENDED):
            self._consumer.close()
            self._admin.close()

    def _offsets(self, method: str, names: list[str]) -> Offsets:
        with kafka_errors(self._config.bootstrap_servers):
            partitions = java_class(self._spark, "java.util.ArrayList")()
            make = self._class("common.TopicPartition")
            for name in names:
                for number in range(self._consumer.partitionsFor(name).size()):
                    partitions.add(make(name, number))
            # As one text: with thousands of partitions, a call for each would take seconds.
            text = str(getattr(self._consumer, method)(partitions).toString())
        entries = re.findall(r"([\w.-]+)-(\d+)=(\d+)", text)
        return offsets.from_entries((topic, int(number), int(offset)) for topic, number, offset in entries)

    def _class(self, name: str) -> Any:
        return java_class(self._spark, f"{self._package}.{name}")


@contextmanager
def kafka_errors(bootstrap_servers: str) -> Iterator[None]:
    """Turn the client's failures into typed errors."""
    begin = time.monotonic()
    try:
        yield
    except Py4JError as error:
        raise typed_error(error, bootstrap_servers, time.monotonic() - begin) from error


def typed_error(
    error: PySparkException | Py4JError, bootstrap_servers: str, seconds: float | None = None
) -> KafkaError:
    """Return the typed error for a failure of a Kafka client."""
    chain = causes(error)
    reason = mask_secrets(_first_line(chain[-1]) if chain else str(error).strip().partition("\n")[0])[:500]
    if any(_NO_ACCESS.fullmatch(cause.kind) for cause in chain):
        return KafkaAuthError(
            f"The brokers refuse the credentials, or this user lacks a permission: {reason}",
            subject="kafka_options",
            remedy="check security.protocol and sasl.* in kafka_options, and that this user may read the topics",
        )
    if any(cause.kind in _UNREACHABLE or _NO_SUCH_HOST in cause.text for cause in chain):
        waited = f" within {seconds:.0f} seconds" if seconds else ""
        return KafkaUnreachableError(
            f"No broker answers{waited}: {reason}",
            subject="bootstrap_servers",
            value=bootstrap_servers,
            remedy="check address, network and security.protocol; nothing was lost, run again",
        )
    return KafkaError(f"Kafka failed: {reason}", subject="bootstrap_servers", value=bootstrap_servers)


def _first_line(cause: Cause) -> str:
    return f"{cause.kind}: {cause.text.strip().partition(chr(10))[0]}"


def _package(spark: SparkSession) -> str:
    loader = java_class(spark, "org.apache.spark.util.Utils").getContextOrSparkClassLoader()
    for package in _PACKAGES[1:]:
        try:
            loader.loadClass(f"{package}.clients.consumer.KafkaConsumer")
            return package
        except Py4JJavaError:
            continue
    return _PACKAGES[0]
