"""Find rows that delete files delete in one state of a table only, without comparing values.

A data file that both states have, with different delete files, differs by just the rows that are deleted in one of the
states. The reader flags them in ``_deleted``; ``(_file, _pos)`` says which row it is:

    =====  ====  ================  ================  ========================
    _file  _pos  _deleted (older)  _deleted (newer)  the row
    =====  ====  ================  ================  ========================
    f      0     false             false             is in both states
    f      1     false             true              only the older state has
    f      2     true              false             only the newer state has
    f      3     true              true              is in neither
    =====  ====  ================  ================  ========================
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

# Up to here positions of deleted rows are sent to every task.
_BROADCAST_POSITIONS = 300_000

_POSITION = ["_file", "_pos"]
# Bit 1: deleted in the older state; bit 2: in the newer one.
_DELETED_IN, _OLDER, _NEWER = "_icecdc_deleted_in", 1, 2


def deleted_rows(rows: DataFrame) -> DataFrame:
    """Return the rows of data files that their delete files, of whatever kind, delete."""
    return rows.where("_deleted")


def changed_by_deletes(older: DataFrame, newer: DataFrame, delete_count: int) -> tuple[DataFrame, DataFrame]:
    """Return the rows that are deleted in one state only, of data files that both states have."""
    # Selected as plain columns, because metadata columns get lost in a join.
    deleted_older, deleted_newer = (deleted_rows(rows.select("*", *_POSITION, "_deleted")) for rows in (older, newer))
    positions = (
        deleted_older.select(*_POSITION, F.lit(_OLDER).alias(_DELETED_IN))
        .unionAll(deleted_newer.select(*_POSITION, F.lit(_NEWER).alias(_DELETED_IN)))
        .groupBy(*_POSITION)
        .agg(F.bit_or(_DELETED_IN).alias(_DELETED_IN))
    )

    def deleted_only_in(state: int, rows: DataFrame) -> DataFrame:
        wanted: DataFrame = positions.where(F.col(_DELETED_IN) == F.lit(state)).drop(_DELETED_IN)
        # Nearly always empty for one of the states; once Spark sees that, it does not read that state's rows.
        wanted = F.broadcast(wanted) if delete_count <= _BROADCAST_POSITIONS else wanted
        return rows.join(wanted, _POSITION, "left_semi")

    return deleted_only_in(_NEWER, deleted_newer), deleted_only_in(_OLDER, deleted_older)
