"""What batches add up to in the report of an ingest."""

from __future__ import annotations

from icecdc_core.ingest.commit_log import BEHIND, LogEntry, TableEntry
from icecdc_core.ingest.report import Totals


def batch(number, *tables, **counts):
    return LogEntry(job="j", batch=number, run_id="r", kind="batch", offsets={}, tables=list(tables), **counts)


class DescribeTotals:
    def it_adds_up_the_batches_and_keeps_the_last_state_of_each_table(self):
        first = batch(1, TableEntry("a", snapshot_id=1, rows=2, files=1), records=3, dead_letters=1)
        second = batch(2, TableEntry("a", state=BEHIND, rows=1, deletes=4, error="full"), TableEntry("b"), records=5)
        actual = Totals(first, second)
        assert actual.batches == 2
        assert actual.counts == {
            "records": 8,
            "rows_written": 3,
            "deletes": 4,
            "dead_letters": 1,
            "files": 1,
            "tables": {
                "a": {"rows": 3, "deletes": 4, "files": 1, "state": "behind", "snapshot_id": None, "error": "full"},
                "b": {"rows": 0, "deletes": 0, "files": 0, "state": "written", "snapshot_id": None, "error": ""},
            },
        }
