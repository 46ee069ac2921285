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
    """A micro-batch: its number and its offsets."""

    number: int
    start: Offsets
    end: Offsets
    valid_through: datetime | None
    run_id: str


@dataclass(frozen=True)
class TableRecords:
    """The records of a batch for one table."""

    decoded: Callable[[], DataFrame]
    rows: DataFrame | None = None
    schema: StructType | None = None
    rows_only: bool = False
    partitions: int | None = None

    def coalesced(self, frame: DataFrame) -> DataFrame:
        """Return the frame with as many partitions as its rows need."""
        return frame if self.partitions is None else frame.coalesce(self.partitions)
