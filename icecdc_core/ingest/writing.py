"""One batch into one table: what the table does not have yet, in one commit, or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from icecdc_core.catalogs import load_table
from icecdc_core.columns import quoted
from icecdc_core.errors import ColumnNotFoundError, ConcurrentIngestError
from icecdc_core.ingest import offsets
from icecdc_core.ingest.commit_log import TableEntry
from icecdc_core.ingest.letters import DeadLetters
from icecdc_core.ingest.marks import Mark, head_of
from icecdc_core.ingest.merging import IDENTIFIER, ORDER, last_of_each, merge
from icecdc_core.ingest.offsets import Offsets
from icecdc_core.ingest.publishing import MovedError, Staged, append, publish, restage, stage
from icecdc_core.ingest.resets import Marks
from icecdc_core.ingest.schemas import FITS, ROW, fitted
from icecdc_core.ingest.tables import METADATA_PREFIX, grow, identifiers, open_table, payload_schema

if TYPE_CHECKING:
    from icecdc_core.ingest.config import IngestConfig

_TRIES = 10
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

    def write(
        self, name: str, records: DataFrame, batch: Batch, parsed_as: StructType | None = None
    ) -> tuple[TableEntry, int]:
        """Write the records of a batch that the table does not have.

        Args:
            name: The table, every part quoted.
            records: As `formats.decoded` returns them, or as `fitted` does; all of them for this table.
            batch: The batch they are of.
            parsed_as: The schema that `fitted` was given; None if it was not called yet.

        Returns:
            What was done, and how many dead letters were kept.
        """
        spark, letters = records.sparkSession, 0
        for _ in range(_TRIES):
            table = open_table(spark, name, records, self.config)
            mark = self.marks.of(name, table, batch.start)
            if offsets.covers(mark.offsets, batch.end):
                return _entry(name, table, mark), letters
            done, count = self._attempt(name, table, mark, records, batch, parsed_as)
            letters += count
            if done is not None:
                return done, letters
        raise _too_busy(name)

    def _attempt(
        self,
        name: str,
        table: Any,
        mark: Mark,
        records: DataFrame,
        batch: Batch,
        parsed_as: StructType | None,
    ) -> tuple[TableEntry | None, int]:
        """Write on top of what the table has now; no entry if somebody was faster."""
        spark = records.sparkSession
        unread = offsets.unread(mark.offsets, batch.start)
        wanted = records if unread is None else records.where(unread)
        seen = grow(spark, name, wanted, self.config) if self.config.evolve_schema else None
        schema = payload_schema(spark, name, self.config)
        if parsed_as not in (None, schema):
            raise ConcurrentIngestError(
                "The table's columns changed while a batch was read",
                subject="table",
                value=name,
                remedy="none: the next run takes the records again",
            )
        rows = wanted if parsed_as else fitted(wanted, schema, self.config, seen)
        moved = Mark(
            offsets=offsets.furthest(mark.offsets, batch.end),
            batch=batch.number,
            valid_through=batch.valid_through.isoformat() if batch.valid_through else "",
        )
        write = self._upsert if self.config.mode == "upsert" else self._append
        staged, counts, rejected = write(name, table, rows, schema, moved.properties(self.config.job, batch.run_id))
        letters = self.letters.keep(rejected, name) if counts["rejected"] else 0
        published = self._published(spark, name, mark, staged, batch)
        if published is None:
            return None, letters
        moved = Mark(moved.offsets, moved.batch, published.snapshot_id, moved.valid_through)
        entry = _entry(name, table, moved, published, counts)
        self.marks.remember(entry, moved)
        return entry, letters

    def _append(
        self, name: str, table: Any, rows: DataFrame, schema: StructType, properties: dict[str, str]
    ) -> tuple[Staged, dict[str, int], DataFrame]:
        deleted = "coalesce(op = 'delete', false)"
        fit, observed = f"({FITS} AND NOT {deleted})", Observation()
        counted = rows.observe(
            observed, F.expr(f"count_if({fit})").alias("rows"), F.expr(f"count_if(NOT {fit})").alias("rejected")
        )
        metadata = (f"{quoted(known)} AS {METADATA_PREFIX}{known}" for known in self.config.metadata_columns)
        ready = counted.where(fit).selectExpr(f"{quoted(ROW)}.*", *metadata)
        if self.config.sort_columns:
            ready = ready.sortWithinPartitions(*(F.col(quoted(column)) for column in self.config.sort_columns))
        options = self._options()
        staged = stage(rows.sparkSession, name, table, properties, lambda marked: append(ready, name, options, marked))
        rejected = rows.where(f"NOT {fit}").withColumn(
            "problem", F.coalesce("problem", F.when(F.expr(deleted), F.lit(_NOT_APPLIED)))
        )
        return staged, {"rows": int(observed.get["rows"]), "rejected": int(observed.get["rejected"])}, rejected

    def _upsert(
        self, name: str, table: Any, rows: DataFrame, schema: StructType, properties: dict[str, str]
    ) -> tuple[Staged, dict[str, int], DataFrame]:
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
        fit, observed = F.col(FITS) & ~without, Observation()
        counted = rows.observe(observed, F.count_if(~fit).alias("rejected"))
        # The merge reads its source more than once, and takes none that could be another one the second time.
        last = last_of_each(counted.where(fit)).localCheckpoint()
        deleted = F.coalesce(F.col("op") == "delete", F.lit(False))
        found = last.agg(F.count_if(~deleted).alias("rows"), F.count_if(deleted).alias("deletes")).first()
        assert found is not None
        staged = stage(
            rows.sparkSession, name, table, properties, lambda marked: merge(last, name, columns, own, ordering, marked)
        )
        counts = {**found.asDict(), "rejected": int(observed.get["rejected"])}
        return staged, counts, rows.where(~fit)

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


def _entry(
    name: str, table: Any, mark: Mark, staged: Staged | None = None, counts: dict[str, int] | None = None
) -> TableEntry:
    if staged is None:
        snapshot = table.currentSnapshot()
        sequence_number = None if snapshot is None else int(snapshot.sequenceNumber())
    else:
        sequence_number = staged.sequence_number
    return TableEntry(
        name=name,
        uuid=str(table.uuid()),
        snapshot_id=mark.snapshot_id,
        sequence_number=sequence_number,
        rows=counts["rows"] if counts else 0,
        deletes=counts.get("deletes", 0) if counts else 0,
        files=staged.files if staged else 0,
        bytes=staged.bytes if staged else 0,
        offsets=offsets.text(mark.offsets),
    )


def _too_busy(name: str) -> ConcurrentIngestError:
    return ConcurrentIngestError(
        "Others write to the table again and again",
        subject="table",
        value=name,
        remedy="run the job only once at a time, or run it again when there is less going on",
    )
