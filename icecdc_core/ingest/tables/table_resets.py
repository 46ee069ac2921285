"""What a table has of an ingest, also when the snapshot that says so is gone: expired, rolled back, or another table.

A mark is searched among the ancestors of the current snapshot. If there is none, or an older one than the commit log
knows, the log and the table's history tell why, and `on_table_reset` says what to do about it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from icecdc_core.errors import IcecdcError, TableResetError
from icecdc_core.ingest.kafka import offsets
from icecdc_core.ingest.kafka.offsets import Offsets
from icecdc_core.ingest.tables.commit_log import TableEntry
from icecdc_core.ingest.tables.table_offsets import Mark, ancestors, find_mark, head_of, is_ancestor

if TYPE_CHECKING:
    from icecdc_core.ingest.config import IngestConfig


class RefillError(IcecdcError):
    """The table is to be filled again, from `offsets` on."""

    offsets: Offsets


@dataclass
class Marks:
    """The marks of one run's tables; threads may ask at the same time, each for other tables.

    Attributes:
        config: The job's parameters.
        known: What the commit log knows of each table.
        earliest: Where the topics begin.
    """

    config: IngestConfig
    known: dict[str, TableEntry]
    earliest: Offsets
    _seen: dict[str, dict[int, Mark]] = field(default_factory=dict)

    def of(self, name: str, table: Any, start: Offsets) -> Mark:
        """The mark of a table.

        Args:
            name: The table, every part quoted.
            table: Iceberg's table, freshly loaded.
            start: Where the batch starts; whoever goes on without what was lost goes on from there.

        Raises:
            TableResetError: It is another table than the log knows, or lacks what that had, and `on_table_reset` is
                `fail`.
            RefillError: The same, and `on_table_reset` is `refill`.
        """
        mark = find_mark(table, self.config.job, self._seen.get(name))
        logged = self.known.get(name)
        if logged is not None:
            mark = self._reconciled(name, table, mark, logged, start)
        head = head_of(table)
        if head is not None:
            self._seen[name] = {head: mark}
        return mark

    def remember(self, entry: TableEntry, mark: Mark) -> None:
        """Know what a table has now."""
        self.known[entry.name] = entry
        if mark.snapshot_id is not None:
            self._seen[entry.name] = {mark.snapshot_id: mark}

    def _reconciled(self, name: str, table: Any, mark: Mark, logged: TableEntry, start: Offsets) -> Mark:
        """The mark, or what the log knows instead of it."""
        had = offsets.parse(logged.offsets)
        if logged.uuid and logged.uuid != str(table.uuid()):
            problem = TableResetError(
                "The table was dropped and made again since the ingest last wrote into it",
                subject="on_table_reset",
                value=name,
                remedy=_REMEDY,
            )
        elif offsets.covers(mark.offsets, had):
            return mark
        elif logged.snapshot_id is not None and is_ancestor(table, logged.snapshot_id):
            # Nothing was rolled back: the batches from its mark to the logged offsets had no record for this table.
            return Mark(offsets.furthest(mark.offsets, had), mark.batch, mark.snapshot_id, mark.valid_through)
        elif logged.snapshot_id is None or _has_expired(table, mark, logged):
            # The log says what the snapshot said; where it names no snapshot, the table need not have one.
            return Mark(offsets.furthest(mark.offsets, had), mark.batch, mark.snapshot_id, mark.valid_through)
        else:
            problem = TableResetError(
                "The table no longer has what the ingest wrote into it: it was rolled back",
                subject="on_table_reset",
                value=name,
                remedy=_REMEDY,
            )
        if self.config.on_table_reset == "continue":
            mark = Mark(offsets.furthest(mark.offsets, start), mark.batch, mark.snapshot_id, mark.valid_through)
            self.known[name] = TableEntry(name, str(table.uuid()), offsets=offsets.text(mark.offsets))
            return mark
        if self.config.on_table_reset == "refill":
            refill = RefillError("The table is filled again", subject="table", value=name)
            has = {topic: parts for topic, parts in mark.offsets.items() if topic in self.earliest}
            refill.offsets = offsets.furthest(self.earliest, has)
            raise refill
        raise problem


_REMEDY = (
    "set on_table_reset=refill once, to take again what the topic still has of it, or continue, to go on with new "
    "records only"
)


def _has_expired(table: Any, mark: Mark, logged: TableEntry) -> bool:
    """Whether the logged snapshot is gone because it is old; False: the table's history passes it by.

    The history passes it by if an ancestor is older than the logged snapshot: an older mark, a lower sequence number,
    or the first snapshot of all. Format version 1 has no sequence numbers; the time of the snapshots replaces them.
    """
    if mark.snapshot_id is not None or table.snapshot(logged.snapshot_id) is not None:
        return False
    oldest = None
    for snapshot in ancestors(table):
        oldest = snapshot
    if oldest is None or oldest.parentId() is None:
        return False
    had = logged.sequence_number or 0
    if had == 0:
        return logged.snapshot_ms is None or int(oldest.timestampMillis()) >= logged.snapshot_ms
    # Nothing lies between the logged number and the next one, so that one's parent is the logged snapshot.
    return int(oldest.sequenceNumber()) > had + 1 or int(oldest.parentId()) == logged.snapshot_id
