"""One batch into one table: what the table does not have yet, in one commit, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from icecdc_core.columns import quoted
from icecdc_core.errors import ColumnNotFoundError, ConcurrentIngestError, IngestWriteError
from icecdc_core.ingest.kafka import offsets
from icecdc_core.ingest.kafka.offsets import Offsets
from icecdc_core.ingest.rows.first_records import marked, unusable
from icecdc_core.ingest.rows.json_reading import Path
from icecdc_core.ingest.tables.commit_log import TableEntry
from icecdc_core.ingest.tables.dead_letters import DeadLetters
from icecdc_core.ingest.tables.destinations import grow, open_table
from icecdc_core.ingest.tables.publish import MovedError, Staged, append, publish, restage, stage
from icecdc_core.ingest.tables.schema_evolution import FITS, ROW, can_stand_alone, fitted, fitted_alone
from icecdc_core.ingest.tables.table_columns import (
    METADATA_PREFIX,
    identifiers,
    metadata_checks,
    payload_schema,
    with_metadata_problems,
)
from icecdc_core.ingest.tables.table_offsets import Mark, head_of
from icecdc_core.ingest.tables.table_resets import Marks
from icecdc_core.ingest.tables.upserts import IDENTIFIER, ORDER, last_of_each, merge
from icecdc_core.session.row_counts import RowCount
from icecdc_core.table.catalogs import load_table

if TYPE_CHECKING:
    from icecdc_core.ingest.config import IngestConfig

_TRIES = 10
_DELETED = "coalesce(op = 'delete', false)"
_FIT = f"({FITS} AND NOT {_DELETED})"
_NOT_APPLIED = "a delete, for a table that is only appended to (mode=upsert would apply it)"
_NO_IDENTIFIER = "a column that identifies the row is missing or null"


@dataclass(frozen=True)
class Batch:
    """A batch: its number, and what it covers.

    Attributes:
        number: Counted on from run to run.
        start: Where it starts.
        end: Where it ends; everything between is in it.
        valid_through: All partitions are complete up to then; None if nobody knows.
        run_id: The run that works on it.
    """

    number: int
    start: Offsets
    end: Offsets
    valid_through: datetime | None
    run_id: str


@dataclass(frozen=True)
class Records:
    """The records of a batch for one table.

    Attributes:
        decoded: Makes the frame of them, as `formats.decoded` returns it.
        rows: The same as `fitted` returns them, where they were parsed already.
        schema: The columns of those rows.
        alone: Whether all of those rows fit, and are without anything beside them.
        partitions: So many writers they are worth; None: as many as partitions.
    """

    decoded: Callable[[], DataFrame]
    rows: DataFrame | None = None
    schema: StructType | None = None
    alone: bool = False
    partitions: int | None = None

    def packed(self, frame: DataFrame) -> DataFrame:
        """The frame in as many partitions as it is worth."""
        return frame if self.partitions is None else frame.coalesce(self.partitions)


@dataclass
class Writer:
    """Writes batches into tables; threads may use it at the same time, each for other tables.

    Attributes:
        config: The job's parameters.
        letters: Takes what does not fit.
        marks: Knows what the tables have.
    """

    config: IngestConfig
    letters: DeadLetters
    marks: Marks

    def write(self, spark: SparkSession, name: str, records: Records, batch: Batch) -> tuple[TableEntry, int]:
        """Write the records of a batch that the table does not have.

        Args:
            spark: The session of the batch.
            name: The table, every part quoted.
            records: All of them for this table.
            batch: The batch they are of.

        Returns:
            What was done, and how many dead letters were kept.
        """
        letters = 0
        conflict: MovedError | None = None
        for _ in range(_TRIES):
            opened = open_table(spark, name, records.decoded, self.config)
            table = opened.table
            if opened.refused:
                records = replace(records, decoded=partial(_marked, records.decoded, opened.refused))
            if table is None:
                return self._waiting(name, records, batch)
            mark = self.marks.of(name, table, batch.start)
            if offsets.covers(mark.offsets, batch.end):
                return self._nothing_new(name, table, mark), letters
            try:
                done, count = self._attempt(spark, name, table, mark, records, batch)
            except MovedError as moved:  # nothing was staged
                conflict = moved
                continue
            letters += count
            if done is not None:
                return done, letters
        if conflict is not None:
            raise IngestWriteError(
                f"The write was done {_TRIES} times, and each time others committed under it: {conflict.message}",
                subject="table",
                value=name,
                remedy="let others write or compact the table less often, or take fewer records in a batch; "
                "the records are taken again by the next run",
            ) from conflict
        raise _too_busy(name)

    def _nothing_new(self, name: str, table: Any, mark: Mark) -> TableEntry:
        """The entry of a table that has all records of the batch already."""
        known = self.marks.known.get(name)
        if mark.snapshot_id is None and known is not None:
            # The snapshot has expired. The entry still names it, so that a rollback is recognized later.
            return replace(known.unchanged(), uuid=str(table.uuid()), offsets=offsets.text(mark.offsets))
        return _entry(name, table, mark)

    def _waiting(self, name: str, records: Records, batch: Batch) -> tuple[TableEntry, int]:
        """Keep what can never be a row; there is nothing to delete yet, and no table to be made."""
        rows = unusable(records.decoded(), self.config)
        reason = F.col("problem")
        if self.config.mode == "append":
            reason = F.coalesce(reason, F.when(F.expr(_DELETED), F.lit(_NOT_APPLIED)))
        rejected = rows.withColumn("problem", reason).where("problem IS NOT NULL")
        known = self.marks.known.get(name)
        had = offsets.parse(known.offsets) if known else {}
        has = Mark(offsets.furthest(had, batch.end), batch.number, None, "")
        # A table that was there and is gone stays known by its uuid.
        entry = TableEntry(name, known.uuid if known else "", offsets=offsets.text(has.offsets))
        letters = self.letters.keep(records.packed(rejected), name)
        self.marks.remember(entry, has)
        return entry, letters

    def _attempt(
        self, spark: SparkSession, name: str, table: Any, mark: Mark, records: Records, batch: Batch
    ) -> tuple[TableEntry | None, int]:
        """Write on top of what the table has now; no entry if somebody was faster."""
        unread = offsets.unread(mark.offsets, batch.start)
        checks = metadata_checks(spark, table, self.config)

        def wanted() -> DataFrame:
            decoded = records.decoded() if unread is None else records.decoded().where(unread)
            return records.packed(with_metadata_problems(decoded, checks))

        seen = None
        if self.config.evolve_schema:
            seen = grow(spark, name, wanted(), self.config)
            table = load_table(spark, name)
        schema = payload_schema(spark, table, self.config)
        rows = records.rows if unread is None and records.schema == schema else None
        moved = Mark(
            offsets=offsets.furthest(mark.offsets, batch.end),
            batch=batch.number,
            valid_through=batch.valid_through.isoformat() if batch.valid_through else "",
        )
        properties = moved.properties(self.config.job, batch.run_id)
        counts: dict[str, int] = {}
        if rows is not None and records.alone:
            staged, letters = self._appended(name, table, rows, properties, records.packed), 0
        elif rows is None and needs_rows_alone(self.config):
            staged, letters = self._append_alone(name, table, wanted, schema, properties)
        else:
            rows = fitted(wanted(), schema, self.config, seen) if rows is None else records.packed(rows)
            if self.config.mode == "upsert":
                staged, counts, letters = self._upsert(name, table, rows, schema, properties)
            else:
                staged, letters = self._append(name, table, rows, properties)
        published = self._published(spark, name, mark, staged, batch)
        if published is None:
            return None, letters
        moved = Mark(moved.offsets, moved.batch, published.snapshot_id, moved.valid_through)
        entry = _entry(name, table, moved, published, counts)
        self.marks.remember(entry, moved)
        return entry, letters

    def _append_alone(
        self,
        name: str,
        table: Any,
        wanted: Callable[[], DataFrame],
        schema: StructType,
        properties: dict[str, str],
    ) -> tuple[Staged, int]:
        """Append what is known to fit by the faster parse; only where something does not, the other one says why."""
        staged, unfit = self._append_fit(name, table, fitted_alone(wanted(), schema, self.config), properties)
        if not unfit:
            return staged, 0
        rows = fitted(wanted(), schema, self.config)
        rejected = _rejected(rows).persist()
        try:
            if rejected.count() == unfit:
                return staged, self.letters.keep(rejected, name)
        finally:
            rejected.unpersist()
        # Some fit after all; what was staged without them is never shown.
        return self._append(name, table, rows, properties)

    def _append(self, name: str, table: Any, rows: DataFrame, properties: dict[str, str]) -> tuple[Staged, int]:
        staged, unfit = self._append_fit(name, table, rows, properties)
        return staged, self.letters.keep(_rejected(rows), name) if unfit else 0

    def _append_fit(self, name: str, table: Any, rows: DataFrame, properties: dict[str, str]) -> tuple[Staged, int]:
        """Stage the rows that fit; also returns how many do not."""
        unfit = RowCount(rows, F.expr(f"NOT {_FIT}"))
        return self._appended(name, table, unfit.rows.where(_FIT), properties), unfit.value()

    def _appended(
        self,
        name: str,
        table: Any,
        rows: DataFrame,
        properties: dict[str, str],
        packed: Callable[[DataFrame], DataFrame] | None = None,
    ) -> Staged:
        metadata = (f"{quoted(known)} AS {METADATA_PREFIX}{known}" for known in self.config.metadata_columns)
        ready = rows.selectExpr(f"{quoted(ROW)}.*", *metadata)
        # Spread first, as Spark generates no code for what joins partitions, and would copy whole rows for it.
        ready = ready if packed is None else packed(ready)
        if self.config.sort_columns:
            ready = ready.sortWithinPartitions(*(F.col(quoted(column)) for column in self.config.sort_columns))
        options = self._options()
        return stage(rows.sparkSession, name, table, properties, lambda marked: append(ready, name, options, marked))

    def _upsert(
        self, name: str, table: Any, rows: DataFrame, schema: StructType, properties: dict[str, str]
    ) -> tuple[Staged, dict[str, int], int]:
        own, columns, ordering = (
            identifiers(rows.sparkSession, table, self.config),
            self._columns(schema),
            self.config.ordering_column,
        )
        if ordering and ordering not in columns:
            raise ColumnNotFoundError(
                "The ordering column is not in the table",
                subject="ordering_column",
                value=ordering,
                remedy=f"name one of {', '.join(columns)}",
            )
        for number, column in enumerate(own):
            rows = rows.withColumn(f"{IDENTIFIER}{number}", columns[column])
        rows = rows.withColumn(ORDER, columns[ordering] if ordering else F.lit(0))
        without: Column = F.lit(False)
        for number in range(len(own)):
            without = without | F.col(f"{IDENTIFIER}{number}").isNull()
        rows = rows.withColumn("problem", F.coalesce("problem", F.when(without, F.lit(_NO_IDENTIFIER))))
        fit = F.col(FITS) & ~without
        rejected = RowCount(rows, ~fit)
        # The merge reads its source more than once, and takes none that could be another one the second time.
        last = last_of_each(rejected.rows.where(fit)).localCheckpoint()
        deleted = F.coalesce(F.col("op") == "delete", F.lit(False))
        found = last.agg(F.count_if(~deleted).alias("rows"), F.count_if(deleted).alias("deletes")).first()
        assert found is not None
        staged = stage(
            rows.sparkSession, name, table, properties, lambda marked: merge(last, name, columns, own, ordering, marked)
        )
        letters = self.letters.keep(rows.where(~fit), name) if rejected.value() else 0
        return staged, found.asDict(), letters

    def _published(self, spark: SparkSession, name: str, mark: Mark, staged: Staged, batch: Batch) -> Staged | None:
        """Publish, staged anew over commits of others; None if one of them took the records, or has to be looked at."""
        for _ in range(_TRIES):
            table = load_table(spark, name)
            if self.marks.of(name, table, batch.start).offsets != mark.offsets:
                return None
            if head_of(table) != staged.parent_id:
                if not staged.is_append or self.config.mode == "upsert":
                    return None
                staged = restage(spark, name, staged)
                table = load_table(spark, name)
            try:
                publish(spark, name, table, staged)
                return staged
            except MovedError:
                continue
        raise _too_busy(name)

    def _columns(self, schema: StructType) -> dict[str, Column]:
        """The table's columns, as they come from `fitted`."""
        columns = {column.name: F.col(ROW)[column.name] for column in schema}
        return columns | {f"{METADATA_PREFIX}{name}": F.col(name) for name in self.config.metadata_columns}

    def _options(self) -> dict[str, str]:
        # Whether a value may be null was found out row by row; frames of parsed records know nothing of it.
        options = {"check-nullability": "false"}
        if self.config.target_file_bytes:
            options["target-file-size-bytes"] = str(self.config.target_file_bytes)
        if self.config.distribution != "table":
            options["distribution-mode"] = self.config.distribution
        return options


def needs_rows_alone(config: IngestConfig) -> bool:
    """Whether records that fit are appended as rows, with nothing of what was beside their payload."""
    return config.mode == "append" and not config.metadata_columns and can_stand_alone(config)


def _entry(
    name: str, table: Any, mark: Mark, staged: Staged | None = None, counts: dict[str, int] | None = None
) -> TableEntry:
    if staged is None:
        snapshot = None if mark.snapshot_id is None else table.snapshot(mark.snapshot_id)
        sequence_number = None if snapshot is None else int(snapshot.sequenceNumber())
        snapshot_ms = None if snapshot is None else int(snapshot.timestampMillis())
    else:
        sequence_number, snapshot_ms = staged.sequence_number, staged.snapshot_ms
    return TableEntry(
        name=name,
        uuid=str(table.uuid()),
        snapshot_id=mark.snapshot_id,
        sequence_number=sequence_number,
        rows=counts["rows"] if counts else staged.rows if staged else 0,
        deletes=counts["deletes"] if counts else 0,
        files=staged.files if staged else 0,
        bytes=staged.bytes if staged else 0,
        offsets=offsets.text(mark.offsets),
        snapshot_ms=snapshot_ms,
    )


def _marked(decoded: Callable[[], DataFrame], refused: dict[Path, str]) -> DataFrame:
    return marked(decoded(), refused)


def _rejected(rows: DataFrame) -> DataFrame:
    """What is not appended, with the reason."""
    reason = F.coalesce("problem", F.when(F.expr(_DELETED), F.lit(_NOT_APPLIED)))
    return rows.where(f"NOT {_FIT}").withColumn("problem", reason)


def _too_busy(name: str) -> ConcurrentIngestError:
    return ConcurrentIngestError(
        "Others write to the table again and again",
        subject="table",
        value=name,
        remedy="run the job only once at a time, or run it again when there is less going on",
    )
