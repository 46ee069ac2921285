"""Compare values by narrow rows, which is all that a comparison shuffles; then fetch the rows that changed.

A narrow row has the identifiers, and one number instead of all other values: 63 bits of hash, and the side as the last
bit. ``shuffle_by_identifiers``, ``remove_narrow_carryovers`` and ``merge_narrow_updates`` take these rows.
"""

import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, functions as F, types as T

from icecdc_core.carryover import remove_narrow_carryovers
from icecdc_core.changes.places import look_up_old_places
from icecdc_core.changes.row_changes import NetChanges, PlannedRange
from icecdc_core.columns import (
    CHANGE_ORDINAL,
    IS_DELETE,
    IS_DUPLICATE,
    IS_INSERT,
    JSON_OPTIONS,
    NUMBER,
    OWN_PREFIX,
    RESERVED,
    ROWS,
    WAS_THERE,
    quoted,
)
from icecdc_core.equality import canonical_value, is_floating, with_canonical_columns
from icecdc_core.session.jvm import unpersist
from icecdc_core.session.spark import RowCount, cached_and_counted, cached_bytes, can_broadcast, tuned_for_many_groups
from icecdc_core.shuffle import shuffle_by_identifiers
from icecdc_core.table.schema import any_null
from icecdc_core.updates import (
    DECIDING_STEP,
    IS_DELETED,
    IS_UPSERTED,
    keep_unless_duplicate,
    merge_narrow_updates,
    with_deletes,
)

FAST, KEYED = "fast", "keyed"

_TEXTS = (T.StringType, T.ArrayType, T.MapType, T.StructType, T.VariantType)
_BITS = 32

BROADCAST_ROWS = 300_000
"""Up to here identifiers are sent to every task that reads the newer side; more are shuffled, as in any join."""
_STRATEGY = "narrow-rows"


def new_key(row_hash: str) -> str:
    """Return the key that one comparison hashes with; "" for ``fast``."""
    # Spark's plans and event log show it, which does no harm: it is drawn after its rows were committed, and used once.
    return secrets.token_hex(32) if row_hash == KEYED else ""


def with_row_hash(frame: DataFrame, fields: Sequence[T.StructField], key: str = "") -> tuple[DataFrame, str]:
    """Return what it takes to hash these columns so that the hash differs if a value does."""
    if key:
        rows, names = with_canonical_columns(frame, fields, _as_json)
        return rows, keyed_hash(fields, names, key)
    rows, fields, nullable = _with_fields_of_structs(frame, fields)
    rows, names = with_canonical_columns(rows, fields, _hashable)
    floats = [names[field.name] for field in fields if is_floating(field.dataType)]
    zeros = [f"({name} = 0.0D AND cast({name} AS string) = '-0.0')" for name in floats]  # as equality.with_keys has it
    # Spark's hash skips nulls, so (1, null) and (null, 1) would be the same. Hashing 32 bits costs as much as one flag.
    bits = [f"shiftleft(cast({name} IS NULL AS int), {position % _BITS})" for position, name in enumerate(nullable)]
    nulls = [" | ".join(bits[first : first + _BITS]) for first in range(0, len(bits), _BITS)]
    return rows, f"xxhash64({', '.join([*names.values(), *zeros, *nulls])})"


def _with_fields_of_structs(
    frame: DataFrame, fields: Sequence[T.StructField]
) -> tuple[DataFrame, list[T.StructField], list[str]]:
    """Return single columns instead of structs, and the names of all columns and structs that may be null."""
    plain: list[T.StructField] = []
    nullable: list[str] = []
    found: dict[str, Column] = {}

    def add(field: T.StructField, within: Column | None = None) -> None:
        nullable.extend([quoted(field.name)] if field.nullable else [])
        if not isinstance(field.dataType, T.StructType):
            plain.append(field)
            return
        struct = F.col(quoted(field.name)) if within is None else within
        for each in field.dataType.fields:
            name = f"{OWN_PREFIX}field_{len(found)}"
            found[name] = struct.getField(each.name)
            add(T.StructField(name, each.dataType), found[name])

    for field in fields:
        add(field)
    return (frame.withColumns(found) if found else frame), plain, nullable


# A value that an array of each type is unlikely to have.
_UNLIKELY: dict[T.DataType, str] = {T.StringType(): "\uffff", T.DateType(): "0001-01-03"}
_UNLIKELY |= dict.fromkeys((T.ByteType(), T.ShortType(), T.IntegerType(), T.LongType()), "-113")
_UNLIKELY |= dict.fromkeys((T.TimestampType(), T.TimestampNTZType()), "0001-01-03 00:00:00.000113")


def _hashable(field: T.StructField) -> Column | None:
    """Nested values as a text, because Spark's hash skips nulls within them; an array without a null as its hash."""
    json = _as_json(field)
    if isinstance(field.dataType, T.ArrayType) and field.dataType.elementType in _UNLIKELY and json is not None:
        array, element_type = F.col(quoted(field.name)), field.dataType.elementType
        # The answer is null, not false, if there is a null; what Spark has to look for nulls is not compiled.
        is_found = F.array_contains(array, F.lit(_UNLIKELY[element_type]).cast(element_type))
        return F.when(~is_found, F.xxhash64(array, F.size(array))).otherwise(F.xxhash64(json))
    return json


def _as_json(field: T.StructField) -> Column | None:
    """Nested values as the JSON text of documents; plain `to_json` has microseconds only if there are some."""
    value = canonical_value(field)
    if isinstance(field.dataType, (T.ArrayType, T.MapType, T.StructType)):
        nested = F.col(quoted(field.name)) if value is None else value
        return F.to_json(F.struct(nested.alias("v")), JSON_OPTIONS)
    return value


def keyed_hash(fields: Sequence[T.StructField], names: Mapping[str, str], key: str) -> str:
    """SQL text of SHA-256 over key and values as a number: nobody can choose a digest, which xxhash64 shortens."""
    values = ", ',', ".join(_encoded(field.dataType, names[field.name]) for field in fields)
    return f"xxhash64(sha2(concat('{key},', {values}), 256))"


def _encoded(data_type: T.DataType, value: str) -> str:
    """SQL text of a string that differs if the value does, whatever follows: never null, and texts have a length."""
    if isinstance(data_type, T.BinaryType):
        return f"coalesce(concat('x', hex({value})), '')"
    if isinstance(data_type, _TEXTS):
        return f"coalesce(concat(octet_length({value}), ':', {value}), '')"
    if isinstance(data_type, T.TimestampType):
        # Two moments may have one text, when clocks are set back.
        return f"coalesce(cast(unix_micros({value}) AS string), '')"
    return f"coalesce(cast({value} AS string), '')"


def narrow_rows(changes: DataFrame, identifier_columns: Sequence[str], row_hash: str, with_step: bool) -> DataFrame:
    compared = [field for field in changes.schema.fields if field.name not in RESERVED]
    rows, hashed = with_row_hash(changes, compared, new_key(row_hash))
    number = f"shiftleft({hashed}, 1) | cast({IS_INSERT} AS bigint) AS {NUMBER}"
    return rows.selectExpr(*map(quoted, identifier_columns), *([CHANGE_ORDINAL] if with_step else []), number)


@dataclass(frozen=True)
class ChangedIdentifiers:
    identifiers: DataFrame
    upserts: int
    inserts: int
    deletes: int
    duplicates: int
    nulls: int
    carryovers: int
    all_newer: bool


def find_changed_identifiers(
    changes: DataFrame,
    identifier_columns: Sequence[str],
    only_step: int | None = None,
    row_count: int | None = None,  # a wrong one costs time and a right number of carryovers, no change
    row_hash: str = FAST,
) -> ChangedIdentifiers:
    """Decide for every identifier what is left to do, moving only identifiers and hashes."""
    narrow = narrow_rows(changes, identifier_columns, row_hash, with_step=only_step is None)
    # Here, where rows leave generated code anyway; between grouping and filter it would split that code in two.
    counted = RowCount(narrow) if row_count is None else None
    shuffled = shuffle_by_identifiers(counted.rows if counted else narrow, identifier_columns)
    steps = remove_narrow_carryovers(shuffled, identifier_columns, with_step=only_step is None)
    identifiers, counts = cached_and_counted(
        merge_narrow_updates(steps, identifier_columns, only_step),
        StorageLevel.MEMORY_AND_DISK,
        f"coalesce(sum({ROWS}), 0) AS total",
        upserts=IS_UPSERTED,
        inserts=f"{IS_UPSERTED} AND NOT {WAS_THERE}",
        deletes=IS_DELETED,
        duplicates=IS_DUPLICATE,
        nulls=any_null(identifier_columns),
    )
    try:
        row_count = counted.value() if counted else row_count or 0
    except BaseException:
        unpersist(identifiers)
        raise
    return ChangedIdentifiers(
        identifiers,
        counts.upserts,
        counts.inserts,
        counts.deletes,
        counts.duplicates,
        counts.nulls,
        carryovers=(row_count - counts.total) // 2,
        # Within one step an identifier has at most one row on the newer side.
        all_newer=row_count == counts.total and only_step is not None and not counts.duplicates,
    )


def fetch_changed_rows(changes: DataFrame, identifier_columns: Sequence[str], found: ChangedIdentifiers) -> DataFrame:
    """Return one change row for each changed identifier, as ``net_rows`` would; a DELETE has only its identifiers."""
    rows = changes.where(IS_INSERT)
    if found.all_newer and found.inserts in (0, found.upserts):
        rows = rows.selectExpr("*", f"{found.inserts == 0} AS {WAS_THERE}")
    else:
        # Those of the upserted identifiers in the step that decides.
        names = [*map(quoted, identifier_columns), CHANGE_ORDINAL]
        aliases = [f"_icecdc_wanted_{position}" for position in range(len(names))]
        wanted = found.identifiers.where(IS_UPSERTED).selectExpr(*names[:-1], DECIDING_STEP, WAS_THERE)
        wanted = wanted.toDF(*aliases, WAS_THERE)
        are_few = found.upserts <= BROADCAST_ROWS and can_broadcast(wanted.sparkSession, cached_bytes(wanted))
        wanted = F.broadcast(wanted) if are_few else wanted
        equal = "<=>" if found.nulls else "="  # Spark hashes plain equality faster
        matches = " AND ".join(f"{name} {equal} {alias}" for name, alias in zip(names, aliases, strict=True))
        rows = rows.join(wanted, F.expr(matches)).drop(*aliases)
    rows = with_deletes(rows, found.identifiers.where(IS_DELETED), identifier_columns)
    if not found.duplicates:
        return rows
    # The check for nulls names an identifier with one.
    complete = " AND ".join(f"{quoted(name)} IS NOT NULL" for name in identifier_columns)
    fail = keep_unless_duplicate(F.expr(complete), F.lit(True), identifier_columns)
    duplicates = found.identifiers.where(IS_DUPLICATE).where(fail)
    return with_deletes(rows, duplicates, identifier_columns)


def find_narrow_changes(planned: PlannedRange, changes: DataFrame, row_count: int | None) -> NetChanges:
    ids = planned.identifier_columns
    with tuned_for_many_groups(changes.sparkSession):
        found = find_changed_identifiers(changes, ids, planned.only_step, row_count, planned.row_hash)
    with ExitStack() as resources:
        resources.callback(unpersist, found.identifiers)
        rows = fetch_changed_rows(changes, ids, found)
        if planned.selection.has_places:
            rows = look_up_old_places(rows, [changes.where(IS_DELETE)], found.identifiers, ids)
        elif not found.duplicates:
            resources.pop_all()  # the changes close it
            return NetChanges(
                rows,
                _STRATEGY,
                upserts=found.upserts,
                deletes=found.deletes,
                nulls=found.nulls,
                carryovers_removed=found.carryovers,
                cached=(found.identifiers,),
            )
        # Computed now, because it fails if an identifier is a duplicate, or because its places are counted.
        return NetChanges.from_rows(rows, planned, _STRATEGY, found.carryovers)
