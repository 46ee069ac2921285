"""Records to rows: infers the schema of records, and parses each record into the columns of a table.

In: decoded JSON payloads. Out: a row of the table for each record that fits, a problem for each that does not.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.columns import OWN_PREFIX, quoted
from icecdc_core.ingest.column_types import (
    Path,
    fold_case,
    map_value_type,
    merge_all_types,
    name_problem,
    nested_name_problem,
    path_text,
)
from icecdc_core.ingest.formats.decode_results import (
    JSON_READ_OPTIONS,
    MALFORMED,
    NOT_ONE_OBJECT,
    SHOWN,
    FormatSettings,
    evaluate_once,
    is_one_object,
    is_whole_object,
    quoted_start,
    text_at,
    unreadable_reason,
    wrap_object,
    wrapped_record,
    wrapped_type,
)
from icecdc_core.ingest.formats.record_keys import convert_text_key
from icecdc_core.ingest.inference import begins_object, infer_schema
from icecdc_core.ingest.readers import (
    DEFAULT,
    FOLDERS,
    WRITTEN_AS,
    ArrayReader,
    FieldReader,
    FloatReader,
    KeyReader,
    MapReader,
    StructReader,
    TimeReader,
    ValueReader,
    Violation,
    hidden_type_reader,
)
from icecdc_core.session.jvm import java_class

PARSED = f"{OWN_PREFIX}parsed"
"""The column with the result of `from_json` for a payload from `wrap_object`."""

INVALID_JSON = "!"
"""A text that fits no columns."""


@dataclass(frozen=True)
class Verdict:
    """The result of the validation of a record."""

    is_valid: Column
    problem: Column


def validate(reader: StructReader, identifiers: Iterable[str], compared: bool) -> Verdict:
    """Return the verdict on the record in the columns `PARSED` and `row`."""
    checks = [(~is_whole_object(F.col(PARSED)), _parse_problem(reader))]
    if compared:
        # The fields were seen in Spark's variants, which accept no object with a repeated key and no bare NaN.
        unseen = F.col("payload_type").isNull() & F.try_parse_json(F.col("payload")).isNull()
        text = "cannot be compared with the columns: a key occurs twice, a value is not JSON, or the record is too big"
        checks.append((unseen, F.lit(text)))
    record, needed = wrapped_record(F.col(PARSED)), {name.lower() for name in identifiers}
    for field, columns in reader.parsed_fields(record) if needed else ():
        if field.has_column and field.name.lower() in needed:
            reason = F.lit(f"field {field.name}, an identifier column, is missing or null")
            checks.append((F.coalesce(*columns).isNull(), reason))
    checks += [
        (violation.condition, _violation_problem(violation))
        for violation in reader.violations(record, (), F.col("row"))
    ]
    problem = reduce(lambda case, check: case.when(*check), checks[1:], F.when(*checks[0]))
    # Every record is asked whether it fits, so that must not cost as much as the reason.
    is_invalid = reduce(or_, (condition for condition, _ in checks))
    return Verdict(F.when(is_invalid, F.lit(False)).otherwise(F.lit(True)), problem)


def _violation_problem(violation: Violation) -> Column:
    name = f"field {path_text(violation.path)}"
    if violation.value is None:
        return F.lit(f"{name} {violation.description}")
    before, after = (text.replace("%", "%%") for text in (name, violation.description))
    return F.format_string(f"{before}: '%.{SHOWN}s' {after}", violation.value)


def _parse_problem(reader: StructReader) -> Column:
    """Why a record could not be parsed. Spark evaluates this for such records only."""
    payload = F.col("payload")
    problem = F.when(~is_one_object(payload), F.concat(F.lit(NOT_ONE_OBJECT), quoted_start(payload)))
    texts = F.from_json(payload, "map<string,string>", JSON_READ_OPTIONS)
    # Fields that have a text, but no value of the type of their column.
    names = {spelling: [name, kind] for spelling, name, kind in _columns(reader)}
    columns = F.from_json(F.lit(json.dumps(names)), "map<string,array<string>>")
    read = F.json_object_keys(F.to_json(wrapped_record(F.col(PARSED))))
    lost = F.filter(
        F.map_entries(texts),
        lambda field: field["value"].isNotNull() & ~F.array_contains(read, F.try_element_at(columns, field["key"])[0]),
    )

    def wrong_type(field: Column) -> Column:
        kind = F.try_element_at(columns, field["key"])[1]
        return F.format_string(f"field %s: '%.{SHOWN}s' is not of type %s", field["key"], field["value"], kind)

    problem = problem.when(F.size(lost) > 0, evaluate_once(F.get(lost, F.lit(0)), wrong_type))
    # A nested value was parsed, but without the values in it that do not fit.
    for field in reader.fields:
        for spelling in field.spellings:
            kind = field.reader.json_type
            if isinstance(kind, (T.StructType, T.ArrayType, T.MapType)):
                alone = wrapped_type(T.StructType([T.StructField(spelling, kind)]))
                bad = F.from_json(wrap_object(payload), alone, JSON_READ_OPTIONS)[MALFORMED].isNotNull()
                text = F.try_element_at(texts, F.lit(spelling))
                violation = Violation(bad, (spelling,), f"is not of type {field.reader.kind.simpleString()}", text)
                problem = problem.when(bad, _violation_problem(violation))
    other = F.concat(F.lit("does not fit the columns: "), quoted_start(payload))
    return problem.otherwise(F.when(texts.isNull(), unreadable_reason(payload, other)).otherwise(other))


def _columns(reader: StructReader) -> Iterable[tuple[str, str, str]]:
    """The spelling in the records, the name in the parsed struct and the type of each column."""
    columns = [(spelling, field.reader.kind) for field in reader.fields for spelling in field.spellings]
    names = reader.parsed_type().names
    return [(spelling, name, kind.simpleString()) for (spelling, kind), name in zip(columns, names, strict=True)]


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


ROW = "row"
"""The column of `parse_rows` with the row: a struct of the table's columns."""


IS_VALID = "is_valid"
"""The column of `parse_rows` that says whether the row can be used."""


def parse_rows(
    decoded: DataFrame, schema: T.StructType, settings: FormatSettings, seen: T.StructType | None = None
) -> DataFrame:
    """Give every record its row, or the problem that it has.

    The payload is parsed once, by `from_json` with the types of the table; only Spark's native expressions run. No
    value becomes null without a `problem`. A record has a problem if

    - a value has a wrong type, or is too big for its column
    - a text is not a date or timestamp of its column
    - a required column or an identifier column is missing or null
    - a field has no column, unless such fields are ignored
    - the payload is not exactly one JSON object

    Decimals are rounded to the column's scale (half up). If an object has a key twice, the last one counts, as
    everywhere in Spark.
    """
    report_unknown = settings.evolve_schema or settings.unknown_fields != "ignore"
    any_case = settings.column_case != "sensitive"
    if seen is None and not needs_no_inference(settings):
        seen = infer_schema(decoded, schema, widen=False, any_case=any_case)
    op_field = "Op" if settings.format == "dms" else settings.op_field.split(".")[0]
    matching = ColumnMatching(any_case, report_unknown, frozenset({op_field} - {""}))
    reader = matching.struct_reader(schema, seen)
    decoded = _with_text_keys(decoded, reader, settings)
    parsed: Column = F.from_json(wrap_object(F.col("payload")), wrapped_type(reader.json_type), JSON_READ_OPTIONS)
    if reader.by_position:
        parsed = parsed.cast(wrapped_type(reader.parsed_type()))
    rows = decoded.withColumn(PARSED, parsed)
    rows = rows.withColumn(ROW, _row(reader, wrapped_record(F.col(PARSED))))
    others = [F.col(quoted(name)) for name in decoded.columns if name not in ("payload", "payload_type", "problem")]
    verdict = validate(reader, settings.identifier_columns, seen is not None)
    problem = _not_pushed_down(F.coalesce(F.col("problem"), verdict.problem), "")
    is_valid = _not_pushed_down(F.col("problem").isNull() & verdict.is_valid, False)
    return rows.select(*others, problem.alias("problem"), is_valid.alias(IS_VALID), F.col(ROW))


def _with_text_keys(decoded: DataFrame, reader: StructReader, settings: FormatSettings) -> DataFrame:
    """Convert keys that are plain text to the type of their identifier column."""
    if len(settings.identifier_columns) != 1:
        return decoded
    [identifier] = settings.identifier_columns
    for field in reader.fields:
        if field.has_column and field.name == identifier:
            given = (F.col("payload"), F.col("payload_type"), identifier, field.spellings[0], field.reader.kind)
            return decoded.withColumn("payload", convert_text_key(*given))
    return decoded


def needs_no_inference(settings: FormatSettings) -> bool:
    """Whether records can be parsed without an earlier pass over their fields, as `parse_rows_only` does."""
    return settings.column_case == "sensitive" and settings.unknown_fields == "ignore" and not settings.evolve_schema


def parse_rows_only(decoded: DataFrame, schema: T.StructType, settings: FormatSettings) -> DataFrame:
    """Give every record its row as `parse_rows` does, without its other columns, for two thirds of the cost.

    `from_json` creates a stream with a buffer of 8 KB for each record. Spark's JSON reader for texts uses the same
    parser with the same options and no such buffer, but returns only what it parsed.
    """
    spark = decoded.sparkSession
    reader = ColumnMatching(False, False, frozenset()).struct_reader(schema, None)
    usable = F.col("problem").isNull() & ~F.col("op").eqNullSafe("delete")
    # A record that already has a problem must not fit.
    texts = decoded.select(
        F.coalesce(F.when(usable, wrap_object(F.col("payload"))), F.lit(INVALID_JSON)).alias("value")
    )
    text_encoder = java_class(spark, "org.apache.spark.sql.Encoders").STRING()
    json_reader = spark.read.schema(wrapped_type(reader.json_type)).options(**JSON_READ_OPTIONS)
    # PySpark offers this reader only for RDDs of Python texts.
    parsed = DataFrame(json_reader._jreader.json(getattr(texts._jdf, "as")(text_encoder)), spark)
    columns = F.struct(*(F.col(name) for name in parsed.columns)).alias(PARSED)
    # With this payload every infinity is suspect: the slower parse looks at what the record has.
    missing = (F.lit("1e999").alias("payload"), F.lit(None).cast("string").alias("op"))
    rows = parsed.select(columns, *missing).withColumn(ROW, _row(reader, wrapped_record(F.col(PARSED))))
    is_valid = _not_pushed_down(validate(reader, settings.identifier_columns, False).is_valid, False)
    return rows.select("op", is_valid.alias(IS_VALID), F.col(ROW))


def check_records(decoded: DataFrame, schema: T.StructType, chosen: Column) -> DataFrame:
    """Fill in the `problem` of the chosen records that do not fit a schema; fields without a column are no problem."""
    reader = ColumnMatching(False, False, frozenset()).struct_reader(schema, None)
    parsed = F.from_json(wrap_object(F.col("payload")), wrapped_type(reader.json_type), JSON_READ_OPTIONS)
    rows = decoded.withColumn(PARSED, F.when(chosen, parsed))
    rows = rows.withColumn(ROW, _row(reader, wrapped_record(F.col(PARSED))))
    problem = F.when(chosen, validate(reader, (), False).problem)
    return rows.withColumn("problem", F.coalesce(F.col("problem"), problem)).drop(PARSED, ROW)


def read_values(
    payload: Column, schema: T.StructType, any_case: bool = False, seen: T.StructType | None = None
) -> Column:
    """Return a struct with the values of a payload, unchecked: null for one that is missing or does not fit."""
    reader = ColumnMatching(any_case, False, frozenset()).struct_reader(schema, seen)
    parsed = F.from_json(wrap_object(payload), wrapped_type(reader.json_type), JSON_READ_OPTIONS)
    if reader.by_position:
        parsed = parsed.cast(wrapped_type(reader.parsed_type()))
    return _row(reader, wrapped_record(parsed))


def _row(reader: StructReader, record: Column) -> Column:
    fields = reader.parsed_fields(record)
    return F.struct(*(field.value(columns).alias(field.name) for field, columns in fields if field.has_column))


def _not_pushed_down(value: Column, otherwise: object) -> Column:
    """The value behind a nondeterministic condition, so that Spark does not push filters on it below the parse.

    Such a filter would parse every record twice.
    """
    return F.when(F.monotonically_increasing_id() < 0, F.lit(otherwise)).otherwise(value)


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
