"""Kafka to Iceberg, exactly once: many tables from one job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icecdc_core.ingest.config import IngestConfig
from icecdc_core.ingest.job import IngestRun
from icecdc_core.ingest.report import IngestReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["IngestConfig", "IngestReport", "ingest"]


def ingest(spark: SparkSession, config: IngestConfig) -> IngestReport:
    """Bring everything the topics have into the tables, each record exactly once.

    Args:
        spark: A session in which the tables' catalog is configured and Kafka's connector is there, see `get_spark`.
        config: The job's parameters.

    Returns:
        What was written. Its state is `partial` if a table could not be written while others were; its records are
        taken again by the next run.

    Raises:
        KafkaUnreachableError: No broker answers.
        KafkaAuthError: The brokers refuse the credentials.
        TopicNotFoundError: A topic does not exist.
        TableResetError: The only table was dropped, made again or rolled back, and `on_table_reset` is `fail`.
        LostOffsetsError: The topic lost records that were not read, and `on_lost_offsets` is `fail`.
        TopicReplacedError: A topic was deleted and made again.
        IcecdcError: What kept the tables from being written, if no table could be.
    """
    with IngestRun(spark, config) as run:
        return run.finish(run.run())
