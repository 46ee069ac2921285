"""Replay of dead letters: write rejected documents again, with their versions, once the cause is gone."""

from dataclasses import replace

from opensearchpy import OpenSearch
from pyspark.sql import DataFrame, SparkSession, Window, functions as F

from icecdc_core.columns import PLACE
from icecdc_core.commits.position import Position
from icecdc_core.config import SyncConfig
from icecdc_core.documents.bulk_lines import document_id, head_of, stored_actions, upsert_version
from icecdc_core.opensearch.bulk import BulkResult, BulkWriter, write_actions
from icecdc_core.opensearch.client import reading
from icecdc_core.opensearch.index_settings import require_pipelines
from icecdc_core.opensearch.indexes import with_suffixes, write_alias
from icecdc_core.reporting.reports import RunReport
from icecdc_core.runs.batch import report_fields, written_to
from icecdc_core.runs.dead_letters import open_dead_letters, resolve_dead_letters
from icecdc_core.runs.run import Run, refuse_dry_run
from icecdc_core.session.jvm import unpersist
from icecdc_core.table.source import Source

_PAGE = 1000


def replay_dead_letters(spark: SparkSession, config: SyncConfig) -> RunReport:
    """Write the open dead letters of an index again.

    Only the newest dead letter that each document has for the current physical index is written, with its version, so
    a newer document in the index wins.
    A dead letter is ``superseded``, and not written, if an export has built the index again since, if the table no
    longer has the row (for a delete: has it again), or if there is a newer dead letter. Those of a begun batch are left
    to the next sync, those of an index that ``keep_index`` keeps to a rollback. What is rejected again stays open.

    Args:
        spark: A session in which the table's catalog is configured, see ``get_spark``.
        config: The job's parameters.

    Returns:
        The counts; ``steps`` has one entry with the dead letters found, replayed, superseded and rejected again.

    Raises:
        IndexNotFoundError: The index has no position, or is gone.
        TableLockedError: Another run has locked the index.
        IcecdcError: Any other error of the package.
    """
    refuse_dry_run(config, "A replay writes documents", "the status, which counts the open dead letters")
    with Run("replay", spark, config) as run:
        with run.stage("check"):
            position, source = run.look(needs_history=False)
            require_pipelines(run.client, config)
            run.require_position(position, source)
        with run.lock(position, source) as (lock, source):
            with run.stage("check"):
                run.require_position(lock.position, source)
            return run.finish(_replay(run, source, lock.position))


def _replay(run: Run, source: Source, position: Position) -> RunReport:
    with run.stage("read"):
        dead_letters = open_dead_letters(run.spark, run.config)
        if position.batch is not None:
            dead_letters = dead_letters.where(F.col("epoch") != position.batch.epoch)
        if position.earlier is not None:  # after a rollback, its documents are missing again
            dead_letters = dead_letters.where(F.col("physical_index") != position.earlier.physical_index)
        dead_letters = _with_resolution(source, position, dead_letters).persist()
        counts = {row["resolution"]: row["count"] for row in dead_letters.groupBy("resolution").count().collect()}
    try:
        result, refused = BulkResult(), list[tuple[str, str, int, bool]]()
        if counts.get("replayed"):
            with run.stage("write"):
                alias, highest = write_alias(position.physical_index), upsert_version(position.epoch)
                settings = BulkWriter.of(run.config, alias, highest)
                settings = replace(settings, max_rejected_documents=counts["replayed"])
                source = written_to(source, position.physical_index)
                wanted = dead_letters.where(F.col("resolution") == "replayed").withColumnRenamed("place", PLACE)
                actions = stored_actions(wanted, source.physical_index)
                with write_actions(actions, settings) as (result, rejected):
                    run.client.indices.refresh(index=with_suffixes(run.config, position.physical_index))
                    refused = _refused_again(run.client, source, position.physical_index, rejected)
        with run.stage("resolve"):
            outdated = sum(is_outdated for *_, is_outdated in refused)
            if counts:
                # All are resolved now but those that were rejected again.
                schema = "document_id string, place string, version long, outdated boolean"
                again = run.spark.createDataFrame(refused, schema)
                found = dead_letters.join(again, ["document_id", "place", "version"], "left")
                resolution = F.when(F.col("outdated"), "superseded").otherwise(F.col("resolution"))
                resolved = found.withColumn("resolution", resolution).where(F.coalesce("outdated", F.lit(True)))
                resolve_dead_letters(run.spark, run.config, resolved)
    finally:
        unpersist(dead_letters)
    step = {
        "letters": sum(counts.values()),
        "replayed": counts.get("replayed", 0) - len(refused),
        "superseded": counts.get("superseded", 0) + outdated,
        "rejected": len(refused) - outdated,
    }
    strategy, snapshot_id = "replay" if counts else "none", position.snapshot_id
    report = run.report("replay", snapshot_id, snapshot_id, strategy, steps=[step], **report_fields(result))
    return replace(report, rejected=step["rejected"])


def _with_resolution(source: Source, position: Position, dead_letters: DataFrame) -> DataFrame:
    """Add the ``resolution`` of each dead letter: ``replayed`` if it is to be written, else ``superseded``."""
    # Epochs begin again when a position was deleted, so versions of another index say nothing about this one.
    of_one_document = Window.partitionBy("document_id", "place", "physical_index")
    is_newest = F.row_number().over(of_one_document.orderBy(F.desc("version"))) == 1
    fits = is_newest & (F.col("physical_index") == position.physical_index)
    if source.identifier_columns and position.snapshot_id is not None:
        # The index may have forgotten the deletion of a document whose row is gone.
        rows = source.current_rows(position.snapshot_id, "fail")
        place = F.col(PLACE) if source.selection.has_places else F.lit("")
        present = document_id(rows.schema, source.key_columns).alias("present"), place.alias("present_at")
        same = (F.col("document_id") == F.col("present")) & (F.col("place") == F.col("present_at"))
        dead_letters = dead_letters.join(rows.select(*present).distinct(), same, "left")
        fits &= F.col("present").isNotNull() == (F.col("operation") == "index")
    resolution = F.when(fits, "replayed").otherwise("superseded")
    return dead_letters.withColumn("resolution", resolution).drop("present", "present_at")


def _refused_again(
    client: OpenSearch, source: Source, index: str, rejected: DataFrame
) -> list[tuple[str, str, int, bool]]:
    """Return id, place and version of documents, and whether the index has a newer one."""
    refused = []
    letters = rejected.select("document_id", "place", "version", "status").collect()
    for begin in range(0, len(letters), _PAGE):
        page = letters[begin : begin + _PAGE]
        has_suffix = bool(source.index_column)
        wanted = [head_of(letter.document_id, letter.place, index, has_suffix) for letter in page]
        found = client.mget(index=index, body={"docs": wanted}, params={"_source": "false"})["docs"]
        with reading(found):
            for letter, document in zip(page, found, strict=True):
                # OpenSearch checks a document's content before its version, so the index may have a newer one.
                is_outdated = letter.status != 409 and document.get("_version", 0) > letter.version
                refused.append((letter.document_id, letter.place, letter.version, is_outdated))
    return refused
