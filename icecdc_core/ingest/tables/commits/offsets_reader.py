"""Read the offsets of a table, checked against the commit log; `on_table_reset` decides what to do after a reset."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from icecdc_core.errors import IcecdcError, TableResetError
from icecdc_core.ingest.kafka import offsets
from icecdc_core.ingest.kafka.offsets import Offsets
from icecdc_core.ingest.tables.commits.commit_log import TableEntry
from icecdc_core.ingest.tables.commits.table_offsets import TableOffsets, current_snapshot_id, find_table_offsets
from icecdc_core.ingest.tables.commits.table_reset import table_state

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
