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

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from icecdc_core.columns import (
    CHANGE_ORDINAL,
    COMMIT_SNAPSHOT_ID,
    IS_INSERT,
    RESERVED,
    ROW_POSITION,
    quoted,
    require_change_columns,
    resolve_identifiers,
    unused,
    with_literal_names,
)
from icecdc_core.equality import keyed
from icecdc_core.errors import ConfigError

POLICIES = ("fail", "last")

DUPLICATE = "duplicate identifier"
"""What the errors of duplicate identifiers say."""

UNCHANGED = "_icecdc_unchanged"
"""Whether an update left its row as it was, see ``unique_changes``."""


@with_literal_names
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
    own = [field for field in changes.schema.fields if field.name not in (*names, *RESERVED)]
    rows, keys = keyed(changes, [*(changes.schema[name] for name in names), *own])
    helper_keys = [name for name in rows.columns if name not in changes.columns]
    order = [CHANGE_ORDINAL, f"({IS_INSERT})", *(key for field in own for key in keys[field.name])]
    row, rank, before = (unused(name, rows.columns) for name in ("_row", "_rank", "_ordinal_before"))
    # Equal rows may still differ in these, and the choice must not depend on the order of files.
    ties = [name for name in (COMMIT_SNAPSHOT_ID, ROW_POSITION) if name in changes.columns]
    order += ties if on_duplicate == "last" else []
    over = f"OVER ({_of_one(names, keys)} ORDER BY {', '.join(f'{key} DESC' for key in order)})"
    if on_duplicate == "last":
        numbered = rows.selectExpr("*", f"row_number() {over} AS {row}")
        return numbered.where(f"{row} = 1").drop(row, *helper_keys)
    # Rows of one step and kind are neighbours in this order, and equal ones share a rank. So a row that has a rank
    # of its own, right after another row of its step, is different from that one.
    helpers = {row: "row_number()", rank: "rank()", before: f"lag({CHANGE_ORDINAL})"}
    numbered = rows.selectExpr("*", *(f"{function} {over} AS {name}" for name, function in helpers.items()))
    duplicate = F.expr(f"coalesce({IS_INSERT} AND {rank} = {row} AND {before} = {CHANGE_ORDINAL}, false)")
    text = f"{DUPLICATE}: two different rows were inserted in one step with "
    # In the filter, because a column that nobody reads would be pruned together with its error.
    wanted = F.when(duplicate, F.raise_error(_message(names, text)).cast("boolean")).otherwise(F.expr(f"{row} = 1"))
    return numbered.where(wanted).drop(*helpers, *helper_keys)


def unique_changes(changes: DataFrame, identifier_columns: Sequence[str], compare: bool = False) -> DataFrame:
    """Keep one row for each identifier and step: its INSERT, or its DELETE if there is no INSERT.

    For identifiers that have to be unique. In the order of steps, DELETE before INSERT, the changes of one row
    alternate: an INSERT after an INSERT, or a DELETE after a DELETE, means that two rows have the identifier, whether
    equal or not. ``merge_updates`` and ``remove_carryovers`` cannot see that, as they collapse and cancel equal rows.
    After ``shuffle_by_identifiers`` this adds no exchange.

    Args:
        changes: Change rows, see ``read_changes``; carryovers may be in it. Two rows of one identifier end the query
            with an error that says "duplicate identifier" and shows it, unless a part of the identifier is null.
        identifier_columns: The columns that identify a row.
        compare: Add ``_icecdc_unchanged``: whether an INSERT equals the DELETE of its step.
    """
    names = resolve_identifiers(changes, identifier_columns)
    own = [field for field in changes.schema.fields if field.name not in RESERVED and field.name not in names]
    rows, keys = keyed(changes, [*(changes.schema[name] for name in names), *(own if compare else [])])
    over = f"OVER ({_of_one(names, keys)} ORDER BY {CHANGE_ORDINAL} DESC, ({IS_INSERT}) DESC)"
    step, side = (unused(name, rows.columns) for name in ("_ordinal_after", "_is_insert_after"))
    helpers = {step: f"lag({CHANGE_ORDINAL}) {over}", side: f"lag({IS_INSERT}) {over}"}
    if compare:
        values = f"struct({', '.join([CHANGE_ORDINAL, *(key for field in own for key in keys[field.name])])})"
        helpers[UNCHANGED] = f"{IS_INSERT} AND coalesce(lead({values}) {over} = {values}, false)"
    numbered = rows.selectExpr("*", *(f"{value} AS {name}" for name, value in helpers.items()))
    no_null = " AND ".join(f"{quoted(name)} IS NOT NULL" for name in names)
    duplicate = F.expr(f"coalesce({side} = ({IS_INSERT}), false) AND {no_null}")
    message = _message(names, f"{DUPLICATE}: two rows have ")
    last_of_step = F.expr(f"NOT coalesce({step} = {CHANGE_ORDINAL}, false)")
    wanted = F.when(duplicate, F.raise_error(message).cast("boolean")).otherwise(last_of_step)
    return numbered.where(wanted).drop(step, side, *(name for name in rows.columns if name not in changes.columns))


def last_changes(changes: DataFrame, identifier_columns: Sequence[str]) -> DataFrame:
    """Keep one row for each identifier, that of its last step; of each step there is one, see ``unique_changes``."""
    names = resolve_identifiers(changes, identifier_columns)
    rows, keys = keyed(changes, [changes.schema[name] for name in names])
    later = unused("_later_ordinal", rows.columns)
    over = f"OVER ({_of_one(names, keys)} ORDER BY {CHANGE_ORDINAL} DESC)"
    numbered = rows.selectExpr("*", f"lag({CHANGE_ORDINAL}) {over} AS {later}")
    return numbered.where(f"{later} IS NULL").select(*(quoted(name) for name in changes.columns))


def _of_one(names: Sequence[str], keys: Mapping[str, list[str]]) -> str:
    return f"PARTITION BY {', '.join(key for name in names for key in keys[name])}"


def _message(names: Sequence[str], text: str) -> Column:
    values = F.struct(*(F.col(quoted(name)).cast("string").alias(name) for name in names))
    shown = F.to_json(values, {"ignoreNullFields": "false"})
    return F.concat(F.lit(text), shown)
