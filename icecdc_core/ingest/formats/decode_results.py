"""How JSON is read exactly, and the result of decoding one record: a struct that every format makes."""

import secrets
from collections.abc import Callable
from functools import reduce
from typing import cast

from pyspark.sql import Column, DataFrame, functions as F, types as T

from icecdc_core.columns import OWN_PREFIX

MALFORMED = f"{OWN_PREFIX}bad"  # the field of a `from_json` schema that gets the whole text if that does not fit

JSON_READ_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": MALFORMED,
    # By default Spark also reads text in single quotes, and text in older formats as a date.
    "allowSingleQuotes": "false",
    "enableDateTimeParsingFallback": "false",
    # In Spark's default locale a decimal in a text loses its commas, so that "1,5" is 15. Here it is no number.
    "locale": "de-CH",
    # Spark's inference recurses: a record of 300 levels would end a thread, for which the run would wait forever.
    "maxNestingDepth": "102",  # with the two of `wrap_object`
}

SECRET = f"{OWN_PREFIX}{secrets.token_hex(8)}"  # no record can know this name, or forge what stands under it

SHOWN = 100  # characters of a value that a problem shows
_LONGEST_STRING = 20_000_000  # of Spark's JSON parser, in characters

LONE_SURROGATE = "a text in it has half of a surrogate pair, which is no character"

LONG_NUMBER = "a number in it has more digits than a double"

# An escape with a surrogate behind an even number of backslashes; a pair of them is a character.
_ESCAPE, _PAIR = r"(?<!\\)((?:\\\\)*)\\u[dD]", r"[89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"

# More digits than the shortest text of a double has, with an exponent, or more than a decimal has.
_LONG_NUMBER = r"(?<![0-9.])[0.]*+[1-9](?=[0-9.]{17})(?:[.]?[0-9]){17}(?:[0-9.]*+[eE]|(?:[.]?[0-9]){21})"


def wrap_object(text: Column) -> Column:
    """Return a JSON object around a text, from which `is_whole_object` says whether the text is exactly one object."""
    # `from_json` stops after the first value. The second element of this array has a name that no record can know:
    # whatever the text opens, closes or adds, the array is complete only if the text is one value.
    return F.concat(F.lit(f'{{"{SECRET}":['), text, F.lit(f',{{"{SECRET}":1}}]}}'))


def parse_object(text: Column, record: T.StructType) -> Column:
    """Parse a wrapped object; the last field gets the whole text if anything does not fit."""
    element = T.StructType([*record.fields, T.StructField(SECRET, T.LongType())])
    kind = T.StructType([T.StructField(SECRET, T.ArrayType(element)), T.StructField(MALFORMED, T.StringType())])
    return F.from_json(wrap_object(text), kind, JSON_READ_OPTIONS)


def wrapped_record(parsed: Column) -> Column:
    return F.get(parsed[SECRET], F.lit(0))


def is_whole_object(parsed: Column) -> Column:
    elements = parsed[SECRET]
    ends = (F.size(elements) == 2) & F.get(elements, F.lit(1))[SECRET].isNotNull()
    return F.coalesce(parsed[MALFORMED].isNull() & ends & wrapped_record(parsed).isNotNull(), F.lit(False))


def has_lone_surrogate(text: Column) -> Column:
    """Whether a string in a JSON text has half of a surrogate pair, which Spark reads as a question mark."""
    without_pairs = F.regexp_replace(text, _ESCAPE + _PAIR, "$1 ")
    # Most texts have no escape at all, so that they are searched once.
    has_escape = F.contains(text, F.lit(r"\u")) & (F.contains(text, F.lit(r"\ud")) | F.contains(text, F.lit(r"\uD")))
    return F.coalesce(has_escape & without_pairs.rlike(_ESCAPE + "[89a-fA-F]"), F.lit(False))


def _without_strings(text: Column) -> Column:
    # Without escapes a string ends at the next quote. No pattern has a group that repeats: Java would recurse.
    return F.regexp_replace(F.regexp_replace(text, r"(?s)\\.", ""), '"[^"]*+"', "")


def has_long_number(text: Column) -> Column:
    """Whether a JSON text has a number, outside its strings, that a variant rounds to a double."""
    return F.coalesce(text.rlike(_LONG_NUMBER) & _without_strings(text).rlike(_LONG_NUMBER), F.lit(False))


def has_too_big_number(text: Column, kind: T.DataType) -> Column:
    """Whether a JSON text has a number, outside its strings, that a float or double stores as infinity."""
    numbers = F.regexp_extract_all(_without_strings(text), F.lit(r"[0-9][0-9.eE+-]*+"), 0)
    return F.exists(numbers, lambda number: F.coalesce(number.try_cast(kind) == F.lit(float("inf")), F.lit(False)))


def unreadable_reason(text: Column, problem: Column) -> Column:
    """Return why a JSON text could not be read: that it is not one object, or the given problem."""
    is_one_object = is_whole_object(parse_object(text, T.StructType()))
    reason = F.when(is_one_object, problem).otherwise(with_start("not one JSON object", text))
    limit = F.lit(f"; perhaps a string in it has more than {_LONGEST_STRING:,} characters, which is the limit")
    return F.when(F.length(text) > _LONGEST_STRING, F.concat(reason, limit)).otherwise(reason)


def with_start(problem: str, text: Column) -> Column:
    return F.concat(F.lit(f"{problem}: '"), F.left(F.coalesce(text, F.lit("null")), F.lit(SHOWN)), F.lit("'"))


def variant_text(variant: Column) -> Column:
    """A variant as JSON; null for a JSON null. A text is itself, as for a document of MongoDB."""
    is_text = F.schema_of_variant(variant) == "STRING"
    row = F.when(is_text, F.variant_get(variant, "$", "string")).otherwise(F.to_json(variant))
    return F.when(~F.is_variant_null(variant), row)


def json_field(payload: Column, path: list[str]) -> Column:
    kind: T.DataType = T.StringType()
    for part in reversed(path):
        kind = T.StructType([T.StructField(part, kind)])
    return reduce(Column.getField, path, F.from_json(payload, cast(T.StructType, kind), JSON_READ_OPTIONS))


IGNORED = "ignore"  # the operation of a record that is dropped because it does not describe a row
PARTIAL = "partial"  # that of an upsert with unavailable values
TRUNCATE = "truncate"  # that of a record which empties the table
_UPSERTS = ("c", "r", "u", "i", "insert", "update", "create", "read", "upsert", "load")
DELETES = ("d", "delete")
IS_DELETE = "op <=> 'delete'"
"""Whether a decoded record is a delete, in SQL."""


ENVELOPE = "envelope"
"""Field of a decode result: as JSON, what expressions use of a change event beside its row."""


def decode_result(
    payload: Column | None = None,
    payload_type: Column | str | None = None,
    op: Column | str | None = None,
    problem: Column | str | None = None,
    before: Column | None = None,
) -> Column:
    given = {"payload": payload, "payload_type": payload_type, "op": op, "problem": problem, "before": before}
    given[ENVELOPE] = None
    return F.struct(*(F.lit(value).cast("string").alias(name) for name, value in given.items()))


def unusable(why: str, value: Column) -> Column:
    """Return the text for a field of a payload that makes its record unusable, whatever the type of its column."""
    shown = F.left(F.regexp_replace(value, '["\\\\]', "?"), F.lit(SHOWN))
    return F.concat(F.lit(f"{SECRET}'"), shown, F.lit(f"' {why}"))


def decode_by_schema(records: DataFrame, schema: str, text: str, decode: Callable[[], Column]) -> Column:
    """Return what a decoder makes of records; whatever their schema is or throws concerns only these records."""
    try:
        result = decode()
        records.select(result)  # Spark checks the types here
    except Exception as error:
        # Py4J's own text is about the call.
        reason = " ".join(f"{type(error).__name__}: {getattr(error, 'java_exception', error)}".split())[:300]
        return decode_result(problem=f"{schema} cannot be understood ({reason}): '{text[:SHOWN]}'")
    return result


def evaluate_once(value: Column, use: Callable[[Column], Column]) -> Column:
    """Return ``use(value)`` such that Spark evaluates an expensive value once, however often it is used."""
    return F.transform(F.array(value), use)[0]


def once(value: Column) -> Column:
    """A value that Spark neither computes wherever its column is used, nor filters by below what it is made of."""
    return F.when(F.monotonically_increasing_id() >= 0, value)


def parse_operation(code: Column, field: str) -> tuple[Column, Column]:
    """Return the operation that a code stands for, in any case, and the problem if it stands for none."""
    lower = F.lower(code)
    op = F.when(lower.isin(*_UPSERTS), F.lit("upsert")).when(lower.isin(*DELETES), F.lit("delete"))
    unknown = F.concat(F.lit(f"{field} is '"), F.left(code, F.lit(40)), F.lit("', which is not an operation"))
    return op, F.when(code.isNull(), F.lit(f"{field} is missing")).when(op.isNull(), unknown)
