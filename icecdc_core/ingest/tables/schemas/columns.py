"""The columns of a destination table: those of the payload, those of Kafka's metadata, and the identifiers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from icecdc_core.errors import ColumnNotFoundError, IdentifierColumnsError
from icecdc_core.ingest.parameters import METADATA
from icecdc_core.ingest.rows.writer_checks import FOLDERS, partition_folder_violation, with_checks
from icecdc_core.table.schemas.projection import spark_schema, top_level_names

if TYPE_CHECKING:
    from icecdc_core.ingest.config import IngestConfig

METADATA_PREFIX = "_kafka_"
_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
METADATA_TYPES: dict[str, DataType] = dict(
    zip(
        METADATA,
        [StringType(), IntegerType(), LongType(), TimestampType(), BinaryType(), ArrayType(_HEADER)],
        strict=True,
    )
)


def payload_schema(spark: SparkSession, table: Any, config: IngestConfig) -> StructType:
    """The columns of a table that come from the payload: all but those for Kafka's metadata."""
    schema = with_checks(spark, table, spark_schema(spark, table))
    wanted = {f"{METADATA_PREFIX}{column}" for column in config.metadata_columns}
    if missing := sorted(wanted - set(schema.names)):
        types = {name: METADATA_TYPES[name.removeprefix(METADATA_PREFIX)].simpleString() for name in missing}
        raise ColumnNotFoundError(
            "The table lacks columns for metadata_columns",
            subject="metadata_columns",
            value=missing,
            remedy="add them: " + ", ".join(f"{name} {kind}" for name, kind in types.items()),
        )
    return StructType([column for column in schema if column.name not in wanted])


def metadata_checks(spark: SparkSession, table: Any, config: IngestConfig) -> dict[str, list[dict[str, Any]]]:
    """Which metadata columns are partition columns whose values can be too long for the names of partition folders."""
    texts = [name for name in config.metadata_columns if isinstance(METADATA_TYPES[name], (StringType, BinaryType))]
    if not texts:
        return {}
    schema = with_checks(spark, table, spark_schema(spark, table))
    columns = {name: schema[f"{METADATA_PREFIX}{name}"] for name in texts if f"{METADATA_PREFIX}{name}" in schema.names}
    return {name: json.loads(col.metadata[FOLDERS]) for name, col in columns.items() if FOLDERS in col.metadata}


def with_metadata_problems(decoded: DataFrame, checks: dict[str, list[dict[str, Any]]]) -> DataFrame:
    """Fill in the `problem` of records whose metadata makes the name of a partition folder too long."""
    problem = F.col("problem")
    for name, folders in checks.items():
        for folder in folders:
            violation = partition_folder_violation(F.col(name), (name,), METADATA_TYPES[name], folder)
            assert violation.value is not None
            reason = F.format_string(
                f"field {METADATA_PREFIX}{name}: '%.100s' {violation.description}", violation.value
            )
            problem = F.coalesce(problem, F.when(violation.condition, reason))
    return decoded.withColumn("problem", problem) if checks else decoded


def metadata_names(config: IngestConfig) -> list[str]:
    """The names of the table's columns for Kafka's metadata."""
    return [f"{METADATA_PREFIX}{column}" for column in config.metadata_columns]


def identifiers(spark: SparkSession, table: Any, config: IngestConfig) -> list[str]:
    """The columns that identify a row: those of the parameters, else the table's identifier fields."""
    names = list(config.identifier_columns) or sorted(str(name) for name in table.schema().identifierFieldNames())
    columns = set(top_level_names(spark, table))
    if not names or set(names) - columns:
        raise IdentifierColumnsError(
            "mode=upsert needs identifier columns" if not names else "identifier columns are missing in the table",
            subject="identifier_columns",
            value=sorted(set(names) - columns) or names,
            remedy="name columns of the table that together identify a row, or set the table's identifier fields",
        )
    return names
