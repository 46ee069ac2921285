"""Merge the changes of each identifier into one: what is left to do for its document.

An UPDATE arrives as a DELETE and an INSERT, and a document may change in several steps. For each identifier the last
step decides, and within a step the INSERT beats the DELETE:

    ====  =====  ============  ===============      ====  =====  ============  ===============
    id    delay  _change_type  _change_ordinal      id    delay  _change_type  _change_ordinal
    ====  =====  ============  ===============      ====  =====  ============  ===============
    1     10     DELETE        0                    1     12     INSERT        0
    1     12     INSERT        0               ->   2     7      DELETE        1
    2     7      INSERT        0
    2     7      DELETE        1
    ====  =====  ============  ===============      ====  =====  ============  ===============

The rows of each identifier are sorted in that order and the last one is kept. The changes of one row alternate between
INSERT and DELETE. So two neighbours of one type mean that two rows have the identifier, in one step or over several.

``merge_narrow_updates`` is the same for narrow rows, after ``remove_narrow_carryovers`` has marked such duplicates.
"""

from collections.abc import Sequence
from functools import partial

from pyspark.sql import Column, DataFrame, Window, functions as F

from icecdc_core.columns import (
    CHANGE_ORDINAL,
    CHANGE_TYPE,
    COMMIT_SNAPSHOT_ID,
    DELETE,
    IS_DUPLICATE,
    KIND,
    RESERVED,
    ROW_POSITION,
    ROWS,
    UPSERTED,
    WAS_THERE,
    identifier_name,
    is_insert,
    quoted,
    require_change_columns,
    resolve_identifiers,
    unused_name,
)
from icecdc_core.equality import canonical_value, with_canonical_columns, with_keys
from icecdc_core.errors import DUPLICATE_MESSAGE, ConfigError


def merge_updates(changes: DataFrame, identifier_columns: Sequence[str], on_duplicate: str = "fail") -> DataFrame:
    """Keep one row for each identifier: the last step decides, within a step INSERT beats DELETE.

    Nulls in identifiers are equal to each other. After ``shuffle_by_identifiers`` this adds no exchange, unless an
    identifier is a float, a double or a string with a collation.

    Args:
        changes: Change rows, see ``read_changes``; carryovers should be removed.
        identifier_columns: The columns that identify a row.
        on_duplicate: ``fail``: two rows of one identifier, equal or not, end the query with an error that says
            "duplicate identifier" and shows it. ``last``: the row with the greatest values, column by column, is kept,
            a variant by its JSON text, which does not depend on the order of files or rows.

    Returns:
        One row per identifier, with the columns of ``changes``.

    Raises:
        ColumnNotFoundError: ``_change_type`` or ``_change_ordinal`` is missing.
        IdentifierColumnsError: The identifier columns are missing, given twice or nested.
        ConfigError: ``on_duplicate`` is neither ``fail`` nor ``last``.
    """
    return net_rows(changes, identifier_columns, on_duplicate).select(*map(quoted, changes.columns))


def net_rows(changes: DataFrame, identifier_columns: Sequence[str], on_duplicate: str = "fail") -> DataFrame:
    """Return the rows of ``merge_updates``, and whether the first change of each identifier is a DELETE."""
    if on_duplicate not in ("fail", "last"):
        raise ConfigError(
            f"Unknown policy {on_duplicate!r}", subject="on_duplicate", value=on_duplicate, remedy="use fail or last"
        )
    require_change_columns(changes)
    names = resolve_identifiers(changes, identifier_columns)
    by_values = on_duplicate == "last"
    others = [name for name in changes.columns if by_values and name not in (*names, *RESERVED)]
    rows, keys = with_keys(changes, [changes.schema[name] for name in (*names, *others)])
    identifier = [key for name in names for key in keys[name]]
    latest_first: list[Column | str] = [CHANGE_ORDINAL, is_insert()]
    rows, numbers = with_canonical_columns(
        rows, [changes.schema[name] for name in others], partial(canonical_value, keep_floats=True)
    )
    for name in others:
        latest_first += [numbers[name]] if numbers[name] != quoted(name) else []
        latest_first += keys[name]
    # Rows with equal values may differ in these, and the choice must not depend on the order of files.
    latest_first += [name for name in (COMMIT_SNAPSHOT_ID, ROW_POSITION) if by_values and name in changes.columns]
    window = Window.partitionBy(*identifier).orderBy(*map(F.desc, latest_first))
    later = unused_name("_later_is_insert", rows.columns)
    keep = F.col(later).isNull()
    if not by_values:
        keep = keep_unless_duplicate(F.col(later) == is_insert(), keep, names)
    every = window.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    found = {later: F.lag(is_insert()).over(window), WAS_THERE: ~F.last(is_insert()).over(every)}
    return rows.withColumns(found).where(keep).select(*map(quoted, changes.columns), WAS_THERE)


def keep_unless_duplicate(duplicate: Column, keep: Column, names: Sequence[str]) -> Column:
    """Return a condition that ends the query at a duplicate: Spark would prune a column together with its error."""
    identifier = F.struct(*(F.col(quoted(name)).cast("string").alias(identifier_name(name)) for name in names))
    shown = F.to_json(identifier, {"ignoreNullFields": "false"})
    message = F.concat(F.lit(f"{DUPLICATE_MESSAGE}: two rows have "), shown)
    return F.when(duplicate, F.raise_error(message).cast("boolean")).otherwise(keep)


# The step and the kind in one number, whose maximum is the last step.
_DECISION, _KINDS = "_icecdc_decision", 4

IS_UPSERTED = f"(NOT {IS_DUPLICATE} AND {_DECISION} % {_KINDS} = {UPSERTED})"
IS_DELETED = f"(NOT {IS_DUPLICATE} AND {_DECISION} % {_KINDS} <> {UPSERTED})"
DECIDING_STEP = f"cast(floor({_DECISION} / {_KINDS}) AS int)"
"""SQL texts for rows of ``merge_narrow_updates``: what is left to do (nothing for a duplicate), and by which step."""


def first_is_delete(insert: str) -> str:
    """Return an aggregate that says whether the first change is a DELETE, which comes before an INSERT of its step."""
    return f"min({CHANGE_ORDINAL} * 2 + cast({insert} AS int)) % 2 = 0"


def with_deletes(
    rows: DataFrame, identifiers: DataFrame, identifier_columns: Sequence[str], step: str = DECIDING_STEP
) -> DataFrame:
    """Add a DELETE row for each of the changed identifiers, whose other columns are null."""
    change = (f"'{DELETE}' AS {CHANGE_TYPE}", f"{step} AS {CHANGE_ORDINAL}")
    deletes = identifiers.selectExpr(*map(quoted, identifier_columns), *change, WAS_THERE)
    return rows.unionByName(deletes, allowMissingColumns=True)


def merge_narrow_updates(steps: DataFrame, identifier_columns: Sequence[str], only_step: int | None) -> DataFrame:
    """Keep one row for each identifier of ``remove_narrow_carryovers``: the last step decides."""
    ids = [quoted(name) for name in identifier_columns]
    if only_step is not None:
        return steps.selectExpr(*ids, f"{only_step * _KINDS} + {KIND} AS {_DECISION}", IS_DUPLICATE, WAS_THERE, ROWS)
    return steps.groupBy(*ids).agg(
        F.expr(f"max({CHANGE_ORDINAL} * {_KINDS} + {KIND}) AS {_DECISION}"),
        F.expr(f"max({IS_DUPLICATE}) AS {IS_DUPLICATE}"),
        F.expr(f"{first_is_delete(f'NOT {WAS_THERE}')} AS {WAS_THERE}"),
        F.expr(f"sum({ROWS}) AS {ROWS}"),
    )
