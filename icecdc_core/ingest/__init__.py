"""Kafka to Iceberg, exactly once: many tables from one job.

In: a session and the parameters, which name topics and tables. Out: commits in Iceberg tables, and a report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from icecdc_core.ingest.config import IngestConfig
from icecdc_core.ingest.report import IngestReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["IngestConfig", "IngestReport", "ingest"]


def ingest(spark: SparkSession, config: IngestConfig) -> IngestReport:
    """Write all records of the topics into the tables, each record exactly once.

    Args:
        spark: A session with the tables' catalog and Kafka's connector, see `get_spark`.
        config: The job's parameters.

    Returns:
        What was written. The state is `partial` if some tables could not be written; the next run reads their records
        again.

    Raises:
        KafkaUnreachableError: No broker answers.
        KafkaAuthError: The brokers refuse the credentials.
        TopicNotFoundError: A topic does not exist.
        TableResetError: The only table was dropped, made again or rolled back, and `on_table_reset` is `fail`.
        LostOffsetsError: The topic lost records before they were read, and `on_lost_offsets` is `fail`.
        TopicReplacedError: A topic was deleted and made again.
        IcecdcError: Why no table could be written.
    """
    import icecdc_core.session.compat  # noqa: F401 (it refuses a pyspark that is missing or too old)
    from icecdc_core.ingest.job import IngestRun

    with IngestRun(spark, config) as run:
        return run.finish(run.run())
