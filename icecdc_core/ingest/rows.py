"""Records to rows: parses each record into the columns of a table.

In: decoded JSON payloads. Out: a row of the table for each record that fits, a problem for each that does not.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.columns import OWN_PREFIX, quoted
from icecdc_core.ingest.formats.decode_results import (
    JSON_READ_OPTIONS,
    MALFORMED,
    SHOWN,
    FormatSettings,
    evaluate_once,
    is_one_object,
    is_whole_object,
    parse_object,
    quoted_start,
    unreadable_reason,
    wrap_object,
    wrapped_record,
    wrapped_type,
)
from icecdc_core.ingest.formats.record_keys import convert_text_key
from icecdc_core.ingest.inference import infer_schema
from icecdc_core.ingest.readers import ColumnMatching, Record, StructReader, any_of
from icecdc_core.session.jvm import java_class

PARSED = f"{OWN_PREFIX}parsed"
"""The column with the result of `StructReader.parse`."""

ROW = "row"
"""The column of `parse_rows` with the row: a struct of the table's columns."""

IS_VALID = "is_valid"
"""The column of `parse_rows` that says whether the row can be used."""

INVALID_JSON = "!"
"""A text that fits no columns."""


def parse_rows(
    decoded: DataFrame,
    schema: T.StructType,
    settings: FormatSettings,
    seen: T.StructType | None = None,
    report_unknown: bool | None = None,
) -> DataFrame:
    """Give every record its row, or the problem that it has.

    The payload is parsed once, by `from_json` with the types of the table; only Spark's native expressions run. No
    value becomes null without a `problem`. docs/kafka.md ("What fits a column") has the rules.
    """
    if report_unknown is None:
        report_unknown = settings.evolve_schema or settings.unknown_fields != "ignore"
    any_case = settings.column_case != "sensitive"
    if seen is None and (report_unknown or any_case):
        seen = infer_schema(decoded, schema, widen=False, any_case=any_case)
    op_field = "Op" if settings.format == "dms" else settings.op_field.split(".")[0]
    matching = ColumnMatching(
        any_case, report_unknown, tuple(settings.identifier_columns), tuple(filter(None, [op_field]))
    )
    reader = matching.struct_reader(schema, seen)
    rows = _with_text_keys(decoded, reader, settings)
    rows = rows.withColumn(PARSED, reader.parse(F.col("payload")))
    rows = rows.withColumn(ROW, reader.row(wrapped_record(F.col(PARSED))))
    others = [F.col(quoted(name)) for name in decoded.columns if name not in ("payload", "payload_type", "problem")]
    record = Record(F.col("payload"), F.col("op").eqNullSafe("delete"))
    is_invalid = _is_invalid(reader, record, F.col(PARSED), F.col(ROW))
    rows = rows.withColumn(IS_VALID, _not_pushed_down(F.col("problem").isNull() & ~is_invalid))
    # Every record is asked whether it fits, so that must not cost as much as the reason.
    reason = F.coalesce(F.col("problem"), _reason(reader, record, F.col(PARSED), F.col(ROW)))
    return rows.select(*others, F.when(~F.col(IS_VALID), reason).alias("problem"), IS_VALID, ROW)


def _is_invalid(reader: StructReader, record: Record, parsed: Column, row: Column | None) -> Column:
    return any_of([~is_whole_object(parsed), *reader.violations(wrapped_record(parsed), row, record)])


def _reason(reader: StructReader, record: Record, parsed: Column, row: Column | None) -> Column:
    """Why a record that does not fit does not."""
    payload, fields = record.payload, wrapped_record(parsed)
    other = F.concat(F.lit("does not fit the columns: "), quoted_start(payload))
    unreadable = unreadable_reason(payload, other)

    def explain(texts: Column) -> Column:
        def named(name: str, reason: str) -> Column:
            shown = F.left(F.try_element_at(texts, F.lit(name)), F.lit(SHOWN))
            # A number that is too big was read as infinity, which nobody sent.
            is_shown = F.lit("too big" not in reason)
            value = F.coalesce(F.when(is_shown, F.concat(F.lit(": '"), shown, F.lit("'"))), F.lit(""))
            shown_name = name or '""'
            return F.concat(F.lit(f"field {shown_name}"), value, F.lit(f" {reason}"))

        reasons = F.when(~is_one_object(payload), unreadable)
        for name, kind, is_lost in _lost_values(reader, fields, payload, texts):
            reasons = reasons.when(is_lost, named(name, f"is not of type {kind}"))
        reasons = reasons.when(~is_whole_object(parsed), unreadable)
        for field, condition, reason in reader.problems(fields, row, record):
            reasons = reasons.when(condition, named(field.spellings[0], reason))
        return reasons.otherwise(other)

    return evaluate_once(F.from_json(payload, "map<string,string>", JSON_READ_OPTIONS), explain)


def _lost_values(
    reader: StructReader, record: Column, payload: Column, texts: Column
) -> Iterator[tuple[str, str, Column]]:
    """The fields with their type, and whether a record has a text for them, but no value of that type."""
    for field, columns in reader.parsed_fields(record):
        for name, column, json_field in zip(field.spellings, columns, field.json_fields, strict=True):
            is_lost = F.try_element_at(texts, F.lit(name)).isNotNull() & column.isNull()
            if isinstance(json_field.dataType, (T.StructType, T.ArrayType, T.MapType)):
                # A nested value was parsed, but without the values in it that do not fit.
                is_lost = is_lost | parse_object(payload, T.StructType([json_field]))[MALFORMED].isNotNull()
            yield name, field.type_name, is_lost


def _with_text_keys(decoded: DataFrame, reader: StructReader, settings: FormatSettings) -> DataFrame:
    """Convert keys that are plain text to the type of their identifier column."""
    if len(settings.identifier_columns) != 1:
        return decoded
    [identifier] = settings.identifier_columns
    for field in reader.fields:
        if field.reader is not None and field.name == identifier:
            given = (F.col("payload"), F.col("payload_type"), identifier, field.spellings[0], field.reader.kind)
            return decoded.withColumn("payload", convert_text_key(*given))
    return decoded


def needs_no_inference(settings: FormatSettings) -> bool:
    """Whether records can be parsed without an earlier pass over their fields, as `parse_rows_only` does."""
    return settings.column_case == "sensitive" and settings.unknown_fields == "ignore" and not settings.evolve_schema


def parse_rows_only(decoded: DataFrame, schema: T.StructType, settings: FormatSettings) -> DataFrame:
    """Give every record its row as `parse_rows` does, without its other columns, for two thirds of the cost.

    Spark's JSON reader for texts has no buffer of 8 KB for each record, but returns only what it parsed.
    """
    spark = decoded.sparkSession
    reader = ColumnMatching(identifiers=tuple(settings.identifier_columns)).struct_reader(schema, None)
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
    rows = parsed.select(columns).withColumn(ROW, reader.row(wrapped_record(F.col(PARSED))))
    # With this payload every infinity is suspect: the slower parse looks at what the record has.
    record = Record(F.lit("1e999"), F.lit(False))
    is_valid = ~_is_invalid(reader, record, F.col(PARSED), F.col(ROW))
    op = F.lit(None).cast("string").alias("op")
    return rows.select(op, _not_pushed_down(is_valid).alias(IS_VALID), ROW)


def schema_problem(text: Column, schema: T.StructType) -> Column:
    """Return why a JSON text does not fit a schema; null if it does. Fields that the schema lacks are no problem."""
    reader = ColumnMatching().struct_reader(schema, None)
    record = Record(text, F.lit(False))

    def problem(parsed: Column) -> Column:
        return F.when(_is_invalid(reader, record, parsed, None), _reason(reader, record, parsed, None))

    return evaluate_once(reader.parse(text), problem)


def read_values(
    payload: Column, schema: T.StructType, any_case: bool = False, seen: T.StructType | None = None
) -> Column:
    """Return a struct with the values of a payload, unchecked: null for one that is missing or does not fit."""
    reader = ColumnMatching(any_case).struct_reader(schema, seen)
    return reader.row(wrapped_record(reader.parse(payload)))


def _not_pushed_down(condition: Column) -> Column:
    """The condition behind a nondeterministic one, so that Spark does not push filters on it below the parse.

    Such a filter would parse every record twice.
    """
    return F.when(F.monotonically_increasing_id() < 0, F.lit(False)).otherwise(condition)


def reject_without_table(decoded: DataFrame, settings: FormatSettings) -> DataFrame:
    """Return records as `parse_rows` does, though there is no table: all have a `problem`, except deletes."""
    columns = T.StructType([T.StructField(name, T.StringType()) for name in settings.identifier_columns])
    rows = parse_rows(decoded, columns, settings, report_unknown=False)
    no_columns = "the table does not exist, and the record has no value from which it could get a column"
    is_row = ~F.col("op").eqNullSafe("delete")
    return rows.withColumn("problem", F.coalesce("problem", F.when(is_row, F.lit(no_columns))))
