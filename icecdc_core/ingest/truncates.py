"""Truncations of the source table: which records of a batch are after them, see docs/kafka.md."""

from functools import reduce
from operator import or_

from pyspark.sql import DataFrame, functions as F

from icecdc_core.errors import SourceTruncatedError
from icecdc_core.ingest.formats.decode_results import TRUNCATE


def source_truncated(name: str) -> SourceTruncatedError:
    return SourceTruncatedError(
        "The source table was truncated",
        subject="on_truncate",
        value=name,
        remedy="set on_truncate=apply, to empty this table, too, or reject, to keep its rows; the next run reads the "
        "records again",
    )


def reject_truncates(decoded: DataFrame) -> DataFrame:
    reason = F.lit("the source table was truncated; delete its rows here by hand if they should go")
    return decoded.withColumn("problem", F.coalesce("problem", F.when(F.col("op") == TRUNCATE, reason)))


def rows_after(rows: DataFrame) -> DataFrame:
    """Keep the records after all truncations: by offset in their partition, by timestamp in other partitions."""
    is_truncate, micros = F.col("op").eqNullSafe(TRUNCATE), F.unix_micros("timestamp")
    of_partition = rows.where(is_truncate).groupBy("topic", "partition")
    found = of_partition.agg(F.max("offset").alias("offset"), F.max(micros).alias("micros")).collect()
    before = [
        F.when((F.col("topic") == each.topic) & (F.col("partition") == each.partition), F.col("offset") < each.offset)
        # At the same time, a record counts as later: one too many can be seen, a lost one cannot.
        .otherwise(micros < each.micros)
        for each in found
    ]
    return rows.where(~(is_truncate | reduce(or_, before)))
