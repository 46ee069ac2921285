"""A batch, and the records in it for one table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from icecdc_core.ingest.kafka.offsets import Offsets


@dataclass(frozen=True)
class MicroBatch:
    """A micro-batch: its number and its offsets.

    Attributes:
        number: Counted from run to run.
        start: Where it starts.
        end: Where it ends. All records between are in it.
        valid_through: All partitions are complete up to this time; None if unknown.
        run_id: The run that writes it.
    """

    number: int
    start: Offsets
    end: Offsets
    valid_through: datetime | None
    run_id: str


@dataclass(frozen=True)
class TableRecords:
    """The records of a batch for one table.

    Attributes:
        decoded: Returns them as `decoding.decode_records` does.
        rows: The same records as `parse_rows` returns them, if they are already parsed.
        schema: The columns of those rows.
        rows_only: Whether all of those rows fit and have no other columns.
        partitions: How many writers they need; None: as many as the frame has partitions.
    """

    decoded: Callable[[], DataFrame]
    rows: DataFrame | None = None
    schema: StructType | None = None
    rows_only: bool = False
    partitions: int | None = None

    def coalesced(self, frame: DataFrame) -> DataFrame:
        """Return the frame with as many partitions as its rows need."""
        return frame if self.partitions is None else frame.coalesce(self.partitions)
