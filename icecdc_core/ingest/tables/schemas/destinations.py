"""Open the destination tables: create them if asked for, and let their schema follow the records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructType

from icecdc_core.errors import TableNotFoundError
from icecdc_core.ingest.rows.column_names import Path, fold_case
from icecdc_core.ingest.rows.first_records import (
    find_refused_fields,
    infer_first_schema,
    order_by_frequency,
    reject_fields,
)
from icecdc_core.ingest.rows.inference import infer_schema
from icecdc_core.ingest.tables.schemas.columns import metadata_names, payload_schema
from icecdc_core.ingest.tables.schemas.creation import create_table, partition_names
from icecdc_core.ingest.tables.schemas.evolution import evolve, new_columns, plan_evolution
from icecdc_core.table.catalogs import load_table

if TYPE_CHECKING:
    from icecdc_core.ingest.config import IngestConfig


@dataclass(frozen=True)
class OpenedTable:
    """A table as `open_or_create_table` loaded or created it."""

    table: Any
    refused: dict[Path, str] = field(default_factory=dict)


def open_or_create_table(
    spark: SparkSession, name: str, records: Callable[[], DataFrame], config: IngestConfig
) -> OpenedTable:
    """Load a table. If it does not exist and `auto_create` is set, create it for these records."""
    try:
        return OpenedTable(load_table(spark, name))
    except TableNotFoundError as error:
        if not config.auto_create:
            raise TableNotFoundError(
                "The table does not exist",
                subject="auto_create",
                value=name,
                remedy="create it, or set auto_create=true; the next run reads its records again",
            ) from error
    seen, columns, refused = _first_columns(records, config)
    if not columns.fields:
        return OpenedTable(None, refused)
    create_table(spark, name, seen, columns, config)
    return OpenedTable(load_table(spark, name), refused)


def evolve_for_records(spark: SparkSession, name: str, records: DataFrame, config: IngestConfig) -> StructType:
    """Change a table's schema in one commit so that it fits the records."""
    table = load_table(spark, name)
    current = payload_schema(spark, table, config)
    any_case = config.column_case != "sensitive"
    seen = order_by_frequency(records, infer_schema(records, current, any_case=any_case), config)
    specs = table.specs().values()
    partitions = [str(field.name()) for spec in specs for field in spec.fields()]
    identifiers = [str(identifier) for identifier in table.schema().identifierFieldNames()]
    changes = plan_evolution(current, seen, config, [*partitions, *metadata_names(config)], identifiers)
    if changes:
        evolve(spark, name, changes)
    return seen


def _first_columns(
    records: Callable[[], DataFrame], config: IngestConfig
) -> tuple[StructType, StructType, dict[Path, str]]:
    """Choose the columns of a new table, from the records that can be rows of it.

    A record with a field that cannot become a column is a dead letter, so its other fields make no columns either.
    """
    refused: dict[Path, str] = {}
    other_names = [*metadata_names(config), *partition_names(config)]
    while True:
        seen = infer_first_schema(reject_fields(records(), refused) if refused else records(), config)
        columns = new_columns(seen, config, other_names)
        new = {path: why for path, why in find_refused_fields(columns, seen, config).items() if path not in refused}
        if not new:
            return seen, columns, refused
        # Names that are refused for themselves come first: until their records are out, they count as spellings of
        # other names.
        refused |= {path: why for path, why in new.items() if not _differs_in_case(columns, path)} or new


def _differs_in_case(columns: StructType, path: Path) -> bool:
    """Whether a field has no column because another spelling of its name has one."""
    kind: DataType = columns
    for name in path:
        by_name = {fold_case(field.name): field for field in kind.fields} if isinstance(kind, StructType) else {}
        if fold_case(name) not in by_name:
            return False
        kind = by_name[fold_case(name)].dataType
    return True
