"""Find rows that differ between two states of a table by row lineage (format version 3), without comparing values.

By Iceberg's specification a row keeps its ``_row_id`` for life, also where engines only move it, and its
``_last_updated_sequence_number`` is the commit that last changed it. So a row is unchanged if both states have it, and
if neither changed it since the snapshot both descend from. Row ids are kept as bitmaps of 64 consecutive ids, which a
hash aggregate combines; whole rows are then read for just what differs:

    =======  ===========================  ============================================================
    state    row ids                      bitmap 7 (ids 448 to 511)
    =======  ===========================  ============================================================
    older    448, 449, 450, 451           ...1111
    newer    448, 450, 451                ...1101   -> row 449 was removed, or changed since
    =======  ===========================  ============================================================

A bitmap takes as much room as one id: sent row by row, the ids of a large table would be most of what is shuffled.

Row ids may repeat: files were added that have ids of their own, or the next id of the table was set back. So rows are
counted with their bitmaps, and one with fewer bits than rows says of none of its rows that it is unchanged.

Usually the newer state's row ids are enough. Its unchanged rows are rows of the older state too, unless a delete was
undone; then fewer rows turn out removed than the older state has more than there are unchanged rows.
"""

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import DataFrame, functions as F

from icecdc_core.session.spark import can_broadcast

# Of a bitmap as a row of a hash table, which every task gets.
BITMAP_BYTES = 64

_STEP, _BITMAP_ID, _JOIN_ID = "_icecdc_step", "_icecdc_bitmap_id", "_icecdc_join_id"
_OLDER, _NEWER, _MISSING = "_icecdc_older", "_icecdc_newer", "_icecdc_missing"
_ROWS = "_icecdc_rows"

_BITMAP_OF_ROW, _BIT_OF_ROW = "shiftright(_row_id, 6)", "shiftleft(1L, cast(_row_id & 63 AS int))"


def unchanged_row_ids(states: Mapping[int, tuple[DataFrame, int]]) -> DataFrame:
    """Return the ids of the rows that newer states did not change, as bitmaps."""
    bits = [
        rows.where(is_old(until)).selectExpr(
            f"{step} AS {_STEP}", f"{_BITMAP_OF_ROW} AS {_BITMAP_ID}", f"{_BIT_OF_ROW} AS {_NEWER}"
        )
        for step, (rows, until) in states.items()
    ]
    bitmaps = reduce(DataFrame.unionAll, bits).groupBy(_STEP, _BITMAP_ID)
    return bitmaps.agg(F.bit_or(_NEWER).alias(_NEWER), F.count("*").alias(_ROWS))


def count_unchanged(unchanged: DataFrame) -> int | None:
    """Return the number of unchanged rows; None if two of them have one id."""
    counts = unchanged.selectExpr(f"coalesce(sum(bit_count({_NEWER})), 0)", f"coalesce(sum({_ROWS}), 0)").collect()[0]
    return int(counts[0]) if counts[0] == counts[1] else None


def removed_rows(older: DataFrame, unchanged: DataFrame, step: int, unchanged_until: int, row_count: int) -> DataFrame:
    """Return the rows of an older state that the newer one does not have, or has changed."""
    bitmaps = unchanged.where(f"{_STEP} = {step}").selectExpr(f"{_BITMAP_ID} AS {_JOIN_ID}", _NEWER)
    is_unchanged = f"{is_old(unchanged_until)} AND {_has_bit(_NEWER)}"
    joined = _with_bitmaps(older, bitmaps, _are_few(bitmaps, row_count), "left_outer")
    return joined.where(f"NOT ({is_unchanged})").drop(_JOIN_ID, _NEWER)


def changed_by_lineage(
    older: DataFrame, newer: DataFrame, in_both: DataFrame | None, unchanged_until: int, row_count: int
) -> tuple[DataFrame, list[DataFrame]]:
    """Return the rows of each state that the other does not have; a row that was updated to equal values counts."""
    old = is_old(unchanged_until)
    states = [(older, _BIT_OF_ROW, "0L"), (newer, "0L", _BIT_OF_ROW)]
    if in_both is not None:
        states.append((in_both, "0L", _BIT_OF_ROW))
    bits = [
        rows.where(old).selectExpr(f"{_BITMAP_OF_ROW} AS {_BITMAP_ID}", f"{one} AS {_OLDER}", f"{other} AS {_NEWER}")
        for rows, one, other in states
    ]
    both = [*(F.bit_or(side).alias(side) for side in (_OLDER, _NEWER)), F.count("*").alias(_ROWS)]
    bitmaps = reduce(DataFrame.unionAll, bits).groupBy(_BITMAP_ID).agg(*both)
    are_unique = f"{_ROWS} = bit_count({_OLDER}) + bit_count({_NEWER})"
    are_few = _are_few(bitmaps.where(f"{_OLDER} <> {_NEWER} OR NOT ({are_unique})"), row_count)

    def only_in(state: str, other: str, rows: DataFrame, how: str) -> DataFrame:
        missing = f"if({are_unique}, {state} & ~{other}, -1L)"
        differing = bitmaps.where(f"({missing}) <> 0").selectExpr(
            f"{_BITMAP_ID} AS {_JOIN_ID}", f"{missing} AS {_MISSING}"
        )
        joined = _with_bitmaps(rows, differing, are_few, how)
        condition = _has_bit(_MISSING) if how == "inner" else f"NOT ({old}) OR {_has_bit(_MISSING)}"
        return joined.where(condition).drop(_JOIN_ID, _MISSING)

    added = [only_in(_NEWER, _OLDER, newer, "left_outer")]
    if in_both is not None:
        # Rows come back only if a delete is undone. Once Spark sees that none was, it does not read these files.
        added.append(only_in(_NEWER, _OLDER, in_both, "inner"))
    return only_in(_OLDER, _NEWER, older, "left_outer"), added


def is_old(unchanged_until: int) -> str:
    """SQL text: whether a row was neither inserted nor updated since a commit; not if it does not say."""
    return f"coalesce(_last_updated_sequence_number <= {unchanged_until}L, false)"


def _has_bit(bitmap: str) -> str:
    return f"(coalesce({bitmap}, 0L) & {_BIT_OF_ROW}) <> 0"


def _are_few(bitmaps: DataFrame, row_count: int) -> bool:
    """Whether every task can get these bitmaps: one for each row, unless their ids are neighbours."""
    spark = bitmaps.sparkSession
    return can_broadcast(spark, row_count * BITMAP_BYTES) or can_broadcast(spark, bitmaps.count() * BITMAP_BYTES)


def _with_bitmaps(rows: DataFrame, bitmaps: DataFrame, are_few: bool, how: str) -> DataFrame:
    joined = F.broadcast(bitmaps) if are_few else bitmaps
    return rows.selectExpr("*", f"{_BITMAP_OF_ROW} AS {_JOIN_ID}").join(joined, _JOIN_ID, how)
