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

So the rows of each identifier are sorted, the last step and its INSERT first, and the first row of each is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from icecdc_core.columns import (
    CHANGE_ORDINAL,
    COMMIT_SNAPSHOT_ID,
    RESERVED,
    ROW_POSITION,
    identifier_name,
    is_insert,
    quoted,
    require_change_columns,
    resolve_identifiers,
    unused_name,
)
from icecdc_core.equality import with_keys
from icecdc_core.errors import DUPLICATE_MESSAGE, ConfigError

POLICIES = ("fail", "last")


def merge_updates(changes: DataFrame, identifier_columns: Sequence[str], on_duplicate: str = "fail") -> DataFrame:
    """Keep one row for each identifier: the last step decides, within a step INSERT beats DELETE.

    Equal INSERT rows of one identifier within one step collapse into one; different ones mean that the identifier
    columns do not identify. Nulls in identifiers are equal to each other. After ``shuffle_by_identifiers`` this adds
    no exchange.

    Args:
        changes: Change rows, see ``read_changes``; carryovers should be removed.
        identifier_columns: The columns that identify a row.
        on_duplicate: ``fail``: different INSERT rows of one identifier within one step, in any step, end the query
            with an error that says "duplicate identifier" and shows it. ``last``: the row with the greatest values,
            column by column, is kept, which does not depend on the order of files or rows.

    Returns:
        One row per identifier, with the columns of ``changes``.

    Raises:
        ColumnNotFoundError: ``_change_type`` or ``_change_ordinal`` is missing.
        IdentifierColumnsError: The identifier columns are missing, given twice or nested.
        ConfigError: ``on_duplicate`` is neither ``fail`` nor ``last``.
    """
    if on_duplicate not in POLICIES:
        raise ConfigError(
            f"Unknown policy {on_duplicate!r}", subject="on_duplicate", value=on_duplicate, remedy="use fail or last"
        )
    require_change_columns(changes)
    names = resolve_identifiers(changes, identifier_columns)
    fields = [field for field in changes.schema.fields if field.name in names or field.name not in RESERVED]
    rows, keys = with_keys(changes, fields)
    identifier = [key for name in names for key in keys[name].columns()]
    values = [key for field in fields if field.name not in names for key in keys[field.name].columns()]
    # Rows with equal values may differ in these, and the choice must not depend on the order of files.
    ties = [name for name in (COMMIT_SNAPSHOT_ID, ROW_POSITION) if on_duplicate == "last" and name in changes.columns]
    latest_first = [F.desc(key) for key in (CHANGE_ORDINAL, is_insert(), *values, *ties)]
    window = Window.partitionBy(*identifier).orderBy(*latest_first)
    kept = _first(rows, window) if on_duplicate == "last" else _first_unless_duplicate(rows, window, names)
    return kept.select(*(quoted(name) for name in changes.columns))


def _first(rows: DataFrame, window: WindowSpec) -> DataFrame:
    number = unused_name("_row_number", rows.columns)
    return rows.withColumn(number, F.row_number().over(window)).where(F.col(number) == 1)


def _first_unless_duplicate(rows: DataFrame, window: WindowSpec, names: Sequence[str]) -> DataFrame:
    """Keep the first row of each identifier; two different INSERT rows of one step end the query.

    INSERT rows of one step follow each other, and equal ones share a rank. So a row with a rank of its own, right after
    another row of its step, differs from that one.
    """
    number, rank, step_before = (
        unused_name(name, rows.columns) for name in ("_row_number", "_rank", "_ordinal_before")
    )
    numbered = rows.withColumns(
        {
            number: F.row_number().over(window),
            rank: F.rank().over(window),
            step_before: F.lag(CHANGE_ORDINAL).over(window),
        }
    )
    differs = (F.col(rank) == F.col(number)) & (F.col(step_before) == F.col(CHANGE_ORDINAL))
    reason = "two different rows were inserted in one step with "
    return numbered.where(keep_unless_duplicate(is_insert() & differs, F.col(number) == 1, names, reason))


def keep_unless_duplicate(duplicate: Column, keep: Column, names: Sequence[str], reason: str) -> Column:
    """Return a condition for ``where`` that ends the query at a duplicate, with an error that shows its identifier.

    A condition, because Spark would prune an unread column together with its error.
    """
    identifier = F.struct(*(F.col(quoted(name)).cast("string").alias(identifier_name(name)) for name in names))
    message = F.concat(F.lit(f"{DUPLICATE_MESSAGE}: {reason}"), F.to_json(identifier, {"ignoreNullFields": "false"}))
    return F.when(duplicate, F.raise_error(message).cast("boolean")).otherwise(keep)
