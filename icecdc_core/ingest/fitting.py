"""Spread payloads into the columns of a table, and say of every record that doesn't fit why it doesn't."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.columns import OWN_PREFIX, quoted
from icecdc_core.ingest.inference import inferred
from icecdc_core.ingest.matching import Matching
from icecdc_core.ingest.reading import Fields, Flaw, Path
from icecdc_core.ingest.settings import FormatSettings

ROW = "row"
"""The column of `fitted` that holds the row: a struct of the table's columns."""

SHOWN_CHARACTERS = 100
"""Length to which values are shortened in a `problem`."""

_PARSED = f"{OWN_PREFIX}parsed"
_RECORD = f"{OWN_PREFIX}record"
_END = f"{OWN_PREFIX}end"
_BAD = f"{OWN_PREFIX}bad"

JSON_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _BAD,
    # Spark also takes what is no JSON, and text in older formats for a date.
    "allowSingleQuotes": "false",
    "enableDateTimeParsingFallback": "false",
    # In Spark's own locale a decimal in a text loses its commas, so that "1,5" is 15. Here it is no number.
    "locale": "de-CH",
}


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
        The columns of `decoded` but for `payload` and `payload_type`, with `problem` filled in, and then `row`, a
        struct with exactly the columns of `schema`, whatever their names: spread it with ``select("row.*")``. The row
        of a record with a `problem` is not to be used.
    """
    rejecting = settings.evolve_schema or settings.unknown_fields != "ignore"
    any_case = settings.column_case != "sensitive"
    if seen is None and (any_case or rejecting):
        seen = inferred(decoded)
    matching = Matching(any_case, rejecting, frozenset({"Op"} if settings.format == "dms" else {settings.op_field}))
    fields = matching.fields(schema, seen)
    parsed: Column = F.from_json(_enclosed(F.col("payload")), _shell(fields.read), JSON_OPTIONS)
    if fields.by_place:
        parsed = parsed.cast(_shell(fields.named()))
    read = decoded.withColumn(_PARSED, parsed)
    kept = [F.col(quoted(name)) for name in decoded.columns if name not in ("payload", "payload_type", "problem")]
    problem = F.coalesce(F.col("problem"), _problem(fields, settings, seen is not None))
    # A filter on the problem must not be pushed below the parsing, which would then be done twice: Spark leaves
    # filters above a projection that is not deterministic.
    problem = F.when(F.monotonically_increasing_id() < 0, F.lit("")).otherwise(problem)
    return read.select(*kept, problem.alias("problem"), _row(fields, F.col(_PARSED)[_RECORD]).alias(ROW))


def _row(fields: Fields, record: Column) -> Column:
    found = fields.found(record)
    return F.struct(*(slot.value(columns).alias(slot.name) for slot, columns in found if slot.known))


def _problem(fields: Fields, settings: FormatSettings, compared: bool) -> Column:
    """The first reason why a record doesn't fit, null when it does."""
    record = F.col(_PARSED)[_RECORD]
    needed = {name.lower() for name in settings.identifier_columns}
    problem = F.when(_is_broken(F.col(_PARSED)), _unreadable(fields))
    if compared:
        # What `seen` says comes from Spark's variants, which take no object with the same key twice and no bare NaN.
        unseen = F.col("payload_type").isNull() & F.try_parse_json(F.col("payload")).isNull()
        text = "cannot be compared with the columns: a key is there twice, or a value that is no JSON, or it is too big"
        problem = problem.when(unseen, F.lit(text))
    for slot, columns in fields.found(record):
        if slot.name.lower() in needed:
            missing = F.coalesce(*columns).isNull()
            problem = problem.when(missing, F.lit(f"field {slot.name}, an identifier column, is missing or null"))
    for flaw in fields.flaws(record, ()):
        problem = problem.when(flaw.condition, _reason(flaw))
    return problem


def _reason(flaw: Flaw) -> Column:
    name = f"field {'.'.join(flaw.path)}"
    before, found, after = flaw.what.partition("{value}")
    return (
        F.concat(F.lit(f"{name}: {before}"), _shown(_text(flaw.path)), F.lit(after))
        if found
        else F.lit(f"{name} {before}")
    )


def _unreadable(fields: Fields) -> Column:
    """Why a record could not be read: each field is tried alone, which happens for bad records only."""
    payload = F.col("payload")
    nothing = T.StructType([T.StructField(_END, T.LongType())])
    shell = F.from_json(_enclosed(payload), _shell(nothing), JSON_OPTIONS)
    reason = F.when(_is_broken(shell), F.concat(F.lit("not one JSON object: "), _shown(payload)))
    for path, kind, wanted in _leaves(fields, ()):
        alone = F.from_json(_enclosed(payload), _shell(_nested(path, kind)), JSON_OPTIONS)
        text = F.concat(F.lit(f"field {'.'.join(path)}: "), _shown(_text(path)), F.lit(f" is not of type {wanted}"))
        reason = reason.when(alone[_BAD].isNotNull(), text)
    return reason.otherwise(F.concat(F.lit("does not fit the columns: "), _shown(payload)))


def _leaves(fields: Fields, path: Path) -> Iterator[tuple[Path, T.DataType, str]]:
    for slot in fields.slots:
        for key in slot.keys:
            if isinstance(slot.part, Fields):
                yield from _leaves(slot.part, (*path, key))
            else:
                yield (*path, key), slot.part.read, slot.part.kind.simpleString()


def _text(path: Path) -> Column:
    """The text of a field, or of the outermost field around it that is no object."""
    texts = []
    for depth in range(len(path), 0, -1):
        column: Column = F.from_json(F.col("payload"), _nested(path[:depth], T.StringType()), JSON_OPTIONS)
        for name in path[:depth]:
            column = column.getField(name)
        texts.append(column)
    return F.coalesce(*texts)


def _nested(path: Path, kind: T.DataType) -> T.StructType:
    for name in reversed(path):
        kind = T.StructType([T.StructField(name, kind)])
    assert isinstance(kind, T.StructType)
    return kind


def _shown(text: Column) -> Column:
    """The text in quotes, shortened; it stands in the expression only once, since parsing may be behind it."""
    limit = SHOWN_CHARACTERS

    def quote(value: Column) -> Column:
        short = F.concat(F.left(value, F.lit(limit)), F.lit("…"))
        return F.concat(F.lit("'"), F.when(F.length(value) > limit, short).otherwise(value), F.lit("'"))

    return F.transform(F.array(F.coalesce(text, F.lit("null"))), quote)[0]


def _enclosed(payload: Column) -> Column:
    """The text as a field of an object that has another field behind it.

    `from_json` stops after the first JSON value and does not look whether anything follows, so that a second object
    would be lost; here what follows spoils the object around.
    """
    return F.concat(F.lit(f'{{"{_RECORD}":'), payload, F.lit(f',"{_END}":1}}'))


def _shell(record: T.DataType) -> T.StructType:
    """The schema of `_enclosed`; Spark puts the whole text into the last field if anything does not fit."""
    kinds = {_RECORD: record, _END: T.LongType(), _BAD: T.StringType()}
    return T.StructType([T.StructField(name, kind) for name, kind in kinds.items()])


def _is_broken(shell: Column) -> Column:
    return shell[_BAD].isNotNull() | shell[_RECORD].isNull() | shell[_END].isNull()
