"""Matches the fields of records to the columns of a table, by the rules for case and for unknown fields."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pyspark.sql import types as T

from icecdc_core.ingest.rows.column_names import Path, name_problem, nested_name_problem
from icecdc_core.ingest.rows.nested_readers import ArrayReader, FieldReader, MapReader, StructReader
from icecdc_core.ingest.rows.type_widening import map_value_type, merge_all_types
from icecdc_core.ingest.rows.value_readers import FloatReader, KeyReader, TimeReader, ValueReader
from icecdc_core.ingest.rows.writer_checks import DEFAULT, FOLDERS, WRITTEN_AS, hidden_type_reader


class ColumnMatching:
    """The rules for matching fields and columns."""

    def __init__(self, any_case: bool, unknown_fields: bool, without_column: frozenset[str]) -> None:
        self._any_case, self._unknown_fields, self._without_column = any_case, unknown_fields, without_column

    def struct_reader(self, schema: T.StructType, seen: T.StructType | None, top: bool = True) -> StructReader:
        """Return the reader of a record or a struct."""
        types = {field.name: field.dataType for field in seen.fields} if seen is not None else {}
        by_name = self._by_name(types)
        fields = []
        for column in schema.fields:
            spellings = by_name.pop(self._folded(column.name), None) or (column.name,)
            column_seen = merge_all_types([types[name] for name in spellings if name in types])
            metadata = column.metadata or {}
            reader = self.reader(column.dataType, column_seen, json.loads(metadata.get(WRITTEN_AS, '""')))
            folders = tuple(json.loads(metadata.get(FOLDERS, "[]")))
            default, required = metadata.get(DEFAULT), not column.nullable
            fields.append(FieldReader(column.name, spellings, reader, True, required, folders=folders, default=default))
        if self._unknown_fields:
            allowed = self._without_column if top else frozenset()
            for name in sorted(name for names in by_name.values() for name in names if name not in allowed):
                why = name_problem(name, schema.names, top) or nested_name_problem(types[name]) or "has no column"
                fields.append(FieldReader(name, (name,), ValueReader(T.StringType()), False, False, why))
        return StructReader(schema, tuple(fields), seen is not None)

    def reader(self, kind: T.DataType, seen: T.DataType | None, written_as: Any = "") -> ValueReader:
        """Return the reader of a value."""
        if isinstance(kind, T.StructType):
            return self.struct_reader(kind, seen if isinstance(seen, T.StructType) else None, False)
        if isinstance(kind, T.ArrayType):
            element = seen.elementType if isinstance(seen, T.ArrayType) else None
            return ArrayReader(kind, self.reader(kind.elementType, element, written_as))
        if isinstance(kind, T.MapType):
            hidden = written_as or {"key": "", "value": ""}
            # JSON has keys as text, as Spark shows a UUID.
            is_text = isinstance(kind.keyType, T.StringType)
            key = hidden_type_reader(kind.keyType, hidden["key"]) if is_text else KeyReader(kind.keyType)
            return MapReader(kind, self.reader(kind.valueType, map_value_type(seen), hidden["value"]), key)
        if isinstance(kind, (T.TimestampType, T.DateType)):
            return TimeReader(kind)
        if (hidden_type := hidden_type_reader(kind, written_as)) is not None:
            return hidden_type
        return FloatReader(kind) if isinstance(kind, (T.FloatType, T.DoubleType)) else ValueReader(kind)

    def _by_name(self, names: Iterable[str]) -> dict[str, Path]:
        by_name: dict[str, Path] = {}
        for name in names:
            by_name[self._folded(name)] = (*by_name.get(self._folded(name), ()), name)
        return by_name

    def _folded(self, name: str) -> str:
        return name.lower() if self._any_case else name
