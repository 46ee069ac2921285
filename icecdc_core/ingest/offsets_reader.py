"""Read the offsets of a table, checked against the commit log; `on_table_reset` decides what to do after a reset."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import SparkSession

from icecdc_core.columns import quoted
from icecdc_core.errors import IcecdcError, TableNotFoundError, TableResetError
from icecdc_core.ingest import offsets
from icecdc_core.ingest.commit_log import (
    LoggedJob,
    TableEntry,
    TableOffsets,
    ancestors,
    current_snapshot_id,
    find_table_offsets,
    is_ancestor,
)
from icecdc_core.ingest.config import quoted_table
from icecdc_core.ingest.offsets import Offsets
from icecdc_core.table.catalogs import load_table

if TYPE_CHECKING:
    from icecdc_core.ingest.config import IngestConfig


State = Literal["current", "log is ahead", "replaced", "rolled back"]


def table_state(table: Any, recorded: TableOffsets, logged: TableEntry) -> State:
    """Compare a table with what the commit log says about it."""
    if logged.uuid and logged.uuid != str(table.uuid()):
        return "replaced"
    if offsets.covers(recorded.offsets, offsets.from_json(logged.offsets)):
        return "current"
    if logged.snapshot_id is None or is_ancestor(table, logged.snapshot_id):
        return "log is ahead"
    return "log is ahead" if _has_expired(table, recorded, logged) else "rolled back"


def _has_expired(table: Any, recorded: TableOffsets, logged: TableEntry) -> bool:
    """Return whether the logged snapshot was removed because it was old, rather than by a rollback.

    It was a rollback if an ancestor is older than the logged snapshot: a snapshot with older offsets, with a lower
    sequence number, or the first of all. Format version 1 has no sequence numbers, so the time of the snapshots
    decides there.
    """
    if recorded.snapshot_id is not None or table.snapshot(logged.snapshot_id) is not None:
        return False
    oldest = None
    for snapshot in ancestors(table):
        oldest = snapshot
    if oldest is None or oldest.parentId() is None:
        return False
    sequence_number = logged.sequence_number or 0
    if sequence_number == 0:
        return logged.snapshot_ms is None or int(oldest.timestampMillis()) >= logged.snapshot_ms
    # The snapshot with the next number has the logged one as its parent, unless that one was rolled back.
    return int(oldest.sequenceNumber()) > sequence_number + 1 or int(oldest.parentId()) == logged.snapshot_id


_PROBLEMS = {
    "replaced": "The table was dropped and made again since the ingest last wrote into it",
    "rolled back": "The table no longer has what the ingest wrote into it: it was rolled back",
}


class RefillError(IcecdcError):
    """The table is to be filled again, from `offsets` on."""

    offsets: Offsets


@dataclass
class OffsetsReader:
    """Reads the offsets of a run's tables and checks them against the commit log.

    Threads may use it at the same time, each for other tables.
    """

    config: IngestConfig
    last_entries: dict[str, TableEntry]
    earliest: Offsets
    _last_read: dict[str, dict[int, TableOffsets]] = field(default_factory=dict)

    def read_or_reset(self, name: str, table: Any, start: Offsets) -> TableOffsets:
        """Return the offsets of a table. If the table was reset, apply `on_table_reset` first.

        With `on_table_reset=continue` the reset table gets a new entry in `last_entries`, and continues at `start`.
        """
        recorded = find_table_offsets(table, self.config.job, self._last_read.get(name))
        logged = self.last_entries.get(name)
        if logged is not None:
            recorded = self._checked_or_reset(name, table, recorded, logged, start)
        head = current_snapshot_id(table)
        if head is not None:
            self._last_read[name] = {head: recorded}
        return recorded

    def remember(self, entry: TableEntry, written: TableOffsets) -> None:
        """Store what a batch wrote."""
        self.last_entries[entry.name] = entry
        if written.snapshot_id is not None:
            self._last_read[entry.name] = {written.snapshot_id: written}

    def _checked_or_reset(
        self, name: str, table: Any, recorded: TableOffsets, logged: TableEntry, start: Offsets
    ) -> TableOffsets:
        """Return the offsets of the table, or those of the log where the log has higher ones."""
        state = table_state(table, recorded, logged)
        if state == "current":
            return recorded
        if state == "log is ahead":
            return replace(recorded, offsets=offsets.furthest(recorded.offsets, offsets.from_json(logged.offsets)))
        if self.config.on_table_reset == "continue":
            recorded = replace(recorded, offsets=offsets.furthest(recorded.offsets, start))
            self.last_entries[name] = TableEntry(name, str(table.uuid()), offsets=offsets.to_json(recorded.offsets))
            return recorded
        if self.config.on_table_reset == "refill":
            refill = RefillError("The table is filled again", subject="table", value=name)
            existing = {topic: parts for topic, parts in recorded.offsets.items() if topic in self.earliest}
            refill.offsets = offsets.furthest(self.earliest, existing)
            raise refill
        raise TableResetError(
            _PROBLEMS[state],
            subject="on_table_reset",
            value=name,
            remedy="set on_table_reset=refill once, to read again what the topic still has for it, or continue, to "
            "write new records only",
        )


def known_tables(spark: SparkSession, config: IngestConfig, logged: LoggedJob) -> list[str]:
    """Return the tables that records may go to, every part of a name quoted."""
    if config.route_by == "table":
        return [quoted_table(config.table)]
    if config.route_by == "regex":
        return [quoted_table(table) for table in config.routes]
    listed = spark.sql(f"SHOW TABLES IN {config.quoted_namespace}").collect()
    existing = (f"{config.quoted_namespace}.{quoted(row['tableName'])}" for row in listed)
    own = {config.quoted_commit_log, config.quoted_dead_letters}
    return sorted({*logged.tables, *existing} - own)


def recorded_offsets(spark: SparkSession, config: IngestConfig) -> list[Offsets]:
    """Return the offsets that each table records of the job. They are needed if the commit log was removed."""
    recorded = []
    for name in known_tables(spark, config, LoggedJob()):
        try:
            recorded.append(find_table_offsets(load_table(spark, name), config.job).offsets)
        except TableNotFoundError:
            recorded.append({})
    # If any table records offsets, the job ran. Then a table without offsets may lack all records.
    return recorded if any(recorded) else []
