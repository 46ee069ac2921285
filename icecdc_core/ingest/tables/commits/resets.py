"""Recognize a table that was dropped, created again or rolled back since the ingest last wrote into it.

The offsets of a table are in the ancestors of its current snapshot. If they are missing, or older than those in the
commit log, the history of the table says why, and `on_table_reset` says what to do.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from icecdc_core.errors import IcecdcError, TableResetError
from icecdc_core.ingest.kafka import offsets
from icecdc_core.ingest.kafka.offsets import Offsets
from icecdc_core.ingest.tables.commits.commit_log import TableEntry
from icecdc_core.ingest.tables.commits.offsets import (
    TableOffsets,
    ancestors,
    current_snapshot_id,
    find_table_offsets,
    is_ancestor,
)

if TYPE_CHECKING:
    from icecdc_core.ingest.config import IngestConfig

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

    Attributes:
        config: The job's parameters.
        known: The last entry of each table in the commit log, by name.
        earliest: The first offset that each partition still has.
    """

    config: IngestConfig
    known: dict[str, TableEntry]
    earliest: Offsets
    _found: dict[str, dict[int, TableOffsets]] = field(default_factory=dict)

    def read(self, name: str, table: Any, start: Offsets) -> TableOffsets:
        """Return the offsets of a table.

        Args:
            name: The table, every part quoted.
            table: Iceberg's table, freshly loaded.
            start: Where the batch starts. With `on_table_reset=continue` a table that was reset continues there.

        Raises:
            TableResetError: The table was reset, and `on_table_reset` is `fail`.
            RefillError: The table was reset, and `on_table_reset` is `refill`.
        """
        found = find_table_offsets(table, self.config.job, self._found.get(name))
        logged = self.known.get(name)
        if logged is not None:
            found = self._checked(name, table, found, logged, start)
        head = current_snapshot_id(table)
        if head is not None:
            self._found[name] = {head: found}
        return found

    def remember(self, entry: TableEntry, written: TableOffsets) -> None:
        """Store what a batch wrote.

        Args:
            entry: The table's entry in the commit log.
            written: The table's offsets now.
        """
        self.known[entry.name] = entry
        if written.snapshot_id is not None:
            self._found[entry.name] = {written.snapshot_id: written}

    def _checked(self, name: str, table: Any, found: TableOffsets, logged: TableEntry, start: Offsets) -> TableOffsets:
        """Return the offsets of the table, or those of the log where the log knows more."""
        state = table_state(table, found, logged)
        if state == "current":
            return found
        if state == "log is ahead":
            return replace(found, offsets=offsets.furthest(found.offsets, offsets.from_json(logged.offsets)))
        if self.config.on_table_reset == "continue":
            found = replace(found, offsets=offsets.furthest(found.offsets, start))
            self.known[name] = TableEntry(name, str(table.uuid()), offsets=offsets.to_json(found.offsets))
            return found
        if self.config.on_table_reset == "refill":
            refill = RefillError("The table is filled again", subject="table", value=name)
            existing = {topic: parts for topic, parts in found.offsets.items() if topic in self.earliest}
            refill.offsets = offsets.furthest(self.earliest, existing)
            raise refill
        raise TableResetError(
            _PROBLEMS[state],
            subject="on_table_reset",
            value=name,
            remedy="set on_table_reset=refill once, to read again what the topic still has for it, or continue, to "
            "write new records only",
        )


State = Literal["current", "log is ahead", "replaced", "rolled back"]


def table_state(table: Any, found: TableOffsets, logged: TableEntry) -> State:
    """Compare a table with what the commit log says about it.

    Args:
        table: Iceberg's table.
        found: The offsets that the table's snapshots record.
        logged: The last entry of the table in the commit log.

    Returns:
        `current`: the table records all that the log says. `log is ahead`: it does not, but nothing is missing, as
        batches without records for the table make no snapshot, and snapshots expire. `replaced` and `rolled back`: the
        table was reset.
    """
    if logged.uuid and logged.uuid != str(table.uuid()):
        return "replaced"
    if offsets.covers(found.offsets, offsets.from_json(logged.offsets)):
        return "current"
    if logged.snapshot_id is None or is_ancestor(table, logged.snapshot_id):
        return "log is ahead"
    return "log is ahead" if _has_expired(table, found, logged) else "rolled back"


def _has_expired(table: Any, found: TableOffsets, logged: TableEntry) -> bool:
    """Return whether the logged snapshot was removed because it was old, rather than by a rollback.

    It was a rollback if an ancestor is older than the logged snapshot: a snapshot with older offsets, with a lower
    sequence number, or the first of all. Format version 1 has no sequence numbers, so the time of the snapshots
    decides there.
    """
    if found.snapshot_id is not None or table.snapshot(logged.snapshot_id) is not None:
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
