"""Identifier columns: which columns can identify a row, and whether they do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyiceberg.schema import Schema
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from icecdc_core.columns import UNFIT_IDENTIFIERS, identifier_name, quoted, unused_name
from icecdc_core.errors import DuplicateIdentifierError, IdentifierColumnsError
from icecdc_core.session.spark_settings import tuned_for_many_groups
from icecdc_core.shuffle import shuffle_by_identifiers


def identifier_fields(schema: Schema) -> list[str]:
    """Return the names of an Iceberg schema's identifier fields, in the order of its columns."""
    order = {field.name: position for position, field in enumerate(schema.fields)}
    names = [schema.find_column_name(field_id) or "" for field_id in schema.identifier_field_ids]
    return sorted(names, key=lambda name: order.get(name.split(".")[0], 0))


def require_identifier_types(names: Sequence[str], schema: StructType) -> None:
    """Refuse identifier columns of a type whose equal values have several texts."""
    for name in names:
        kind = schema[name].dataType
        if isinstance(kind, UNFIT_IDENTIFIERS):
            raise IdentifierColumnsError(
                f"Column '{name}' of type {kind.simpleString()} cannot identify a row",
                subject="identifier_columns",
                value=list(names),
                remedy="use columns of a whole number, string, date, time, decimal, boolean, uuid or binary type",
            )


def require_unique(rows: DataFrame, identifier_columns: Sequence[str], table: str, allow_duplicates: bool) -> None:
    """Check that no identifier is null and none occurs twice, reading the identifier columns only."""
    names, count = [quoted(name) for name in identifier_columns], unused_name("_rows", identifier_columns)
    some_null = F.greatest(*[F.col(name).isNull() for name in names], F.lit(False))
    # Nearly every row is a group of its own, so a partial aggregate before the shuffle would not reduce anything.
    identifiers = rows.select(*names).transform(shuffle_by_identifiers, identifier_columns)
    groups = identifiers.groupBy(*names).agg(F.count(F.lit(1)).alias(count))
    with tuned_for_many_groups(rows.sparkSession):
        suspects = groups.where(some_null if allow_duplicates else some_null | (F.col(count) > 1)).limit(5).collect()
    if not suspects:
        return
    shown = [{identifier_name(name): row[name] for name in identifier_columns} for row in suspects]
    for values in shown:
        _require_values(values, table)
    raise DuplicateIdentifierError(
        f"Identifier columns of '{table}' are not unique: {suspects[0][count]} rows share {shown[0]}",
        subject="identifier_columns",
        value=[identifier_name(name) for name in identifier_columns],
        remedy="choose columns that are unique together, remove the duplicate rows, "
        "or set on_duplicate_identifier=last",
    )


def require_no_null(identifiers: DataFrame, identifier_columns: Sequence[str], table: str) -> None:
    """Check that no identifier is null."""
    names = [quoted(name) for name in identifier_columns]
    some_null = F.greatest(*[F.col(name).isNull() for name in names], F.lit(False))
    for row in identifiers.where(some_null).limit(1).collect():
        _require_values({identifier_name(name): row[name] for name in identifier_columns}, table)


def _require_values(identifier: dict[str, Any], table: str) -> None:
    if None in identifier.values():
        raise IdentifierColumnsError(
            f"Identifier columns of '{table}' are null in some rows, for example {identifier}",
            subject="identifier_columns",
            value=list(identifier),
            remedy="choose columns that are never null, or leave those rows out with row_filter",
        )
