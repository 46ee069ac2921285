"""Parses payloads with the types of a table, and finds the first reason why a record does not fit them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.columns import OWN_PREFIX
from icecdc_core.ingest.formats.decode_results import evaluate_once
from icecdc_core.ingest.formats.json_text import (
    JSON_READ_OPTIONS,
    MALFORMED,
    NOT_ONE_OBJECT,
    SHOWN,
    is_one_object,
    is_whole_object,
    quoted_start,
    unreadable_reason,
    wrap_object,
    wrapped_record,
    wrapped_type,
)
from icecdc_core.ingest.rows.column_names import path_text
from icecdc_core.ingest.rows.nested_readers import StructReader
from icecdc_core.ingest.rows.value_readers import Violation

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
