"""Documents without the fields that an ingest pipeline made: what is left is the row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark.sql.types import ArrayType, DataType, StructType


def without_fields(document: dict[str, Any], paths: Iterable[str], schema: StructType) -> dict[str, Any]:
    """Remove fields from a document, and the objects around them that no column makes; changes the document."""
    for path in paths:
        _remove(document, path.split("."), schema)
    return document


def _remove(value: Any, parts: list[str], data_type: DataType | None) -> None:
    if isinstance(value, list):
        element = data_type.elementType if isinstance(data_type, ArrayType) else None
        for each in value:
            _remove(each, parts, element)
    elif isinstance(value, dict):
        columns = (
            {field.name: field.dataType for field in data_type.fields} if isinstance(data_type, StructType) else {}
        )
        value.pop(".".join(parts), None)
        for count in range(1, len(parts)):
            name = ".".join(parts[:count])
            if name in value:
                _remove(value[name], parts[count:], columns.get(name))
                if value[name] == {} and name not in columns:
                    del value[name]
