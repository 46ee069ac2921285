"""A table that was made and exported, for the fixtures of the tests that go on from there."""

from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from icecdc_core import SyncConfig, export_table


def exported_table(spark: SparkSession, sql: Callable[[str], Any], config: SyncConfig, *statements: str) -> SyncConfig:
    """Run the statements that make the table, export it, and return its parameters."""
    for statement in statements:
        sql(statement)
    export_table(spark, config)
    return config
