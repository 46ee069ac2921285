"""Drop carryovers: rows that a rewritten file deletes and inserts again unchanged.

A copy-on-write UPDATE of one row rewrites its whole file, so every other row of that file shows up
as a DELETE and an equal INSERT. Within one step equal rows cancel one for one, as in a multiset:

    ====  =====  ============  ===============      ====  =====  ============  ===============
    id    delay  _change_type  _change_ordinal      id    delay  _change_type  _change_ordinal
    ====  =====  ============  ===============      ====  =====  ============  ===============
    1     10     DELETE        0                    2     7      DELETE        0
    2     7      DELETE        0               ->   2     9      INSERT        0
    1     10     INSERT        0
    2     9      INSERT        0
    ====  =====  ============  ===============      ====  =====  ============  ===============

So rows are grouped by all their values; a group with more INSERTs than DELETEs stands for as many
inserted rows as the difference, one with fewer for as many deleted rows.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField

from icecdc_core.columns import (
    CHANGE_ORDINAL,
    CHANGE_TYPE,
    DELETE,
    INSERT,
    RESERVED,
    quoted,
    require_change_columns,
)
from icecdc_core.equality import is_floating, is_own_key, keys_of


class _Plan(NamedTuple):
    """How the columns take part, by their position in the frame."""

    grouping: list[Column]
    """The keys that are equal for equal rows."""
    restored: dict[int, Column]
    """Columns whose value can be had back from the keys."""
    carried: dict[int, StructField]
    """The others: a row of the group has to keep them."""


def remove_carryovers(changes: DataFrame) -> DataFrame:
    """Cancel equal DELETE and INSERT rows of one step, one for one; extra duplicates stay.

    Rows are equal if all the table's columns are, whatever their types: null equals null, NaN equals
    NaN, binary is compared by its bytes, maps irrespective of the order of their entries, at any
    depth; -0.0 and 0.0 differ, as their texts do. ``_commit_snapshot_id`` takes no part. Rows come
    out with the values they came in with.

    Runs as a hash aggregate unless a column is a map or variant or nests floats. After
    `shuffle_by_identifiers` it adds no exchange, alone it adds one.

    Args:
        changes: Rows with ``_change_type`` and ``_change_ordinal``, as `read_changes` returns them.

    Returns:
        The surviving rows, with the columns of ``changes`` in the same order.

    Raises:
        ColumnNotFoundError: The change columns are not there.
    """
    require_change_columns(changes)
    plan = _plan(changes.schema.fields)
    inserted = F.col(quoted(CHANGE_TYPE)) == F.lit(INSERT)
    surplus = F.sum(F.when(inserted, F.lit(1)).otherwise(F.lit(-1)))
    kept = [side for position, field in plan.carried.items() for side in _both_sides(position, field, inserted)]
    groups = changes.groupBy(*plan.grouping).agg(surplus.alias("surplus"), *kept)
    times = F.abs(F.col("surplus")).cast("int")
    rows = groups.filter(F.col("surplus") != F.lit(0)).withColumn("copy", F.explode(F.array_repeat(F.lit(0), times)))
    return rows.select(
        *(
            _output(position, field, plan).alias(field.name, metadata=field.metadata)
            for position, field in enumerate(changes.schema.fields)
        )
    )


def _plan(fields: list[StructField]) -> _Plan:
    plan = _Plan([], {}, {})
    for position, field in enumerate(fields):
        key = f"key{position}"
        if field.name == CHANGE_TYPE:
            continue
        if field.name in RESERVED and field.name != CHANGE_ORDINAL:
            plan.carried[position] = field
            continue
        column_keys = keys_of(field)
        plan.grouping.extend(
            part.alias(key if number == 0 else f"{key}_{number}") for number, part in enumerate(column_keys)
        )
        if is_own_key(field.dataType):
            plan.restored[position] = F.col(key)
        elif is_floating(field.dataType):
            negative_zero = F.lit(-0.0).cast(field.dataType)
            plan.restored[position] = F.when(F.col(f"{key}_1"), negative_zero).otherwise(F.col(key))
        else:
            plan.carried[position] = field
    return plan


def _both_sides(position: int, field: StructField, inserted: Column) -> list[Column]:
    """The value a group keeps of its inserted and of its deleted rows; they are all the same value by the keys."""
    value = F.col(quoted(field.name))
    sides = {"inserted": F.when(inserted, value), "deleted": F.when(~inserted, value)}
    if isinstance(field.dataType, LongType):
        # A maximum of numbers is kept in place, so that Spark can use a hash aggregate.
        return [F.max(side).alias(f"{name}{position}") for name, side in sides.items()]
    return [F.any_value(side, True).alias(f"{name}{position}") for name, side in sides.items()]


def _output(position: int, field: StructField, plan: _Plan) -> Column:
    is_inserted = F.col("surplus") > F.lit(0)
    if field.name == CHANGE_TYPE:
        return F.when(is_inserted, F.lit(INSERT)).otherwise(F.lit(DELETE))
    if position in plan.restored:
        return plan.restored[position]
    return F.when(is_inserted, F.col(f"inserted{position}")).otherwise(F.col(f"deleted{position}"))
