"""Find the identifiers that changed from narrow rows, then fetch whole rows for just these.

A copy-on-write UPDATE of half a percent of the rows makes every file differ, so nearly all rows that are read are
carryovers. Sending whole rows through the shuffle only to cancel them is what makes change feeds slow. Here narrow rows
go through it, see ``narrow_rows``, and the last step of each identifier decides:

    ==  ====  =======      ==  ========
    id  step  kind         id  decision
    ==  ====  =======      ==  ========
    2   0     upsert       2   upsert at step 1
    2   1     upsert  ->   3   delete at step 0
    3   0     delete
    ==  ====  =======      ==  ========

Whole rows are then fetched from the newer side by a join with the few identifiers that are left. The result is that of
``shuffle_by_identifiers``, ``remove_carryovers`` and ``merge_updates``. Only the old and the new row of one identifier
are ever compared. Whoever can make two rows with one hash hides that update, see ``row_hash``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from icecdc_core.changes.narrow_rows import DELETED, IS_DUPLICATE, KIND, ROWS, UPSERTED, changed_steps, narrow_rows
from icecdc_core.changes.row_hash import FAST
from icecdc_core.changes.unique_changes import TWO_ROWS
from icecdc_core.columns import CHANGE_ORDINAL, CHANGE_TYPE, DELETE, IS_INSERT, quoted
from icecdc_core.session.row_counts import RowCount
from icecdc_core.updates import keep_unless_duplicate

# The step and the kind in one number, whose maximum is the last step.
_DECISION, _KINDS = "_icecdc_decision", 4
_STEP = f"cast(floor({_DECISION} / {_KINDS}) AS int)"
# Up to here identifiers are sent to every task that reads the newer side; more of them are shuffled, as in any join.
_BROADCAST_ROWS = 300_000


@dataclass(frozen=True)
class ChangedIdentifiers:
    """The identifiers that changed in a range, and their counts.

    Attributes:
        identifiers: One row for each changed identifier: the identifier columns and the decision; cached.
        upserts: Identifiers to write.
        deletes: Identifiers to delete.
        duplicates: Identifiers of two rows; not among the two above.
        nulls: Identifiers with a part that is null.
        carryovers: Unchanged rows that were dropped.
        all_newer: Whether every row of the newer side is one to write.
    """

    identifiers: DataFrame
    upserts: int
    deletes: int
    duplicates: int
    nulls: int
    carryovers: int
    all_newer: bool

    def close(self) -> None:
        """Release what is cached."""
        self.identifiers.unpersist()


def find_changed_identifiers(
    changes: DataFrame,
    identifier_columns: Sequence[str],
    only_step: int | None = None,
    row_count: int | None = None,
    row_hash: str = FAST,
) -> ChangedIdentifiers:
    """Decide for every identifier what is left to do, moving only identifiers and hashes.

    Args:
        changes: Raw changes, see ``read_changes``.
        identifier_columns: The columns that identify a row.
        only_step: The ordinal of all changes if they are of one step, which saves moving it; None: not known.
        row_count: The number of changes, which saves counting them; None: not known.
        row_hash: ``fast`` or ``keyed``, see ``row_hash``.
    """
    ids = [quoted(name) for name in identifier_columns]
    narrow = narrow_rows(changes, identifier_columns, row_hash, with_step=only_step is None)
    counted = None
    if row_count is None:
        # Here, where rows leave generated code anyway; between grouping and filter it would split that code in two.
        counted = RowCount(narrow)
        narrow = counted.rows
    steps = changed_steps(narrow, identifier_columns, with_step=only_step is None)
    if only_step is None:
        decided = steps.groupBy(*ids).agg(
            F.expr(f"max({CHANGE_ORDINAL} * {_KINDS} + {KIND}) AS {_DECISION}"),
            F.expr(f"max({IS_DUPLICATE}) AS {IS_DUPLICATE}"),
            F.expr(f"sum({ROWS}) AS {ROWS}"),
        )
    else:
        decided = steps.selectExpr(*ids, f"{only_step * _KINDS} + {KIND} AS {_DECISION}", IS_DUPLICATE, ROWS)
    identifiers = decided.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        counts = identifiers.selectExpr(
            f"count_if({_is(UPSERTED)}) AS upserts",
            f"count_if({_is(DELETED)}) AS deletes",
            f"count_if({IS_DUPLICATE}) AS duplicates",
            f"count_if({' OR '.join(f'{name} IS NULL' for name in ids)}) AS `nulls`",
            f"coalesce(sum({ROWS}), 0) AS changed_rows",
        ).collect()[0]
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
        carryovers=(row_count - counts.changed_rows) // 2,
        # Within one step an identifier has at most one row on the newer side.
        all_newer=row_count == counts.changed_rows and only_step is not None and not counts.duplicates,
    )


def fetch_changed_rows(changes: DataFrame, identifier_columns: Sequence[str], found: ChangedIdentifiers) -> DataFrame:
    """Return one change row for each changed identifier, as ``merge_updates`` would.

    Identifiers of two rows end the query with an error that says "duplicate identifier" and shows one, unless a part of
    it is null. A DELETE has only its identifier columns, as nothing else of it is needed.

    Args:
        changes: The frame that ``find_changed_identifiers`` was given; its newer sides are read a second time.
        identifier_columns: The columns that identify a row.
        found: What ``find_changed_identifiers`` returned.
    """
    newer = changes.where(IS_INSERT)
    if not found.all_newer:
        newer = _rows_of(newer, found, identifier_columns)
    deleted = delete_rows(found.identifiers.where(_is(DELETED)), changes.schema, identifier_columns)
    rows = newer.unionAll(deleted)
    if not found.duplicates:
        return rows
    complete = " AND ".join(f"{quoted(name)} IS NOT NULL" for name in identifier_columns)
    fail = keep_unless_duplicate(F.expr(complete), F.lit(True), identifier_columns, TWO_ROWS)
    duplicates = found.identifiers.where(IS_DUPLICATE).where(fail)
    return rows.unionAll(delete_rows(duplicates, changes.schema, identifier_columns))


def delete_rows(identifiers: DataFrame, schema: StructType, identifier_columns: Sequence[str]) -> DataFrame:
    """Return a DELETE row for each identifier.

    Args:
        identifiers: The ``identifiers`` of what ``find_changed_identifiers`` returned, or some of them.
        schema: The columns of the result. All but the identifier and change columns are null, without a type, so that
            a union gives them one.
        identifier_columns: The columns that identify a row.
    """
    filled = {
        **{name: quoted(name) for name in identifier_columns},
        CHANGE_TYPE: f"'{DELETE}'",
        CHANGE_ORDINAL: _STEP,
    }
    return identifiers.selectExpr(
        *(f"{filled.get(field.name, 'null')} AS {quoted(field.name)}" for field in schema.fields)
    )


def _is(kind: int) -> str:
    return f"(NOT {IS_DUPLICATE} AND {_DECISION} % {_KINDS} = {kind})"


def _rows_of(newer: DataFrame, found: ChangedIdentifiers, identifier_columns: Sequence[str]) -> DataFrame:
    """The rows to write: those of the upserted identifiers in the step that decides."""
    names = {f"_icecdc_wanted_{position}": quoted(name) for position, name in enumerate(identifier_columns)}
    wanted = found.identifiers.where(_is(UPSERTED)).selectExpr(
        *(f"{name} AS {alias}" for alias, name in names.items()), f"{_STEP} AS _icecdc_wanted_step"
    )
    # Spark hashes plain equality faster.
    equal = "<=>" if found.nulls else "="
    matches = [f"{name} {equal} {alias}" for alias, name in names.items()]
    matches.append(f"{CHANGE_ORDINAL} = _icecdc_wanted_step")
    wanted = F.broadcast(wanted) if found.upserts <= _BROADCAST_ROWS else wanted
    return newer.join(wanted, F.expr(" AND ".join(matches)), "left_semi")
