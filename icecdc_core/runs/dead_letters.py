"""Dead letters: documents that OpenSearch rejected, stored in an Iceberg table until they are written again."""

import logging
from collections.abc import Mapping
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions as F
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from icecdc_core.commits.position import Batch
from icecdc_core.config import SyncConfig
from icecdc_core.errors import IcecdcError
from icecdc_core.logs import event
from icecdc_core.opensearch.bulk import BulkResult
from icecdc_core.session.jvm import COMMIT_CONFLICTS, is_raised_as
from icecdc_core.table.catalogs import create_table_once, usable_table

SCHEMA = (
    "index string, table string, document_id string, place string, version long, operation string, document string, "
    "status int, reason string, epoch long, from_snapshot_id long, snapshot_id long, physical_index string, "
    "run_id string, rejected_at timestamp, resolution string, resolved_at timestamp"
)
_ABOUT = "The table of rejected documents", "dead_letter_table"
_ATTEMPTS = 20
KEY = ("index", "table", "document_id", "place", "version", "physical_index")


def store_dead_letters(
    spark: SparkSession, config: SyncConfig, batch: Batch, run_id: str, result: BulkResult, rejected: DataFrame
) -> None:
    """Append the rejected operations that are not stored yet, before the position may pass their documents."""
    if not result.counts.rejected:
        return
    of_batch = {
        "index": config.index,
        "table": config.table,
        "epoch": batch.epoch,
        "from_snapshot_id": batch.from_snapshot_id,
        "snapshot_id": batch.to_snapshot_id,
        "physical_index": batch.physical_index,
        "run_id": run_id,
        "rejected_at": F.current_timestamp(),
        "resolution": None,
        "resolved_at": None,
    }
    name = config.dead_letter_name
    with usable_table(*_ABOUT, name):
        # Merge on read: a replay resolves a few dead letters and must not rewrite the files of all others.
        create_table_once(spark, name, SCHEMA, {"write.merge.mode": "merge-on-read"})
        # In a cluster that was built again an index has the name and the versions of one whose letters are resolved.
        known, fields = open_dead_letters(spark, config).select(*KEY), spark.table(name).schema
        added = {name: F.lit(value).cast(fields[name].dataType) for name, value in of_batch.items()}
        new = rejected.withColumns(added).dropDuplicates(list(KEY)).join(known, list(KEY), "left_anti")
        new.select(*fields.names).writeTo(name).append()
    first = result.rejected_samples[0]["reason"]
    counted = {"rejected": result.counts.rejected, "dead_letter_table": name, "first_reason": first}
    event("documents were rejected", logging.WARNING, **counted)


def open_dead_letters(spark: SparkSession, config: SyncConfig) -> DataFrame:
    """Return the unresolved dead letters of the index and its table; empty if there never was one."""
    name = config.dead_letter_name
    with usable_table(*_ABOUT, name):
        if not spark.catalog.tableExists(name):
            return spark.createDataFrame([], SCHEMA)
        # Clusters may have indexes of one name, and their tables may have equal ids.
        of_index = (F.col("index") == config.index) & (F.col("table") == config.table)
        return spark.table(name).where(of_index & F.col("resolution").isNull())


def count_open_dead_letters(spark: SparkSession, config: SyncConfig, position: Mapping[str, Any]) -> dict[str, int]:
    """Return how many wait for a replay: those of other physical indexes do not, as an export has built a new one."""
    # In the table of these parameters; a job with another dead_letter_table shows in its own status.
    own = config.replace(table=position["table"], index=position["index"], columns=[], identifier_columns=[])
    indexes = [position["physical_index"], (position["batch"] or {}).get("physical_index", "")]
    with usable_table(*_ABOUT, own.dead_letter_name):
        waiting = open_dead_letters(spark, own).where(F.col("physical_index").isin(*indexes))
        return {"dead_letters": waiting.count()}


def supersede_dead_letters(spark: SparkSession, config: SyncConfig, epoch: int) -> None:
    """Resolve the dead letters of a failed batch: another one writes its documents, or has dead letters of its own."""
    try:
        letters = open_dead_letters(spark, config).where(F.col("epoch") == epoch)
        resolve_dead_letters(spark, config, letters.withColumn("resolution", F.lit("superseded")))
    except IcecdcError as error:  # a replay resolves them, too
        event(str(error), logging.WARNING)


def resolve_dead_letters(spark: SparkSession, config: SyncConfig, resolved: DataFrame) -> None:
    name = config.dead_letter_name
    # A run that was paused may have stored the dead letters of a batch that another run replayed meanwhile.
    resolved = resolved.groupBy(*KEY).agg(F.min("resolution").alias("resolution"))
    renamed = resolved.select(*(F.col(column).alias(f"letter_{column}") for column in (*KEY, "resolution")))
    same = [F.col("resolution").isNull(), *(F.col(column) == F.col(f"letter_{column}") for column in KEY)]
    changes = {"resolution": F.col("letter_resolution"), "resolved_at": F.current_timestamp()}
    # Iceberg refuses a merge if dead letters of another index arrive or are resolved meanwhile. To repeat it is safe.
    retrying = Retrying(
        retry=retry_if_exception(lambda error: is_raised_as(error, COMMIT_CONFLICTS)),
        wait=wait_random_exponential(multiplier=0.1, max=5.0),
        stop=stop_after_attempt(_ATTEMPTS),
        reraise=True,
    )
    with usable_table(*_ABOUT, name):
        for attempt in retrying:
            with attempt:
                merge = renamed.mergeInto(name, reduce(and_, same))
                merge.whenMatched().update(changes).merge()
