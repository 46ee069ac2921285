"""One write into a table: rows are staged as an append or a merge; records that are no rows are left over."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, functions as F
from pyspark.sql.types import StructType

from icecdc_core.columns import quoted
from icecdc_core.errors import ColumnNotFoundError, SourceTruncatedError
from icecdc_core.ingest import destinations, upserts
from icecdc_core.ingest.branches import written_name
from icecdc_core.ingest.commit_log import REPLAYED, current_snapshot_id
from icecdc_core.ingest.config import CHANGE_EVENTS, IngestConfig
from icecdc_core.ingest.dead_letters import POSITION
from icecdc_core.ingest.deleted_keys import apply_deleted_keys
from icecdc_core.ingest.destinations import METADATA_PREFIX, OP_COLUMN
from icecdc_core.ingest.formats.change_events import UNAVAILABLE_PROBLEM, unavailable_fields
from icecdc_core.ingest.formats.decode_results import IS_DELETE, PARTIAL, TRUNCATE
from icecdc_core.ingest.publish import MovedError, StagedSnapshot, append, stage
from icecdc_core.ingest.readers import StructReader
from icecdc_core.ingest.rows import IS_VALID, ROW, explain_rows, parse_rows
from icecdc_core.ingest.unavailable import LOST, NOT_FILLED, fill_unavailable, stored_rows
from icecdc_core.session.spark import RowCount

DELETE_IN_APPEND = "a delete, for a table that is only appended to (mode=upsert would apply it)"
_GIVEN_OP = "_icecdc_given_op"
IN_HISTORY = f"({IS_VALID} AND NOT op <=> '{PARTIAL}')"
APPENDED = f"({IN_HISTORY} AND NOT {IS_DELETE})"


@dataclass(frozen=True)
class TableRecords:
    """The records of a batch for one table; perhaps also what `parse_rows` made of them, with the schema."""

    decoded: DataFrame
    in_one_task: bool = False
    rows: DataFrame | None = None
    schema: StructType | None = None


@dataclass(frozen=True)
class StagedWrite:
    """A write that waits to be published."""

    snapshot: StagedSnapshot
    written: DataFrame  # the records that it has
    rejected: DataFrame | None = None  # those that are dead letters
    deleted: DataFrame | None = None  # keys that stay deleted
    empties: bool = False  # it removes the rows of its parent, so that its files alone are not all of it


def no_row_reason(of_delete: str | None) -> Column:
    """Why a record with its operation is no row."""
    reason = F.when(F.expr(IS_DELETE), F.lit(of_delete))
    return reason.when(F.col("op") == PARTIAL, F.lit(UNAVAILABLE_PROBLEM))


def stage_records(
    spark: SparkSession,
    name: str,
    table: Any,
    config: IngestConfig,
    records: TableRecords,
    properties: dict[str, str],
    is_new: bool = False,
) -> StagedWrite:
    """Stage the rows of records as one snapshot with these properties."""
    seen = None
    if config.evolve_schema:
        seen = destinations.evolve_for_records(spark, name, table, records.decoded, config)
    is_upsert = config.mode == "upsert"
    keys = destinations.identifiers(spark, table, config) if is_upsert or config.identifier_columns else []
    if config.keeps_deletes:
        destinations.require_place_for_deletes(spark, name, table, config, keys)
    schema, is_replay = destinations.payload_schema(spark, table, config), REPLAYED in properties
    write = TableWrite(
        config,
        written_name(name, config.branch),
        current_snapshot_id(table),
        keys,
        partial(stage, spark, name, table, properties),
        records.in_one_task,
        is_replay,
    )
    if records.rows is not None and records.schema == schema:
        rows = destinations.reject_unwritable_rows(records.rows, table, config)
        if rows is records.rows or rows.where(~F.col(IS_VALID)).isEmpty():
            return write.append(rows, None)
    # A field for which a new table has no column has a name that none can have.
    named = config if keys == config.identifier_columns else config.replace(identifier_columns=keys)
    rows, reader = parse_rows(records.decoded, schema, named, seen, True if is_new else None)
    rows = destinations.reject_unwritable_rows(rows, table, config)
    write_rows = write.upsert if is_upsert else write.append
    if config.on_truncate == "reject" or is_replay or not config.format.startswith("debezium"):
        return write_rows(rows, reader)
    truncates = RowCount(rows, F.col("op").eqNullSafe(TRUNCATE))
    staged = write_rows(truncates.rows, reader)
    if not truncates.value():
        return staged
    if config.on_truncate == "fail":
        raise SourceTruncatedError(
            "The source table was truncated",
            subject="on_truncate",
            value=name,
            remedy="set on_truncate=apply, to empty this table, too, or reject, to keep its rows; the next run reads "
            "the records again",
        )
    return write_rows(rows_after_truncates(rows), reader, empties=True)


def reject_truncates(decoded: DataFrame) -> DataFrame:
    reason = F.lit("the source table was truncated; delete its rows here by hand if they should go")
    return decoded.withColumn("problem", F.coalesce("problem", F.when(F.col("op") == TRUNCATE, reason)))


def rows_after_truncates(rows: DataFrame) -> DataFrame:
    """Keep the records after all truncations: by offset in their partition, by timestamp in other partitions."""
    is_truncate, micros = F.col("op").eqNullSafe(TRUNCATE), F.unix_micros("timestamp")
    of_partition = rows.where(is_truncate).groupBy("topic", "partition")
    found = of_partition.agg(F.max("offset").alias("offset"), F.max(micros).alias("micros")).collect()
    before = [
        F.when((F.col("topic") == each.topic) & (F.col("partition") == each.partition), F.col("offset") < each.offset)
        # At the same time, a record counts as later: one too many can be seen, a lost one cannot.
        .otherwise(micros < each.micros)
        for each in found
    ]
    return rows.where(~(is_truncate | reduce(or_, before)))


@dataclass(frozen=True)
class TableWrite:
    """How rows get into a table, whose name may be that of its branch."""

    config: IngestConfig
    name: str
    head: int | None
    identifiers: list[str]
    stage: Callable[[Callable[[dict[str, str]], None]], StagedSnapshot]
    in_one_task: bool
    is_replay: bool

    def append(self, rows: DataFrame, reader: StructReader | None, empties: bool = False) -> StagedWrite:
        """Append the rows that fit, all if there is no reader; the other records and deletes are dead letters."""
        is_history = self.config.mode == "history"
        wanted = IN_HISTORY if is_history else APPENDED
        metadata = [f"{quoted(column)} AS {METADATA_PREFIX}{column}" for column in self.config.metadata_columns]
        unfit = None if reader is None else RowCount(rows, F.expr(f"NOT {wanted}"))
        fit = rows if unfit is None else unfit.rows.where(wanted)
        if is_history and reader is not None:
            fit = self._with_old_identifiers(fit, reader.kind)
            metadata.append(f"coalesce(op, 'upsert') AS {OP_COLUMN}")
        ready = fit.selectExpr(f"{quoted(ROW)}.*", *metadata)
        if self.config.sort_columns:
            ready = ready.sortWithinPartitions(*map(quoted, self.config.sort_columns))
        # Every row was checked for required columns. The frame of parsed records has only nullable ones.
        options = {"check-nullability": "false"}
        size, distribution = self.config.target_file_bytes, self.config.distribution
        options |= {"target-file-size-bytes": str(size)} if size else {}
        options |= {"distribution-mode": distribution} if distribution != "table" else {}
        snapshot = self.stage(lambda properties: append(ready, self.name, options, properties, empties))
        staged = StagedWrite(snapshot, rows.where(wanted), empties=empties)
        if unfit is None or reader is None or not unfit.value():
            return staged
        reason = F.coalesce("problem", no_row_reason(DELETE_IN_APPEND))
        rejected = explain_rows(rows.where(f"NOT {wanted}"), reader).withColumn("problem", reason)
        return replace(staged, rejected=rejected)

    def _with_old_identifiers(self, rows: DataFrame, kind: StructType) -> DataFrame:
        """Add a delete, which has only identifiers, to each update that gave its row another identifier."""
        if not self.identifiers or self.config.format not in CHANGE_EVENTS:
            return rows
        own = {f"{upserts.IDENTIFIER}{number}": F.col(ROW)[column] for number, column in enumerate(self.identifiers)}
        rows = rows.withColumns({**own, _GIVEN_OP: F.col("op")})
        rows = upserts.delete_old_identifiers(rows, *upserts.old_identifiers(rows, self.identifiers, kind, self.config))
        old = dict(zip(self.identifiers, map(F.col, own), strict=True))
        values = (old.get(each.name, F.lit(None)).cast(each.dataType).alias(each.name) for each in kind)
        is_added = F.expr(IS_DELETE) & ~F.col(_GIVEN_OP).eqNullSafe("delete")
        return rows.withColumn(ROW, F.when(is_added, F.struct(*values)).otherwise(F.col(ROW)))

    def upsert(self, rows: DataFrame, reader: StructReader, empties: bool = False) -> StagedWrite:
        """Merge the last row of each identifier; records without identifier or order are dead letters."""
        config, ordering, is_soft = self.config, self.config.ordering_column, self.config.deletes == "soft"
        columns = {column: F.col(ROW)[column] for column in reader.kind.names}
        columns |= {f"{METADATA_PREFIX}{name}": F.col(name) for name in config.metadata_columns}
        if ordering and ordering not in columns:
            raise ColumnNotFoundError(
                "The ordering column is not in the table",
                subject="ordering_column",
                value=ordering,
                remedy=f"name one of {', '.join(columns)}",
            )
        own = {f"{upserts.IDENTIFIER}{number}": columns[column] for number, column in enumerate(self.identifiers)}
        rows = rows.withColumns({**own, upserts.ORDER: columns[ordering] if ordering else F.lit(0)})
        columns |= {column: F.col(name) for column, name in zip(self.identifiers, own, strict=True)}
        is_partial, is_renamed = F.col("op").eqNullSafe(PARTIAL), F.lit(False)
        old: dict[str, Column] | None = None
        if config.format in CHANGE_EVENTS:
            old, is_renamed = upserts.old_identifiers(rows, self.identifiers, reader.kind, config)
        rows = rows.withColumn(LOST, F.when(is_partial, unavailable_fields(F.col("payload"))))
        problem = self._problem(reader, is_partial, is_renamed)
        fit = F.col(IS_VALID) & problem.isNull()
        unfit = RowCount(rows, ~fit)
        others: list[str] = [*POSITION, "timestamp", *config.metadata_columns]
        others += [] if old is None else ["before"]
        fitting = unfit.rows.where(fit).select(*own, upserts.ORDER, "op", LOST, ROW, *dict.fromkeys(others))
        if old is not None:
            fitting = upserts.delete_old_identifiers(fitting, old, is_renamed)
        kept = [ROW, *config.metadata_columns] if is_soft else []
        if is_soft:  # what a delete says of other columns is often no value of the row
            fitting = fitting.withColumn(ROW, F.when(~F.expr(IS_DELETE), F.col(ROW)))
        fitting = fitting if self.in_one_task else fitting.repartition(*own)  # for all windows at once
        # A merge reads its source more than once, and refuses one that may differ the second time.
        last = upserts.last_row_of_each(fitting, bool(ordering), kept).localCheckpoint()
        counts = f"count_if(NOT {IS_DELETE})", f"count_if({IS_DELETE})", f"count_if(op = '{PARTIAL}')"
        [[upserted, deletes, partials]] = last.selectExpr(*counts).collect()
        unfilled: DataFrame | None = None
        if partials:
            table = rows.sparkSession.table(self.name).where(F.lit(not empties))
            stored = stored_rows(table, reader, self.identifiers, ordering)
            last, unfilled = fill_unavailable(last, fitting, stored, reader, bool(ordering))
            [[upserted, deletes, _]] = last.selectExpr(*counts).collect()
        deleted: DataFrame | None = None
        if ordering and config.delete_retention_seconds and not is_soft:
            last, deleted = apply_deleted_keys(last, self.name, self.identifiers, config)

        def write(properties: dict[str, str]) -> None:
            if empties:
                ready = last.where(f"NOT {IS_DELETE}").select(*(of.alias(to) for to, of in columns.items()))
                append(ready, self.name, {"check-nullability": "false"}, properties, empties)
            else:
                upserts.merge_rows(
                    last, self.name, columns, self.identifiers, ordering, properties, config.deleted_column
                )

        snapshot = self.stage(write)
        if unfilled is not None and snapshot.parent_id != self.head:
            reason = "Another writer changed the rows that updates were filled in from"
            raise MovedError(reason, subject="table", value=self.name)
        rejected = []
        if unfit.value():
            reasons = F.coalesce("problem", problem)
            rejected.append(explain_rows(rows.where(~fit), reader).withColumn("problem", reasons))
        if unfilled is not None:
            found = rows.join(unfilled, list(POSITION), "left_semi")
            rejected.append(found.withColumn("problem", F.lit(NOT_FILLED)))
        return StagedWrite(
            replace(snapshot, entry=replace(snapshot.entry, rows=upserted, deletes=deletes)),
            rows.where(fit),
            reduce(DataFrame.unionByName, rejected) if rejected else None,
            deleted,
            empties,
        )

    def _problem(self, reader: StructReader, is_partial: Column, is_renamed: Column) -> Column:
        """Why a record with a row cannot be merged; null if it can."""
        ordering = self.config.ordering_column
        incomplete = reduce(
            or_, (F.col(f"{upserts.IDENTIFIER}{number}").isNull() for number in range(len(self.identifiers)))
        )
        # A delete without an ordering value is the newest record.
        unordered = F.col(upserts.ORDER).isNull() & (F.lit(self.is_replay) | ~F.expr(IS_DELETE))
        # Such a value cannot be filled in: it is within another one, says which row it is, or is in another row.
        needed = [
            name
            for each in reader.fields
            if each.column.name in (*self.identifiers, ordering)
            for name in each.spellings
        ]
        unfillable = F.col(LOST).isNull() | F.arrays_overlap(LOST, F.lit(needed)) | is_renamed
        unfillable = is_partial & (unfillable | F.lit(self.config.deletes == "soft"))
        problem = F.when(incomplete, F.lit("a column that identifies the row is missing or null"))
        problem = problem.when(unordered, F.lit(f"field {ordering}, the ordering column, is missing or null"))
        return problem.when(unfillable, F.lit(UNAVAILABLE_PROBLEM))
