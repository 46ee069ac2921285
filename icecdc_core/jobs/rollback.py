"""The rollback: readers see the index from before the last export again, and the next sync goes on from there."""

from dataclasses import replace

from pyspark.sql import SparkSession

from icecdc_core.commits.history import SCHEMA_POLICY
from icecdc_core.commits.position import Batch, Position, position_document
from icecdc_core.config import SyncConfig
from icecdc_core.errors import CatalogError, IndexNotFoundError, TableLockedError, TableNotFoundError
from icecdc_core.opensearch.indexes import indexes_behind, is_intact
from icecdc_core.reporting.reports import RunReport
from icecdc_core.runs.cluster_status import table_facts
from icecdc_core.runs.run import Run, require_readable_index
from icecdc_core.table.iceberg_table import IcebergTable


def rollback_index(spark: SparkSession, config: SyncConfig) -> RunReport:
    """Show readers the index from before the last export again, which that export kept (``keep_index``).

    One request moves all aliases. The next sync continues from the position of that index. The other one is deleted.

    Raises:
        IndexNotFoundError: No earlier index is kept.
        HistoryGapError, TableReplacedError, SchemaChangeError: No sync can continue from it; the policy is ``fail``.
    """
    with Run("rollback", spark, config) as run:
        with run.stage("check"):
            position = run.positions.read() or Position(config.index, config.table, "")
            kept, notes = _check(run, position)
        if not config.dry_run:
            lock = run.positions.lock(position.table, position.table_uuid, run.run_id)
            try:
                with run.stage("publish"):
                    position = lock.position
                    kept, notes = _check(run, position)
                    if not position.begun_rollback:
                        epoch, over = lock.next_epoch(0), position.batch
                        start, end, physical = position.snapshot_id, kept.snapshot_id, kept.physical_index
                        lock.begin(Batch("rollback", epoch, start, end, physical, largest=kept.largest, over=over))
                    run.finish_rollback(lock)
                    if lock.position.earlier is not None:  # the rollback was given up, for a reason that shows again
                        _check(run, lock.position)
            finally:
                lock.release()
        report = run.report("rollback", position.snapshot_id, kept.snapshot_id, "rollback", notes=notes)
        return run.finish(replace(report, table=kept.table, dry_run=config.dry_run))


def _check(run: Run, position: Position) -> tuple[Position, list[str]]:
    """Return the position to go back to, and what the next sync needs; a begun rollback was checked before."""
    index, kept, wrong = position.index, position.earlier, {"subject": "index", "value": position.index}
    if kept is not None and position.begun_rollback:
        return kept, []
    if kept is None or not is_intact(run.client, kept.uuids):
        remedy = "run the export with the earlier parameters; with keep_index=7d an export keeps the index before it"
        raise IndexNotFoundError(
            f"No earlier index of '{index}' is kept, or it was deleted or closed", **wrong, remedy=remedy
        )
    require_readable_index(run.client, position)
    if position.begun_export in indexes_behind(run.client, index):
        remedy = "run the sync, which finishes it, then roll back"
        raise TableLockedError(f"An export of '{index}' is not finished", **wrong, remedy=remedy)
    notes = [f"the next sync needs the parameters of this index; with others it fails, or exports ({SCHEMA_POLICY})"]
    try:
        facts = table_facts(lambda t: IcebergTable(run.spark, t).metadata(), run.config, position_document(kept, None))
        return kept, [*notes, *filter(None, [facts.get("problem")])]
    except (CatalogError, TableNotFoundError) as unknown:  # to go back, OpenSearch is enough
        return kept, [*notes, f"whether the next sync can continue from it is not known: {unknown.message}"]
