"""Spread payloads into the columns of a table, and say of every record that doesn't fit why it doesn't."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.columns import quoted
from icecdc_core.ingest.formats.json_text import JSON_READ_OPTIONS
from icecdc_core.ingest.formats.record_keys import read_keys
from icecdc_core.ingest.formats.settings import FormatSettings
from icecdc_core.ingest.rows.inference import inferred
from icecdc_core.ingest.rows.matching import Matching
from icecdc_core.ingest.rows.nested import Fields
from icecdc_core.ingest.rows.record_validation import NO_JSON, PARSED, RECORD, enclosed, judged, shell
from icecdc_core.session.jvm import java_class

ROW = "row"
"""The column of `fitted` that holds the row: a struct of the table's columns."""


FITS = "fits"
"""The column of `fitted` that says whether the row may be used."""


def fitted(
    decoded: DataFrame, schema: T.StructType, settings: FormatSettings, seen: T.StructType | None = None
) -> DataFrame:
    """Give every record its row, or the reason why it has none.

    The payload is parsed once, by `from_json` with the table's own types; nothing else than Spark's native expressions
    runs. No value becomes null without a `problem`: a wrong type, a number too big for its column, a text that is no
    time, a required or identifier column that is missing or null, a field without a column (unless ignored), and
    whatever is not one whole JSON object. Decimals are rounded to the column's scale (half up), and of a key that an
    object has twice the last one counts, as everywhere in Spark.

    Args:
        decoded: What `formats.decoded` returned.
        schema: The table's columns, as Spark shows them.
        settings: See `FormatSettings`.
        seen: What `inferred` said of the same frame. It is needed (and found here, in one more pass over the frame)
            where fields find their columns in any case, or must all have one.

    Returns:
        The columns of `decoded` but for `payload` and `payload_type`, with `problem` filled in, then `fits` (whether
        there is no problem, which costs less to know: a frame of good rows should not touch `problem`), and `row`, a
        struct with exactly the columns of `schema`, whatever their names: spread it with ``select("row.*")``. The row
        of a record that does not fit is not to be used.
    """
    rejecting = settings.evolve_schema or settings.unknown_fields != "ignore"
    any_case = settings.column_case != "sensitive"
    if seen is None and not can_stand_alone(settings):
        seen = inferred(decoded, schema, widen=False, any_case=any_case)
    told = "Op" if settings.format == "dms" else settings.op_field.split(".")[0]
    matching = Matching(any_case, rejecting, frozenset({told} - {""}))
    fields = matching.fields(schema, seen)
    decoded = _with_read_keys(decoded, fields, settings)
    parsed: Column = F.from_json(enclosed(F.col("payload")), shell(fields.read), JSON_READ_OPTIONS)
    if fields.by_place:
        parsed = parsed.cast(shell(fields.named()))
    read = decoded.withColumn(PARSED, parsed)
    read = read.withColumn(ROW, _row(fields, F.col(PARSED)[RECORD]))
    kept = [F.col(quoted(name)) for name in decoded.columns if name not in ("payload", "payload_type", "problem")]
    judgement = judged(fields, settings.identifier_columns, seen is not None)
    problem = F.coalesce(F.col("problem"), judgement.problem)
    problem, fits = _once(problem, ""), _once(F.col("problem").isNull() & judgement.fits, False)
    return read.select(*kept, problem.alias("problem"), fits.alias(FITS), F.col(ROW))


def _with_read_keys(decoded: DataFrame, fields: Fields, settings: FormatSettings) -> DataFrame:
    """Read keys that are plain text by the type of their identifier column."""
    if len(settings.identifier_columns) != 1:
        return decoded
    [identifier] = settings.identifier_columns
    for slot in fields.slots:
        if slot.known and slot.name == identifier:
            payload = read_keys(F.col("payload"), F.col("payload_type"), identifier, slot.keys[0], slot.part.kind)
            return decoded.withColumn("payload", payload)
    return decoded


def can_stand_alone(settings: FormatSettings) -> bool:
    """Whether `fitted_alone` can tell rows: nothing of the records has to be seen before."""
    seen_before = settings.evolve_schema or settings.unknown_fields != "ignore" or settings.column_case != "sensitive"
    return not seen_before


def fitted_alone(decoded: DataFrame, schema: T.StructType, settings: FormatSettings) -> DataFrame:
    """Give every record its row as `fitted` does, with nothing beside it, for two thirds of the cost.

    `from_json` makes a stream with a buffer of 8 KB for each record, and takes it apart again. Spark's reader of JSON
    texts reads each in place, by the same parser with the same options, but keeps nothing that was beside the text.

    Args:
        decoded: What `formats.decoded` returned.
        schema: The table's columns, as Spark shows them.
        settings: Such that `can_stand_alone`.

    Returns:
        A row for each record: `fits`, `row` as in `fitted`, and `op`, which is null as no delete fits. What doesn't fit
        here may do so all the same where an infinite number is written out: ask `fitted` about records that don't.
    """
    spark = decoded.sparkSession
    fields = Matching(False, False, frozenset()).fields(schema, None)
    usable = F.col("problem").isNull() & ~F.col("op").eqNullSafe("delete")
    # A record that has a problem already is to be one that doesn't fit.
    texts = decoded.select(F.coalesce(F.when(usable, enclosed(F.col("payload"))), F.lit(NO_JSON)).alias("value"))
    text_encoder = java_class(spark, "org.apache.spark.sql.Encoders").STRING()
    reader = spark.read.schema(shell(fields.read)).options(**JSON_READ_OPTIONS)
    # PySpark shows this reader for RDDs of Python texts only.
    parsed = DataFrame(reader._jreader.json(getattr(texts._jdf, "as")(text_encoder)), spark)
    columns = F.struct(*(F.col(name) for name in parsed.columns)).alias(PARSED)
    gone = (F.lit("").alias("payload"), F.lit(None).cast("string").alias("op"))
    read = parsed.select(columns, *gone).withColumn(ROW, _row(fields, F.col(PARSED)[RECORD]))
    fits = _once(judged(fields, settings.identifier_columns, False).fits, False)
    return read.select("op", fits.alias(FITS), F.col(ROW))


def _once(value: Column, otherwise: object) -> Column:
    """The value, behind a projection that is not deterministic: Spark leaves filters on it above.

    Pushed below it, they would have records parsed twice.
    """
    return F.when(F.monotonically_increasing_id() < 0, F.lit(otherwise)).otherwise(value)


def checked(decoded: DataFrame, schema: T.StructType, chosen: Column) -> DataFrame:
    """Fill in the `problem` of the chosen records that do not fit a schema; fields it doesn't name are no problem."""
    fields = Matching(False, False, frozenset()).fields(schema, None)
    read = F.when(chosen, F.from_json(enclosed(F.col("payload")), shell(fields.read), JSON_READ_OPTIONS))
    parsed = decoded.withColumn(PARSED, read)
    values = parsed.withColumn(ROW, _row(fields, F.col(PARSED)[RECORD]))
    problem = F.when(chosen, judged(fields, (), False).problem)
    return values.withColumn("problem", F.coalesce(F.col("problem"), problem)).drop(PARSED, ROW)


def _row(fields: Fields, record: Column) -> Column:
    found = fields.found(record)
    return F.struct(*(slot.value(columns).alias(slot.name) for slot, columns in found if slot.known))
