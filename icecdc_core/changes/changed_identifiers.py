"""Find the identifiers that changed from narrow rows, then fetch whole rows for just these.

A copy-on-write UPDATE of half a percent of the rows makes every file differ, so nearly all rows that are read are
carryovers. Sending whole rows through the shuffle only to cancel them is what makes change feeds slow. Here narrow rows
go through shuffle, carryovers and updates instead, see ``narrow_rows``. Whole rows are then fetched by a join with the
few identifiers that are left.

The result is that of ``shuffle_by_identifiers``, ``remove_carryovers`` and ``merge_updates``. Only the old and the new
row of one identifier are ever compared. Whoever can make two rows with one hash hides that update, see ``row_hash``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from icecdc_core.changes.counts import any_null, count_each
from icecdc_core.changes.narrow_rows import (
    DECIDING_STEP,
    IS_DELETED,
    IS_DUPLICATE,
    IS_UPSERTED,
    ROWS,
    drop_narrow_carryovers,
    merge_narrow_updates,
    narrow_rows,
)
from icecdc_core.changes.row_hash import FAST
from icecdc_core.changes.unique_changes import TWO_ROWS
from icecdc_core.columns import CHANGE_ORDINAL, CHANGE_TYPE, DELETE, IS_INSERT, quoted
from icecdc_core.session.row_counts import RowCount
from icecdc_core.shuffle import shuffle_by_identifiers
from icecdc_core.updates import keep_unless_duplicate

# Up to here identifiers are sent to every task that reads the newer side; more of them are shuffled, as in any join.
_BROADCAST_ROWS = 300_000


@dataclass(frozen=True)
class ChangedIdentifiers:
    """The identifiers that changed in a range, and their counts."""

    identifiers: DataFrame
    upserts: int
    deletes: int
    duplicates: int
    nulls: int
    carryovers: int
    all_newer: bool

    def close(self) -> None:
        """Release what is cached."""
        with suppress(Py4JError, OSError):  # Spark has ended; the error that ended it must not be hidden
            self.identifiers.unpersist()


def find_changed_identifiers(
    changes: DataFrame,
    identifier_columns: Sequence[str],
    only_step: int | None = None,
    row_count: int | None = None,
    row_hash: str = FAST,
) -> ChangedIdentifiers:
    """Decide for every identifier what is left to do, moving only identifiers and hashes."""
    narrow = narrow_rows(changes, identifier_columns, row_hash, with_step=only_step is None)
    counted = None
    if row_count is None:
        # Here, where rows leave generated code anyway; between grouping and filter it would split that code in two.
        counted = RowCount(narrow)
        narrow = counted.rows
    shuffled = shuffle_by_identifiers(narrow, identifier_columns)
    steps = drop_narrow_carryovers(shuffled, identifier_columns, with_step=only_step is None)
    decided = merge_narrow_updates(steps, identifier_columns, only_step)
    identifiers = decided.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        counts = count_each(
            identifiers,
            total_of=ROWS,
            upserts=IS_UPSERTED,
            deletes=IS_DELETED,
            duplicates=IS_DUPLICATE,
            nulls=any_null(identifier_columns),
        )
        row_count = row_count if counted is None else counted.value()
    except BaseException:
        identifiers.unpersist()
        raise
    assert row_count is not None
    return ChangedIdentifiers(
        identifiers,
        counts.upserts,
        counts.deletes,
        counts.duplicates,
        counts.nulls,
        carryovers=(row_count - counts.total) // 2,
        # Within one step an identifier has at most one row on the newer side.
        all_newer=row_count == counts.total and only_step is not None and not counts.duplicates,
    )


def fetch_changed_rows(changes: DataFrame, identifier_columns: Sequence[str], found: ChangedIdentifiers) -> DataFrame:
    """Return one change row for each changed identifier, as ``merge_updates`` would.

    Identifiers of two rows end the query with an error that says "duplicate identifier" and shows one, unless a part of
    it is null. A DELETE has only its identifier columns, as nothing else of it is needed.
    """
    newer = changes.where(IS_INSERT)
    if not found.all_newer:
        newer = _rows_of(newer, found, identifier_columns)
    rows = _with_deletes(newer, found.identifiers.where(IS_DELETED), identifier_columns)
    if not found.duplicates:
        return rows
    complete = " AND ".join(f"{quoted(name)} IS NOT NULL" for name in identifier_columns)
    fail = keep_unless_duplicate(F.expr(complete), F.lit(True), identifier_columns, TWO_ROWS)
    duplicates = found.identifiers.where(IS_DUPLICATE).where(fail)
    return _with_deletes(rows, duplicates, identifier_columns)


def fetch_current_rows(current: DataFrame, identifier_columns: Sequence[str], found: ChangedIdentifiers) -> DataFrame:
    """Return one change row for each changed identifier: its current row, or a DELETE if there is none."""
    changed = [f"_icecdc_changed_{position}" for position in range(len(identifier_columns))]
    names = [quoted(name) for name in identifier_columns]
    same = [F.col(name) == F.col(alias) for name, alias in zip(names, changed, strict=True)]
    rows = current.join(found.identifiers.select(*names).toDF(*changed), same, "left_semi")
    deleted = found.identifiers.join(rows.select(*names).toDF(*changed), same, "left_anti")
    return _with_deletes(rows, deleted, identifier_columns)


def _with_deletes(rows: DataFrame, identifiers: DataFrame, identifier_columns: Sequence[str]) -> DataFrame:
    """Add a DELETE row for each of the changed identifiers, whose other columns are null."""
    change = (f"'{DELETE}' AS {CHANGE_TYPE}", f"{DECIDING_STEP} AS {CHANGE_ORDINAL}")
    deletes = identifiers.selectExpr(*map(quoted, identifier_columns), *change)
    return rows.unionByName(deletes, allowMissingColumns=True)


def _rows_of(newer: DataFrame, found: ChangedIdentifiers, identifier_columns: Sequence[str]) -> DataFrame:
    """The rows to write: those of the upserted identifiers in the step that decides."""
    names = [*map(quoted, identifier_columns), CHANGE_ORDINAL]
    aliases = [f"_icecdc_wanted_{position}" for position in range(len(names))]
    wanted = found.identifiers.where(IS_UPSERTED).selectExpr(*names[:-1], DECIDING_STEP).toDF(*aliases)
    wanted = F.broadcast(wanted) if found.upserts <= _BROADCAST_ROWS else wanted
    equal = "<=>" if found.nulls else "="  # Spark hashes plain equality faster
    matches = " AND ".join(f"{name} {equal} {alias}" for name, alias in zip(names, aliases, strict=True))
    return newer.join(wanted, F.expr(matches), "left_semi")
