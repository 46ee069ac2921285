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
    kept, survivors = _survivors(plan.carried, inserted)
    groups = changes.groupBy(*plan.grouping).agg(surplus.alias("surplus"), *kept)
    rows = groups.filter(F.col("surplus") != F.lit(0)).withColumn("row", F.explode(survivors))
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


def _survivors(carried: dict[int, StructField], inserted: Column) -> tuple[list[Column], Column]:
    """What a group keeps of its rows on either side, and the array of those that survive it."""
    is_inserted, times = F.col("surplus") > F.lit(0), F.abs(F.col("surplus")).cast("int")
    row = F.struct(F.lit(0).alias("none"), *(F.col(quoted(f.name)).alias(f"value{p}") for p, f in carried.items()))
    if not all(isinstance(field.dataType, LongType) for field in carried.values()):
        kept = [
            F.collect_list(F.when(inserted, row)).alias("inserted"),
            F.collect_list(F.when(~inserted, row)).alias("deleted"),
        ]
        return kept, F.slice(F.when(is_inserted, F.col("inserted")).otherwise(F.col("deleted")), 1, times)
    # Numbers can be kept in place, which is what lets Spark take a hash aggregate.
    kept, values = [], [F.lit(0).alias("none")]
    for position, field in carried.items():
        ours, theirs, value = f"inserted{position}", f"deleted{position}", F.col(quoted(field.name))
        kept += [F.max(F.when(inserted, value)).alias(ours), F.max(F.when(~inserted, value)).alias(theirs)]
        survivor = F.when(is_inserted, F.col(ours)).otherwise(F.col(theirs))
        # Spark cannot know that the side which survives has rows, so a column without nulls is said to be one.
        if not field.nullable:
            survivor = F.coalesce(survivor, F.lit(0).cast(field.dataType))
        values.append(survivor.alias(f"value{position}"))
    return kept, F.array_repeat(F.struct(*values), times)


def _output(position: int, field: StructField, plan: _Plan) -> Column:
    if field.name == CHANGE_TYPE:
        change_type = F.when(F.col("surplus") > F.lit(0), F.lit(INSERT))
        if field.nullable:  # Without an `otherwise` it stays nullable.
            return change_type.when(F.col("surplus") < F.lit(0), F.lit(DELETE))
        return change_type.otherwise(F.lit(DELETE))
    if position in plan.restored:
        return plan.restored[position]
    return F.col("row").getField(f"value{position}")
