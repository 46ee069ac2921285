"""Reading a payload with the types of a table, and the first reason why it doesn't fit them."""

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
from icecdc_core.ingest.formats.decode_results import bound
from icecdc_core.ingest.formats.json_text import JSON_READ_OPTIONS, MALFORMED, SHOWN, unreadable
from icecdc_core.ingest.rows.column_names import shown
from icecdc_core.ingest.rows.json_reading import Flaw
from icecdc_core.ingest.rows.nested import Fields

PARSED = f"{OWN_PREFIX}parsed"
"""The column with what `from_json` makes of `enclosed` payloads."""

RECORD = f"{OWN_PREFIX}record"
"""Its field with the record."""

_END = f"{OWN_PREFIX}end"
NO_JSON = "!"
"""A text that fits no columns."""


@dataclass(frozen=True)
class Verdict:
    """What is wrong with a record.

    Attributes:
        fits: Whether nothing is.
        problem: The first reason why it doesn't fit, null when it does.
    """

    fits: Column
    problem: Column


def judged(fields: Fields, identifiers: Iterable[str], compared: bool) -> Verdict:
    """Return how a record fits, which stands in the columns `PARSED` and `row`.

    Args:
        fields: How it was read.
        identifiers: Columns that it must have.
        compared: Whether fields were compared with those that were seen in all records.
    """
    checks = [(_is_broken(F.col(PARSED)), _unreadable(fields))]
    if compared:
        # What `seen` says comes from Spark's variants, which take no object with the same key twice and no bare NaN.
        unseen = F.col("payload_type").isNull() & F.try_parse_json(F.col("payload")).isNull()
        text = "cannot be compared with the columns: a key is there twice, or a value that is no JSON, or it is too big"
        checks.append((unseen, F.lit(text)))
    record, needed = F.col(PARSED)[RECORD], {name.lower() for name in identifiers}
    for slot, columns in fields.found(record) if needed else ():
        if slot.known and slot.name.lower() in needed:
            reason = F.lit(f"field {slot.name}, an identifier column, is missing or null")
            checks.append((F.coalesce(*columns).isNull(), reason))
    checks += [(flaw.condition, _reason(flaw)) for flaw in fields.flaws(record, (), F.col("row"))]
    problem = reduce(lambda case, check: case.when(*check), checks[1:], F.when(*checks[0]))
    unfit = reduce(or_, (condition for condition, _ in checks))
    # Whether a record fits is asked of all, so that it must be cheaper than to know why one doesn't.
    return Verdict(F.when(unfit, F.lit(False)).otherwise(F.lit(True)), problem)


def _reason(flaw: Flaw) -> Column:
    name = f"field {shown(flaw.path)}"
    if flaw.value is None:
        return F.lit(f"{name} {flaw.what}")
    before, after = (text.replace("%", "%%") for text in (name, flaw.what))
    return F.format_string(f"{before}: '%.{SHOWN}s' {after}", flaw.value)


def _unreadable(fields: Fields) -> Column:
    """Why a record could not be read. What stands here is looked at for such records only."""
    payload = F.col("payload")
    nothing = T.StructType([T.StructField(_END, T.LongType())])
    is_object = ~_is_broken(F.from_json(enclosed(payload), shell(nothing), JSON_READ_OPTIONS))
    unfit = F.when(~is_object, F.format_string(f"not one JSON object: '%.{SHOWN}s'", payload))
    texts = F.from_json(payload, "map<string,string>", JSON_READ_OPTIONS)
    # Fields that are there as text, but not as what they should be.
    names = {key: [name, kind] for key, name, kind in _columns(fields)}
    columns = F.from_json(F.lit(json.dumps(names)), "map<string,array<string>>")
    read = F.json_object_keys(F.to_json(F.col(PARSED)[RECORD]))
    lost = F.filter(
        F.map_entries(texts),
        lambda field: field["value"].isNotNull() & ~F.array_contains(read, F.try_element_at(columns, field["key"])[0]),
    )

    def told(field: Column) -> Column:
        kind = F.try_element_at(columns, field["key"])[1]
        return F.format_string(f"field %s: '%.{SHOWN}s' is not of type %s", field["key"], field["value"], kind)

    reason = unfit.when(F.size(lost) > 0, bound(F.get(lost, F.lit(0)), told))
    # An object or a list of objects is there, but without what doesn't fit in it.
    for slot in fields.slots:
        for key in slot.keys:
            if isinstance(slot.part.read, (T.StructType, T.ArrayType, T.MapType)):
                alone = T.StructType([T.StructField(key, slot.part.read)])
                bad = F.from_json(enclosed(payload), shell(alone), JSON_READ_OPTIONS)[MALFORMED].isNotNull()
                text = F.try_element_at(texts, F.lit(key))
                flaw = Flaw(bad, (key,), f"is not of type {slot.part.kind.simpleString()}", text)
                reason = reason.when(bad, _reason(flaw))
    other = F.format_string(f"does not fit the columns: '%.{SHOWN}s'", payload)
    return reason.otherwise(F.when(texts.isNull(), unreadable(payload, other)).otherwise(other))


def _columns(fields: Fields) -> Iterable[tuple[str, str, str]]:
    """Every key with the name under which it was read, and the type wanted."""
    named = fields.named()
    assert isinstance(named, T.StructType)
    keys = [(key, slot.part.kind.simpleString()) for slot in fields.slots for key in slot.keys]
    return [(key, name, kind) for (key, kind), name in zip(keys, named.names, strict=True)]


def enclosed(payload: Column) -> Column:
    """The text as a field of an object that has another field behind it.

    `from_json` stops after the first JSON value and does not look whether anything follows, so that a second object
    would be lost; here what follows spoils the object around.
    """
    return F.concat(F.lit(f'{{"{RECORD}":'), payload, F.lit(f',"{_END}":1}}'))


def shell(record: T.DataType) -> T.StructType:
    """The schema of `enclosed`; Spark puts the whole text into the last field if anything does not fit."""
    kinds = {RECORD: record, _END: T.LongType(), MALFORMED: T.StringType()}
    return T.StructType([T.StructField(name, kind) for name, kind in kinds.items()])


def _is_broken(shell: Column) -> Column:
    return shell[MALFORMED].isNotNull() | shell[RECORD].isNull() | shell[_END].isNull()
