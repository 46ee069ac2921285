"""The partition of a change row, computed from the fields that the parameters let through."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.transforms import BucketTransform, IdentityTransform, TimeTransform, TruncateTransform, VoidTransform
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from icecdc_core.columns import JSON_OPTIONS, quoted
from icecdc_core.documents.values import scalar_text
from icecdc_core.table.source import Source

# What of a time's text in ISO 8601 names its partition.
_LENGTHS = {"year": len("2026"), "month": len("2026-01"), "day": len("2026-01-31"), "hour": len("2026-01-31T12")}


@dataclass(frozen=True)
class PartitionText:
    """How rows of the table are partitioned now, as one text."""

    column: Column | None
    note: str = ""


def partition_text(source: Source, catalog: str, rows: DataFrame) -> PartitionText:
    """Return the partition of each row by the table's current partition spec, such as ``region=EU/day=2026-01-31``."""
    spec, schema = source.metadata.spec(), source.metadata.schema()
    parts: list[Column] = []
    left_out: list[str] = []
    for field in spec.fields:
        if isinstance(field.transform, VoidTransform):
            continue
        name = schema.find_column_name(field.source_id) or ""
        value = None
        if is_in_documents(source, name) and name in rows.columns:
            value = _value(field.transform, name, rows.schema, catalog, rows)
        if value is None:
            left_out.append(field.name)
        else:
            parts.append(F.concat(F.lit(f"{field.name}="), F.coalesce(value, F.lit("null"))))
    if left_out:
        note = f"Left out of the partitions, as documents do not have their columns as they are: {', '.join(left_out)}."
    else:
        note = "" if parts else "The table is not partitioned."
    return PartitionText(F.concat_ws("/", *parts) if parts else None, note)


def is_in_documents(source: Source, name: str) -> bool:
    """Whether documents have a column of the table as it is."""
    if source.projection is None:
        return name in source.columns
    # Another column may have the name in the documents.
    origin = source.projection.origins.get(name)
    return origin is not None and origin.is_identity and origin.columns == {name}


def _value(transform: object, name: str, schema: StructType, catalog: str, rows: DataFrame) -> Column | None:
    value = F.col(quoted(name))
    if isinstance(transform, IdentityTransform):
        return scalar_text(value, schema[name].dataType, JSON_OPTIONS)
    if isinstance(transform, TimeTransform):
        # Iceberg partitions by UTC, as documents have times, and Spark formats in the session's time zone.
        text = scalar_text(value, schema[name].dataType, JSON_OPTIONS)
        return F.translate(F.substr(text, F.lit(1), F.lit(_LENGTHS[str(transform)])), "T", "-")
    if isinstance(transform, BucketTransform):
        value = F.call_function(f"{quoted(catalog)}.system.bucket", F.lit(transform.num_buckets), value)
    elif isinstance(transform, TruncateTransform):
        value = F.call_function(f"{quoted(catalog)}.system.truncate", F.lit(transform.width), value)
    else:
        return None
    try:
        kind = rows.select(value.alias("value")).schema["value"].dataType
    except PySparkException:  # not every catalog has Iceberg's functions
        return None
    return scalar_text(value, kind, JSON_OPTIONS)
