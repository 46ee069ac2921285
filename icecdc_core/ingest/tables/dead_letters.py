"""Records that fit nowhere: kept in an Iceberg table with the reason, each once, before anything passes them by.

A letter is known by job, topic, partition, offset and the table it was meant for. It is written before the table's mark
or the commit log moves past its record, so a crash in between leaves a letter that the replay finds there.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from icecdc_core.errors import ConcurrentIngestError
from icecdc_core.ingest.tables.publish import MovedError, append, publish, stage
from icecdc_core.ingest.tables.table_offsets import JOB, RUN, head_of
from icecdc_core.secrets import LONGEST
from icecdc_core.table.catalogs import create_own, load_table

if TYPE_CHECKING:
    from icecdc_core.ingest.config import IngestConfig

SCHEMA = (
    "job string, topic string, partition int, offset long, timestamp timestamp, key binary, value binary, "
    "headers array<struct<key:string, value:binary>>, table string, reason string, run_id string, kept_at timestamp"
)
_KEY = ("topic", "partition", "offset", "table")
_TRIES = 20


class DeadLetters:
    """The table of dead letters of one run; threads may keep letters at the same time.

    Args:
        config: The job's parameters.
        run_id: The run.
    """

    def __init__(self, config: IngestConfig, run_id: str) -> None:
        self._config = config
        self._run_id = run_id
        self._lock = threading.Lock()

    def keep(self, rejected: DataFrame, table: str | None = None) -> int:
        """Append the letters that are not there yet; returns how many that were.

        Args:
            rejected: Kafka's columns and `problem`, the reason.
            table: The table they were meant for, every part quoted; None if nobody knows.
        """
        spark, name = rejected.sparkSession, self._config.quoted_dead_letters
        rows = rejected.select(
            F.lit(self._config.job).alias("job"),
            *(F.col(column) for column in ("topic", "partition", "offset", "timestamp", "key", "value", "headers")),
            F.lit(table).cast("string").alias("table"),
            F.substring("problem", 1, LONGEST).alias("reason"),
            F.lit(self._run_id).alias("run_id"),
            F.current_timestamp().alias("kept_at"),
        )
        with self._lock:
            create_own(spark, name, SCHEMA)
            rows = rows.persist()
            try:
                for _ in range(_TRIES):
                    kept = self._try(spark, name, rows)
                    if kept is not None:
                        return kept
            finally:
                rows.unpersist()
        raise ConcurrentIngestError(
            "Others write dead letters again and again",
            subject="dead_letter_table",
            value=name,
            remedy="give each job a table of its own, or run again",
        )

    def _try(self, spark: SparkSession, name: str, rows: DataFrame) -> int | None:
        """Append what is new; None if the table has moved on meanwhile, so that nobody knows what is new."""
        table = load_table(spark, name)
        head = head_of(table)
        span = rows.agg(F.min("offset").alias("low"), F.max("offset").alias("high")).first()
        if span is None or span["low"] is None:
            return 0
        known = spark.table(name).where(
            (F.col("job") == self._config.job) & F.col("offset").between(span["low"], span["high"])
        )
        known = known.select(*(F.col(column).alias(f"known_{column}") for column in _KEY))
        same = [F.col(column).eqNullSafe(F.col(f"known_{column}")) for column in _KEY]
        new = rows.join(known, same[0] & same[1] & same[2] & same[3], "left_anti").coalesce(1)
        count = new.count()
        if not count:
            return 0
        marks = {JOB: self._config.job, RUN: self._run_id}
        try:
            staged = stage(spark, name, table, marks, lambda marked: append(new, name, {}, marked))
            if staged.parent_id != head:
                return None
            publish(spark, name, load_table(spark, name), staged)
        except MovedError:
            return None
        return count
