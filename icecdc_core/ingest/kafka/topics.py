"""What the brokers know: partitions of the topics, their earliest and latest offsets; asked for in the JVM."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from icecdc_core.errors import KafkaAuthError, KafkaError, KafkaUnreachableError, TopicNotFoundError
from icecdc_core.ingest.kafka import offsets
from icecdc_core.ingest.kafka.offsets import Offsets
from icecdc_core.secrets import masked
from icecdc_core.session.jvm import java_class

if TYPE_CHECKING:
    from icecdc_core.ingest.config import IngestConfig

# Databricks brings the same classes under another name.
_PACKAGES = ("org.apache.kafka", "kafkashaded.org.apache.kafka")
_BYTES = "common.serialization.ByteArrayDeserializer"
_PATIENCE_MS = "20000"
_NO_ID = "A" * 22
_AUTH = re.compile(r"Authentication|Authorization|SaslException|SslAuthentication")
_AWAY = re.compile(r"TimeoutException|DisconnectException|No resolvable bootstrap|NetworkException")


class Topics:
    """A client that only asks; it belongs to no consumer group.

    Args:
        spark: A session with Spark's Kafka connector.
        config: The brokers, the topics, and how to talk to them.

    Raises:
        KafkaUnreachableError: No broker answers.
        KafkaAuthError: The credentials are refused.
    """

    def __init__(self, spark: SparkSession, config: IngestConfig) -> None:
        self._config = config
        self._spark = spark
        self._package = _package(spark)
        self._properties = java_class(self._spark, "java.util.HashMap")()
        given = config.client_properties
        # A client refuses to wait for a request longer than for all of them.
        patience = given.get("request.timeout.ms", _PATIENCE_MS)
        for key, value in {"request.timeout.ms": patience, "default.api.timeout.ms": patience, **given}.items():
            self._properties.put(key, value)
        readers = java_class(self._spark, "java.util.HashMap")(self._properties)
        for part in ("key", "value"):
            readers.put(f"{part}.deserializer", f"{self._package}.{_BYTES}")
        with kafka_errors(config.bootstrap_servers):
            self._consumer = self._class("clients.consumer.KafkaConsumer")(readers)

    def names(self) -> list[str]:
        """The topics that are to be read.

        Raises:
            TopicNotFoundError: One that is named does not exist, or none fits the pattern.
        """
        with kafka_errors(self._config.bootstrap_servers):
            there = sorted(str(name) for name in self._consumer.listTopics().keySet())
        if self._config.topic_pattern:
            pattern = java_class(self._spark, "java.util.regex.Pattern").compile(self._config.topic_pattern)
            wanted = [name for name in there if pattern.matcher(name).matches()]
        else:
            wanted = self._config.topics
        if missing := [name for name in wanted if name not in there] or not wanted:
            raise TopicNotFoundError(
                "There is no such topic on the brokers",
                subject="topic_pattern" if self._config.topic_pattern else "topics",
                value=self._config.topic_pattern or missing,
                remedy="check the name and that these credentials may read it; the topic has to exist before the run",
            )
        return wanted

    def ids(self, names: list[str]) -> dict[str, str]:
        """The id that the brokers gave to each topic when it was made; brokers before Kafka 2.8 give none."""
        with kafka_errors(self._config.bootstrap_servers):
            admin = self._class("clients.admin.AdminClient").create(self._properties)
            try:
                asked = java_class(self._spark, "java.util.ArrayList")()
                for name in names:
                    asked.add(name)
                told = admin.describeTopics(asked).allTopicNames().get()
                found = {name: str(told.get(name).topicId().toString()) for name in names}
            finally:
                admin.close()
        return {name: identifier for name, identifier in found.items() if identifier != _NO_ID}

    def earliest(self, names: list[str]) -> Offsets:
        """The first offset that each partition still has."""
        return self._asked("beginningOffsets", names)

    def latest(self, names: list[str]) -> Offsets:
        """The offset after the last record of each partition that can be read."""
        return self._asked("endOffsets", names)

    def at(self, names: list[str], moment: datetime) -> Offsets:
        """The first offset from that moment on; the latest where there is none."""
        found = self.latest(names)
        asked = java_class(self._spark, "java.util.HashMap")()
        partition = self._class("common.TopicPartition")
        for topic, number, _ in offsets.each(found):
            asked.put(partition(topic, number), int(moment.timestamp() * 1000))
        with kafka_errors(self._config.bootstrap_servers):
            answer = self._consumer.offsetsForTimes(asked)
            for topic, number, _ in list(offsets.each(found)):
                entry = answer.get(partition(topic, number))
                if entry is not None:
                    found[topic][number] = int(entry.offset())
        return found

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def _asked(self, method: str, names: list[str]) -> Offsets:
        with kafka_errors(self._config.bootstrap_servers):
            partitions = java_class(self._spark, "java.util.ArrayList")()
            make = self._class("common.TopicPartition")
            for name in names:
                for number in range(self._consumer.partitionsFor(name).size()):
                    partitions.add(make(name, number))
            # As one text: a call for each of thousands of partitions would take seconds.
            told = str(getattr(self._consumer, method)(partitions).toString())
        entries = re.findall(r"([\w.-]+)-(\d+)=(\d+)", told)
        return offsets.of((topic, int(number), int(offset)) for topic, number, offset in entries)

    def _class(self, name: str) -> Any:
        return java_class(self._spark, f"{self._package}.{name}")


@contextmanager
def kafka_errors(bootstrap_servers: str) -> Iterator[None]:
    """Turn the client's failures into typed errors.

    Raises:
        KafkaUnreachableError: No broker answers.
        KafkaAuthError: The credentials are refused.
        KafkaError: Anything else.
    """
    begin = time.monotonic()
    try:
        yield
    except (Py4JError, Py4JJavaError) as error:
        raise typed(str(error), bootstrap_servers, time.monotonic() - begin) from error


def typed(text: str, bootstrap_servers: str, seconds: float | None = None) -> KafkaError:
    """The typed error for what a Kafka client said."""
    causes = re.findall(r"(?:Caused by: |: )((?:[\w$]+\.)+\w*(?:Exception|Error)[^\n]*)", text)
    reason = masked(causes[-1] if causes else text.strip().partition("\n")[0])[:500]
    if _AUTH.search(text):
        return KafkaAuthError(
            f"The brokers refuse the credentials or the rights behind them: {reason}",
            subject="kafka_options",
            remedy="check security.protocol and sasl.* in kafka_options, and that this user may read the topics",
        )
    if _AWAY.search(text):
        waited = f" within {seconds:.0f} seconds" if seconds else ""
        return KafkaUnreachableError(
            f"No broker answers{waited}: {reason}",
            subject="bootstrap_servers",
            value=bootstrap_servers,
            remedy="check address, network and security.protocol; nothing was lost, run again",
        )
    return KafkaError(f"Kafka failed: {reason}", subject="bootstrap_servers", value=bootstrap_servers)


def _package(spark: SparkSession) -> str:
    loader = java_class(spark, "org.apache.spark.util.Utils").getContextOrSparkClassLoader()
    for package in _PACKAGES[1:]:
        try:
            loader.loadClass(f"{package}.clients.consumer.KafkaConsumer")
            return package
        except Py4JJavaError:
            continue
    return _PACKAGES[0]
