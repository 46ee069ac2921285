"""What becomes of one record: a struct that every format makes, and how it is spread into columns."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.columns import OWN_PREFIX

IGNORED = "ignore"
"""The operation of a record that is dropped, since it tells of no row."""

UPSERTS = ("c", "r", "u", "i", "insert", "update", "create", "read", "upsert", "load")
DELETES = ("d", "delete")

FIELDS = ("payload", "payload_type", "op", "problem")
OUTCOME = f"{OWN_PREFIX}outcome"


def outcome(
    payload: Column | None = None,
    payload_type: Column | str | None = None,
    op: Column | None = None,
    problem: Column | None = None,
) -> Column:
    """Return the struct; what is not given is null."""
    nothing = F.lit(None).cast("string")
    given = (payload, F.lit(payload_type), op, problem)
    columns = [nothing if column is None else column for column in given]
    return F.struct(*(column.cast("string").alias(name) for name, column in zip(FIELDS, columns, strict=True)))


def bound(value: Column, use: Callable[[Column], Column]) -> Column:
    """Return ``use(value)`` so that the value, which is dear, is found once however often it is used."""
    return F.transform(F.array(value), use)[0]


def told(code: Column, what: str) -> tuple[Column, Column]:
    """Return the operation that a code stands for, in any case, and the problem if it stands for none."""
    lower = F.lower(code)
    op = F.when(lower.isin(*UPSERTS), F.lit("upsert")).when(lower.isin(*DELETES), F.lit("delete"))
    known = lower.isin(*UPSERTS, *DELETES)
    missing = F.when(code.isNull(), F.lit(f"{what} is missing"))
    return op, missing.when(~known, F.concat(F.lit(f"{what} is '"), F.left(code, F.lit(40)), F.lit("', no operation")))


def spread(records: DataFrame, result: Column, kept: list[str]) -> DataFrame:
    """Return the kept columns and the fields of every outcome, without the records that are ignored."""
    made = records.select(*kept, result.alias(OUTCOME))
    columns = [F.col(OUTCOME).getField(name).alias(name) for name in FIELDS]
    # Not to be pushed below what makes the outcome, see `fitted`.
    columns[2] = F.when(F.monotonically_increasing_id() < 0, F.lit("")).otherwise(columns[2]).alias("op")
    return made.select(*kept, *columns).where(F.col("op").isNull() | (F.col("op") != IGNORED))


def type_text(kind: T.DataType) -> str:
    """Return a type as it stands in `payload_type`."""
    return kind.json()
