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

from icecdc_core.columns import (
    CHANGE_ORDINAL,
    CHANGE_TYPE,
    COMMIT_SNAPSHOT_ID,
    INSERT,
    RESERVED,
    ROW_POSITION,
    quoted,
    require_change_columns,
    resolve_identifiers,
    unused,
)
from icecdc_core.equality import is_floating, is_own_key, keys_of
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
    inserted = F.col(CHANGE_TYPE) == F.lit(INSERT)
    newest_first = [F.col(CHANGE_ORDINAL).desc(), inserted.desc()]
    same_identifier = Window.partitionBy(*(key for name in names for key in keys_of(changes.schema[name])))
    own = [field for field in changes.schema.fields if field.name not in (*names, *RESERVED)]
    # A map's key is made once, as a column: Spark takes a lambda for a new expression wherever it stands, and would
    # sort for each. The other keys are cheap, and as columns they would widen every row.
    made = {
        field.name: (unused(f"_key_{number}", changes.columns), keys_of(field)[0])
        for number, field in enumerate(own)
        if not (is_own_key(field.dataType) or is_floating(field.dataType))
    }
    helper_keys = dict(made.values())
    greatest_first = [
        key.desc() for field in own for key in ([F.col(made[field.name][0])] if field.name in made else keys_of(field))
    ]
    row, rank, before = (unused(name, changes.columns) for name in ("_row", "_rank", "_ordinal_before"))
    if on_duplicate == "last":
        # Equal rows may still differ in these, and the choice must not depend on the order of files.
        ties = [F.col(name).desc() for name in (COMMIT_SNAPSHOT_ID, ROW_POSITION) if name in changes.columns]
        ordered = same_identifier.orderBy(*newest_first, *greatest_first, *ties)
        numbered = changes.withColumns(helper_keys).withColumn(row, F.row_number().over(ordered))
        return numbered.where(F.col(row) == F.lit(1)).drop(row, *helper_keys)
    # Rows of one step and kind are neighbours in this order, and equal ones share a rank. So a row that has a rank
    # of its own, right after another row of its step, is different from that one.
    ordered = same_identifier.orderBy(*newest_first, *greatest_first)
    helpers = {row: F.row_number(), rank: F.rank(), before: F.lag(CHANGE_ORDINAL)}
    windowed = {name: function.over(ordered) for name, function in helpers.items()}
    numbered = changes.withColumns(helper_keys).withColumns(windowed)
    differs = (F.col(rank) == F.col(row)) & (F.col(before) == F.col(CHANGE_ORDINAL))
    duplicate = F.coalesce(inserted & differs, F.lit(False))
    # In the filter, because a column that nobody reads would be pruned together with its error.
    wanted = F.when(duplicate, F.raise_error(_message(names)).cast("boolean")).otherwise(F.col(row) == F.lit(1))
    return numbered.where(wanted).drop(*helpers, *helper_keys)


def _message(names: Sequence[str]) -> Column:
    values = F.struct(*(F.col(quoted(name)).cast("string").alias(name) for name in names))
    shown = F.to_json(values, {"ignoreNullFields": "false"})
    return F.concat(F.lit("duplicate identifier: two different rows were inserted in one step with "), shown)
