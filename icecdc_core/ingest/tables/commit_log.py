"""The commit log: a row for each batch, with what went where; and where a run that knows nothing else begins.

The tables themselves say what they hold (`marks`). The log says it for all of them at once: up to which offsets all
records are where they belong, which tables were left behind by a failure, and what a table held when the snapshot that
said so has expired since.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime, timezone

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructType

from icecdc_core.ingest.kafka import offsets
from icecdc_core.ingest.kafka.offsets import Offsets
from icecdc_core.table.catalogs import create_own

SCHEMA = (
    "job string, batch long, run_id string, kind string, committed_at timestamp, records long, dead_letters long, "
    "started_at string, offsets string, topic_ids string, valid_through timestamp, lost string, tables array<struct<"
    "name:string, uuid:string, snapshot_id:long, sequence_number:long, state:string, rows:long, deletes:long, "
    "files:long, bytes:long, offsets:string, error:string, snapshot_ms:long>>"
)
WRITTEN, BEHIND = "written", "behind"
_RECENT = 20
_NEW_FIELD = "snapshot_ms"


@dataclass(frozen=True)
class TableEntry:
    """What a batch did to one table.

    Attributes:
        name: The table, every part quoted.
        state: `written`, or `behind`: it could not be written, and takes its records again from `offsets` on.
        offsets: Everything below is in the table, as JSON.
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
    """One row of the log. `offsets`: everything below is where it belongs, but for tables that are behind."""

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
class Known:
    """What the log knows of a job.

    Attributes:
        exists: Whether there is any entry.
        batch: Number of the last batch; -1 before the first.
        offsets: Everything below is where it belongs, but for tables that are behind.
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
        """Tables that take records again, and from where."""
        return {n: offsets.parse(entry.offsets) for n, entry in self.tables.items() if entry.state == BEHIND}


def create(spark: SparkSession, name: str) -> None:
    """Make the log, and its namespace, unless it is there."""
    create_own(spark, name, SCHEMA)
    if _NEW_FIELD not in _table_fields(spark, name):
        try:
            spark.sql(f"ALTER TABLE {name} ADD COLUMN tables.element.{_NEW_FIELD} BIGINT")
        except (PySparkException, Py4JError):
            # Another run was faster, or this user may not alter the table. The log works without the field.
            return


def read(spark: SparkSession, name: str, job: str) -> Known:
    """What the log knows of a job."""
    entries = spark.table(name).where(F.col("job") == job)
    # Two runs at once may have written entries in any order; all of them are true.
    newest_first = entries.orderBy(F.desc("batch"), F.desc("committed_at"))
    recent = newest_first.select("batch", "offsets", "topic_ids").limit(_RECENT).collect()
    if not recent:
        return Known()
    return Known(
        exists=True,
        batch=int(recent[0]["batch"]),
        offsets=offsets.furthest({}, *(offsets.parse(row["offsets"]) for row in recent)),
        topic_ids={topic: told for row in reversed(recent) for topic, told in json.loads(row["topic_ids"]).items()},
        tables=_last_of_each(entries),
    )


def write(spark: SparkSession, name: str, entry: LogEntry) -> None:
    """Append an entry."""
    told = {
        "job": entry.job,
        "batch": entry.batch,
        "run_id": entry.run_id,
        "kind": entry.kind,
        "committed_at": datetime.now(timezone.utc).isoformat(),
        "records": entry.records,
        "dead_letters": entry.dead_letters,
        "started_at": offsets.text(entry.started_at),
        "offsets": offsets.text(entry.offsets),
        "topic_ids": json.dumps(entry.topic_ids),
        "valid_through": entry.valid_through.isoformat() if entry.valid_through else None,
        "lost": entry.lost,
        "tables": [asdict(table) for table in entry.tables],
    }
    # One row from one text: a frame of Python's rows would wait for Python workers.
    # The log's own schema, as the log of an earlier release may lack a field.
    row = F.from_json(F.lit(json.dumps(told)), spark.table(name).schema)
    spark.range(1).select(row.alias("row")).select("row.*").coalesce(1).writeTo(name).append()


def _last_of_each(entries: DataFrame) -> dict[str, TableEntry]:
    each = entries.select("batch", "committed_at", F.explode("tables").alias("t"))
    last = each.groupBy("t.name").agg(F.max_by("t", F.struct("batch", "committed_at")).alias("t")).select("t.*")
    known = {each.name for each in fields(TableEntry)}
    rows = [{key: value for key, value in row.asDict().items() if key in known} for row in last.collect()]
    return {row["name"]: TableEntry(**row) for row in rows}


def _table_fields(spark: SparkSession, name: str) -> list[str]:
    """Names of the fields that the log has for each table."""
    tables = spark.table(name).schema["tables"].dataType
    assert isinstance(tables, ArrayType)
    assert isinstance(tables.elementType, StructType)
    return tables.elementType.names
