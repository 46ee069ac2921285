"""The commit log: a row for each batch, with what it wrote into which table.

Each table records its own offsets (`table_offsets`). The log adds what no single table knows: the offsets
below which all records are written, which tables were left behind by a failure, and the offsets of tables whose
snapshots have expired. A run starts from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime, timezone

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructType

from icecdc_core.errors import IngestWriteError
from icecdc_core.ingest.kafka import offsets
from icecdc_core.ingest.kafka.offsets import Offsets
from icecdc_core.table.catalogs import create_table_once, describe_failure

SCHEMA = (
    "job string, batch long, run_id string, kind string, committed_at timestamp, records long, dead_letters long, "
    "started_at string, offsets string, topic_ids string, valid_through timestamp, lost string, tables array<struct<"
    "name:string, uuid:string, snapshot_id:long, sequence_number:long, state:string, rows:long, deletes:long, "
    "files:long, bytes:long, offsets:string, error:string, snapshot_ms:long>>"
)
WRITTEN, BEHIND = "written", "behind"
# All jobs of a namespace append to one log. Iceberg retries four times, then waits up to a minute.
_PROPERTIES = {"commit.retry.num-retries": "20", "commit.retry.max-wait-ms": "5000"}
_RECENT = 20
_NEW_FIELD = "snapshot_ms"


@dataclass(frozen=True)
class TableEntry:
    """What a batch wrote into one table.

    Attributes:
        name: The table, every part quoted.
        uuid: The table's uuid; "" if it never existed.
        snapshot_id: The last snapshot that the ingest made.
        sequence_number: Its sequence number.
        state: `written`, or `behind`: it could not be written, and reads its records again from `offsets` on.
        rows: Rows that were written.
        deletes: Rows to delete.
        files: Data files that were written.
        bytes: Their size.
        offsets: All records below are in the table, as JSON.
        error: Why the table is behind.
        snapshot_ms: When the snapshot was made, in milliseconds since 1970; None in logs of earlier releases.
    """

    name: str
    uuid: str = ""
    snapshot_id: int | None = None
    sequence_number: int | None = None
    state: str = WRITTEN
    rows: int = 0
    deletes: int = 0
    files: int = 0
    bytes: int = 0
    offsets: str = "{}"
    error: str = ""
    snapshot_ms: int | None = None

    def unchanged(self) -> TableEntry:
        """The same table in a batch that writes nothing into it."""
        return replace(self, state=WRITTEN, rows=0, deletes=0, files=0, bytes=0, error="")


@dataclass(frozen=True)
class LogEntry:
    """One row of the log.

    Attributes:
        job: The job.
        batch: Number of the batch.
        run_id: The run.
        kind: `start`, `batch`, or `lost` for records that retention removed before they were read.
        offsets: All records below are written, except in tables that are behind.
        started_at: Where the batch starts.
        topic_ids: The id of each topic.
        records: Offsets from start to end.
        dead_letters: Dead letters of the batch.
        valid_through: All partitions are complete up to this time; None if unknown.
        lost: The lost records, as text.
        tables: What was written, by table.
    """

    job: str
    batch: int
    run_id: str
    kind: str
    offsets: Offsets
    started_at: Offsets = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    records: int = 0
    dead_letters: int = 0
    valid_through: datetime | None = None
    lost: str = ""
    tables: list[TableEntry] = field(default_factory=list)


@dataclass(frozen=True)
class LoggedJob:
    """What the log says about a job.

    Attributes:
        exists: Whether there is any entry.
        batch: Number of the last batch; -1 before the first.
        offsets: All records below are written, except in tables that are behind.
        topic_ids: The id of each topic when it was last read.
        tables: The last entry of each table, by name.
    """

    exists: bool = False
    batch: int = -1
    offsets: Offsets = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    tables: dict[str, TableEntry] = field(default_factory=dict)

    @property
    def behind(self) -> dict[str, Offsets]:
        """The tables that are behind, each with the offsets from which it reads again."""
        return {n: offsets.from_json(entry.offsets) for n, entry in self.tables.items() if entry.state == BEHIND}


def create(spark: SparkSession, name: str) -> None:
    """Create the log if it does not exist; add what logs of earlier releases lack.

    Args:
        spark: The session.
        name: The log, every part quoted.

    Raises:
        IngestWriteError: The log cannot be created.
    """
    with _typed_failures(name):
        create_table_once(spark, name, SCHEMA, _PROPERTIES)
        has_new_field = _NEW_FIELD in _table_fields(spark, name)
    if not has_new_field:
        try:
            spark.sql(f"ALTER TABLE {name} ADD COLUMN tables.element.{_NEW_FIELD} BIGINT")
        except (PySparkException, Py4JError):
            # Another run was faster, or this user may not alter the table. The log works without the field.
            return


def read(spark: SparkSession, name: str, job: str) -> LoggedJob:
    """Return what the log says about a job.

    Args:
        spark: The session.
        name: The log, every part quoted.
        job: The job.

    Raises:
        IngestWriteError: The log cannot be read.
    """
    with _typed_failures(name):
        entries = spark.table(name).where(F.col("job") == job)
        # Two runs at once may write their entries in any order. All of them are true.
        newest_first = entries.orderBy(F.desc("batch"), F.desc("committed_at"))
        recent = newest_first.select("batch", "offsets", "topic_ids").limit(_RECENT).collect()
        tables = _last_of_each(entries) if recent else {}
    if not recent:
        return LoggedJob()
    return LoggedJob(
        exists=True,
        batch=int(recent[0]["batch"]),
        offsets=offsets.furthest({}, *(offsets.from_json(row["offsets"]) for row in recent)),
        topic_ids={
            topic: topic_id for row in reversed(recent) for topic, topic_id in json.loads(row["topic_ids"]).items()
        },
        tables=tables,
    )


def write(spark: SparkSession, name: str, entry: LogEntry) -> None:
    """Append an entry.

    Args:
        spark: The session.
        name: The log, every part quoted.
        entry: The entry.

    Raises:
        IngestWriteError: The entry cannot be appended. What the batch wrote into its tables stays.
    """
    values = {
        "job": entry.job,
        "batch": entry.batch,
        "run_id": entry.run_id,
        "kind": entry.kind,
        "committed_at": datetime.now(timezone.utc).isoformat(),
        "records": entry.records,
        "dead_letters": entry.dead_letters,
        "started_at": offsets.to_json(entry.started_at),
        "offsets": offsets.to_json(entry.offsets),
        "topic_ids": json.dumps(entry.topic_ids),
        "valid_through": entry.valid_through.isoformat() if entry.valid_through else None,
        "lost": entry.lost,
        "tables": [asdict(table) for table in entry.tables],
    }
    with _typed_failures(name):
        # One row from a JSON literal: a frame of Python rows would start Python workers.
        # The log's own schema, as the log of an earlier release may lack a field.
        row = F.from_json(F.lit(json.dumps(values)), spark.table(name).schema)
        spark.range(1).select(row.alias("row")).select("row.*").coalesce(1).writeTo(name).append()


@contextmanager
def _typed_failures(name: str) -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise IngestWriteError(
            f"The commit log cannot be used: {describe_failure(error)[:500]}",
            subject="commit_log_table",
            value=name,
            remedy="run again, no record is lost or written twice; if it persists, check that this user may create, "
            "read and write the table, or give the job a commit_log_table of its own",
        ) from error


def _last_of_each(entries: DataFrame) -> dict[str, TableEntry]:
    each = entries.select("batch", "committed_at", F.explode("tables").alias("t"))
    last = each.groupBy("t.name").agg(F.max_by("t", F.struct("batch", "committed_at")).alias("t")).select("t.*")
    names = {each.name for each in fields(TableEntry)}
    rows = [{key: value for key, value in row.asDict().items() if key in names} for row in last.collect()]
    return {row["name"]: TableEntry(**row) for row in rows}


def _table_fields(spark: SparkSession, name: str) -> list[str]:
    """Names of the fields that the log has for each table."""
    tables = spark.table(name).schema["tables"].dataType
    assert isinstance(tables, ArrayType)
    assert isinstance(tables.elementType, StructType)
    return tables.elementType.names
