"""Count the rows of a frame during an action that reads it anyway."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

# Spark reports an observation right after the action; some releases never report one that was dropped.
REPORT_SECONDS = 5.0
_PAUSE_SECONDS = 0.005


class RowCount:
    """The number of rows of a frame, observed by the first action that reads ``rows``.

    Adaptive execution drops a stage whose result it does not need, for instance one side of a join when the other is
    empty, and the observation of that stage with it. Spark then reports nothing, or an empty row. Only in that case
    does a separate job count the rows.
    """

    def __init__(self, frame: DataFrame, condition: Column | None = None) -> None:
        self._counted = frame if condition is None else frame.where(condition)
        self._observation = Observation()
        counted = F.count_if(F.lit(True) if condition is None else condition)
        self.rows = frame.observe(self._observation, counted.alias("rows"))

    def value(self) -> int:
        """Return the number of rows; an action must have read ``rows`` before."""
        if self._is_reported():
            # It fails for an empty row, which Spark 4.1 reports; Spark 4.0 has no method that shows the row before.
            with suppress(Py4JError, PySparkException):
                return int(self._observation.get["rows"])
        return self._counted.count()

    def _is_reported(self) -> bool:
        # `Observation.get` waits forever when nothing is reported.
        observation: Any = self._observation._jo
        deadline = time.monotonic() + REPORT_SECONDS
        while not observation.future().isCompleted():
            if time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE_SECONDS)
        return True
