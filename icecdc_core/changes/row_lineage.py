"""Rows that differ between two states of a table, found without comparing values.

Two ways, both exact and both narrow: what tells the states apart is worked out from a few bytes a row, then whole rows
are read for that alone.

Row lineage (format version 3). A row keeps its ``_row_id`` for life and notes in ``_last_updated_sequence_number``
the commit that last changed it. So a row which both states have, and which neither has changed since the snapshot both
descend from, is unchanged. Whether a state has a row is one bit; 64 of them make a word that a hash aggregate combines:

    _row_id  ->  word = _row_id / 64, bit = _row_id % 64      word 7:  older 1111…, newer 1011…  ->  row 449 is gone

Nearly always the newer state's bits alone are enough. What it has of unchanged rows the older one has too, unless a
delete was undone, and then the numbers of rows give it away: ``older - gone`` are fewer than the newer one's bits.

Delete marks. A data file that both states have, with other delete files, differs by just the rows that are deleted in
one of them; the reader tells by ``_deleted`` which ones, and ``(_file, _pos)`` says whether they are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_BROADCAST_WORDS = 2_000_000
_BROADCAST_MARKS = 300_000
ROWS_A_WORD = 64

_OLDER, _NEWER, _MISSING = "_icecdc_older", "_icecdc_newer", "_icecdc_missing"
_WORD, _SIDE, _STEP = "_icecdc_word", "_icecdc_side", "_icecdc_step"
_POSITION = ["_file", "_pos"]
_WORD_OF, _BIT_OF = "shiftright(_row_id, 6)", "shiftleft(1L, cast(_row_id & 63 AS int))"


def unchanged_rows(states: Mapping[int, tuple[DataFrame, int]]) -> DataFrame:
    """Return which rows newer states have as they were, a bit for each.

    Args:
        states: By step: the rows of its newer state, with ``_row_id`` and ``_last_updated_sequence_number``, none of
            them null; and the sequence number of the newest snapshot that both its states descend from.

    Returns:
        ``_icecdc_step``, ``_icecdc_word`` and ``_icecdc_newer``, the 64 bits of that word; for ``gone_rows``.
    """
    bits = [
        rows.where(_is_old(until)).selectExpr(f"{step} AS {_STEP}", f"{_WORD_OF} AS {_WORD}", f"{_BIT_OF} AS {_NEWER}")
        for step, (rows, until) in states.items()
    ]
    return reduce(DataFrame.unionAll, bits).groupBy(_STEP, _WORD).agg(F.bit_or(_NEWER).alias(_NEWER))


def count_unchanged(unchanged: DataFrame) -> int:
    """Count the rows that ``unchanged_rows`` returned the bits of."""
    return int(unchanged.selectExpr(f"coalesce(sum(bit_count({_NEWER})), 0)").collect()[0][0])


def gone_rows(older: DataFrame, unchanged: DataFrame, step: int, unchanged_until: int, row_count: int) -> DataFrame:
    """Return the rows of an older state that its newer one has not, or no longer as they were.

    Args:
        older: Its rows, with the columns of row lineage, none of them null.
        unchanged: What ``unchanged_rows`` returned.
        step: The step it belongs to.
        unchanged_until: As it was given there.
        row_count: Rows of both sides, about; many words are not sent to every task.

    Returns:
        Rows with the columns they came with.
    """
    words = unchanged.where(f"{_STEP} = {step}").selectExpr(f"{_WORD} AS {_SIDE}", _NEWER)
    is_kept = f"{_is_old(unchanged_until)} AND {_has_bit(_NEWER)}"
    return _with_words(older, words, row_count, "left_outer").where(f"NOT ({is_kept})").drop(_SIDE, _NEWER)


def come_rows(newer: DataFrame, unchanged_until: int) -> DataFrame:
    """Return the rows of a newer state that were written or updated since ``unchanged_until``."""
    return newer.where(f"NOT ({_is_old(unchanged_until)})")


def changed_by_lineage(
    older: DataFrame, newer: DataFrame, masked: DataFrame | None, unchanged_until: int, row_count: int
) -> tuple[DataFrame, list[DataFrame]]:
    """Return the rows of each state that the other has not, by row lineage.

    A row that was updated to the values it had counts as changed. The rule is that of the Iceberg specification, "Row
    Lineage": engines keep both columns for rows they only move, and set the sequence number anew for rows they change.

    Args:
        older: Rows of the older state, with ``_row_id`` and ``_last_updated_sequence_number``, none of them null.
        newer: Rows of the newer state in files that only it has, likewise.
        masked: Rows of the newer state in files that both have, none of them changed since; None: there are none.
        unchanged_until: Sequence number of the newest snapshot that both states descend from.
        row_count: Rows of both sides, about; many words are not sent to every task.

    Returns:
        The rows only the older state has, and those only the newer has, with the columns they came with.
    """
    old = _is_old(unchanged_until)
    sides = [(older, _BIT_OF, "0L"), (newer, "0L", _BIT_OF), *([(masked, "0L", _BIT_OF)] if masked is not None else [])]
    bits = reduce(
        DataFrame.unionAll,
        (
            rows.where(old).selectExpr(f"{_WORD_OF} AS {_WORD}", f"{was} AS {_OLDER}", f"{now} AS {_NEWER}")
            for rows, was, now in sides
        ),
    )
    words = bits.groupBy(_WORD).agg(F.bit_or(_OLDER).alias(_OLDER), F.bit_or(_NEWER).alias(_NEWER))

    def only(rows: DataFrame, side: str, other: str, how: str) -> DataFrame:
        missing = f"{side} & ~{other}"
        differing = words.where(f"({missing}) <> 0").selectExpr(f"{_WORD} AS {_SIDE}", f"{missing} AS {_MISSING}")
        marked, differs = _with_words(rows, differing, row_count, how), _has_bit(_MISSING)
        return marked.where(differs if how == "inner" else f"NOT ({old}) OR {differs}").drop(_SIDE, _MISSING)

    come = [only(newer, _NEWER, _OLDER, "left_outer")]
    if masked is not None:
        # Rows come back only where a delete is undone; once Spark sees that none did, it does not read the files.
        come.append(only(masked, _NEWER, _OLDER, "inner"))
    return only(older, _OLDER, _NEWER, "left_outer"), come


def _is_old(unchanged_until: int) -> str:
    return f"_last_updated_sequence_number <= {unchanged_until}L"


def _has_bit(word: str) -> str:
    return f"(coalesce({word}, 0L) & {_BIT_OF}) <> 0"


def _with_words(rows: DataFrame, words: DataFrame, row_count: int, how: str) -> DataFrame:
    """Each row beside its word; ``_icecdc_side`` says which word that is."""
    sent = F.broadcast(words) if row_count <= _BROADCAST_WORDS * ROWS_A_WORD else words
    return rows.selectExpr("*", f"{_WORD_OF} AS {_SIDE}").join(sent, _SIDE, how)


def deleted_rows(rows: DataFrame) -> DataFrame:
    """Return the rows of data files that their delete files hit, whatever kind these are."""
    return rows.where("_deleted")


def changed_by_deletes(older: DataFrame, newer: DataFrame, delete_count: int) -> tuple[DataFrame, DataFrame]:
    """Return the rows that are deleted in one state only, of data files that both states have.

    Args:
        older: Rows of the files in the older state, with ``_file``, ``_pos`` and ``_deleted``.
        newer: Rows of the same files in the newer state.
        delete_count: Deleted rows in both, about; many are not sent to every task.

    Returns:
        The rows only the older state has, and those only the newer has, with the columns they came with.
    """
    # Shown as plain columns, because hidden ones get lost in a join.
    gone_older, gone_newer = (deleted_rows(rows.select("*", *_POSITION, "_deleted")) for rows in (older, newer))
    marks = (
        gone_older.select(*_POSITION, F.lit(1).alias(_SIDE))
        .unionAll(gone_newer.select(*_POSITION, F.lit(2).alias(_SIDE)))
        .groupBy(*_POSITION)
        .agg(F.bit_or(_SIDE).alias(_SIDE))
    )

    def only(side: int, rows: DataFrame) -> DataFrame:
        marked: DataFrame = marks.where(F.col(_SIDE) == F.lit(side)).drop(_SIDE)
        # Empty on one side nearly always; once Spark sees that, it does not read that side's rows at all.
        marked = F.broadcast(marked) if delete_count <= _BROADCAST_MARKS else marked
        return rows.join(marked, _POSITION, "left_semi")

    return only(2, gone_newer), only(1, gone_older)
