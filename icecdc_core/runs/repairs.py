"""From the documents that a validation compared to the bulk lines that repair them."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from icecdc_core.columns import unused_name
from icecdc_core.commits.position_format import Position
from icecdc_core.documents.bulk_lines import delete_actions, document_id, to_actions
from icecdc_core.table.source import Source


def differing_documents(differences: DataFrame) -> DataFrame:
    """Return the documents that are missing, stale or extra."""
    return differences.where(F.col("verdict").isNotNull())


def newest_version(wrong: DataFrame) -> tuple[str, int | None]:
    """Return the document with the highest version of those that differ, and this version."""
    newest = wrong.agg(F.max_by("id", "version"), F.max("version")).collect()[0]
    return newest[0], newest[1]


def repair_actions(source: Source, position: Position, wrong: DataFrame, epoch: int, on_duplicate: str) -> DataFrame:
    """Return the bulk lines that bring the documents that differ to the position's snapshot."""
    ids, rows = source.key_columns, source.current_rows(position.snapshot_id, on_duplicate)
    key = unused_name("_document_id", rows.columns)
    wanted = wrong.where(F.col("verdict") != "extra").select(F.col("id").alias(key))
    rows = rows.withColumn(key, document_id(rows.schema, ids)).join(wanted, key, "left_semi").drop(key)
    upserts = to_actions(rows, ids, epoch).select("action")
    deletes = delete_actions(wrong.where(F.col("verdict") == "extra").select("id"), epoch).select("action")
    return upserts.unionAll(deletes)
