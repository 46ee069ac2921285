"""Shuffle, carryovers and updates on narrow rows: identifiers, and one number instead of all other values.

``narrow_rows`` reduces each change to its identifier, its step and one number: 63 bits of hash, and the side as the
last bit. These rows go through ``shuffle_by_identifiers``.

``drop_narrow_carryovers`` then needs only the number of rows of one identifier and step, and the XOR of their numbers:

    ==  ====  ======  =====      ==  ====  ====  =====  =================================
    id  step  side    hash       id  step  rows  xor
    ==  ====  ======  =====      ==  ====  ====  =====  =================================
    1   0     DELETE  a5         1   0     2     1      a carryover: equal hashes cancel
    1   0     INSERT  a5    ->   2   0     2     odd    an upsert
    2   0     DELETE  17         3   0     1     even   a delete
    2   0     INSERT  c4
    3   0     DELETE  90
    ==  ====  ======  =====      ==  ====  ====  =====  =================================

``merge_narrow_updates`` lets the last step of each identifier decide:

    ==  ====  =======      ==  ========
    id  step  kind         id  decision
    ==  ====  =======      ==  ========
    2   0     upsert       2   upsert at step 1
    2   1     upsert  ->   3   delete at step 0
    3   0     delete
    ==  ====  =======      ==  ========

Expressions are SQL text here, see ``icecdc_core.changes``; each text has a name.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from icecdc_core.changes.row_hash import new_key, with_row_hash
from icecdc_core.columns import CHANGE_ORDINAL, IS_INSERT, RESERVED, quoted

KIND, IS_DUPLICATE, ROWS = "_icecdc_kind", "_icecdc_duplicate", "_icecdc_rows"
DELETED, UPSERTED = 1, 2

_NUMBER, _XOR, _LEFT_BEFORE = "_icecdc_row", "_icecdc_xor", "_icecdc_left_before"

_HAS_INSERT = f"({_XOR} & 1) = 1"
_HAS_DELETE = f"({ROWS} = 2 OR NOT {_HAS_INSERT})"
_IS_CARRYOVER = f"({ROWS} = 2 AND {_XOR} = 1)"
_TWO_ON_ONE_SIDE = f"NOT ({ROWS} = 1 OR ({ROWS} = 2 AND {_HAS_INSERT}))"
# A step deletes a row exactly if the step before left one.
_TWO_IN_ROW = f"coalesce({_HAS_DELETE} <> {_LEFT_BEFORE}, false)"

# The step and the kind in one number, whose maximum is the last step.
_DECISION, _KINDS = "_icecdc_decision", 4

IS_UPSERTED, IS_DELETED = (f"(NOT {IS_DUPLICATE} AND {_DECISION} % {_KINDS} = {kind})" for kind in (UPSERTED, DELETED))
"""SQL text: what is left to do for an identifier of ``merge_narrow_updates``; neither for a duplicate."""

DECIDING_STEP = f"cast(floor({_DECISION} / {_KINDS}) AS int)"
"""SQL text: the step that decides it."""


def narrow_rows(changes: DataFrame, identifier_columns: Sequence[str], row_hash: str, with_step: bool) -> DataFrame:
    """Reduce each change to its identifier, its step and one number of hash and side."""
    compared = [field for field in changes.schema.fields if field.name not in RESERVED]
    rows, hashed = with_row_hash(changes, compared, new_key(row_hash))
    number = f"shiftleft({hashed}, 1) | cast({IS_INSERT} AS bigint) AS {_NUMBER}"
    return rows.selectExpr(*map(quoted, identifier_columns), *([CHANGE_ORDINAL] if with_step else []), number)


def drop_narrow_carryovers(narrow: DataFrame, identifier_columns: Sequence[str], with_step: bool) -> DataFrame:
    """Return what each step did to each identifier, without steps that left its row as it was."""
    ids = [quoted(name) for name in identifier_columns]
    step = [CHANGE_ORDINAL] if with_step else []
    # Grouped only after the shuffle: nearly every identifier is in few rows, so partial groups save nothing.
    groups = narrow.groupBy(*ids, *step).agg(F.count(F.lit(1)).alias(ROWS), F.bit_xor(_NUMBER).alias(_XOR))
    duplicate = _TWO_ON_ONE_SIDE
    if with_step:
        before = f"lag({_HAS_INSERT}) OVER (PARTITION BY {', '.join(ids)} ORDER BY {CHANGE_ORDINAL})"
        groups = groups.selectExpr("*", f"{before} AS {_LEFT_BEFORE}")
        duplicate = f"({_TWO_ON_ONE_SIDE} OR {_TWO_IN_ROW})"
    kind = f"if({_HAS_INSERT}, {UPSERTED}, {DELETED}) AS {KIND}"
    changed = groups.where(f"NOT {_IS_CARRYOVER} OR {duplicate}")
    return changed.selectExpr(*ids, *step, kind, f"{duplicate} AS {IS_DUPLICATE}", ROWS)


def merge_narrow_updates(steps: DataFrame, identifier_columns: Sequence[str], only_step: int | None) -> DataFrame:
    """Keep one row for each identifier: the last step decides."""
    ids = [quoted(name) for name in identifier_columns]
    if only_step is not None:
        return steps.selectExpr(*ids, f"{only_step * _KINDS} + {KIND} AS {_DECISION}", IS_DUPLICATE, ROWS)
    return steps.groupBy(*ids).agg(
        F.expr(f"max({CHANGE_ORDINAL} * {_KINDS} + {KIND}) AS {_DECISION}"),
        F.expr(f"max({IS_DUPLICATE}) AS {IS_DUPLICATE}"),
        F.expr(f"sum({ROWS}) AS {ROWS}"),
    )
