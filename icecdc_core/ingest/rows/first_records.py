"""The records from which a table is made: which of them can be rows of it, and what is said of those that cannot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from typing import cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from icecdc_core.ingest.formats.json_text import JSON_READ_OPTIONS, text_at
from icecdc_core.ingest.formats.settings import FormatSettings
from icecdc_core.ingest.rows.column_names import folded, shown
from icecdc_core.ingest.rows.fitting import fitted
from icecdc_core.ingest.rows.inference import begins_object, inferred
from icecdc_core.ingest.rows.json_reading import Path
from icecdc_core.ingest.rows.matching import Matching
from icecdc_core.ingest.rows.nested import Fields

_NOTHING = "the table does not exist, and no value in the record says what columns it would have"


def first_schema(decoded: DataFrame, settings: FormatSettings) -> T.StructType:
    """Return the schema of those records that can be rows of a new table; empty when none can.

    Broken records, deletes, and records without a value for an identifier column say nothing of a table. Of names that
    differ only in case the most frequent comes first.

    Args:
        decoded: As `formats.decoded` returns it.
        settings: See `FormatSettings`.
    """
    is_object = begins_object("payload") & F.try_parse_json("payload").isNotNull()
    good = F.col("problem").isNull() & ~_is_delete() & is_object
    for name in settings.identifier_columns:
        good = good & _has(name, settings)
    usable = decoded.where(good)
    return frequent_first(usable, inferred(usable), settings)


def frequent_first(decoded: DataFrame, seen: T.StructType, settings: FormatSettings) -> T.StructType:
    """Return what was seen, such that of names that differ only in case the most frequent comes first.

    The first becomes the column, and one odd record must not make the name of all others useless. Arrays and maps are
    not looked into.
    """
    rivals = list(_rivals(seen, ())) if settings.column_case == "sensitive" else []
    if not rivals:
        return seen
    texts = (text_at(F.col("payload"), path) for path in rivals)
    counts = decoded.agg(*(F.count(text).alias(str(place)) for place, text in enumerate(texts))).first()
    assert counts is not None
    return _ordered(seen, dict(zip(rivals, counts, strict=True)), ())


def _rivals(seen: T.StructType, path: Path) -> Iterator[Path]:
    times = Counter(folded(name) for name in seen.names)
    for field in seen.fields:
        if times[folded(field.name)] > 1:
            yield (*path, field.name)
        if isinstance(field.dataType, T.StructType):
            yield from _rivals(field.dataType, (*path, field.name))


def _ordered(seen: T.StructType, times: dict[Path, int], path: Path) -> T.StructType:
    fields = []
    for field in sorted(seen.fields, key=lambda field: -times.get((*path, field.name), 0)):
        kind = field.dataType
        if isinstance(kind, T.StructType):
            kind = _ordered(kind, times, (*path, field.name))
        fields.append(T.StructField(field.name, kind, field.nullable, field.metadata))
    return T.StructType(fields)


def refused_fields(columns: T.StructType, seen: T.StructType, settings: FormatSettings) -> dict[Path, str]:
    """Return the fields of the first records that a table's columns have no place for, each with the reason.

    Args:
        columns: The columns of the new table.
        seen: What `first_schema` returned.
        settings: See `FormatSettings`.
    """
    fields = Matching(settings.column_case != "sensitive", True, frozenset()).fields(columns, seen)
    return dict(_unknown(fields, ()))


def marked(decoded: DataFrame, refused: dict[Path, str]) -> DataFrame:
    """Fill in the `problem` of records that have one of these fields."""
    problem = F.col("problem")
    for path, why in refused.items():
        text = text_at(F.col("payload"), path)
        start, end = (each.replace("%", "%%") for each in (f"field {shown(path)}", why))
        reason = F.format_string(f"{start}: '%.100s' {end}", text)
        problem = F.coalesce(problem, F.when(text.isNotNull() & ~_is_delete(), reason))
    return decoded.withColumn("problem", problem)


def unusable(decoded: DataFrame, settings: FormatSettings) -> DataFrame:
    """Return records of which no table can be made as `fitted` does, each with a `problem`; deletes have none."""
    columns = T.StructType([T.StructField(name, T.StringType()) for name in settings.identifier_columns])
    refused = refused_fields(T.StructType(), first_schema(decoded, settings), settings)
    rows = fitted(marked(decoded, refused), columns, cast(FormatSettings, _Plain(settings)))
    return rows.withColumn("problem", F.coalesce("problem", F.when(~_is_delete(), F.lit(_NOTHING))))


class _Plain:
    """The settings with which every field may be there, and none need have a column."""

    evolve_schema, unknown_fields = False, "ignore"

    def __init__(self, settings: FormatSettings) -> None:
        self._settings = settings

    def __getattr__(self, name: str) -> object:
        return getattr(self._settings, name)


def _is_delete() -> Column:
    return F.coalesce(F.col("op") == "delete", F.lit(False))


def _has(name: str, settings: FormatSettings) -> Column:
    """Whether a record has a value for an identifier column."""
    payload, paths = F.col("payload"), ([name], name.split("."))
    if settings.column_case == "sensitive":
        return F.coalesce(*(text_at(payload, path) for path in paths)).isNotNull()
    return reduce(or_, (_has_in_any_case(payload, path) for path in paths))


def _has_in_any_case(text: Column, path: Sequence[str]) -> Column:
    """Whether a JSON object has a value at a path, whatever the case of the names."""
    name, inner = path[0].lower(), path[1:]

    def matches(field: Column) -> Column:
        there = _has_in_any_case(field["value"], inner) if inner else field["value"].isNotNull()
        return (F.lower(field["key"]) == name) & there

    fields = F.map_entries(F.from_json(text, "map<string,string>", JSON_READ_OPTIONS))
    return F.coalesce(F.exists(fields, matches), F.lit(False))


def _unknown(fields: Fields, path: Path) -> Iterator[tuple[Path, str]]:
    for slot in fields.slots:
        for key in slot.keys:
            if not slot.known:
                yield (*path, key), slot.refusal
            elif isinstance(slot.part, Fields):
                yield from _unknown(slot.part, (*path, key))
