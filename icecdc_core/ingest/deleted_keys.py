"""The table of deleted keys: an older upsert that comes later makes no row again, see docs/kafka.md.

Each row is a fact of the topic. It is written before the snapshot of its batch is published, so that a crash in between
loses none; that a replay writes it again changes nothing, as only the highest ordering value of a key counts.
"""

import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial, reduce
from operator import and_

from pyspark.sql import Column, DataFrame, SparkSession, functions as F, types as T

from icecdc_core.columns import JSON_OPTIONS, OWN_PREFIX, quoted
from icecdc_core.errors import IngestWriteError, TableNotFoundError
from icecdc_core.ingest.commit_log import APPEND_PROPERTIES, JOB
from icecdc_core.ingest.config import IngestConfig
from icecdc_core.ingest.formats.decode_results import IS_DELETE
from icecdc_core.ingest.publish import append
from icecdc_core.ingest.readers import FLOATS
from icecdc_core.ingest.upkeep import expire_snapshots, failures_logged, rewrite_small_files
from icecdc_core.ingest.upserts import CLEARED, IDENTIFIER, ORDER
from icecdc_core.table.catalogs import create_table_once, load_table, usable_table

SCHEMA = (
    "job string, table string, key string, ordering string, ordering_number double, "
    "topic string, partition int, offset long, deleted_at timestamp"
)
_PARTITION = "job, table, days(deleted_at)"
_KEY, _NUMBER, _THEIRS, _LATE = (f"{OWN_PREFIX}{name}" for name in ("key", "number", "theirs", "late"))
_FEW_KEYS = 200_000  # so many are sent to every task, which is faster than sorting
_DAY, _READER_SECONDS, _SMALL_FILES = 86_400, 3_600, 5
_REMEDY = (
    "check that this user may create, read and write it, name another, or set delete_retention_seconds=0; the next run "
    "reads the records again"
)
_usable = partial(usable_table, "The table of deleted keys", "deletes_table", refused=IngestWriteError, remedy=_REMEDY)


def apply_deleted_keys(
    last: DataFrame, table: str, identifiers: Sequence[str], config: IngestConfig
) -> tuple[DataFrame, DataFrame | None]:
    """Drop the upserts that are older than a delete of their key; returns also the keys that the batch deletes."""
    kind = last.schema[ORDER].dataType
    own = {column: F.col(f"{IDENTIFIER}{number}") for number, column in enumerate(identifiers)}
    floats = [column for column, value in own.items() if isinstance(last.select(value).schema[0].dataType, FLOATS)]
    texts = [(own[column] + 0 if column in floats else own[column]).alias(column) for column in sorted(own)]  # no -0.0
    keyed = last.withColumns({_KEY: F.to_json(F.struct(*texts), JSON_OPTIONS), _NUMBER: _number(kind, F.col(ORDER))})
    counts = f"count_if(NOT {IS_DELETE})", f"count_if({IS_DELETE})", f"count_if({CLEARED})"
    [[upserts, deletes, cleared, lowest]] = keyed.selectExpr(*counts, f"min({_NUMBER})").collect()
    if upserts:
        with _usable(config.quoted_deletes):
            last = _without_late_upserts(last, keyed, table, config, upserts, lowest)
    return last, _deleted_keys(keyed, table, own, config, cleared) if deletes or cleared else None


def write_deleted_keys(keys: DataFrame, config: IngestConfig) -> None:
    spark, name = keys.sparkSession, config.quoted_deletes
    with _usable(name):
        create_table_once(spark, name, SCHEMA, APPEND_PROPERTIES, _PARTITION)
        append(keys, name, {}, {JOB: config.job})


def _number(kind: T.DataType, order: Column) -> Column:
    """An ordering value, rounded: one that is higher is not lower as a number. Null if its type has none."""
    if not isinstance(kind, (T.NumericType, T.TimestampType)):
        return F.lit(None).cast("double")
    number = F.unix_micros(order) if isinstance(kind, T.TimestampType) else order
    return F.nanvl(number.cast("double"), F.lit(float("inf")))  # Iceberg refuses to compare with NaN


def _without_late_upserts(
    last: DataFrame, keyed: DataFrame, table: str, config: IngestConfig, upserts: int, lowest: float | None
) -> DataFrame:
    spark, name = last.sparkSession, config.quoted_deletes
    try:
        load_table(spark, name)
    except TableNotFoundError:
        return last
    deleted = spark.table(name).where((F.col("job") == config.job) & (F.col("table") == table))
    if lowest is not None:  # an upsert is usually newer than all that was deleted, so that no file is read
        deleted = deleted.where(F.col("ordering_number").isNull() | (F.col("ordering_number") >= lowest))
    if deleted.isEmpty():
        return last
    kind = T.StructType().add(config.ordering_column, last.schema[ORDER].dataType)
    order = F.from_json("ordering", kind, JSON_OPTIONS)[config.ordering_column]
    deleted = deleted.select(F.col("key").alias(_KEY), order.alias(_THEIRS))
    new = keyed.where(f"NOT {IS_DELETE}").select(_KEY, ORDER)
    new = F.broadcast(new) if upserts <= _FEW_KEYS else new
    late = deleted.join(new, _KEY).where(F.col(_THEIRS) > F.col(ORDER)).select(_KEY).distinct().localCheckpoint()
    if late.isEmpty():
        return last
    # A delete without ordering value beside such an upsert removes the row of the table, as without the upsert.
    found, is_late = keyed.join(late.withColumn(_LATE, F.lit(True)), _KEY, "left"), F.col(_LATE).isNotNull()
    op, order = F.when(is_late, F.lit("delete")).otherwise(F.col("op")), F.when(~is_late, F.col(ORDER))
    kept = found.where(~is_late | F.col(CLEARED)).withColumns({"op": op, ORDER: order})
    return kept.select(*last.columns).localCheckpoint()


def _deleted_keys(
    keyed: DataFrame, table: str, own: dict[str, Column], config: IngestConfig, cleared: int
) -> DataFrame:
    is_delete = is_newest = F.expr(IS_DELETE)
    order = F.col(ORDER)
    keys = keyed.where(is_delete | F.col(CLEARED))
    if cleared:
        # A delete without ordering value is newer than the row of the table.
        given = {f"{_THEIRS}{number}": column for number, column in enumerate(own)}
        theirs = keyed.sparkSession.table(table).select(
            F.col(quoted(config.ordering_column)).alias(_THEIRS),
            *(F.col(quoted(column)).alias(alias) for alias, column in given.items()),
        )
        of_keys = keys.where(CLEARED).select(_KEY, *own.values())
        same = reduce(and_, (F.col(alias) == own[column] for alias, column in given.items()))
        found = theirs.join(F.broadcast(of_keys) if cleared <= _FEW_KEYS else of_keys, same)
        keys = keys.join(found.groupBy(_KEY).agg(F.max(_THEIRS).alias(_THEIRS)), _KEY, "left")
        order = F.greatest(F.when(is_delete, order), _THEIRS)
        is_newest = is_delete | (F.col(_THEIRS) > F.col(ORDER))
    deleted = keys.where(is_newest).withColumn(ORDER, order).where(F.col(ORDER).isNotNull())
    return deleted.select(
        F.lit(config.job).alias("job"),
        F.lit(table).alias("table"),
        F.col(_KEY).alias("key"),
        F.to_json(F.struct(F.col(ORDER).alias(config.ordering_column)), JSON_OPTIONS).alias("ordering"),
        _number(keyed.schema[ORDER].dataType, F.col(ORDER)).alias("ordering_number"),
        *("topic", "partition", "offset"),
        F.current_timestamp().alias("deleted_at"),
    ).coalesce(1)


def trim(spark: SparkSession, config: IngestConfig) -> None:
    """Remove the days that are past the tables' retention, and rewrite small files; a failure is only logged."""
    name, expired = config.quoted_deletes, defaultdict[datetime, list[str]](list)
    with failures_logged("the deleted keys were not trimmed", name):
        if not spark.catalog.tableExists(name):
            return
        of_job = F.col("job") == config.job
        for [table] in spark.table(name).where(of_job).select("table").distinct().collect():
            oldest = time.time() - config.for_table(table).delete_retention_seconds
            expired[datetime.fromtimestamp(oldest // _DAY * _DAY, UTC)].append(table)
        for day, tables in expired.items():  # whole partitions, so that no file is rewritten, and no writer disturbed
            past = of_job & F.col("table").isin(tables) & (F.col("deleted_at") < F.lit(day))
            if not spark.table(name).where(past).isEmpty():
                spark.table(name).where(F.lit(False)).writeTo(name).overwrite(past)
        rewrite_small_files(spark, name, _SMALL_FILES)
        expire_snapshots(spark, name, _READER_SECONDS)
