"""The last batches and the last dead letters of an ingest, as small frames for a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

    from icecdc_core.ingest.config import IngestConfig


def recent_batches(spark: SparkSession, config: IngestConfig, limit: int = 10) -> pd.DataFrame:
    from icecdc_core.reporting.tables import NotebookFrame

    entries = spark.table(config.quoted_commit_log).where((F.col("job") == config.job) & (F.col("kind") == "batch"))
    rows = F.aggregate("tables", F.lit(0).cast("long"), lambda total, table: total + table["rows"])
    counted = entries.withColumn("rows", rows).withColumn("tables", F.size("tables"))
    last = counted.orderBy(F.desc("batch"), F.desc("committed_at")).limit(limit)
    columns = ["batch", "committed_at", "records", "rows", "tables", "dead_letters", "valid_through"]
    return NotebookFrame.of(last.select(*columns).toPandas(), empty="No batch yet.")


def recent_dead_letters(spark: SparkSession, config: IngestConfig, limit: int = 10) -> pd.DataFrame:
    import pandas as pd

    from icecdc_core.reporting.tables import NotebookFrame

    columns = ["kept_at", "topic", "partition", "offset", "table", "reason"]
    recent = pd.DataFrame(columns=columns)
    if spark.catalog.tableExists(config.quoted_dead_letters):
        dead_letters = spark.table(config.quoted_dead_letters).where(F.col("job") == config.job)
        recent = dead_letters.orderBy(F.desc("kept_at"), F.desc("offset")).limit(limit).select(*columns).toPandas()
    return NotebookFrame.of(recent, empty="No dead letters.")
