"""Decoded JSON payloads to rows of a table, or the problem of each record that does not fit."""

import json

from pyspark.sql import Column, DataFrame, functions as F, types as T

from icecdc_core.columns import OWN_PREFIX
from icecdc_core.ingest.config import IngestConfig
from icecdc_core.ingest.formats.change_events import name_key
from icecdc_core.ingest.formats.decode_results import (
    IS_DELETE,
    JSON_READ_OPTIONS,
    MALFORMED,
    SHOWN,
    evaluate_once,
    is_whole_object,
    once,
    parse_object,
    unreadable_reason,
    with_start,
    wrapped_record,
)
from icecdc_core.ingest.inference import Seen, find_spellings, look_at, unknown_fields
from icecdc_core.ingest.readers import WRITTEN_AS, FieldReader, Path, StructReader, any_of, struct_reader

PARSED, ROW, IS_VALID = f"{OWN_PREFIX}parsed", "row", "is_valid"
"""The columns of `parse_rows`: what was parsed, the row as a struct of the columns, and whether it can be used."""


def parse_rows(
    decoded: DataFrame,
    schema: T.StructType,
    settings: IngestConfig,
    seen: Seen | None = None,
    report_unknown: bool | None = None,
) -> tuple[DataFrame, StructReader]:
    """Give every record its row if it has one; `explain_rows` says why others have none (docs/kafka-formats.md)."""
    any_case, unknown = settings.column_case != "sensitive", set[Path]()
    spellings = find_spellings(decoded, schema) if any_case else None
    if report_unknown is None:
        report_unknown = settings.unknown_fields == "reject" or settings.evolve_schema
    if report_unknown:
        seen = seen or look_at(decoded, schema, settings, spellings, widen=False)
        schemas = seen.guessed, *seen.written
        unknown = {path for each in schemas for path in unknown_fields(schema, each, any_case)}
        if op_field := "Op" if settings.format == "dms" else settings.op_field.split(".")[0]:
            unknown.discard((op_field,))
    payload, is_delete, rows = F.col("payload"), F.expr(IS_DELETE), decoded
    # One check for all that are not nested: a field for each would take minutes if every record brings other names.
    if names := sorted(path[0] for path in unknown if len(path) == 1):
        reason = F.when(~is_delete, _without_column(payload, names))
        rows = rows.withColumn("problem", F.coalesce("problem", reason))
    nested = [path for path in unknown if len(path) > 1]
    reader = struct_reader(schema, payload, spellings, nested, settings.identifier_columns, is_delete, settings)
    identifiers = settings.identifier_columns
    own = [(each.spellings[0], each.column.dataType) for each in reader.fields if [each.column.name] == identifiers]
    rows = name_key(rows, identifiers, *(own[0] if own else (None, None)))
    rows = rows.withColumn(PARSED, parse_object(payload, reader.json_type))
    rows = rows.withColumn(ROW, reader.row(wrapped_record(F.col(PARSED))))
    is_valid = F.col("problem").isNull() & ~_is_invalid(reader, F.col(PARSED), F.col(ROW))
    return rows.withColumn(IS_VALID, once(is_valid)), reader


def _without_column(payload: Column, names: list[str]) -> Column:
    """Why a record with one of these fields does not fit; null if it has none of them, or no value for them."""

    def reason(fields: Column) -> Column:
        unknown = F.array_intersect(F.map_keys(fields), F.from_json(F.lit(json.dumps(names)), "array<string>"))
        name = F.get(unknown, F.lit(0))
        value = F.left(F.try_element_at(fields, name), F.lit(SHOWN))
        shown = F.when(name == "", F.lit('""')).otherwise(name)
        return F.concat(F.lit("field "), shown, F.lit(": '"), value, F.lit("' has no column"))

    fields = F.from_json(payload, "map<string,string>", JSON_READ_OPTIONS)
    return evaluate_once(F.map_filter(fields, lambda _, value: value.isNotNull()), reason)


def explain_rows(rows: DataFrame, reader: StructReader) -> DataFrame:
    """Give the rows of `parse_rows` that are not valid a problem. It takes longer to plan than the rows themselves."""
    reason = F.coalesce(F.col("problem"), _reason(reader, F.col("payload"), F.col(PARSED), F.col(ROW)))
    return rows.withColumn("problem", F.when(~F.col(IS_VALID), reason))


def _is_invalid(reader: StructReader, parsed: Column, row: Column | None) -> Column:
    return any_of([~is_whole_object(parsed), *reader.violations(wrapped_record(parsed), row)])


def _reason(reader: StructReader, payload: Column, parsed: Column, row: Column | None) -> Column:
    """Why a record does not fit: the first field with a text that is not its value, or with a violation."""
    values = wrapped_record(parsed)

    def explain(texts: Column) -> Column:
        reasons = []
        for field in reader.fields:
            text = F.coalesce(*(F.try_element_at(texts, F.lit(name)) for name in field.spellings))
            wrong = [text.isNotNull() & field.parsed(values).isNull(), *field.violations(values, row)]
            if isinstance(field.column.dataType, (T.StructType, T.ArrayType, T.MapType)):
                # A nested value was parsed, but without the values in it that do not fit.
                wrong.append(parse_object(payload, T.StructType(field.json_fields))[MALFORMED].isNotNull())
            reasons.append(F.when(any_of(wrong), _field_reason(field, values, text)))
        return F.coalesce(*reasons, with_start("does not fit the columns", payload))

    texts = F.from_json(payload, "map<string,string>", JSON_READ_OPTIONS)
    return unreadable_reason(payload, evaluate_once(texts, explain))


def _field_reason(field: FieldReader, values: Column, text: Column) -> Column:
    name, written_as = field.spellings[0] or '""', field.column.metadata.get(WRITTEN_AS)
    kind = written_as if isinstance(written_as, str) else field.column.dataType.simpleString()
    missing = F.lit(f"field {name} is missing or null, and {'identifies the row' if field.identifies else 'required'}")
    # Nobody sent the infinity as which a number that is too big was read.
    is_too_big = text.isin('"Infinity"', '"-Infinity"') & F.lit(kind in ("float", "double"))
    twice = F.lit(f"is there twice, as {' and '.join(field.spellings)}")
    wanted = f"is not of type {kind}{f' ({option})' if (option := field.reader and field.reader.option) else ''}"
    wrong = F.when(field.is_twice(values), twice).otherwise(F.lit(wanted))
    other = F.concat(F.lit(f"field {name}: '"), F.left(text, F.lit(SHOWN)), F.lit("' "), wrong)
    too_big = F.lit(f"field {name} is too big for {kind}")
    return F.when(text.isNull(), missing).when(is_too_big, too_big).otherwise(other)


def needs_no_inference(settings: IngestConfig) -> bool:
    """Whether records can be parsed without an earlier pass over their fields, and are read only once."""
    by_name = settings.column_case == "sensitive" and settings.unknown_fields == "ignore"
    return by_name and not settings.evolve_schema and not settings.checks


def schema_problem(text: Column, schema: T.StructType) -> Column:
    """Return why a JSON text does not fit a schema; null if it does. Fields that the schema lacks are no problem."""
    reader = struct_reader(schema, text)
    return evaluate_once(
        parse_object(text, reader.json_type),
        lambda parsed: F.when(_is_invalid(reader, parsed, None), _reason(reader, text, parsed, None)),
    )
