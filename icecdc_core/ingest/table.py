"""Writes the records of a batch into one table: skip those that it has, stage the others, publish them."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, functions as F
from pyspark.sql.types import StringType, StructField, StructType

from icecdc_core.columns import quoted
from icecdc_core.errors import ColumnNotFoundError, ConcurrentIngestError, TableResetError
from icecdc_core.ingest import commit_log, offsets
from icecdc_core.ingest.branches import on_branch, written_name
from icecdc_core.ingest.checks import find_failed_records
from icecdc_core.ingest.commit_log import LogEntry, TableEntry
from icecdc_core.ingest.config import CHANGE_EVENTS, IngestConfig
from icecdc_core.ingest.dead_letters import POSITION, DeadLetters
from icecdc_core.ingest.deleted_keys import apply_deleted_keys, write_deleted_keys
from icecdc_core.ingest.destinations import (
    METADATA_PREFIX,
    OP_COLUMN,
    evolve_for_records,
    identifiers,
    open_or_create_table,
    payload_schema,
    reject_unwritable_rows,
    require_place_for_deletes,
)
from icecdc_core.ingest.formats.change_events import UNAVAILABLE_PROBLEM, unavailable_fields
from icecdc_core.ingest.formats.decode_results import PARTIAL, TRUNCATE
from icecdc_core.ingest.offsets import Offsets, Routed, of_all_topics
from icecdc_core.ingest.publish import MovedError, StagedSnapshot, append, publish, restage, stage
from icecdc_core.ingest.readers import StructReader
from icecdc_core.ingest.rows import IS_VALID, ROW, explain_rows, parse_rows
from icecdc_core.ingest.start_offsets import RefillError
from icecdc_core.ingest.truncates import reject_truncates, rows_after, source_truncated
from icecdc_core.ingest.unavailable import LOST, NOT_FILLED, fill_unavailable, stored_rows
from icecdc_core.ingest.upserts import (
    IDENTIFIER,
    IS_DELETE_OP,
    ORDER,
    delete_old_identifiers,
    last_row_of_each,
    merge_rows,
    old_identifiers,
)
from icecdc_core.logs import event
from icecdc_core.secrets import mask_secrets
from icecdc_core.session.jvm import iceberg_class
from icecdc_core.session.spark import RowCount
from icecdc_core.table.catalogs import load_table


@dataclass(frozen=True)
class TableRecords:
    """The records of a batch for one table; perhaps also what `parse_rows` made of them, with the schema."""

    decoded: DataFrame
    in_one_task: bool = False
    rows: DataFrame | None = None
    schema: StructType | None = None


DELETE_IN_APPEND = "a delete, for a table that is only appended to (mode=upsert would apply it)"
_GIVEN_OP = "_icecdc_given_op"
IN_HISTORY = f"({IS_VALID} AND NOT coalesce(op = '{PARTIAL}', false))"
APPENDED = f"({IS_VALID} AND NOT coalesce(op IN ('delete', '{PARTIAL}'), false))"


def _no_row(of_delete: str | None) -> Column:
    """Why a record with its operation is no row."""
    reason = F.when(F.expr(IS_DELETE_OP), F.lit(of_delete))
    return reason.when(F.col("op") == PARTIAL, F.lit(UNAVAILABLE_PROBLEM))


StageWrite = Callable[[Callable[[dict[str, str]], None]], StagedSnapshot]
"""Stages what a function writes; the function gets the properties that its snapshot must have."""


@dataclass
class Writer:
    """Writes batches into tables; threads may use it at the same time, each for other tables."""

    config: IngestConfig
    dead_letters: DeadLetters
    last_entries: dict[str, TableEntry]
    earliest: Offsets
    attempts: int = 10  # before the table is left behind
    routed: Routed = of_all_topics
    replay: str = ""  # the claim of a replay of dead letters, whose batch has no offsets

    def is_first(self, batch: LogEntry) -> bool:
        """Whether no run has judged records of this batch before, as one that died may have."""
        judged = {topic: parts for topic, parts in self.dead_letters.judged.items() if topic in batch.started_at}
        return offsets.covers(batch.started_at, judged)

    def write(self, spark: SparkSession, name: str, records: TableRecords, batch: LogEntry) -> tuple[TableEntry, int]:
        """Write the records of a batch that the table lacks; returns its entry and the number of dead letters."""
        return replace(self, config=self.config.for_table(name))._write(spark, name, records, batch)

    def _write(self, spark: SparkSession, name: str, records: TableRecords, batch: LogEntry) -> tuple[TableEntry, int]:
        # If others commit in between, an append is staged again on top. A merge depends on the rows of the table, and
        # what a copy of this job wrote must not be written twice, so these are written again: no library repeats that.
        dead_letters, known, is_new = 0, None, False
        start, end = self.routed(name, batch.started_at), self.routed(name, batch.offsets)
        batch = replace(batch, started_at=start, offsets=end)
        if self.config.on_truncate == "reject" or self.replay:  # it would also remove what came since
            records = replace(records, decoded=reject_truncates(records.decoded))
        staged: StagedSnapshot | None = None
        rejected: DataFrame | None = None
        excluded: DataFrame | None = None  # the records that fail checks
        rounds, is_judged, is_first = 0, False, self.is_first(batch)
        conflict: MovedError | None = None
        for _ in range(self.attempts):
            table, created = open_or_create_table(spark, name, records.decoded, self.config)
            is_new |= created
            if table is None:
                return self._write_without_table(name, records.decoded, batch)
            recorded = self.read_or_reset(name, table, batch.started_at)
            if not self.replay and offsets.covers(recorded.offsets, batch.offsets):
                last = self.last_entries.get(name)
                if recorded.snapshot_id is None and last is not None:
                    # The snapshot has expired. The entry still names it, so that a rollback is recognized later.
                    recorded = replace(last.unchanged(), uuid=recorded.uuid, offsets=recorded.offsets)
                return recorded, dead_letters
            head = commit_log.current_snapshot_id(table)
            has_moved = staged is not None and head != staged.parent_id
            try:
                if (
                    staged is None
                    or recorded.offsets != known
                    or (has_moved and (self.config.mode == "upsert" or staged.empties))
                ):
                    staged, rejected = self._stage(spark, name, table, recorded, records, batch, is_new)
                    known, is_judged = recorded.offsets, False
                elif has_moved:
                    staged = restage(spark, name, staged)
                # Else the offsets of its parent were not read, which a copy of this job may have published meanwhile.
                if staged is None or staged.parent_id != head:
                    continue
                failed = None
                if self.config.checks and staged.entry.rows + staged.entry.deletes:
                    failed, rounds = find_failed_records(spark, name, staged, self.config, rounds), rounds + 1
                if failed is not None:
                    # Without them from the start: one that a merge chose may hide an older one that fails no check.
                    failing = records.decoded.drop("problem").join(failed, list(POSITION))
                    excluded = failing if excluded is None else excluded.unionByName(failing)
                    rest = records.decoded.join(failed, list(POSITION), "left_anti")
                    records, staged = TableRecords(rest, records.in_one_task), None
                    continue
                if not is_judged:
                    if not is_first:
                        self.dead_letters.judge_again(spark, name, recorded.offsets, rejected, excluded)
                    dead_letters += self._keep_dead_letters(name, rejected, excluded)
                    if staged.deleted is not None:
                        write_deleted_keys(staged.deleted, self.config)
                    is_judged, is_first = True, False
                publish(spark, name, staged)
            except MovedError as moved:
                conflict = moved
                continue
            self.last_entries[name] = staged.entry
            return staged.entry, dead_letters
        raise ConcurrentIngestError(
            f"Other writers committed to the table first, {self.attempts} times",
            subject="table",
            value=name,
            remedy="run one copy of the job at a time, let others write or compact the table less often, or set a "
            "lower max_records_per_batch; the next run reads the records again",
        ) from conflict

    def read_or_reset(self, name: str, table: Any, start: Offsets) -> TableEntry:
        """Return what a table records, or the log if it has higher offsets; a reset table follows `on_table_reset`."""
        recorded = commit_log.find_recorded(name, table, self.config.job)
        logged = self.last_entries.get(name)
        if logged is None:
            return recorded
        state = commit_log.table_state(table, recorded, logged)
        if state in ("current", "log is ahead"):
            return replace(recorded, offsets=offsets.furthest(recorded.offsets, logged.offsets))
        if self.config.on_table_reset == "continue":
            recorded = replace(recorded, offsets=offsets.furthest(recorded.offsets, start))
            self.last_entries[name] = TableEntry(name, recorded.uuid, offsets=recorded.offsets)
            return recorded
        if self.config.on_table_reset == "refill":
            refill = RefillError("The table is filled again", subject="table", value=name)
            refill.offsets = offsets.furthest(self.earliest, recorded.offsets)
            raise refill
        raise TableResetError(
            f"The table was {state} since the ingest last wrote into it",
            subject="on_table_reset",
            value=name,
            remedy="set on_table_reset=refill once, to read again what the topic still has for it, or continue, to "
            "write new records only",
        )

    def _keep_dead_letters(self, name: str, *rejected: DataFrame | None) -> int:
        columns = ("topic", "partition", "offset", "timestamp", "key", "value", "headers", "problem")
        frames = [each.select(*columns) for each in rejected if each is not None]
        return self.dead_letters.write(reduce(DataFrame.unionByName, frames), name) if frames else 0

    def _write_without_table(self, name: str, decoded: DataFrame, batch: LogEntry) -> tuple[TableEntry, int]:
        columns = StructType([StructField(name, StringType()) for name in self.config.identifier_columns])
        decoded = decoded.where(f"problem IS NOT NULL OR NOT op <=> '{TRUNCATE}'")  # no rows to remove
        rows = explain_rows(*parse_rows(decoded, columns, self.config, report_unknown=False))
        of_others = "the table does not exist, and the record has no value from which it could get a column"
        of_delete = {"append": DELETE_IN_APPEND, "history": of_others}.get(self.config.mode)
        reason = F.coalesce("problem", _no_row(of_delete).otherwise(F.lit(of_others)))
        dead_letters = self.dead_letters.write(rows.withColumn("problem", reason).where("problem IS NOT NULL"), name)
        # A table that was dropped keeps its uuid and snapshot in the log, so that a reset is recognized later.
        last = self.last_entries.get(name) or TableEntry(name)
        entry = replace(last.unchanged(), offsets=offsets.furthest(last.offsets, batch.offsets))
        self.last_entries[name] = entry
        return entry, dead_letters

    def _stage(
        self,
        spark: SparkSession,
        name: str,
        table: Any,
        recorded: TableEntry,
        records: TableRecords,
        batch: LogEntry,
        is_new: bool,
    ) -> tuple[StagedSnapshot, DataFrame | None]:
        """Stage the rows that the table lacks; returns also the records that are dead letters, if there are any."""
        unread = offsets.unread(recorded.offsets, batch.started_at, batch.offsets)
        decoded = records.decoded if unread is None else records.decoded.where(unread)
        seen = evolve_for_records(spark, name, table, decoded, self.config) if self.config.evolve_schema else None
        is_upsert = self.config.mode == "upsert"
        keys = identifiers(spark, table, self.config) if is_upsert or self.config.identifier_columns else []
        if self.config.keeps_deletes:
            require_place_for_deletes(spark, name, table, self.config, keys)
        schema = payload_schema(spark, table, self.config)
        properties = {
            commit_log.JOB: self.config.job,
            commit_log.BATCH: str(batch.batch),
            commit_log.OFFSETS: offsets.to_json(offsets.furthest(recorded.offsets, batch.offsets)),
            commit_log.RUN: batch.run_id,
        }
        properties |= {commit_log.VALID_THROUGH: batch.valid_through.isoformat()} if batch.valid_through else {}
        properties |= {commit_log.REPLAYED: self.replay} if self.replay else {}
        stage_write = partial(stage, spark, name, table, properties)
        name = written_name(name, self.config.branch)
        if records.rows is not None and unread is None and records.schema == schema:
            rows = reject_unwritable_rows(records.rows, table, self.config)
            if rows is records.rows or rows.where(~F.col(IS_VALID)).isEmpty():
                return self._append(rows, None, name, (), False, stage_write)
        # A field for which a new table has no column has a name that none can have.
        config = self.config if keys == self.config.identifier_columns else self.config.replace(identifier_columns=keys)
        rows, reader = parse_rows(decoded, schema, config, seen, True if is_new else None)
        rows = reject_unwritable_rows(rows, table, self.config)

        def write(rows: DataFrame, empties: bool = False) -> tuple[StagedSnapshot, DataFrame | None]:
            if is_upsert:
                return self._upsert(rows, reader, records.in_one_task, name, keys, empties, stage_write)
            return self._append(rows, reader, name, keys, empties, stage_write)

        if self.config.on_truncate == "reject" or self.replay or not self.config.format.startswith("debezium"):
            return write(rows)
        truncates = RowCount(rows, F.col("op").eqNullSafe(TRUNCATE))
        staged = write(truncates.rows)
        if not truncates.value():
            return staged
        if self.config.on_truncate == "fail":
            raise source_truncated(name)
        return write(rows_after(rows), empties=True)

    def _append(
        self,
        rows: DataFrame,
        reader: StructReader | None,
        name: str,
        identifier_columns: Sequence[str],
        empties: bool,
        stage_write: StageWrite,
    ) -> tuple[StagedSnapshot, DataFrame | None]:
        """Append the rows that fit, all if there is no reader; the other records and deletes are dead letters."""
        is_history = self.config.mode == "history"
        wanted = IN_HISTORY if is_history else APPENDED
        unfit = None if reader is None else RowCount(rows, F.expr(f"NOT {wanted}"))
        metadata = [f"{quoted(column)} AS {METADATA_PREFIX}{column}" for column in self.config.metadata_columns]
        fit = rows if unfit is None else unfit.rows.where(wanted)
        if is_history and reader is not None:
            fit = self._with_old_identifiers(fit, reader.kind, identifier_columns)
            metadata.append(f"coalesce(op, 'upsert') AS {OP_COLUMN}")
        ready = fit.selectExpr(f"{quoted(ROW)}.*", *metadata)
        if self.config.sort_columns:
            ready = ready.sortWithinPartitions(*map(quoted, self.config.sort_columns))
        # Every row was checked for required columns. The frame of parsed records has only nullable ones.
        options = {"check-nullability": "false"}
        size, distribution = self.config.target_file_bytes, self.config.distribution
        options |= {"target-file-size-bytes": str(size)} if size else {}
        options |= {"distribution-mode": distribution} if distribution != "table" else {}
        staged = stage_write(lambda properties: append(ready, name, options, properties, empties))
        staged = replace(staged, written=rows.where(wanted), empties=empties)
        if unfit is None or reader is None or not unfit.value():
            return staged, None
        reason = F.coalesce("problem", _no_row(DELETE_IN_APPEND))
        return staged, explain_rows(rows.where(f"NOT {wanted}"), reader).withColumn("problem", reason)

    def _with_old_identifiers(self, rows: DataFrame, kind: StructType, identifier_columns: Sequence[str]) -> DataFrame:
        """Add a delete, which has only identifiers, to each update that gave its row another identifier."""
        if not identifier_columns or self.config.format not in CHANGE_EVENTS:
            return rows
        own = {f"{IDENTIFIER}{number}": F.col(ROW)[column] for number, column in enumerate(identifier_columns)}
        rows = rows.withColumns({**own, _GIVEN_OP: F.col("op")})
        before = old_identifiers(rows, identifier_columns, kind, self.config)
        rows = delete_old_identifiers(rows, *before)
        old = dict(zip(identifier_columns, map(F.col, own), strict=True))
        values = (old.get(each.name, F.lit(None)).cast(each.dataType).alias(each.name) for each in kind)
        is_added = F.expr(IS_DELETE_OP) & ~F.col(_GIVEN_OP).eqNullSafe("delete")
        return rows.withColumn(ROW, F.when(is_added, F.struct(*values)).otherwise(F.col(ROW)))

    def _upsert(
        self,
        rows: DataFrame,
        reader: StructReader,
        in_one_task: bool,
        name: str,
        identifier_columns: list[str],
        empties: bool,
        stage_write: StageWrite,
    ) -> tuple[StagedSnapshot, DataFrame | None]:
        columns = {column: F.col(ROW)[column] for column in reader.kind.names}
        columns |= {f"{METADATA_PREFIX}{name}": F.col(name) for name in self.config.metadata_columns}
        ordering = self.config.ordering_column
        if ordering and ordering not in columns:
            raise ColumnNotFoundError(
                "The ordering column is not in the table",
                subject="ordering_column",
                value=ordering,
                remedy=f"name one of {', '.join(columns)}",
            )
        is_soft = self.config.deletes == "soft"
        own = {f"{IDENTIFIER}{number}": columns[column] for number, column in enumerate(identifier_columns)}
        rows = rows.withColumns({**own, ORDER: columns[ordering] if ordering else F.lit(0)})
        columns |= {column: F.col(name) for column, name in zip(identifier_columns, own, strict=True)}
        incomplete = reduce(or_, (F.col(name).isNull() for name in own))
        # A delete without an ordering value is the newest record.
        unordered = F.col(ORDER).isNull() & (F.lit(bool(self.replay)) | ~F.expr(IS_DELETE_OP))
        before = ["before"] if self.config.format in CHANGE_EVENTS else []
        old: dict[str, Column] = {}
        is_renamed, is_partial = F.lit(False), F.col("op").eqNullSafe(PARTIAL)
        if before:
            old, is_renamed = old_identifiers(rows, identifier_columns, reader.kind, self.config)
        rows = rows.withColumn(LOST, F.when(is_partial, unavailable_fields(F.col("payload"))))
        # Such a value cannot be filled in: it is within another one, says which row it is, or is in another row.
        needed = [
            name
            for each in reader.fields
            if each.column.name in (*identifier_columns, ordering)
            for name in each.spellings
        ]
        unfillable = F.col(LOST).isNull() | F.arrays_overlap(LOST, F.lit(needed)) | is_renamed
        unfillable = is_partial & (unfillable | F.lit(is_soft))
        fit = F.col(IS_VALID) & ~incomplete & ~unordered & ~unfillable
        rejected = RowCount(rows, ~fit)
        others = ["topic", "partition", "offset", "timestamp", *self.config.metadata_columns, *before]
        fitting = rejected.rows.where(fit).select(*own, ORDER, "op", LOST, ROW, *dict.fromkeys(others))
        if before:
            fitting = delete_old_identifiers(fitting, old, is_renamed)
        kept = [ROW, *self.config.metadata_columns] if is_soft else []
        if is_soft:  # what a delete says of other columns is often no value of the row
            fitting = fitting.withColumn(ROW, F.when(~F.expr(IS_DELETE_OP), F.col(ROW)))
        fitting = fitting if in_one_task else fitting.repartition(*own)  # for all windows at once
        # A merge reads its source more than once, and refuses one that may differ the second time.
        last = last_row_of_each(fitting, bool(ordering), kept).localCheckpoint()
        counts = f"count_if(NOT {IS_DELETE_OP})", f"count_if({IS_DELETE_OP})", f"count_if(op = '{PARTIAL}')"
        [[upserts, deletes, partials]] = last.selectExpr(*counts).collect()
        unfilled, filled_from = None, None
        if partials:
            spark = rows.sparkSession
            whole, branch = name.removesuffix(written_name("", self.config.branch)), self.config.branch
            filled_from = commit_log.current_snapshot_id(on_branch(load_table(spark, whole), branch))
            table = spark.table(name).where(F.lit(not empties))
            stored = stored_rows(table, reader, identifier_columns, ordering)
            last, unfilled = fill_unavailable(last, fitting, stored, reader, bool(ordering))
            [[upserts, deletes, _]] = last.selectExpr(*counts).collect()
        deleted: DataFrame | None = None
        if ordering and self.config.delete_retention_seconds and not is_soft:
            last, deleted = apply_deleted_keys(last, name, identifier_columns, self.config)
        given = last, name, columns, identifier_columns, ordering

        def write(properties: dict[str, str]) -> None:
            if empties:
                ready = last.where(f"NOT {IS_DELETE_OP}").select(*(of.alias(to) for to, of in columns.items()))
                append(ready, name, {"check-nullability": "false"}, properties, empties)
            else:
                merge_rows(*given, properties, self.config.deleted_column)

        staged = stage_write(write)
        if partials and staged.parent_id != filled_from:
            raise MovedError(
                "Another writer changed the rows that updates were filled in from", subject="table", value=name
            )
        entry = replace(staged.entry, rows=upserts, deletes=deletes)
        staged = replace(staged, entry=entry, written=rows.where(fit), deleted=deleted, empties=empties)
        found = [] if unfilled is None else [rows.join(unfilled, list(POSITION), "left_semi")]
        found = [each.withColumn("problem", F.lit(NOT_FILLED)) for each in found]
        if not rejected.value():
            return staged, found[0] if found else None
        problem = F.when(incomplete, F.lit("a column that identifies the row is missing or null"))
        problem = problem.when(unordered, F.lit(f"field {ordering}, the ordering column, is missing or null"))
        problem = problem.when(unfillable, F.lit(UNAVAILABLE_PROBLEM))
        unfit = explain_rows(rows.where(~fit), reader).withColumn("problem", F.coalesce("problem", problem))
        return staged, reduce(DataFrame.unionByName, [unfit, *found])


def compact(spark: SparkSession, config: IngestConfig, min_files: dict[str, int]) -> list[str]:
    """Rewrite the small data files of tables that have at least so many; a failure is only logged."""
    actions: Any = iceberg_class(spark, "spark.actions.SparkActions")
    compacted: list[str] = []
    for name, least in min_files.items():
        try:
            action = actions.get(spark._jsparkSession).rewriteDataFiles(load_table(spark, name))
            action = action.toBranch(config.for_table(name).branch)
            result = action.option("min-input-files", str(least)).execute()
            if int(result.rewrittenDataFilesCount()):
                compacted.append(name)
        except Exception as error:
            event(f"the table was not compacted: {mask_secrets(str(error))[:500]}", logging.WARNING, table=name)
    return compacted
