"""Fields whose values have another kind than their column, so that no wider column type can store them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql import types as T

from icecdc_core.ingest.rows.type_widening import map_value_type, merge_schemas
from icecdc_core.ingest.rows.variant_schema import GUESSED

_WHOLE = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_NO_NUMBER = (T.StringType, T.BooleanType, T.StructType, T.ArrayType, T.MapType)


class TypeConflicts:
    """Compares the columns of a table with the fields of records."""

    def __init__(self, columns: T.StructType, any_case: bool) -> None:
        self._columns, self._any_case = columns, any_case

    def exist(self, seen: T.StructType) -> bool:
        """Whether some values are of another kind than their column, which hides the types of the other values."""
        return self._conflict(self._columns, seen, False)

    def merge_without_conflicts(self, schemas: Sequence[T.StructType]) -> T.StructType:
        """Merge schemas; a field that a writer gives a conflicting type gets the type of its column."""
        return merge_schemas([self._without_struct(self._columns, schema) for schema in schemas])

    def lenient_schema(self, seen: T.StructType) -> T.StructType:
        """Return the schema that reads exactly the values that the columns can store, perhaps after a promotion."""
        schema = _lenient(self._own(self._columns, seen))
        assert isinstance(schema, T.StructType)
        return schema

    def with_spellings(self, seen: T.StructType, earlier: T.StructType) -> T.StructType:
        """Add the fields of columns that only records left out since then have, with the type of the column.

        A field that is missing in the schema counts as missing in its record too, so its record would seem to fit.
        """
        schema = _with_missing(seen, self._own(self._columns, earlier))
        assert isinstance(schema, T.StructType)
        return schema

    def _conflict(self, column: T.DataType, seen: T.DataType, guessed: bool) -> bool:
        if isinstance(column, T.StructType):
            if not isinstance(seen, T.StructType):
                return True
            return any(
                kind is not None and self._conflict(kind, field.dataType, GUESSED in field.metadata)
                for kind, field in self._pairs(column, seen)
            )
        if isinstance(column, T.ArrayType):
            return not isinstance(seen, T.ArrayType) or self._conflict(column.elementType, seen.elementType, guessed)
        if isinstance(column, T.MapType):
            if isinstance(seen, T.StructType):
                return any(
                    self._conflict(column.valueType, field.dataType, GUESSED in field.metadata) for field in seen.fields
                )
            return not isinstance(seen, T.MapType) or self._conflict(column.valueType, seen.valueType, guessed)
        if isinstance(column, T.IntegerType):
            return not isinstance(seen, _WHOLE)
        if isinstance(column, T.DecimalType):
            # A guessed type never widens a decimal column, so there is nothing to hide.
            return not guessed and not isinstance(seen, (T.DecimalType, *_WHOLE))
        return isinstance(column, T.FloatType) and isinstance(seen, _NO_NUMBER)

    def _without(self, column: T.DataType, seen: T.DataType) -> T.DataType:
        if isinstance(column, T.StructType) and isinstance(seen, T.StructType):
            return self._without_struct(column, seen)
        if isinstance(column, T.ArrayType) and isinstance(seen, T.ArrayType):
            return T.ArrayType(self._without(column.elementType, seen.elementType), seen.containsNull)
        if isinstance(column, T.MapType) and isinstance(seen, T.MapType):
            return T.MapType(seen.keyType, self._without(column.valueType, seen.valueType), seen.valueContainsNull)
        # Iceberg gives a decimal column no larger scale.
        larger = isinstance(column, T.DecimalType) and isinstance(seen, T.DecimalType) and seen.scale > column.scale
        return column if larger or self._conflict(column, seen, False) else seen

    def _without_struct(self, columns: T.StructType, seen: T.StructType) -> T.StructType:
        fields = []
        for column, field in self._pairs(columns, seen):
            if column is None or GUESSED in field.metadata:
                fields.append(field)
            else:
                fields.append(_with_type(field, self._without(column, field.dataType)))
        return T.StructType(fields)

    def _own(self, column: T.DataType, seen: T.DataType | None) -> T.DataType:
        """The column's type with the names in the records, and only with those fields that the records have."""
        if isinstance(column, T.StructType) and isinstance(seen, T.StructType):
            return T.StructType(
                [
                    T.StructField(field.name, self._own(kind, field.dataType), True, {GUESSED: True})
                    for kind, field in self._pairs(column, seen)
                    if kind is not None
                ]
            )
        if isinstance(column, T.ArrayType) and isinstance(seen, T.ArrayType):
            return T.ArrayType(self._own(column.elementType, seen.elementType))
        if isinstance(column, T.MapType):
            return T.MapType(T.StringType(), self._own(column.valueType, map_value_type(seen)))
        return column

    def _pairs(self, columns: T.StructType, seen: T.StructType) -> Iterator[tuple[T.DataType | None, T.StructField]]:
        """Each field with the type of its column; None for a field without a column."""
        types = {self._folded(column.name): column.dataType for column in columns.fields}
        for field in seen.fields:
            yield types.get(self._folded(field.name)), field

    def _folded(self, name: str) -> str:
        return name.lower() if self._any_case else name


def _with_missing(seen: T.DataType, own: T.DataType) -> T.DataType:
    if isinstance(seen, T.StructType) and isinstance(own, T.StructType):
        others = {field.name: field for field in own.fields}
        fields = []
        for field in seen.fields:
            other = others.pop(field.name, None)
            fields.append(field if other is None else _with_type(field, _with_missing(field.dataType, other.dataType)))
        return T.StructType([*fields, *others.values()])
    if isinstance(seen, T.StructType) and isinstance(own, T.MapType):
        # Spark guesses a struct from the JSON of a map.
        return T.StructType([_with_type(field, _with_missing(field.dataType, own.valueType)) for field in seen.fields])
    if isinstance(seen, T.ArrayType) and isinstance(own, T.ArrayType):
        return T.ArrayType(_with_missing(seen.elementType, own.elementType), seen.containsNull)
    if isinstance(seen, T.MapType) and isinstance(own, T.MapType):
        return T.MapType(seen.keyType, _with_missing(seen.valueType, own.valueType), seen.valueContainsNull)
    return seen


def _lenient(kind: T.DataType) -> T.DataType:
    if isinstance(kind, T.StructType):
        # Sorted, so that `infer_schema` recognizes a schema that it has tried.
        fields = sorted(kind.fields, key=lambda field: field.name)
        return T.StructType([T.StructField(field.name, _lenient(field.dataType)) for field in fields])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_lenient(kind.elementType))
    if isinstance(kind, T.MapType):
        return T.MapType(T.StringType(), _lenient(kind.valueType))
    if isinstance(kind, T.IntegerType):
        return T.LongType()
    if isinstance(kind, T.DecimalType):
        return T.DecimalType(38, kind.scale)
    return T.DoubleType() if isinstance(kind, T.FloatType) else T.StringType()


def _with_type(field: T.StructField, kind: T.DataType) -> T.StructField:
    return T.StructField(field.name, kind, field.nullable, field.metadata)
