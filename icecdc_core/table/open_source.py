"""Opening the source: every parameter that concerns the table is checked against it before anything is written."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from icecdc_core.errors import ColumnNotFoundError, ConfigError, IdentifierColumnsError
from icecdc_core.table.expressions.projection import open_projection
from icecdc_core.table.expressions.row_filter import condition_columns
from icecdc_core.table.expressions.stars import require_readable_stars
from icecdc_core.table.expressions.used_columns import UsedColumns
from icecdc_core.table.iceberg_table import IcebergTable
from icecdc_core.table.schemas.identifiers import identifier_fields, require_identifier_types
from icecdc_core.table.schemas.projection import require_distinct, require_readable
from icecdc_core.table.snapshots import head_snapshot_id
from icecdc_core.table.source import Source
from icecdc_core.table.visible_history import require_visible_history

if TYPE_CHECKING:
    from icecdc_core.config import SyncConfig


def open_source(spark: SparkSession, config: SyncConfig, needs_history: bool = True) -> Source:
    """Load the table and check every parameter that concerns it."""
    table = IcebergTable(spark, config.table)
    metadata = table.metadata()
    if needs_history and config.on_history_gap == "fail":
        require_visible_history(config.table, metadata, table.catalog())
    schema = table.schema()
    if config.select:
        require_readable_stars(table.unreadable, ["*"] if callable(config.select) else config.select, config.alias)
    else:
        require_readable(table.unreadable, config.columns or table.unreadable)
    columns = list(config.columns) or schema.names
    require_distinct(spark, schema, columns)
    _require_columns("columns", columns, schema, ColumnNotFoundError)
    identifiers = list(config.identifier_columns) or identifier_fields(metadata.schema())
    _require_columns("identifier_columns", identifiers, schema, IdentifierColumnsError)
    require_identifier_types(identifiers, schema)
    projection = None
    if config.select:
        projection = open_projection(
            spark, schema, config.select, config.alias, identifiers, unreadable_columns=table.unreadable
        )
        columns = [name for name in schema.names if name in projection.used_columns]
    elif missing := [name for name in identifiers if name not in columns]:
        raise IdentifierColumnsError(
            f"Identifier columns must be part of the document; {missing} are not in columns",
            subject="columns",
            value=columns,
            remedy="add them to columns",
        )
    selected = projection.schema if projection else StructType([schema[name] for name in columns])
    condition = condition_columns(spark, schema, config.row_filter) if config.row_filter else UsedColumns()
    _require_branch(metadata, config.branch)
    return Source(
        table=table,
        metadata=metadata,
        head=head_snapshot_id(metadata, config.branch),
        columns=columns,
        identifier_columns=identifiers,
        schema=selected,
        row_filter=config.row_filter,
        branch=config.branch,
        chosen_columns=list(config.columns),
        filter_columns=condition.names,
        projection=projection,
        filter_computed_from=condition.computed_from,
        filter_time_zone=condition.time_zone,
    )


def _require_columns(parameter: str, names: Sequence[str], schema: StructType, error: type[Any]) -> None:
    missing = [name for name in names if name not in schema.names]
    if not missing:
        return
    nested = [name for name in missing if "." in name and name.split(".")[0] in schema.names]
    close = difflib.get_close_matches(missing[0], schema.names, 1, cutoff=0.6)
    hint = "nested fields cannot be used; add a top-level column" if nested else "the table has: "
    if not nested:
        hint = (f"did you mean '{close[0]}'? " if close else "") + hint + ", ".join(schema.names)
    raise error(
        f"The table has no column {', '.join(repr(name) for name in missing)}",
        subject=parameter,
        value=list(names),
        remedy=hint,
    )


def _require_branch(metadata: TableMetadata, name: str) -> None:
    ref = metadata.refs.get(name)
    if ref is not None and ref.snapshot_ref_type != SnapshotRefType.BRANCH:
        branches = [
            other for other, known in metadata.refs.items() if known.snapshot_ref_type == SnapshotRefType.BRANCH
        ]
        raise ConfigError(
            f"'{name}' is a tag, which never moves, so there is nothing to follow",
            subject="branch",
            value=name,
            remedy="name a branch: " + ", ".join(sorted(branches)),
        )
