"""The offsets that each table records in its snapshots, and the commit log: a row for each batch, for all tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import takewhile
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions as F

from icecdc_core.errors import IngestWriteError
from icecdc_core.ingest import offsets
from icecdc_core.ingest.branches import MAIN, branch_of
from icecdc_core.ingest.offsets import Offsets
from icecdc_core.ingest.upkeep import expire_snapshots, failures_logged
from icecdc_core.table.catalogs import create_table_once, load_table, usable_table

JOB, BATCH, OFFSETS, VALID_THROUGH, ATTEMPT, RUN = (
    f"icecdc.ingest.{name}" for name in ("job", "batch", "offsets", "valid-through", "attempt", "run")
)
REPLAYED = "icecdc.ingest.replayed"
LAST = "icecdc.ingest.last."
"""A table's property, with `owner`: what its last snapshot recorded, also after that has expired."""
WRITTEN, BEHIND = "written", "behind"


@dataclass(frozen=True)
class TableEntry:
    name: str
    uuid: str = ""
    snapshot_id: int | None = None
    sequence_number: int | None = None
    state: str = WRITTEN
    rows: int = 0
    deletes: int = 0
    files: int = 0
    bytes: int = 0
    offsets: Offsets = field(default_factory=dict)
    error: str = ""
    snapshot_ms: int | None = None

    @classmethod
    def of(cls, values: dict[str, Any]) -> TableEntry:
        return cls(**{**values, "offsets": offsets.from_json(values["offsets"])})

    def values(self) -> dict[str, Any]:
        return {**asdict(self), "offsets": offsets.to_json(self.offsets)}

    def unchanged(self) -> TableEntry:
        return replace(self, state=WRITTEN, rows=0, deletes=0, files=0, bytes=0, error="")


def current_snapshot_id(table: Any) -> int | None:
    snapshot = table.currentSnapshot()
    return None if snapshot is None else int(snapshot.snapshotId())


def snapshot_entry(name: str, table: Any, snapshot: Any, **others: Any) -> TableEntry:
    return TableEntry(
        name,
        str(table.uuid()),
        int(snapshot.snapshotId()),
        int(snapshot.sequenceNumber()),
        snapshot_ms=int(snapshot.timestampMillis()),
        **others,
    )


def find_recorded(name: str, table: Any, job: str) -> TableEntry:
    """What the newest snapshot of the job recorded; if all of its have expired, the table's property still has it."""
    for snapshot in ancestors(table):
        summary = snapshot.summary()
        if summary.get(JOB) == job:
            return snapshot_entry(name, table, snapshot, offsets=offsets.from_json(summary.get(OFFSETS)))
    recorded = TableEntry(name, str(table.uuid()))
    if (last := last_entry(table, job)) is not None and table_state(table, recorded, last) == "log is ahead":
        return replace(recorded, offsets=last.offsets)
    return recorded


def owner(table: Any, job: str) -> str:
    """Return the job's name for a property of a table: what it wrote into two branches must not mix."""
    return job if branch_of(table) == MAIN else f"{job}/{branch_of(table)}"


def last_entry(table: Any, job: str) -> TableEntry | None:
    kept = table.properties().get(LAST + owner(table, job))
    return None if kept is None else TableEntry.of(json.loads(kept))


def table_state(table: Any, recorded: TableEntry, logged: TableEntry) -> str:
    if logged.uuid and logged.uuid != str(table.uuid()):
        return "dropped and made again"
    if offsets.covers(recorded.offsets, logged.offsets):
        return "current"
    if logged.snapshot_id is None or is_ancestor(table, logged.snapshot_id):
        return "log is ahead"
    # The logged snapshot has expired, unless an ancestor is older: a snapshot with older offsets, with a lower sequence
    # number (by time in format version 1, which has none), or the first of all.
    *_, oldest = [None, *ancestors(table)]
    if recorded.snapshot_id is not None or table.snapshot(logged.snapshot_id) is not None or oldest is None:
        return "rolled back"
    # The snapshot with the next number has the logged one as its parent, unless that one was rolled back.
    is_younger = int(oldest.sequenceNumber()) > (logged.sequence_number or 0) + 1
    if not logged.sequence_number:
        is_younger = int(oldest.timestampMillis()) >= (logged.snapshot_ms or 0)
    has_expired = oldest.parentId() == logged.snapshot_id or (oldest.parentId() is not None and is_younger)
    return "log is ahead" if has_expired else "rolled back"


def is_ancestor(table: Any, snapshot_id: int | None, back_to: int | None = None) -> bool:
    ids = (snapshot.snapshotId() for snapshot in ancestors(table))
    return snapshot_id in takewhile(lambda each: each != back_to, ids)


def ancestors(table: Any) -> Iterator[Any]:
    """Yield the table's current snapshot and its ancestors, newest first, as far as they still exist."""
    snapshot = table.currentSnapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parentId()
        snapshot = None if parent is None else table.snapshot(int(parent))


_ADDED = {"ends_read_at": "timestamp", "behind": "array<string>"}  # columns that the first logs lack
SCHEMA = (
    "job string, batch long, run_id string, kind string, committed_at timestamp, records long, dead_letters long, "
    "started_at string, offsets string, topic_ids string, valid_through timestamp, lost string, tables array<struct<"
    "name:string, uuid:string, snapshot_id:long, sequence_number:long, state:string, rows:long, deletes:long, "
    "files:long, bytes:long, offsets:string, error:string, snapshot_ms:long>>"
    + "".join(f", {name} {kind}" for name, kind in _ADDED.items())
)
# All jobs of a namespace append to one log. Iceberg retries four times, then waits up to a minute.
APPEND_PROPERTIES = {
    "commit.retry.num-retries": "20",
    "commit.retry.max-wait-ms": "5000",
    # A commit writes one row into one partition, so there is nothing to distribute.
    "write.distribution-mode": "none",
    "write.metadata.delete-after-commit.enabled": "true",
}
_REMEDY = (
    "run again, no record is lost or written twice; if it persists, check that this user may create, read and write "
    "the table, or give the job a commit_log_table of its own"
)
_usable = partial(usable_table, "The commit log", "commit_log_table", refused=IngestWriteError, remedy=_REMEDY)
KEEP = 100  # so many batches of a job at least keep their entries


@dataclass(frozen=True)
class LogEntry:
    job: str
    batch: int
    run_id: str
    kind: str
    offsets: Offsets  # up to which the job has read everything; of a batch that is not logged yet, its end
    started_at: Offsets = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    records: int = 0
    dead_letters: int = 0
    filtered: int = 0  # is not in the table of the log
    valid_through: datetime | None = None
    lost: str = ""
    tables: list[TableEntry] = field(default_factory=list)
    ends_read_at: datetime | None = None  # of a batch that reached the topics' ends: when these were read
    behind: list[str] = field(default_factory=list)  # tables that lack records below the offsets


@dataclass(frozen=True)
class LoggedJob:
    exists: bool = False
    batch: int = -1
    offsets: Offsets = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    tables: dict[str, TableEntry] = field(default_factory=dict)

    @property
    def behind(self) -> dict[str, Offsets]:
        """The tables that are behind, each with the offsets from which it reads again."""
        return {name: entry.offsets for name, entry in self.tables.items() if entry.state == BEHIND}


def create(spark: SparkSession, name: str) -> None:
    with _usable(name):
        create_table_once(spark, name, SCHEMA, APPEND_PROPERTIES, partition="job")
        known = spark.table(name).columns
        if new := [f"{column} {kind}" for column, kind in _ADDED.items() if column not in known]:
            spark.sql(f"ALTER TABLE {name} ADD COLUMNS ({', '.join(new)})")


def read(spark: SparkSession, name: str, job: str) -> LoggedJob:
    with _usable(name):
        return _summary(spark.table(name).where(F.col("job") == job))


def valid_through(spark: SparkSession, name: str, job: str) -> dict[str, datetime]:
    """The time up to which each table has every record: the latest that a batch proved; those without one are left out.

    An entry is true whatever another copy of the job does: it names the tables that its own run left behind.
    """
    query = f"""
        SELECT name, max(ends_read_at) AS valid_through
        FROM (SELECT DISTINCT explode(tables.name) AS name FROM {name} WHERE job = :job)
        LEFT JOIN {name} ON job = :job AND NOT array_contains(behind, name)
        GROUP BY name
    """  # noqa: S608
    with _usable(name):
        if "behind" not in spark.table(name).columns:  # of an earlier release
            return {}
        found = spark.sql(query, {"job": job}).where("valid_through IS NOT NULL").collect()
    return {row["name"]: row["valid_through"].astimezone(UTC) for row in found}


def write(spark: SparkSession, name: str, entry: LogEntry) -> None:
    with _usable(name):
        _row(spark, entry).writeTo(name).append()


def trim(
    spark: SparkSession, name: str, job: str, dead_letters: str, keep: int = KEEP, readers_minutes: float = 10.0
) -> None:
    """Replace the older entries of a job by one that says the same, and expire snapshots; a failure is only logged."""
    with failures_logged("the commit log was not trimmed", name):
        snapshot_id = current_snapshot_id(load_table(spark, name))
        seen = spark.sql(f"SELECT * FROM {name} VERSION AS OF {snapshot_id}")  # noqa: S608
        entries = seen.where(F.col("job") == job)
        [[last]] = entries.agg(F.max("batch")).collect()
        is_old = F.col("batch") <= last - keep
        before = _summary(entries.where(is_old))
        if before.exists:
            [[complete]] = entries.where(is_old).agg(F.max("valid_through")).collect()
            checkpoint = LogEntry(
                job=job,
                batch=before.batch,
                run_id="",
                kind="checkpoint",
                offsets=before.offsets,
                topic_ids=before.topic_ids,
                tables=list(before.tables.values()),
                valid_through=complete,
                ends_read_at=complete,  # it is a time of all tables
            )
            trimmed = entries.where(~is_old).unionByName(_row(spark, checkpoint)).coalesce(1).writeTo(name)
            # Refused if another copy of the job wrote an entry since the snapshot.
            trimmed = trimmed.option("isolation-level", "serializable")
            trimmed.option("validate-from-snapshot-id", str(snapshot_id)).overwrite(F.col("job") == job)
        expire_snapshots(spark, name, 60 * readers_minutes)
        if spark.catalog.tableExists(dead_letters):  # users may follow their changes: these stay for a week
            expire_snapshots(spark, dead_letters, 60_000 * readers_minutes)


def _row(spark: SparkSession, entry: LogEntry) -> DataFrame:
    values = {
        **asdict(entry),
        "tables": [table.values() for table in entry.tables],
        "committed_at": datetime.now(UTC).isoformat(),
        "started_at": offsets.to_json(entry.started_at),
        "offsets": offsets.to_json(entry.offsets),
        "topic_ids": json.dumps(entry.topic_ids),
        "valid_through": entry.valid_through and entry.valid_through.astimezone(UTC).isoformat(),
        "ends_read_at": entry.ends_read_at and entry.ends_read_at.astimezone(UTC).isoformat(),
    }
    # One row from a JSON literal: a frame of Python rows would start Python workers.
    row = F.from_json(F.lit(json.dumps(values)), SCHEMA)
    return spark.range(1).select(row.alias("row")).select("row.*").coalesce(1)


def _summary(entries: DataFrame) -> LoggedJob:
    """Add up entries of one job. Two runs at once may write theirs in any order; all of them are true."""
    rows = (
        entries.select("batch", "run_id", "offsets", "topic_ids", "tables").orderBy("batch", "committed_at").collect()
    )
    topic_ids: dict[str, str] = {}
    tables: dict[str, TableEntry] = {}
    read: dict[str, Offsets] = {}
    last: dict[tuple[str, str], TableEntry] = {}
    for row in rows:
        topic_ids |= json.loads(row["topic_ids"])
        run = row["run_id"]
        read[run] = offsets.furthest(read.get(run, {}), offsets.from_json(row["offsets"]))
        for table in row["tables"]:
            entry = TableEntry.of(table.asDict())
            tables[entry.name] = last[entry.name, run] = entry
    # A run reads on without the tables that it left behind, whatever another one writes into them meanwhile.
    for (name, run), entry in last.items():
        needed = {topic: parts for topic, parts in read[run].items() if topic in entry.offsets}
        has = tables[name].offsets
        if entry.state == BEHIND != tables[name].state and not offsets.covers(has, needed):
            tables[name] = replace(entry, offsets=offsets.furthest(entry.offsets, has))
    number = int(rows[-1]["batch"]) if rows else -1
    return LoggedJob(bool(rows), number, offsets.furthest({}, *read.values()), topic_ids, tables)
