"""Count the rows of a frame by several conditions in one pass.

Conditions are SQL text: this runs in every small sync, where Column expressions take several times as long to build.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Row

from icecdc_core.columns import quoted


def any_null(columns: Sequence[str]) -> str:
    """Return a condition: whether one of these columns is null.

    Example:
        >>> any_null(["region", "id"])
        '`region` IS NULL OR `id` IS NULL'
    """
    return " OR ".join(f"{quoted(name)} IS NULL" for name in columns)


def count_each(frame: DataFrame, total_of: str = "", **conditions: str) -> Row:
    """Count the rows that meet each condition."""
    counts = [f"count_if({condition}) AS {quoted(name)}" for name, condition in conditions.items()]
    if total_of:
        counts.append(f"coalesce(sum({total_of}), 0) AS total")
    return frame.selectExpr(*counts).collect()[0]
