"""The report of an ingest, for people and schedulers; `add_entry` adds up the batches for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from icecdc_core.reporting.card import BEHIND, IN_SYNC, NOTHING, Card, command_for, moment
from icecdc_core.reporting.reports import Report

if TYPE_CHECKING:
    import pandas as pd

    from icecdc_core.ingest.commit_log import LogEntry

COUNTS = ("records", "rows_written", "deletes", "dead_letters", "filtered", "files")


@dataclass(frozen=True)
class IngestReport(Report):
    """What an ingest wrote.

    Attributes:
        job: Name of the ingest.
        topics: The topics that were read.
        batches: Batches of this run.
        records: Offsets that were read: records, and transaction markers between them.
        rows_written: Rows that were written, in all tables. An upsert counts although the table's row has a higher
            ordering value and stays.
        deletes: Rows to delete, in all tables.
        dead_letters: Records that this run wrote to the dead letter table; of a replay those that failed again.
        filtered: Records that `where` dropped. A batch that is read again counts again.
        failed_again: Of a replay of dead letters, how many failed again for each reason.
        files: Data files that were written.
        tables: By table: `state`, `rows`, `deletes`, `files`, `snapshot_id`, `error`, and `valid_through`: the ISO time
            up to which it has every record, if a batch of this run proved one.
        behind: Tables that could not be written. The next run reads their records again.
        lost: Partitions that lost records before they were read: `topic`, `partition`, `from`, `to`.
        compacted: Tables whose small files were rewritten.
        offsets: By topic and partition, the next offset to read. All records below it are written, except to tables
            that are behind.
        valid_through: ISO time up to which all partitions are complete; "" if unknown.
        seconds: Duration of the run.
        stage_seconds: Seconds of each stage.
        run_id: The run, as in the log events and snapshots.
        stopped: Whether SIGTERM ended the run.
    """

    job: str
    topics: list[str] = field(default_factory=list)
    batches: int = 0
    records: int = 0
    rows_written: int = 0
    deletes: int = 0
    dead_letters: int = 0
    filtered: int = 0
    files: int = 0
    failed_again: dict[str, int] = field(default_factory=dict)
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    behind: list[str] = field(default_factory=list)
    lost: list[dict[str, Any]] = field(default_factory=list)
    compacted: list[str] = field(default_factory=list)
    offsets: dict[str, dict[int, int]] = field(default_factory=dict)
    valid_through: str = ""
    seconds: float = 0.0
    stage_seconds: dict[str, float] = field(default_factory=dict)
    run_id: str = ""
    stopped: bool = False

    @property
    def state(self) -> str:
        return "partial" if self.behind else "ok"

    def to_dict(self) -> dict[str, Any]:
        offsets = {topic: {str(number): at for number, at in each.items()} for topic, each in self.offsets.items()}
        return {**super().to_dict(), "offsets": offsets, "tables_behind": len(self.behind)}

    def card(self) -> Card:
        word = BEHIND if self.behind or self.lost else IN_SYNC if self.records else NOTHING
        what = (
            f"{self.records:,} records read, {self.rows_written:,} rows written to {len(self.tables):,} tables, "
            f"{self.dead_letters:,} dead letters (records that could not be routed or parsed)"
            + f", {self.filtered:,} dropped"
            * bool(self.filtered)
        )
        facts = [
            ("Complete up to", moment(self.valid_through)),
            ("Tables behind", ", ".join(self.behind)),
            ("Records lost", ", ".join(f"{e['topic']}-{e['partition']}: {e['from']} to {e['to']}" for e in self.lost)),
            ("Ended", self.ended + ", by SIGTERM" * self.stopped),
            ("Run id", self.run_id),
        ]
        title = f"{self.job}, from {', '.join(self.topics)}"
        return Card(word, title, what, facts, command_for("ingest", None, self.job))

    def table_summary(self) -> pd.DataFrame:
        from icecdc_core.reporting.tables import NotebookFrame

        rows = [{"table": name.replace("`", ""), **values} for name, values in sorted(self.tables.items())]
        return NotebookFrame(rows, dtype=object)  # or pandas makes snapshot ids floats beside a missing one


def add_entry(counts: dict[str, Any], entry: LogEntry) -> None:
    """Add what a batch wrote to the counts of a run, which may have no end, so that it keeps no entries."""
    tables, of_table = counts.setdefault("tables", {}), ("rows", "deletes", "files")
    for each in entry.tables:
        total = tables.setdefault(each.name, {**dict.fromkeys(of_table, 0), "valid_through": ""})
        total.update({name: total[name] + getattr(each, name) for name in of_table})
        total |= {"state": each.state, "snapshot_id": each.snapshot_id, "error": each.error}
    if entry.ends_read_at is not None:
        for name in tables.keys() - entry.behind:  # also one without a record in this batch
            tables[name]["valid_through"] = entry.ends_read_at.isoformat()
    rows, deletes, files = (sum(getattr(each, name) for each in entry.tables) for name in of_table)
    for name, count in zip(
        COUNTS, (entry.records, rows, deletes, entry.dead_letters, entry.filtered, files), strict=True
    ):
        counts[name] = counts.get(name, 0) + count
