"""Mend an index: write just the documents that a validation found missing or stale, delete just the extra ones."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from icecdc_core.batch_writing import write_batch
from icecdc_core.documents import delete_actions, document_id, to_actions
from icecdc_core.export import current_rows, log_entry
from icecdc_core.positions import Batch
from icecdc_core.report import RunReport
from icecdc_core.runs import Run
from icecdc_core.source import Source


def repair_differences(run: Run, source: Source, differences: DataFrame) -> int:
    """Bring the documents that differ to the position's snapshot, as a batch of its own with a new epoch.

    Args:
        run: The run.
        source: The table.
        differences: (id, verdict, version) from the validation at the position's snapshot.

    Returns:
        The number of documents written and deleted.

    Raises:
        IdentifierColumnsError: The table has no identifier columns.
        TableLockedError: Another run holds the index.
    """
    source.require_identifier_columns("a repair writes single documents")
    with run.holding(source) as held:
        position = held.position
        wrong = differences.where(F.col("verdict").isNotNull())
        # Whoever wrote to the index besides us raised the versions there; the repair must come after those.
        found = wrong.agg(F.max("version")).collect()[0][0] or 0
        epoch = max(held.next_epoch(0), found // 2 + 1)
        held.begin(
            Batch(
                "repair",
                epoch,
                position.snapshot_id,
                position.snapshot_id,
                position.physical_index,
                source.table_uuid,
                source.selection,
            )
        )
        rows = current_rows(source, position.snapshot_id, run.config.on_duplicate_identifier)
        rows = rows.withColumn("_document_id", document_id(source.schema, source.identifier_columns))
        wanted = wrong.where(F.col("verdict") != "extra").select(F.col("id").alias("_document_id"))
        rows = rows.join(wanted, "_document_id", "left_semi").drop("_document_id")
        upserts = to_actions(rows, source.identifier_columns, epoch).select("action")
        deletes = delete_actions(wrong.where(F.col("verdict") == "extra").select("id"), epoch).select("action")
        result = write_batch(run, held, upserts.unionAll(deletes))
        run.client.indices.refresh(index=position.physical_index)
        report = RunReport(
            "repair",
            run.config.table,
            run.config.index,
            position.snapshot_id,
            position.snapshot_id,
            strategy="repair",
            upserts=result.upserts,
            deletes=result.deletes,
            already_applied=result.already_applied,
            rejected=result.rejected,
            run_id=run.run_id,
            seconds=run.seconds,
        )
        held.commit(replace(held.position), log_entry(report))
        return result.upserts + result.deletes
