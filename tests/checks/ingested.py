"""What an ingest left: rows of tables, and the dead letters of its job."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark.sql import Row, SparkSession

from icecdc_core.ingest import IngestConfig


def rows(spark: SparkSession, table: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.table(table).collect())


def ids(spark: SparkSession, table: str) -> list[Any]:
    return sorted(row.id for row in spark.table(table).select("id").collect())


def dead_letters(spark: SparkSession, config: IngestConfig) -> list[Row]:
    of_job = spark.table(config.quoted_dead_letters).where(f"job = '{config.job}'")
    return of_job.orderBy("offset", "reason").collect()


def reasons(spark: SparkSession, config: IngestConfig) -> list[tuple[int, str]]:
    """Offset and reason of each dead letter."""
    return [(letter.offset, letter.reason) for letter in dead_letters(spark, config)]


def at_once(*functions: Callable[[], Any]) -> list[Any]:
    """Call functions at the same time, and return their results."""
    with ThreadPoolExecutor(len(functions)) as pool:
        return [each.result() for each in [pool.submit(function) for function in functions]]
