"""Which field of the records goes to which column of the table, by the case rule and the rule for unknown fields."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import types as T

from icecdc_core.ingest.rows.column_names import inner_refusal, refusal
from icecdc_core.ingest.rows.json_reading import Broken, Instant, Part, Path
from icecdc_core.ingest.rows.nested import Fields, Listed, Mapped, Slot
from icecdc_core.ingest.rows.type_widening import map_values, merged_types
from icecdc_core.ingest.rows.writer_checks import FOLDERS, WRITTEN_AS, part_of


class Matching:
    """The rules under which fields and columns are brought together.

    Args:
        any_case: Whether a field finds its column in any case.
        unknown: Whether fields without a column are looked at (their records will not do), or ignored.
        unnamed: Top-level fields that need no column.
    """

    def __init__(self, any_case: bool, unknown: bool, unnamed: frozenset[str]) -> None:
        self._any_case, self._unknown, self._unnamed = any_case, unknown, unnamed

    def fields(self, schema: T.StructType, seen: T.StructType | None, top: bool = True) -> Fields:
        """Return how a record with the columns of ``schema`` is read.

        Args:
            schema: The columns wanted.
            seen: What fields the records have. None: as the columns.
            top: Whether these are the columns of the table, or of a struct.
        """
        there = {field.name: field.dataType for field in seen.fields} if seen is not None else {}
        by_name = self._by_name(there)
        slots = []
        for field in schema.fields:
            keys = by_name.pop(self._folded(field.name), None) or (field.name,)
            known, facts = merged_types([there[key] for key in keys if key in there]), field.metadata or {}
            part = self.part(field.dataType, known, json.loads(facts.get(WRITTEN_AS, '""')))
            folders = tuple(json.loads(facts.get(FOLDERS, "[]")))
            slots.append(Slot(field.name, keys, part, True, not field.nullable, folders=folders))
        if self._unknown:
            free = self._unnamed if top else frozenset()
            names = sorted(name for keys in by_name.values() for name in keys if name not in free)
            for name in names:
                why = refusal(name, schema.names, top) or inner_refusal(there[name])
                slots.append(Slot(name, (name,), Part(T.StringType()), False, False, why or "has no column"))
        return Fields(schema, tuple(slots), seen is not None)

    def part(self, kind: T.DataType, seen: T.DataType | None, written_as: Any = "") -> Part:
        """Return how a value of this type is read, and of an Iceberg type that Spark does not show."""
        if isinstance(kind, T.StructType):
            return self.fields(kind, seen if isinstance(seen, T.StructType) else None, False)
        if isinstance(kind, T.ArrayType):
            inner = seen.elementType if isinstance(seen, T.ArrayType) else None
            return Listed(kind, self.part(kind.elementType, inner, written_as))
        if isinstance(kind, T.MapType):
            both = written_as if isinstance(written_as, dict) else {"key": "", "value": ""}
            # JSON has keys as text, as Spark shows a UUID.
            key = part_of(kind.keyType, both["key"]) if isinstance(kind.keyType, T.StringType) else None
            return Mapped(kind, self.part(kind.valueType, map_values(seen), both["value"]), key)
        if isinstance(kind, (T.TimestampType, T.DateType)):
            return Instant(kind)
        if (special := part_of(kind, written_as)) is not None:
            return special
        return Broken(kind) if isinstance(kind, (T.FloatType, T.DoubleType)) else Part(kind)

    def _by_name(self, there: dict[str, T.DataType]) -> dict[str, Path]:
        names: dict[str, Path] = {}
        for name in there:
            names[self._folded(name)] = (*names.get(self._folded(name), ()), name)
        return names

    def _folded(self, name: str) -> str:
        return name.lower() if self._any_case else name
