"""Upserts: the last record of each identifier, and its merge into the table, see docs/kafka.md."""

from collections.abc import Sequence
from functools import reduce
from operator import and_, or_
from typing import Any

from pyspark.sql import Column, DataFrame, Window, WindowSpec, functions as F
from pyspark.sql.types import StructType

from icecdc_core.columns import quoted
from icecdc_core.ingest.config import IngestConfig
from icecdc_core.ingest.formats.decode_results import IS_DELETE, parse_object, wrapped_record
from icecdc_core.ingest.inference import find_spellings
from icecdc_core.ingest.readers import struct_reader
from icecdc_core.session.jvm import java_helper

IDENTIFIER, ORDER, CLEARED = "_icecdc_id_", "_icecdc_order", "_icecdc_cleared"
"""Columns of `last_row_of_each`: each identifier column, numbered; the ordering value; whether a delete has none."""

DELETED_AT, CLEARED_AT, KEPT_ORDER = "_icecdc_deleted_at", "_icecdc_cleared_at", "_icecdc_kept_order"
"""The time of a delete, that of the last one without ordering value, and the ordering value of the upsert before it."""

_SOURCE, _RANK, _CHANGE, _KEPT = "_icecdc_source_", "_icecdc_rank", "_icecdc_change", "_icecdc_kept"
_UNTIL = Window.unboundedPreceding, Window.currentRow


def old_identifiers(
    rows: DataFrame, identifiers: Sequence[str], schema: StructType, settings: IngestConfig
) -> tuple[dict[str, Column], Column]:
    """Return the identifier of the row before an update, and whether it is known and another one."""
    kinds = StructType([column for column in schema if column.name in identifiers])
    any_case = settings.column_case != "sensitive"
    spellings = find_spellings(rows.select(F.col("before").alias("payload")), kinds) if any_case else None
    reader = struct_reader(kinds, F.col("before"), spellings, settings=settings)
    parsed = parse_object(F.col("before"), reader.json_type)
    old = reader.row(wrapped_record(parsed))  # null for a value that is missing or does not fit
    own = {f"{IDENTIFIER}{number}": column for number, column in enumerate(identifiers)}
    then = {name: old.getField(column) if column in kinds.names else F.col(name) for name, column in own.items()}
    is_known = reduce(and_, (value.isNotNull() for value in then.values()))
    is_other = reduce(or_, (~F.col(name).eqNullSafe(value) for name, value in then.items()))
    return then, F.coalesce(is_known & is_other, F.lit(False))


def delete_old_identifiers(rows: DataFrame, then: dict[str, Column], is_other: Column) -> DataFrame:
    """Add a delete of the old row, with the same offset, to each update that gave its row another identifier."""
    delete = F.struct(*(value.alias(name) for name, value in then.items()), F.lit("delete").alias("op"))
    changes = F.array_compact(F.array(F.struct(*then, "op"), F.when(is_other, delete)))
    replaced = {name: F.col(_CHANGE).getField(name) for name in (*then, "op")}
    return rows.withColumn(_CHANGE, F.explode(changes)).withColumns(replaced).drop(_CHANGE, "before")


def _windows(rows: DataFrame) -> tuple[WindowSpec, WindowSpec]:
    """All records of an identifier, and those of it in one partition."""
    own = [F.col(name) for name in rows.columns if name.startswith(IDENTIFIER)]
    return Window.partitionBy(*own), Window.partitionBy(*own, "topic", "partition")


def in_order(rows: DataFrame, has_order: bool) -> DataFrame:
    """Give each row its place in the order of its identifier: a delete without ordering value gets one."""
    of_identifier, of_partition = _windows(rows)
    ordered = rows.withColumn(CLEARED, F.lit(False))
    if has_order:
        unordered = F.expr(IS_DELETE) & F.col(ORDER).isNull()
        highest = F.greatest(
            F.max(ORDER).over(of_partition.orderBy("offset").rowsBetween(*_UNTIL)),
            F.max(ORDER).over(of_identifier.orderBy("timestamp").rangeBetween(*_UNTIL)),
        )
        filled = F.when(unordered, highest).otherwise(F.col(ORDER))
        cleared_at = F.max(F.when(unordered, F.col("timestamp"))).over(of_identifier)
        cleared = {CLEARED: F.bool_or(unordered).over(of_identifier), CLEARED_AT: cleared_at}
        ordered = ordered.withColumns({**cleared, ORDER: filled})
    return ordered


def last_row_of_each(rows: DataFrame, has_order: bool = True, kept: Sequence[str] = ()) -> DataFrame:
    """Keep the last row of each identifier, as docs/kafka.md ("Upserts and deletes") defines it.

    A delete gets the `kept` columns of the upsert before it.
    """
    of_identifier, of_partition = _windows(rows)
    newest = F.desc_nulls_last(ORDER)
    in_partition = of_partition.orderBy(newest, F.desc("offset"))
    over_all = of_identifier.orderBy(newest, F.desc("timestamp"), F.desc("partition"), F.desc("offset"))
    ordered, is_delete = in_order(rows, has_order), F.expr(IS_DELETE)
    place = ORDER, "timestamp", "partition", "offset"
    if kept:
        is_newest = F.col(ORDER) == F.max(ORDER).over(of_partition.orderBy("offset").rowsBetween(*_UNTIL))
        order = F.when(~is_delete & is_newest, F.struct(ORDER, "offset"))
        upsert = F.struct(*dict.fromkeys((*place, *kept)))
        ordered = ordered.withColumn(_RANK, order).withColumn(_KEPT, F.max_by(upsert, _RANK).over(of_partition))
    first = ordered.withColumn(_RANK, F.row_number().over(in_partition)).where(F.col(_RANK) == 1)
    if kept:
        order = F.struct(*(F.col(_KEPT)[name] for name in place))
        first = first.withColumn(_KEPT, F.max_by(_KEPT, order).over(of_identifier))
    last = first.withColumn(_RANK, F.row_number().over(over_all)).where(F.col(_RANK) == 1).drop(_RANK)
    if not kept:
        return last
    values = {name: F.when(F.col(_KEPT).isNull(), F.col(name)).otherwise(F.col(_KEPT)[name]) for name in kept}
    times = {DELETED_AT: F.when(is_delete, F.col("timestamp"))}
    return last.withColumns({**values, **times, KEPT_ORDER: F.col(_KEPT)[ORDER]}).drop(_KEPT)


def merge_rows(
    last: DataFrame,
    name: str,
    columns: dict[str, Column],
    identifiers: Sequence[str],
    ordering: str,
    properties: dict[str, str],
    deleted_column: str = "",
) -> None:
    alias = {column: f"{_SOURCE}{number}" for number, column in enumerate(columns)}
    deleted = F.expr(IS_DELETE)
    values = [value.alias(alias[column]) for column, value in columns.items()]
    flags = {"deleted": deleted, "order": F.col(ORDER), "cleared": F.col(CLEARED)}
    if deleted_column:
        flags |= {"at": F.col(DELETED_AT), "kept": F.col(KEPT_ORDER)}
        flags |= {"cleared_at": F.col(CLEARED_AT)} if ordering else {}
    source = last.select(*values, *(value.alias(f"{_SOURCE}{key}") for key, value in flags.items()))
    same = reduce(and_, (F.col(quoted(column)) == F.col(alias[column]) for column in identifiers))
    deleted, cleared = F.col(f"{_SOURCE}deleted"), F.col(f"{_SOURCE}cleared")

    def is_newer(order: Column) -> Column:
        theirs = F.col(quoted(ordering)) if ordering else None
        return F.lit(True) if theirs is None else theirs.isNull() | F.coalesce(order >= theirs, F.lit(False))

    newer = is_newer(F.col(f"{_SOURCE}order"))
    assignments = {quoted(column): F.col(name) for column, name in alias.items()}
    merge: Any = source.mergeInto(name, same)
    if deleted_column:
        # An older upsert before the delete leaves the other values of the row as they are.
        kept = F.col(f"{_SOURCE}kept")
        brings = kept.isNotNull() & is_newer(kept)
        updates = {column: F.when(brings, value).otherwise(F.col(column)) for column, value in assignments.items()}
        own = {quoted(deleted_column): F.col(f"{_SOURCE}at")}
        own |= {quoted(ordering): F.col(f"{_SOURCE}order")} if ordering else {}
        merge = merge.whenMatched(newer).update({**updates, **own})
        if ordering:
            merge = merge.whenMatched(cleared).update({quoted(deleted_column): F.col(f"{_SOURCE}cleared_at")})
        merge = merge.whenNotMatched().insert({**assignments, **own})
    else:
        # A delete without ordering value removes the row, also if an older record follows the delete.
        merge = merge.whenMatched(F.when(newer, deleted).otherwise(cleared)).delete()
        merge = merge.whenMatched(newer & ~deleted).update(assignments)
        merge = merge.whenNotMatched(~deleted).insert(assignments)
    java_helper(last.sparkSession).merge(merge._jwriter, properties)
