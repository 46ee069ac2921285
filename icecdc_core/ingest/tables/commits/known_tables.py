"""The tables that a run knows before it reads any record, and the offsets that they record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from icecdc_core.columns import quoted
from icecdc_core.errors import TableNotFoundError
from icecdc_core.ingest.kafka.offsets import Offsets
from icecdc_core.ingest.parameters import quoted_table
from icecdc_core.ingest.tables.commits.commit_log import LoggedJob
from icecdc_core.ingest.tables.commits.table_offsets import find_table_offsets
from icecdc_core.table.catalogs import load_table

if TYPE_CHECKING:
    from icecdc_core.ingest.config import IngestConfig


def known_tables(spark: SparkSession, config: IngestConfig, logged: LoggedJob) -> list[str]:
    """Return the tables that records may go to, every part of a name quoted."""
    if config.route_by == "table":
        return [quoted_table(config.table)]
    if config.route_by == "regex":
        return [quoted_table(table) for table in config.routes]
    listed = spark.sql(f"SHOW TABLES IN {config.quoted_namespace}").collect()
    existing = (f"{config.quoted_namespace}.{quoted(row['tableName'])}" for row in listed)
    own = {config.quoted_commit_log, config.quoted_dead_letters}
    return sorted({*logged.tables, *existing} - own)


def recorded_offsets(spark: SparkSession, config: IngestConfig) -> list[Offsets]:
    """Return the offsets that each table records of the job. They are needed if the commit log was removed."""
    recorded = []
    for name in known_tables(spark, config, LoggedJob()):
        try:
            recorded.append(find_table_offsets(load_table(spark, name), config.job).offsets)
        except TableNotFoundError:
            recorded.append({})
    # If any table records offsets, the job ran. Then a table without offsets may lack all records.
    return recorded if any(recorded) else []
