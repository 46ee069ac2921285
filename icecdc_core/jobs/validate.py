"""The validation: every row is compared with every document, by checksums computed on the executors.

A repair writes the documents that it found missing or stale, and deletes the extra ones.
"""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import reduce
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.types import StructType

from icecdc_core.changes.places import at_each_place
from icecdc_core.columns import OLD_PLACES, PLACE, unused_name
from icecdc_core.commits.position import Batch, Position
from icecdc_core.commits.store import MAX_EPOCH
from icecdc_core.config import SyncConfig
from icecdc_core.documents.bulk_lines import delete_actions, document_id, document_json, to_actions, upsert_version
from icecdc_core.errors import DocumentVersionError, TableLockedError
from icecdc_core.opensearch.checksums import (
    FOREIGN_ROUTING,
    index_checksums,
    index_parts,
    source_checksums,
    texts_are_comparable,
)
from icecdc_core.opensearch.index_settings import require_pipelines
from icecdc_core.opensearch.indexes import point_in_time, with_suffixes
from icecdc_core.reporting.reports import ValidationReport
from icecdc_core.runs.batch import (
    find_suffixes,
    log_entry,
    prepare_indexes,
    report_fields,
    with_indexes,
    write_batch,
    written_to,
)
from icecdc_core.runs.nested import at_vector, heads
from icecdc_core.runs.run import Run, refuse_dry_run
from icecdc_core.session.jvm import unpersist
from icecdc_core.session.spark import tuned_for_many_groups
from icecdc_core.table.source import Source
from icecdc_core.table.vectors import with_vectors

MISSING, EXTRA, STALE = "missing", "extra", "stale"
SAMPLES = 10
_LONGEST_WAIT_SECONDS = 60.0  # for a run that writes to the index
# The first attempt of a repair learns which versions the index remembers of deleted documents; the second exceeds them.
_ATTEMPTS = 3


def validate_table(spark: SparkSession, config: SyncConfig) -> ValidationReport:
    """Compare every row of the table with every document of the index, by content.

    Neither the order of keys nor white space matters, and an absent field equals one that is null. Fields that an
    ingest pipeline makes (``pipeline_fields``) are not compared. Tables without identifier columns are compared as a
    multiset of contents, because compaction changes the position of a row.

    Args:
        spark: A session in which the table's catalog is configured, see ``get_spark``.
        config: The job's parameters. ``validate_at``: compare with the branch's ``current`` snapshot, or with the
            ``position``'s snapshot, which is right while others commit. ``repair``: write what differs from the
            position's snapshot, in a batch of its own, then compare again.

    Returns:
        The verdict, counts of missing, extra and stale documents, and samples of their ids.

    Raises:
        IndexNotFoundError: The index has no position, or is gone.
        TableLockedError: Another run writes to the index for more than a minute; with ``repair`` also, another run has
            locked the index, wrote it after the comparison, or did not finish a batch.
        IcecdcError: Any other error of the package.
    """
    if config.repair:
        instead = "the validation without repair; it shows what a repair would correct"
        refuse_dry_run(config, "A repair writes documents", instead)
    at_position = config.validate_at == "position" or config.repair
    with Run("validate", spark, config) as run, ExitStack() as until_the_end:
        repairs, repaired = config.repair, 0
        while True:
            position, source, opened = _open_indexes(run, until_the_end, at_position, repairs)
            snapshot_id = position.snapshot_id if at_position else source.head
            nested = position.nested_snapshots if at_position else heads(source)
            report, differences = _compare(run, at_vector(source, snapshot_id, nested), position, snapshot_id, opened)
            try:
                if report.ok or not repairs:
                    break
                with run.stage("repair"):
                    repaired = repair_differences(run, position, source, differences)
            finally:
                unpersist(differences)
            repairs = False
        report = replace(
            report,
            table=config.table,
            index=config.index,
            snapshot_id=snapshot_id,
            position_snapshot_id=position.snapshot_id,
            nested_snapshots=nested,
            position_nested_snapshots=position.nested_snapshots,
            repaired=repaired,
            seconds=run.seconds,
            stage_seconds=run.stage_seconds,
            run_id=run.run_id,
        )
        return run.finish(report)


def _open_indexes(
    run: Run, until_the_end: ExitStack, at_position: bool, repairs: bool
) -> tuple[Position, Source, dict[str, str]]:
    """Look at position and table, and open a point in time of each index while no other run writes to it."""
    config, give_up = run.config, time.monotonic() + _LONGEST_WAIT_SECONDS
    while True:
        with run.stage("check"):
            position, source = run.look(needs_history=False)
            if repairs:
                require_pipelines(run.client, config)
            run.require_position(position, source, needs_history=at_position)
            if repairs:
                require_repairable(position)
            try:
                if position.batch is not None and position.batch.kind != "export":
                    run.positions.require_unlocked()  # else its run has ended, and its documents stay as they are
                run.client.indices.refresh(index=with_suffixes(config, position.physical_index))
                names = position.physical_index, *(name for name, uuid in position.every_index.items() if uuid)
                opened = {name: until_the_end.enter_context(point_in_time(run.client, name)) for name in names}
                now = run.positions.read()
                if now is not None and now.content_version == position.content_version:
                    return position, source, opened
                raise TableLockedError(
                    f"Other runs write to '{config.index}' all the time, so it cannot be compared",
                    subject="index",
                    value=config.index,
                    remedy="run the validation when no other run writes to the index",
                )
            except TableLockedError:
                if time.monotonic() > give_up:
                    raise
        time.sleep(1.0)


def _compare(
    run: Run, source: Source, position: Position, snapshot_id: int | None, opened: Mapping[str, str]
) -> tuple[ValidationReport, DataFrame]:
    spark = run.spark
    with run.stage("compare"), tuned_for_many_groups(spark):
        rows = source.current_rows(snapshot_id, run.config.on_duplicate_identifier)
        rows = with_vectors(source, rows, required=False)
        documents = rows.select(
            document_id(rows.schema, source.key_columns).alias("id"),
            document_json(source.schema).alias("doc"),
            *([F.col(PLACE).alias("place")] if source.selection.has_places else []),
        )
        indexes = []
        for name, pit in opened.items():
            shards = len(run.client.search_shards(index=name)["shards"])
            parts = index_parts(run.client, pit, shards, spark.sparkContext.defaultParallelism)
            indexes.append((pit, parts, name, name.removeprefix(position.physical_index).removeprefix("-")))

        def compared(schema: StructType | None = None) -> tuple[ValidationReport, DataFrame]:
            found = (
                index_checksums(spark, run.config, parts, name, suffix, schema) for _, parts, name, suffix in indexes
            )
            sides = source_checksums(documents, schema), reduce(DataFrame.unionAll, found)
            return _compared(*sides, by_content=not source.identifier_columns)

        # The documents of a pipeline have other texts than their rows.
        if not run.config.pipeline_fields and all(
            texts_are_comparable(run.client, pit, source.schema) for pit, *_ in indexes
        ):
            report, differences = compared()
            if report.ok:
                return report, differences
            # Equal documents may have different texts, so only a comparison of contents shows which differ.
            unpersist(differences)
        return compared(source.schema)


def _compared(table_side: DataFrame, index_side: DataFrame, by_content: bool) -> tuple[ValidationReport, DataFrame]:
    # Rows and documents in one frame.
    one, none = F.lit(1).cast("long"), F.lit(0).cast("long")
    rows = table_side.select("id", "high", "low", one.alias("row"), none.alias("document"), none.alias("version"))
    place = [name for name in index_side.columns if name == "place"]
    documents = index_side.select("id", "high", "low", none.alias("row"), one.alias("document"), "version", *place)
    sides = rows.unionByName(documents, allowMissingColumns=True)
    compared = _by_content(sides) if by_content else _by_id(sides)
    # All equal ids become one row without an id, so that little of a large table is cached.
    identifier = F.when(F.col("verdict").isNotNull(), F.col("id")).alias("id")
    added = [F.sum(name).alias(name) for name in ("rows", "documents")]
    if "places" in compared.columns:
        added.append(F.flatten(F.collect_list("places")).alias("places"))
    compared = compared.groupBy(identifier, "verdict").agg(*added, F.max("version").alias("version"))
    compared = compared.persist(StorageLevel.MEMORY_AND_DISK)
    sums = F.sum("rows").alias("rows"), F.sum("documents").alias("documents"), F.count(F.lit(1)).alias("ids")
    groups = {row["verdict"]: row for row in compared.groupBy("verdict").agg(*sums).collect()}
    found: dict[str, Any] = {}
    for verdict in groups.keys() - {None}:
        group = groups[verdict]
        found[verdict] = abs(group["rows"] - group["documents"]) if by_content else group["ids"]
        wrong = compared.where(F.col("verdict") == verdict).orderBy("id").limit(SAMPLES)
        found[f"{verdict}_ids"] = [row["id"] for row in wrong.collect()]
    rows_read, documents_read = (sum(group[name] for group in groups.values()) for name in ("rows", "documents"))
    return ValidationReport(not found, rows_read, documents_read, **found), compared


def _by_id(sides: DataFrame) -> DataFrame:
    """One row for each id: its verdict (null: equal), rows, documents, version; with routing also its places."""
    ids = sides.repartition("id").groupBy("id")
    places = [F.collect_set("place").alias("places")] if "place" in sides.columns else []
    found = ids.agg(
        *places,
        F.sum("row").alias("rows"),
        F.sum("document").alias("documents"),
        F.max("version").alias("version"),
        # The checksums of one row and one equal document cancel to zero.
        F.bit_xor("high").alias("high"),
        F.bit_xor("low").alias("low"),
    )
    equal = (F.col("rows") == F.lit(1)) & (F.col("high") == F.lit(0)) & (F.col("low") == F.lit(0))
    no_document, too_many = F.col("documents") == F.lit(0), F.col("documents") > F.col("rows")
    verdict = F.when(no_document, MISSING).when(too_many, EXTRA).when(~equal, STALE)
    places = [F.when(verdict.isNotNull(), F.col("places")).alias("places")] if places else []
    return found.select("id", verdict.alias("verdict"), "rows", "documents", "version", *places)


def _by_content(sides: DataFrame) -> DataFrame:
    """One row for each content, with the columns of ``_by_id``; ``id`` is one of the ids with that content."""
    counted = sides.groupBy("high", "low").agg(
        F.min("id").alias("id"), F.sum("row").alias("rows"), F.sum("document").alias("documents")
    )
    verdict = F.when(F.col("rows") > F.col("documents"), MISSING).when(F.col("rows") < F.col("documents"), EXTRA)
    return counted.select("id", verdict.alias("verdict"), "rows", "documents", F.lit(0).cast("long").alias("version"))


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


def repair_differences(run: Run, position: Position, source: Source, differences: DataFrame) -> int:
    """Bring the documents that differ to the position's snapshot, as a batch of its own with a new epoch."""
    # It must exceed the versions of a foreign writer. The validation knows those of documents; those of deleted
    # documents show only in conflicts, after which the batch is written again.
    source.require_identifier_columns("a repair writes single documents")
    suffixes = find_suffixes(run.config, source.placed_rows(position.snapshot_id), position.every_index)
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
            batch = Batch(
                kind="repair",
                epoch=epoch,
                from_snapshot_id=position.snapshot_id,
                to_snapshot_id=position.snapshot_id,
                physical_index=physical,
                table_uuid=source.metadata.table_uuid,
                selection=source.stored_selection,
                indexes=with_indexes(lock.position, suffixes),
            )
            lock.begin(batch)
            prepare_indexes(run, lock, source)
            placed = written_to(source, physical)
            actions = repair_actions(placed, position, wrong, epoch, run.config.on_duplicate_identifier)
            result = write_batch(run, lock, actions)
            deletes += result.counts.deletes  # a later attempt finds nothing to delete, and writes all others again
            newest, identity = result.newest
            if newest <= upsert_version(epoch):
                break
        run.client.indices.refresh(index=with_suffixes(run.config, physical))
        report = run.report("repair", position.snapshot_id, position.snapshot_id, "repair", **report_fields(result))
        report = replace(report, deletes=deletes)
        lock.commit(replace(lock.position, indexes=lock.position.every_index), log_entry(report))
        return report.upserts + report.deletes
