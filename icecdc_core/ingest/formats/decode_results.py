"""The result of decoding one record: a struct that every format makes, and its expansion into columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from icecdc_core.columns import OWN_PREFIX
from icecdc_core.ingest.formats.json_text import SECRET, SHOWN

IGNORED = "ignore"
"""The operation of a record that is dropped because it does not describe a row."""

_UPSERTS = ("c", "r", "u", "i", "insert", "update", "create", "read", "upsert", "load")
_DELETES = ("d", "delete")

_FIELDS = ("payload", "payload_type", "op", "problem", "before")
_RESULT = f"{OWN_PREFIX}decode_result"
_REASON = 300


def decode_result(
    payload: Column | None = None,
    payload_type: Column | str | None = None,
    op: Column | None = None,
    problem: Column | None = None,
    before: Column | None = None,
) -> Column:
    """Return the struct of a decoded record; a field that is not given is null."""
    null = F.lit(None).cast("string")
    given = (payload, F.lit(payload_type), op, problem, before)
    columns = [null if column is None else column for column in given]
    return F.struct(*(column.cast("string").alias(name) for name, column in zip(_FIELDS, columns, strict=True)))


def unusable(why: str, value: Column) -> Column:
    """Return the text for a field of a payload that makes its record unusable, whatever the type of its column."""
    return F.concat(
        F.lit(f"{SECRET}'"), F.left(F.regexp_replace(value, '["\\\\]', "?"), F.lit(SHOWN)), F.lit(f"' {why}")
    )


def expand_results(records: DataFrame, result: Column, columns: Sequence[str]) -> DataFrame:
    """Return columns of the records and the fields of their results, without the ignored records."""
    decoded = records.select(*columns, result.alias(_RESULT))
    fields = {name: F.col(_RESULT).getField(name) for name in _FIELDS}
    reason = F.regexp_extract(fields["payload"], f'{SECRET}([^"]*)', 1)
    fields["problem"] = F.coalesce(fields["problem"], F.when(fields["payload"].contains(SECRET), reason))
    # The nondeterministic condition stops Spark from pushing the filter below, where it would decode twice.
    fields["op"] = F.when(F.monotonically_increasing_id() < 0, F.lit("")).otherwise(fields["op"])
    expanded = decoded.select(*columns, *(field.alias(name) for name, field in fields.items()))
    return expanded.where(F.col("op").isNull() | (F.col("op") != IGNORED))


def decode_by_schema(records: DataFrame, schema: str, text: str, decode: Callable[[], Column]) -> Column:
    """Return what a decoder makes of records with a schema; a problem if that schema cannot be understood.

    This is the one place where a producer's schema is read. Whatever it is, and whatever reading it throws, it concerns
    only its own records.
    """
    try:
        result = decode()
        records.select(result)  # Spark checks the types here
    except Exception as error:
        found = getattr(error, "java_exception", error)  # Py4J's own text is about the call
        reason = " ".join(f"{type(error).__name__}: {found}".split())[:_REASON]
        return decode_result(problem=F.lit(f"{schema} cannot be understood ({reason}): '{text[:SHOWN]}'"))
    return result


def evaluate_once(value: Column, use: Callable[[Column], Column]) -> Column:
    """Return ``use(value)`` such that Spark evaluates an expensive value once, however often it is used."""
    return F.transform(F.array(value), use)[0]


def parse_operation(code: Column, field: str) -> tuple[Column, Column]:
    """Return the operation that a code stands for, in any case, and the problem if it stands for none."""
    lower = F.lower(code)
    op = F.when(lower.isin(*_UPSERTS), F.lit("upsert")).when(lower.isin(*_DELETES), F.lit("delete"))
    is_known = lower.isin(*_UPSERTS, *_DELETES)
    unknown = F.concat(F.lit(f"{field} is '"), F.left(code, F.lit(40)), F.lit("', which is not an operation"))
    return op, F.when(code.isNull(), F.lit(f"{field} is missing")).when(~is_known, unknown)
