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
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from icecdc_core.columns import (
    CHANGE_ORDINAL,
    CHANGE_TYPE,
    COMMIT_SNAPSHOT_ID,
    INSERT,
    quoted,
    require_change_columns,
    resolve_identifiers,
)
from icecdc_core.equality import keys
from icecdc_core.errors import ConfigError

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
            with an error that says "duplicate identifier" and shows it. ``last``: the one with the greatest values,
            column by column, is taken, which does not depend on the order of files or rows.

    Returns:
        One row per identifier, with the columns of ``changes``.

    Raises:
        ColumnNotFoundError: The change columns are not there.
        IdentifierColumnsError: The identifier columns are missing, given twice or nested.
        ConfigError: ``on_duplicate`` is neither ``fail`` nor ``last``.
    """
    if on_duplicate not in POLICIES:
        raise ConfigError(
            f"Unknown policy {on_duplicate!r}", subject="on_duplicate", value=on_duplicate, remedy="use fail or last"
        )
    require_change_columns(changes)
    names = resolve_identifiers(changes, identifier_columns)
    fields = [field for field in changes.schema.fields if field.name not in (CHANGE_TYPE, COMMIT_SNAPSHOT_ID)]
    values = [key for field in fields if field.name not in (*names, CHANGE_ORDINAL) for key in _keys(field)]
    inserted = F.col(CHANGE_TYPE) == F.lit(INSERT)
    newest_first = [F.col(CHANGE_ORDINAL).desc(), inserted.desc()]
    same_identifier = Window.partitionBy(*(F.col(quoted(name)) for name in names))
    # Rows of one step and kind are neighbours in this order, and of those the greatest comes first.
    ordered = same_identifier.orderBy(*newest_first, *(value.desc() for value in values))
    numbered = changes.withColumn("_row", F.row_number().over(ordered))
    if on_duplicate == "last":
        return numbered.where(F.col("_row") == F.lit(1)).drop("_row")
    before = {
        name: F.lag(column).over(ordered)
        for name, column in {
            "_ordinal_before": F.col(CHANGE_ORDINAL),
            "_type_before": F.col(CHANGE_TYPE),
            "_values_before": F.struct(F.lit(0).alias("none"), *_named(values)),
        }.items()
    }
    differs = ~F.col("_values_before").eqNullSafe(F.struct(F.lit(0).alias("none"), *_named(values)))
    same_step = (F.col("_ordinal_before") == F.col(CHANGE_ORDINAL)) & (F.col("_type_before") == F.lit(INSERT))
    duplicate = F.coalesce(inserted & same_step & differs, F.lit(False))
    # In the filter, because a column that nobody reads would be pruned together with its error.
    wanted = F.when(duplicate, F.raise_error(_message(names)).cast("boolean")).otherwise(F.col("_row") == F.lit(1))
    return numbered.withColumns(before).where(wanted).drop("_row", *before)


def _keys(field: StructField) -> list[Column]:
    return keys(F.col(quoted(field.name)), field.dataType)


def _named(values: list[Column]) -> list[Column]:
    return [value.alias(f"v{position}") for position, value in enumerate(values)]


def _message(names: Sequence[str]) -> Column:
    shown = F.to_json(F.struct(*(F.col(quoted(name)).cast("string").alias(name) for name in names)))
    return F.concat(F.lit("duplicate identifier: two different rows were inserted in one step with "), shown)
