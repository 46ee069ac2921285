"""Remove carryovers: rows that a rewritten file deletes and inserts again unchanged.

A copy-on-write UPDATE of one row rewrites its whole file, so every other row of that file shows up as a DELETE and an
equal INSERT. Within one step equal rows cancel one for one, as in a multiset:

    ====  =====  ============  ===============      ====  =====  ============  ===============
    id    delay  _change_type  _change_ordinal      id    delay  _change_type  _change_ordinal
    ====  =====  ============  ===============      ====  =====  ============  ===============
    1     10     DELETE        0                    2     7      DELETE        0
    2     7      DELETE        0               ->   2     9      INSERT        0
    1     10     INSERT        0
    2     9      INSERT        0
    ====  =====  ============  ===============      ====  =====  ============  ===============

Rows are grouped by all their values. The surplus of a group is its INSERTs minus its DELETEs: a positive surplus
leaves as many inserted rows, a negative one as many deleted rows.

``remove_narrow_carryovers`` is the same for narrow rows (``changes.narrow_rows``), which are an identifier and a number
of 63 bits of hash and the side as the last bit. The number of rows of one identifier and step, and the XOR of their
numbers, show what the step did:

    ==  ====  ======  =====      ==  ====  ====  =====  =================================
    id  step  side    hash       id  step  rows  xor
    ==  ====  ======  =====      ==  ====  ====  =====  =================================
    1   0     DELETE  a5         1   0     2     1      a carryover: equal hashes cancel
    1   0     INSERT  a5    ->   2   0     2     odd    an upsert
    2   0     DELETE  17         3   0     1     even   a delete
    2   0     INSERT  c4
    3   0     DELETE  90
    ==  ====  ======  =====      ==  ====  ====  =====  =================================
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, functions as F
from pyspark.sql.types import LongType, StructField

from icecdc_core.columns import (
    CHANGE_ORDINAL,
    CHANGE_TYPE,
    DELETE,
    DELETED,
    INSERT,
    IS_DUPLICATE,
    KIND,
    NUMBER,
    RESERVED,
    ROWS,
    UPSERTED,
    WAS_THERE,
    is_insert,
    quoted,
    require_change_columns,
    unused_name,
)
from icecdc_core.equality import Keys, with_keys


def remove_carryovers(changes: DataFrame) -> DataFrame:
    """Cancel equal DELETE and INSERT rows of one step, one for one; extra duplicates stay.

    Rows are equal if all the table's columns are, whatever their types: null equals null, NaN equals NaN, binary is
    compared by its bytes, maps irrespective of the order of their entries, at any depth; -0.0 and 0.0 differ, as their
    texts do. ``_commit_snapshot_id`` and ``_row_position`` are not compared. Values are not changed.

    Runs as a hash aggregate unless a column is a map or variant or nests floats. It adds one exchange; after
    `shuffle_by_identifiers` only if an identifier is a float, a double or a string with a collation.

    Args:
        changes: Rows with ``_change_type`` and ``_change_ordinal``, as `read_changes` returns them.

    Returns:
        The rows that remain, with the columns of ``changes`` in the same order.

    Raises:
        ColumnNotFoundError: ``_change_type`` or ``_change_ordinal`` is missing.
    """
    require_change_columns(changes)
    fields = changes.schema.fields
    compared = [field for field in fields if field.name not in RESERVED or field.name == CHANGE_ORDINAL]
    rows, keys = with_keys(changes, compared)
    group_keys, restored = _group_keys(compared, keys, changes.columns)
    carried = [field for field in fields if field.name not in restored and field.name != CHANGE_TYPE]
    surplus_name, row = unused_name("_surplus", changes.columns), unused_name("_row", changes.columns)
    surplus = F.col(surplus_name)
    aggregates, remaining = _remaining_rows(carried, surplus, changes.columns)
    balance = F.sum(F.when(is_insert(), 1).otherwise(-1)).alias(surplus_name)
    groups = rows.groupBy(*group_keys).agg(balance, *aggregates).where(surplus != 0)
    change_type = F.when(surplus > 0, INSERT).when(surplus < 0, DELETE)  # without `otherwise` it may be null
    if not changes.schema[CHANGE_TYPE].nullable:
        change_type = F.when(surplus > 0, INSERT).otherwise(DELETE)
    values = {**restored, CHANGE_TYPE: change_type}
    values |= {field.name: F.col(row).getField(f"value{position}") for position, field in enumerate(carried)}
    named = [
        each if isinstance(each := values[field.name], str) else each.alias(field.name, metadata=field.metadata or None)
        for field in fields
    ]
    return groups.select("*", F.explode(remaining).alias(row)).select(*named)


def _group_keys(
    fields: Sequence[StructField], keys: Mapping[str, Keys], taken: Sequence[str]
) -> tuple[list[Column | str], dict[str, Column | str]]:
    """Return the keys to group by, and by name the columns whose values can be restored from them."""
    group_keys: list[Column | str] = []
    restored: dict[str, Column | str] = {}
    for position, field in enumerate(fields):
        name, *flags = keys[field.name]
        group_keys.append(name)
        if name == quoted(field.name):
            restored[field.name] = name
        for is_negative_zero in flags:  # Spark groups -0.0 with 0.0, and returns 0.0
            flag = unused_name(f"_negative_zero_{position}", taken)
            group_keys.append(is_negative_zero.alias(flag))
            restored[field.name] = F.when(F.col(flag), F.lit(-0.0).cast(field.dataType)).otherwise(F.col(name))
    return group_keys, restored


def _remaining_rows(
    carried: Sequence[StructField], surplus: Column, taken: Sequence[str]
) -> tuple[list[Column], Column]:
    """Return what each group keeps of the columns that its keys do not restore, and the array of rows that remain."""
    times = F.abs(surplus).cast("int")
    inserted, deleted = unused_name("_inserted", taken), unused_name("_deleted", taken)
    if not all(isinstance(field.dataType, LongType) for field in carried):
        row = F.struct(*(F.col(quoted(field.name)).alias(f"value{n}") for n, field in enumerate(carried)))
        aggregates = [F.collect_list(F.when(is_insert(), row)).alias(inserted)]
        aggregates += [F.collect_list(F.when(~is_insert(), row)).alias(deleted)]
        return aggregates, F.slice(F.when(surplus > 0, F.col(inserted)).otherwise(F.col(deleted)), F.lit(1), times)
    # Longs need no list, which allows a hash aggregate.
    aggregates, values = [], [F.lit(0).alias("none")]
    for n, field in enumerate(carried):
        value, names = F.col(quoted(field.name)), [unused_name(f"{side}_{n}", taken) for side in (inserted, deleted)]
        aggregates.append(F.max(F.when(is_insert(), value)).alias(names[0]))
        aggregates.append(F.max(F.when(~is_insert(), value)).alias(names[1]))
        remaining = F.when(surplus > 0, F.col(names[0])).otherwise(F.col(names[1]))
        # The side that remains has rows, so its maximum is null only if the column has nulls.
        values.append((remaining if field.nullable else F.coalesce(remaining, F.lit(0))).alias(f"value{n}"))
    return aggregates, F.array_repeat(F.struct(*values), times)


_XOR, _LEFT_BEFORE = "_icecdc_xor", "_icecdc_left_before"
_HAS_INSERT = f"({_XOR} & 1) = 1"
_HAS_DELETE = f"({ROWS} = 2 OR NOT {_HAS_INSERT})"
_IS_CARRYOVER = f"({ROWS} = 2 AND {_XOR} = 1)"
_TWO_ON_ONE_SIDE = f"NOT ({ROWS} = 1 OR ({ROWS} = 2 AND {_HAS_INSERT}))"
# A step deletes a row exactly if the step before left one.
_TWO_IN_ROW = f"coalesce({_HAS_DELETE} <> {_LEFT_BEFORE}, false)"


def remove_narrow_carryovers(narrow: DataFrame, identifier_columns: Sequence[str], with_step: bool) -> DataFrame:
    """Return what each step, if there are several, did to each identifier; those of two rows are marked."""
    ids = [quoted(name) for name in identifier_columns]
    step = [CHANGE_ORDINAL] if with_step else []
    groups = narrow.groupBy(*ids, *step).agg(F.count(F.lit(1)).alias(ROWS), F.bit_xor(NUMBER).alias(_XOR))
    duplicate = _TWO_ON_ONE_SIDE
    if with_step:
        before = f"lag({_HAS_INSERT}) OVER (PARTITION BY {', '.join(ids)} ORDER BY {CHANGE_ORDINAL})"
        groups = groups.selectExpr("*", f"{before} AS {_LEFT_BEFORE}")
        duplicate = f"({_TWO_ON_ONE_SIDE} OR {_TWO_IN_ROW})"
    kind = f"if({_HAS_INSERT}, {UPSERTED}, {DELETED}) AS {KIND}"
    changed = groups.where(f"NOT {_IS_CARRYOVER} OR {duplicate}")
    return changed.selectExpr(
        *ids, *step, kind, f"{duplicate} AS {IS_DUPLICATE}", f"{_HAS_DELETE} AS {WAS_THERE}", ROWS
    )
