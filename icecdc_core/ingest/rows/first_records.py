"""The records from which a new table is created: which of them can be rows, and the problems of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from typing import cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.ingest.formats.json_text import JSON_READ_OPTIONS, text_at
from icecdc_core.ingest.formats.settings import FormatSettings
from icecdc_core.ingest.rows.column_matching import ColumnMatching
from icecdc_core.ingest.rows.column_names import Path, fold_case, path_text
from icecdc_core.ingest.rows.inference import begins_object, infer_schema
from icecdc_core.ingest.rows.nested_readers import StructReader
from icecdc_core.ingest.rows.row_parsing import parse_rows

_NULL_TYPE = "the table does not exist, and the schema of the record has a field of the type null, which no column has"
_NO_COLUMNS = "the table does not exist, and the record has no value from which it could get a column"


def infer_first_schema(decoded: DataFrame, settings: FormatSettings) -> T.StructType:
    """Return the schema of the records that can be rows of a new table; empty if there are none.

    Malformed records, deletes, and records without a value for an identifier column do not count. Of names that differ
    only in case the most frequent comes first.
    """
    is_object = begins_object("payload") & F.try_parse_json("payload").isNotNull()
    usable = F.col("problem").isNull() & ~_is_delete() & is_object & ~_has_null_type()
    for name in settings.identifier_columns:
        usable = usable & _has_value(name, settings)
    rows = decoded.where(usable)
    return order_by_frequency(rows, infer_schema(rows), settings)


def order_by_frequency(decoded: DataFrame, seen: T.StructType, settings: FormatSettings) -> T.StructType:
    """Order the fields such that of names that differ only in case the most frequent comes first.

    The first one becomes the column, so that one odd record does not decide the name for all others. The function does
    not look into arrays and maps.
    """
    rivals = list(_names_differing_in_case(seen, ())) if settings.column_case == "sensitive" else []
    if not rivals:
        return seen
    texts = (text_at(F.col("payload"), path) for path in rivals)
    counts = decoded.agg(*(F.count(text).alias(str(index)) for index, text in enumerate(texts))).first()
    assert counts is not None
    return _ordered(seen, dict(zip(rivals, counts, strict=True)), ())


def _names_differing_in_case(seen: T.StructType, path: Path) -> Iterator[Path]:
    """The fields whose names differ only in case."""
    times = Counter(fold_case(name) for name in seen.names)
    for field in seen.fields:
        if times[fold_case(field.name)] > 1:
            yield (*path, field.name)
        if isinstance(field.dataType, T.StructType):
            yield from _names_differing_in_case(field.dataType, (*path, field.name))


def _ordered(seen: T.StructType, counts: dict[Path, int], path: Path) -> T.StructType:
    fields = []
    for field in sorted(seen.fields, key=lambda field: -counts.get((*path, field.name), 0)):
        kind = field.dataType
        if isinstance(kind, T.StructType):
            kind = _ordered(kind, counts, (*path, field.name))
        fields.append(T.StructField(field.name, kind, field.nullable, field.metadata))
    return T.StructType(fields)


def find_refused_fields(columns: T.StructType, seen: T.StructType, settings: FormatSettings) -> dict[Path, str]:
    """Return the fields of the first records that have no column in the new table, each with the reason."""
    reader = ColumnMatching(settings.column_case != "sensitive", True, frozenset()).struct_reader(columns, seen)
    return dict(_without_column(reader, ()))


def reject_fields(decoded: DataFrame, refused: dict[Path, str]) -> DataFrame:
    """Fill in the `problem` of records with one of these fields."""
    problem = F.col("problem")
    for path, why in refused.items():
        text = text_at(F.col("payload"), path)
        start, end = (each.replace("%", "%%") for each in (f"field {path_text(path)}", why))
        reason = F.format_string(f"{start}: '%.100s' {end}", text)
        problem = F.coalesce(problem, F.when(text.isNotNull() & ~_is_delete(), reason))
    return decoded.withColumn("problem", problem)


def reject_without_table(decoded: DataFrame, settings: FormatSettings) -> DataFrame:
    """Return records as `parse_rows` does, though there is no table: all have a `problem`, except deletes."""
    columns = T.StructType([T.StructField(name, T.StringType()) for name in settings.identifier_columns])
    refused = find_refused_fields(T.StructType(), infer_first_schema(decoded, settings), settings)
    decoded = decoded.withColumn("problem", F.coalesce("problem", F.when(_has_null_type(), F.lit(_NULL_TYPE))))
    rows = parse_rows(reject_fields(decoded, refused), columns, cast(FormatSettings, _IgnoringUnknownFields(settings)))
    return rows.withColumn("problem", F.coalesce("problem", F.when(~_is_delete(), F.lit(_NO_COLUMNS))))


class _IgnoringUnknownFields:
    """The same settings, but fields need no column."""

    evolve_schema, unknown_fields = False, "ignore"

    def __init__(self, settings: FormatSettings) -> None:
        self._settings = settings

    def __getattr__(self, name: str) -> object:
        return getattr(self._settings, name)


def _has_null_type() -> Column:
    """Whether the writer's schema of a record has the type null, so that it decides the type of no column."""
    return F.coalesce(F.col("payload_type").rlike('"(type|elementType|valueType)":"void"'), F.lit(False))


def _is_delete() -> Column:
    return F.coalesce(F.col("op") == "delete", F.lit(False))


def _has_value(name: str, settings: FormatSettings) -> Column:
    """Whether a record has a value for an identifier column."""
    payload, paths = F.col("payload"), ([name], name.split("."))
    if settings.column_case == "sensitive":
        return F.coalesce(*(text_at(payload, path) for path in paths)).isNotNull()
    return reduce(or_, (_has_value_in_any_case(payload, path) for path in paths))


def _has_value_in_any_case(text: Column, path: Sequence[str]) -> Column:
    """Whether a JSON object has a value at a path, whatever the case of the names."""
    name, inner = path[0].lower(), path[1:]

    def matches(field: Column) -> Column:
        has_value = _has_value_in_any_case(field["value"], inner) if inner else field["value"].isNotNull()
        return (F.lower(field["key"]) == name) & has_value

    fields = F.map_entries(F.from_json(text, "map<string,string>", JSON_READ_OPTIONS))
    return F.coalesce(F.exists(fields, matches), F.lit(False))


def _without_column(reader: StructReader, path: Path) -> Iterator[tuple[Path, str]]:
    for field in reader.fields:
        for spelling in field.spellings:
            if not field.has_column:
                yield (*path, spelling), field.refusal
            elif isinstance(field.reader, StructReader):
                yield from _without_column(field.reader, (*path, spelling))
