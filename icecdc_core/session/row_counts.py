"""How many rows a frame has, counted while an action reads it anyway."""

from __future__ import annotations

import time
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

# Spark reports an observation right after the action; only a release that never reports a dropped one is waited for.
_PATIENCE_SECONDS = 5.0
_PAUSE_SECONDS = 0.005


class RowCount:
    """The number of rows of a frame, observed by the first action that reads ``rows``.

    Adaptive execution drops a stage whose result it no longer needs, for instance a side of a join when the other is
    empty, and with it what the stage observed: then nothing is reported, or an empty row. Only then are the rows
    counted by a job of their own.

    Args:
        frame: What is counted.
        condition: Count only the rows that meet it; None: all.

    Attributes:
        rows: The frame to read instead; its rows and columns are those of ``frame``.
    """

    def __init__(self, frame: DataFrame, condition: Column | None = None) -> None:
        self._counted = frame if condition is None else frame.where(condition)
        self._observation = Observation()
        counted = F.count_if(F.lit(True) if condition is None else condition)
        self.rows = frame.observe(self._observation, counted.alias("rows"))

    def value(self) -> int:
        """Return the number of rows; an action must have read ``rows`` before."""
        return int(self._observation.get["rows"]) if self._is_observed() else self._counted.count()

    def _is_observed(self) -> bool:
        # `Observation.get` waits for ever for what is not reported, and fails for an empty row.
        observation: Any = self._observation._jo
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not observation.future().isCompleted():
            if time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE_SECONDS)
        return observation.getRow().schema() is not None
