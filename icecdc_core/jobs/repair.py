"""The repair: write the documents that a validation found missing or stale, and delete the extra ones."""

from dataclasses import replace

from pyspark.sql import DataFrame, functions as F

from icecdc_core.changes.places import at_each_place
from icecdc_core.columns import OLD_PLACES, PLACE, unused_name
from icecdc_core.commits.position import Batch, Position
from icecdc_core.commits.store import MAX_EPOCH
from icecdc_core.documents.bulk_lines import delete_actions, document_id, to_actions, upsert_version
from icecdc_core.errors import DocumentVersionError, TableLockedError
from icecdc_core.opensearch.checksums import FOREIGN_ROUTING
from icecdc_core.opensearch.indexes import with_suffixes
from icecdc_core.runs import batch
from icecdc_core.runs.nested import at_vector
from icecdc_core.runs.run import Run
from icecdc_core.table.source import Source
from icecdc_core.table.vectors import with_vectors

# The first attempt learns which versions the index remembers of deleted documents; the second exceeds them.
_ATTEMPTS = 3


def wrong_documents(differences: DataFrame) -> tuple[DataFrame, str, int | None]:
    """Return the documents that differ, and id and version of the one with the highest version."""
    wrong = differences.where(F.col("verdict").isNotNull())
    newest = wrong.agg(F.max_by("id", "version"), F.max("version")).collect()[0]
    return wrong, newest[0], newest[1]


def repair_actions(source: Source, position: Position, wrong: DataFrame, epoch: int, on_duplicate: str) -> DataFrame:
    source = at_vector(source, position.snapshot_id, position.nested_snapshots)
    ids, rows = source.key_columns, source.current_rows(position.snapshot_id, on_duplicate)
    key = unused_name("_document_id", rows.columns)
    wanted, gone = wrong.where("rows > 0").withColumnRenamed("id", key), wrong.where("rows = 0")
    identified = rows.withColumn(key, document_id(rows.schema, ids))
    if source.selection.has_places:
        places = wanted.select(key, F.col("places").alias(OLD_PLACES))
        rows = at_each_place(identified.join(places, key).drop(key))
        gone = gone.select("id", F.explode("places").alias(PLACE))
    else:
        routing = F.when(F.col("id").contains(FOREIGN_ROUTING), F.substring_index("id", FOREIGN_ROUTING, -1))
        identity = F.substring_index("id", FOREIGN_ROUTING, 1).alias("id")
        gone = gone.select(identity, F.coalesce(routing, F.lit("")).alias(PLACE))
        rows = identified.join(wanted, key, "left_semi").drop(key)
    upserts = to_actions(with_vectors(source, rows), ids, epoch, source.physical_index)
    return upserts.unionAll(delete_actions(gone, epoch, source.physical_index))


def require_repairable(position: Position, compared: Position | None = None) -> None:
    """Check that the index may be repaired: nothing else may be written to it from the comparison on."""
    begun, problem, remedy = position.batch, "", "sync first, then repair again"
    if begun is not None and begun.kind != "repair":
        problem = f"A begun {begun.kind} of '{position.index}' is not finished, so its documents cannot be repaired yet"
    elif compared is not None and position.content_version != compared.content_version:
        problem = f"Another run wrote to '{position.index}' after the comparison, so its differences are out of date"
        remedy = "run the validation with repair again"
    if problem:
        raise TableLockedError(problem, subject="repair", value=True, remedy=remedy)


def repair_differences(
    run: Run, position: Position, source: Source, differences: DataFrame, of_everything: bool = True
) -> int:
    """Bring the documents that differ to the position's snapshot, as a batch of its own with a new epoch."""
    # It must exceed the versions of a foreign writer. The validation knows those of documents; those of deleted
    # documents show only in conflicts, after which the batch is written again.
    source.require_identifier_columns("a repair writes single documents")
    suffixes = batch.find_suffixes(run.config, source.placed_rows(position.snapshot_id), position.every_index)
    wrong, identity, newest = wrong_documents(differences)
    with run.lock(position, source) as (lock, source):
        require_repairable(lock.position, position)
        position, physical, deletes = lock.position, position.physical_index, 0
        for _ in range(_ATTEMPTS):
            epoch, above = lock.next_epoch(0), (newest or 0) // 2 + 1
            if above > max(epoch, MAX_EPOCH):
                raise DocumentVersionError(
                    f"Document '{identity}' of '{run.config.index}' has version {newest}, too high to write above it",
                    subject="index",
                    value=run.config.index,
                    remedy="run the export (it builds a new index), and find out who else writes to the index",
                )
            epoch = max(epoch, above)
            lock.begin(
                Batch(
                    kind="repair",
                    epoch=epoch,
                    from_snapshot_id=position.snapshot_id,
                    to_snapshot_id=position.snapshot_id,
                    identity=position.identity,
                    physical_index=physical,
                    table_uuid=source.metadata.table_uuid,
                    selection=source.stored_selection,
                    indexes=batch.with_indexes(lock.position, suffixes),
                )
            )
            batch.prepare_indexes(run, lock, source)
            placed = batch.written_to(source, physical)
            actions = repair_actions(placed, position, wrong, epoch, run.config.on_duplicate_identifier)
            result = batch.write_batch(run, lock, actions)
            deletes += result.counts.deletes  # a later attempt finds nothing to delete, and writes all others again
            newest, identity = result.newest
            if newest <= upsert_version(epoch):
                break
        run.client.indices.refresh(index=with_suffixes(run.config, physical))
        found = {**batch.report_fields(result), "deletes": deletes}
        report = run.report("repair", position.snapshot_id, position.snapshot_id, "repair", **found)
        committed = replace(lock.position, indexes=lock.position.every_index)
        committed = replace(committed, drifted=0) if of_everything else committed
        lock.commit(committed, batch.log_entry(report))
        return report.upserts + report.deletes
