"""Parses payloads into rows of a table: a row for each valid record, a problem for each other one."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.columns import quoted
from icecdc_core.ingest.formats.json_text import JSON_READ_OPTIONS, wrap_object, wrapped_record, wrapped_type
from icecdc_core.ingest.formats.record_keys import convert_text_key
from icecdc_core.ingest.formats.settings import FormatSettings
from icecdc_core.ingest.rows.column_matching import ColumnMatching
from icecdc_core.ingest.rows.inference import infer_schema
from icecdc_core.ingest.rows.nested_readers import StructReader
from icecdc_core.ingest.rows.record_validation import INVALID_JSON, PARSED, validate
from icecdc_core.session.jvm import java_class

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
