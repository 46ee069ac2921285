"""The validation: every row is compared with every document, by checksums computed on the executors."""

import time
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import reduce
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession, functions as F
from pyspark.sql.types import StructType

from icecdc_core.columns import PLACE
from icecdc_core.commits.position import Position
from icecdc_core.config import SyncConfig
from icecdc_core.documents.bulk_lines import document_id, document_json, suffix_of, suffix_of_place
from icecdc_core.errors import TableLockedError
from icecdc_core.jobs.repair import repair_differences, require_repairable
from icecdc_core.opensearch import checksums
from icecdc_core.opensearch.id_slices import Part, is_in_part
from icecdc_core.opensearch.index_settings import require_pipelines
from icecdc_core.opensearch.indexes import point_in_time, with_suffixes
from icecdc_core.reporting.reports import ValidationReport
from icecdc_core.runs.nested import at_vector
from icecdc_core.runs.plan import heads
from icecdc_core.runs.run import Run, refuse_dry_run
from icecdc_core.session.jvm import unpersist
from icecdc_core.session.spark import tuned_for_many_groups
from icecdc_core.table.source import Source
from icecdc_core.table.vectors import with_vectors

MISSING, EXTRA, STALE = "missing", "extra", "stale"
SAMPLES = 10
_LONGEST_WAIT_SECONDS = 60.0  # for a run that writes to the index
MAX_SLICES = 1024  # of a point in time, by default
SHARDS_AT_ONCE = 100  # a node has 300 points in time of shards, for everybody

OpenIndex = tuple[str, str, int]
"""Name, point in time and number of shards of an index."""


def validate_table(spark: SparkSession, config: SyncConfig) -> ValidationReport:
    """Compare every row of the table with every document of the index, by content.

    Neither the order of keys nor white space matters, and an absent field equals one that is null. Fields that an
    ingest pipeline makes (``pipeline_fields``) are not compared. Tables without identifier columns are compared as a
    multiset of contents, because compaction changes the position of a row.

    Args:
        spark: A session in which the table's catalog is configured, see ``get_spark``.
        config: The job's parameters. ``validate_at``: compare with the branch's ``current`` snapshot, or with the
            ``position``'s snapshot, which is right while others commit. ``repair``: write what differs from the
            position's snapshot, in a batch of its own, then compare again. ``part``: compare only documents and rows
            whose id is in one part of all ids; ``auto`` takes the next of ``audit_parts``, at the position's snapshot,
            and remembers what it found for ``status``.

    Returns:
        The verdict, counts of missing, extra and stale documents, and samples of their ids.

    Raises:
        UnknownSlicesError: This OpenSearch cannot say which documents are in a part.
        IndexNotFoundError: The index has no position, or is gone.
        TableLockedError: Another run writes to the index for more than a minute; with ``repair`` also, another run has
            locked the index, wrote it after the comparison, or did not finish a batch.
        IcecdcError: Any other error of the package.
    """
    if config.repair:
        instead = "the validation without repair; it shows what a repair would correct"
        refuse_dry_run(config, "A repair writes documents", instead)
    at_position = config.validate_at == "position" or config.repair or config.part == "auto"
    part = None if config.part == "auto" else Part.of(config.part)
    with Run("validate", spark, config) as run:
        total, done, is_last = ValidationReport(True, 0, 0), frozenset[str](), False
        repairs, repaired = config.repair, 0
        while not is_last:
            with ExitStack() as resources:
                position, source, opened, is_last = _open_indexes(run, resources, at_position, repairs, done)
                snapshot_id = position.snapshot_id if at_position else source.head
                nested = position.nested_snapshots if at_position else heads(source)
                at_snapshot = at_vector(source, snapshot_id, nested)
                part = part or _next_part(run, position)
                there = F.lit(True)  # of the rows: all of them
                if not is_last:
                    there = suffix_of_place().isin(*opened)
                elif done:
                    there = ~suffix_of_place().isin(*done)
                report, differences = _compare(run, at_snapshot, position, snapshot_id, opened, there, part)
                resources.callback(unpersist, differences)
                if repairs and not report.ok:
                    with run.stage("repair"):
                        repaired += repair_differences(run, position, source, differences, part.parts == 1)
                    repairs = is_last = False  # this part is compared again
                    continue
            total, done, repairs = total.then(report), done | opened.keys(), config.repair
        report = replace(
            total,
            table=config.table,
            index=config.index,
            snapshot_id=snapshot_id,
            position_snapshot_id=position.snapshot_id,
            nested_snapshots=nested,
            position_nested_snapshots=position.nested_snapshots,
            repaired=repaired,
            part=str(part or ""),
            seconds=run.seconds,
            stage_seconds=run.stage_seconds,
            run_id=run.run_id,
        )
        is_equal = report.ok and not report.is_behind and not report.part and not config.dry_run
        known = len(run.positions.audit(position)["compared_at"])
        if part and at_position and not config.dry_run and (config.part == "auto" or known == part.parts > 1):
            run.positions.remember_parts(position, [part.number], part.parts, report.differences, repaired)
        elif is_equal and known:
            run.positions.remember_parts(position, range(known), known, 0, repaired)
        if is_equal and position.drifted:
            with suppress(TableLockedError), run.lock(position, source) as (lock, _):
                if lock.position.content_version == position.content_version:
                    lock.write(replace(lock.position, drifted=0))
        return run.finish(report)


def _open_indexes(
    run: Run, resources: ExitStack, at_position: bool, repairs: bool, done: Collection[str]
) -> tuple[Position, Source, dict[str, OpenIndex], bool]:
    """Look at position and table, and open the next indexes, by suffix, while no run writes; are they the last?"""
    config, give_up = run.config, time.monotonic() + _LONGEST_WAIT_SECONDS
    while True:
        with run.stage("check"):
            position, source = run.look(needs_history=False)
            if repairs:
                require_pipelines(run.client, config)
            run.require_position(position, source, needs_history=at_position)
            if run.config.part:
                source.require_identifier_columns("a part is chosen by their values", "leave part out, or ")
            if repairs:
                require_repairable(position)
            try:
                if position.batch is not None and position.batch.kind != "export":
                    run.positions.require_unlocked()  # else its run has ended, and its documents stay as they are
                run.client.indices.refresh(index=with_suffixes(config, position.physical_index))
                names = position.physical_index, *(name for name, uuid in position.every_index.items() if uuid)
                left = {suffix: name for name in names if (suffix := suffix_of(name)) not in done}
                opened, shards = dict[str, OpenIndex](), 0
                for suffix, name in left.items():
                    shards += (count := len(run.client.search_shards(index=name)["shards"]))
                    if opened and shards > SHARDS_AT_ONCE:
                        break
                    opened[suffix] = name, resources.enter_context(point_in_time(run.client, name)), count
                now = run.positions.read()
                if now is not None and now.content_version == position.content_version:
                    return position, source, opened, opened.keys() == left.keys()
                raise TableLockedError(
                    f"Other runs write to '{config.index}' all the time, so it cannot be compared",
                    subject="index",
                    value=config.index,
                    remedy="run the validation when no other run writes to the index",
                )
            except TableLockedError:
                resources.close()
                if time.monotonic() > give_up:
                    raise
        time.sleep(1.0)


def _next_part(run: Run, position: Position) -> Part:
    """The part that comes next; each shard of every index is sliced into as many parts."""
    found = run.client.search_shards(index=with_suffixes(run.config, position.physical_index))["shards"]
    shards = Counter(copies[0]["index"] for copies in found)
    parts = max(1, min(run.config.audit_parts, MAX_SLICES // max(shards.values())))
    return Part(run.positions.audit(position, parts)["next"], parts)


def _compare(
    run: Run,
    source: Source,
    position: Position,
    snapshot_id: int | None,
    opened: Mapping[str, OpenIndex],
    there: Column,
    part: Part,
) -> tuple[ValidationReport, DataFrame]:
    spark, most = run.spark, checksums.documents_of_page(position.largest_document)
    with run.stage("compare"), tuned_for_many_groups(spark):
        rows = source.current_rows(snapshot_id, run.config.on_duplicate_identifier)
        rows = rows.where(there)
        if part.parts > 1:  # before the costly texts and digests
            rows = rows.where(is_in_part(spark, document_id(rows.schema, source.key_columns), part))
        rows = with_vectors(source, rows, required=False)
        documents = rows.select(
            document_id(rows.schema, source.key_columns).alias("id"),
            document_json(source.schema).alias("doc"),
            *([F.col(PLACE).alias("place")] if source.selection.has_places else []),
        )
        indexes = []
        for suffix, (name, pit, shards) in opened.items():
            parts = checksums.index_parts(run.client, pit, shards, spark.sparkContext.defaultParallelism, part)
            indexes.append((pit, parts, name, suffix))

        def compared(schema: StructType | None = None) -> tuple[ValidationReport, DataFrame]:
            found = (
                checksums.index_checksums(spark, run.config, parts, most, name, suffix, schema)
                for _, parts, name, suffix in indexes
            )
            sides = checksums.source_checksums(documents, schema), reduce(DataFrame.unionAll, found)
            return _compared(*sides, by_content=not source.identifier_columns)

        # The documents of a pipeline have other texts than their rows.
        if not run.config.pipeline_fields and all(
            checksums.texts_are_comparable(run.client, pit, source.schema, most) for pit, *_ in indexes
        ):
            report, differences = compared()
            if report.ok:
                return report, differences
            # Equal documents may have different texts, so only a comparison of contents shows which differ.
            unpersist(differences)
        report, differences = compared(source.schema)
        if part.parts > 1:
            _prove_slices(run, source, differences, opened, part)
        return report, differences


def _prove_slices(
    run: Run, source: Source, differences: DataFrame, opened: Mapping[str, OpenIndex], part: Part
) -> None:
    """Prove that this part has no document of another one, and that no other one has a document that it lacks."""
    extra = differences.where((F.col("verdict") == EXTRA) & ~F.contains("id", F.lit(checksums.FOREIGN_ROUTING)))
    if other := extra.where(~is_in_part(run.spark, F.col("id"), part)).head():
        raise checksums.unknown_slices_error(f"it has document '{other['id']}' in part {part}")
    most = checksums.PAGE_DOCUMENTS  # every index allows as many hits
    missing = differences.where(F.col("verdict") == MISSING).select("id").limit(most).collect()
    body = {"query": {"ids": {"values": [row["id"] for row in missing]}}, "size": most, "_source": False}
    for _, pit, _ in opened.values() if missing else ():
        hits = run.client.search(body={**body, "pit": {"id": pit}}, params=checksums.WHOLE)["hits"]["hits"]
        # With a routing that no row has, somebody else wrote it.
        if found := [hit["_id"] for hit in hits if source.selection.has_places or "_routing" not in hit]:
            raise checksums.unknown_slices_error(f"it has document '{found[0]}' in another part than {part}")


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
