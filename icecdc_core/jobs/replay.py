"""Write rejected documents again, with the versions they had, once the cause of their rejection is gone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from icecdc_core.commits.positions import Position
from icecdc_core.documents.bulk_lines import document_id, stored_actions
from icecdc_core.jobs import dead_letters
from icecdc_core.jobs.export import current_rows, settled_position
from icecdc_core.jobs.run import Run
from icecdc_core.opensearch.bulk_writer import BulkResult, BulkSettings, write_actions
from icecdc_core.opensearch.indexes import write_alias
from icecdc_core.reporting.instrumentation import observed
from icecdc_core.reporting.reports import RunReport
from icecdc_core.table.source import Source

_PAGE = 1000

if TYPE_CHECKING:
    from opensearchpy import OpenSearch
    from pyspark.sql import SparkSession

    from icecdc_core.config import SyncConfig


@observed("replay")
def replay_dead_letters(spark: SparkSession, config: SyncConfig) -> RunReport:
    """Write the open dead letters of an index again.

    Of each document only the newest letter is written, with the version it had: a newer document in the index wins.
    A letter is ``superseded``, and not written, when an export has built the index anew since, when the table no
    longer has the row, or when there is a newer letter. Letters of a batch that is still begun are left to the next
    sync. What is rejected again stays open.

    Args:
        spark: A session in which the table's catalog is configured, see ``get_spark``.
        config: The job's parameters.

    Returns:
        The counts; ``steps`` has one entry with the letters found, replayed, superseded and rejected again.

    Raises:
        IndexNotFoundError: The index has no position, or is gone.
        TableReplacedError, HistoryGapError: The position does not fit the table any more.
        TableLockedError: Another run holds the index.
        IcecdcError: Others of its family, see their names.
    """
    with Run(config) as run:
        with run.stage("check"):
            source = run.source(spark, needs_history=False)
            position = settled_position(run, source)
        with run.lock(source) as lock:
            return _replay(run, source, lock.position or position)


def _replay(run: Run, source: Source, position: Position) -> RunReport:
    spark, config = source.table.spark, run.config
    with run.stage("read"):
        letters = dead_letters.open_dead_letters(spark, config)
        if position.batch is not None:
            letters = letters.where(F.col("epoch") != position.batch.epoch)
        judged = _judged(source, position, letters).persist()
        counts = {row["verdict"]: row["count"] for row in judged.groupBy("verdict").count().collect()}
    result = BulkResult()
    try:
        wanted = judged.where(F.col("verdict") == "replayed")
        if counts.get("replayed"):
            with run.stage("write"):
                settings = BulkSettings.of(config, write_alias(position.physical_index))
                allowed = replace(settings, max_rejected_documents=counts["replayed"])
                result = write_actions(stored_actions(wanted), allowed)
                run.client.indices.refresh(index=position.physical_index)
        with run.stage("resolve"):
            heads = [dead_letters.Letter(**letter).head for letter in result.dead_letters]
            again = {head["_id"]: head["version"] for head in heads}
            # What a document holds is looked at before its version: a newer one may be there all the same.
            overtaken = _overtaken(run.client, position.physical_index, again)
            tried = spark.createDataFrame(list(again.items()), "document_id string, version long")
            older = F.col("document_id").isin(overtaken)
            resolution = F.when(older, F.lit("superseded")).otherwise(F.col("verdict"))
            done = judged.withColumn("resolution", resolution)
            done = done.join(tried.where(~older), ["document_id", "version"], "left_anti")
            if counts:
                dead_letters.resolve(spark, config, done)
    finally:
        judged.unpersist()
    found = sum(counts.values())
    step = {
        "letters": found,
        "replayed": counts.get("replayed", 0) - len(again),
        "superseded": counts.get("superseded", 0) + len(overtaken),
        "rejected": len(again) - len(overtaken),
    }
    return RunReport(
        "replay",
        config.table,
        config.index,
        position.snapshot_id,
        position.snapshot_id,
        strategy="replay" if found else "none",
        upserts=result.upserts,
        already_applied=result.already_applied,
        rejected=step["rejected"],
        rejected_samples=result.rejected_samples,
        requests=result.requests,
        retries=result.retries,
        bytes=result.bytes,
        steps=[step],
        run_id=run.run_id,
        seconds=run.seconds,
        stage_seconds=run.stage_seconds,
    )


def _overtaken(client: OpenSearch, index: str, versions: dict[str, int]) -> list[str]:
    """Those of the documents of which the index has a newer version than the given one."""
    ids, newer = list(versions), []
    for begin in range(0, len(ids), _PAGE):
        answer = client.mget(index=index, body={"ids": ids[begin : begin + _PAGE]}, params={"_source": "false"})
        newer += [doc["_id"] for doc in answer["docs"] if doc.get("_version", 0) > versions[doc["_id"]]]
    return newer


def _judged(source: Source, position: Position, letters: DataFrame) -> DataFrame:
    """The letters with their ``verdict``: ``replayed`` for those to be written, ``superseded`` for the others."""
    newest = F.row_number().over(Window.partitionBy("document_id").orderBy(F.desc("version"))) == 1
    fits = newest & (F.col("physical_index") == position.physical_index)
    judged = letters.withColumn("fits", fits)
    ids = source.identifier_columns
    if ids and position.snapshot_id is not None:
        rows = current_rows(source, position.snapshot_id, "fail")
        present = rows.select(document_id(source.schema, ids).alias("present")).distinct()
        judged = judged.join(present, F.col("document_id") == F.col("present"), "left")
        judged = judged.withColumn("fits", F.col("fits") & F.col("present").isNotNull()).drop("present")
    verdict = F.when(F.col("fits"), F.lit("replayed")).otherwise(F.lit("superseded"))
    return judged.withColumn("verdict", verdict).drop("fits")
