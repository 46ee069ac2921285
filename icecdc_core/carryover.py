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
    IS_INSERT,
    RESERVED,
    quoted,
    require_change_columns,
    unused,
    with_literal_names,
)
from icecdc_core.equality import keyed


class _Group(NamedTuple):
    """How the columns take part in the grouping."""

    keys: list[str | Column]
    """Names of key columns, and keys that are worked out; they are equal for equal rows."""
    restored: dict[str, str]
    """Columns whose value can be had back from the keys, with the SQL text that does it."""
    carried: list[StructField]
    """The others: a row of the group has to keep them."""


@with_literal_names
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
    compared = [field for field in changes.schema.fields if field.name not in RESERVED or field.name == CHANGE_ORDINAL]
    rows, keys = keyed(changes, compared)
    surplus, row = unused("_surplus", changes.columns), unused("_row", changes.columns)
    group = _group(changes.schema.fields, keys)
    kept, survivors = _survivors(group.carried, surplus, changes.columns)
    balance = F.expr(f"sum(if({IS_INSERT}, 1, -1))").alias(surplus)
    groups = rows.groupBy(*group.keys).agg(balance, *(F.expr(text).alias(name) for name, text in kept.items()))
    left = groups.where(f"{surplus} <> 0").selectExpr("*", f"explode({survivors}) AS {row}")
    texts = {field.name: _output(field, group, surplus, row) for field in changes.schema.fields}
    # A column that is a key itself keeps its metadata.
    if any(field.metadata and texts[field.name] != quoted(field.name) for field in changes.schema.fields):
        return left.select(
            *(F.expr(texts[field.name]).alias(field.name, metadata=field.metadata) for field in changes.schema.fields)
        )
    return left.selectExpr(*(f"{text} AS {quoted(name)}" for name, text in texts.items()))


def _group(fields: list[StructField], keys: dict[str, list[str]]) -> _Group:
    group = _Group([], {}, [])
    for position, field in enumerate(fields):
        if field.name not in keys:
            if field.name != CHANGE_TYPE:
                group.carried.append(field)
            continue
        first, *zero = keys[field.name]
        group.keys.append(first)
        if first == quoted(field.name):
            group.restored[field.name] = first
        else:
            group.carried.append(field)
        if zero:
            is_zero = unused(f"_zero_{position}", [other.name for other in fields])
            group.keys.append(F.expr(zero[0]).alias(is_zero))
            kind = field.dataType.simpleString()
            group.restored[field.name] = f"CASE WHEN {is_zero} THEN cast(-0.0D AS {kind}) ELSE {first} END"
    return group


def _survivors(carried: list[StructField], surplus: str, taken: list[str]) -> tuple[dict[str, str], str]:
    """What a group keeps of its rows on either side, by name, and the array of those that survive it, in SQL."""
    times, is_delete = f"cast(abs({surplus}) AS int)", f"NOT ({IS_INSERT})"
    inserted, deleted = unused("_inserted", taken), unused("_deleted", taken)
    if not all(isinstance(field.dataType, LongType) for field in carried):
        row = ", ".join(f"'value{position}', {quoted(field.name)}" for position, field in enumerate(carried))
        sides = {inserted: IS_INSERT, deleted: is_delete}
        kept = {side: f"collect_list(CASE WHEN {of} THEN named_struct({row}) END)" for side, of in sides.items()}
        return kept, f"slice(if({surplus} > 0, {inserted}, {deleted}), 1, {times})"
    # Numbers can be kept in place, which is what lets Spark take a hash aggregate.
    kept, values = {}, ["'none', 0"]
    for position, field in enumerate(carried):
        ours, theirs = unused(f"{inserted}{position}", taken), unused(f"{deleted}{position}", taken)
        kept[ours] = f"max(CASE WHEN {IS_INSERT} THEN {quoted(field.name)} END)"
        kept[theirs] = f"max(CASE WHEN {is_delete} THEN {quoted(field.name)} END)"
        survivor = f"if({surplus} > 0, {ours}, {theirs})"
        # Spark cannot know that the side which survives has rows, so a column without nulls is said to be one.
        values.append(f"'value{position}', {survivor if field.nullable else f'coalesce({survivor}, 0L)'}")
    return kept, f"array_repeat(named_struct({', '.join(values)}), {times})"


def _output(field: StructField, group: _Group, surplus: str, row: str) -> str:
    if field.name == CHANGE_TYPE:
        # Without an ELSE it stays nullable.
        deleted = f"WHEN {surplus} < 0 THEN '{DELETE}'" if field.nullable else f"ELSE '{DELETE}'"
        return f"CASE WHEN {surplus} > 0 THEN '{INSERT}' {deleted} END"
    return group.restored.get(field.name) or f"{row}.value{group.carried.index(field)}"
