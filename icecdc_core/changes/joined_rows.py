"""Find what one step changed in one pass: newer rows are joined with what stands for the older ones, two numbers each.

========  ========  ==========================================================================
older     newer     what it is
========  ========  ==========================================================================
1, hash   1, hash   a carryover, dropped
2, hash   2, other  an upsert
(none)    3, hash   an upsert
4, hash   (none)    a DELETE: only if older rows are left over, identifiers alone are read
========  ========  ==========================================================================

Rows are joined by a number instead of their identifiers, whose hash it is. This is right only if an identifier has one
row on each side, and no two identifiers have one number. Counts and sums of the same pass prove it; if they do not, the
answer is None. Say an identifier has ``a`` rows on the older side and ``b`` on the newer:

1. The join has as many rows as the newer side, so ``a`` is 1 wherever both sides have it.
2. Inserted and deleted rows have distinct numbers, without a null: ``a`` or ``b`` is 1 wherever one side has it.
3. The fingerprints of the older rows have the sum of those that the join met and those deleted: ``b`` is 1 wherever
   both sides have it, and what was met is the same identifier. A fingerprint is another hash, with a seed of its own in
   each comparison.
"""

import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from pyspark.sql import DataFrame, Observation, functions as F
from pyspark.sql.types import StructField

from icecdc_core.changes.narrow_rows import FAST, KEYED, keyed_hash, new_key, with_row_hash
from icecdc_core.changes.row_changes import NetChanges, change_columns
from icecdc_core.changes.steps import Step
from icecdc_core.columns import INSERT, OWN_PREFIX, WAS_THERE, quoted
from icecdc_core.session.jvm import schema_of, unpersist
from icecdc_core.session.spark import cached_and_counted, observed, storage_level_for
from icecdc_core.table.schema import any_null
from icecdc_core.updates import with_deletes

_NAMES = "key", "older_key", "older_hash", "fingerprint", "changed"
_KEY, _OLDER_KEY, _HASH, _MARK, _CHANGED = (f"{OWN_PREFIX}{name}" for name in _NAMES)
# Halves, because a sum of whole ones overflows.
_SUMS = (
    f"coalesce(sum({_MARK} & 2147483647L), 0) AS low",
    f"coalesce(sum(shiftrightunsigned({_MARK}, 33)), 0) AS high",
)
_ROWS, _MET = f"count(1) AS {quoted('rows')}", f"count_if({WAS_THERE}) AS met"
_NOTHING = {"rows": 0, "low": 0, "high": 0}

# Of a row in the table that every task gets: key, hash, and what Spark adds.
ROW_BYTES = 56
JOINED_ROWS = 300_000
"""With more, shuffling narrow rows takes less time than this table, and than finding duplicates in one task."""


def met_once(older: Mapping[str, Any], joined: Mapping[str, Any], deleted: Mapping[str, Any]) -> bool:
    """Whether the older rows are those that the join met, each once, and the deleted ones."""
    met = {**joined, "rows": joined["met"]}
    return all(older[name] == met[name] + deleted[name] for name in _NOTHING)


def identifier_numbers(fields: Sequence[StructField], row_key: str) -> tuple[str, str]:
    """Return SQL texts of a number to join by, null if an identifier is, and of a fingerprint."""
    names = {field.name: quoted(field.name) for field in fields}
    if row_key:
        hashed, mark = (keyed_hash(fields, names, key) for key in (row_key, new_key(KEYED)))
    else:
        # Seeds are texts: with every other number in it, Spark would generate and compile other code. A fingerprint has
        # two functions, because whoever makes two texts alike for one, whatever its seed, must not hide a duplicate.
        hashed, seeded = (f"('{secrets.token_hex(8)}', {', '.join(names.values())})" for _ in range(2))
        hashed = f"xxhash64{hashed}"
        mark = f"(xxhash64{seeded} & 2147483647L) | shiftleft(cast(hash{seeded} AS bigint), 33)"
    return f"if({any_null([*names])}, NULL, {hashed})", mark


def join_sides(
    older: DataFrame, newer: DataFrame, fields: Sequence[StructField], numbers: tuple[str, str], row_hash: str
) -> tuple[DataFrame, Observation, Observation]:
    """Return the changed rows, packed, and what computing them counts of the older side and of the join."""
    # Each step of a plan takes time for each of its columns, so that whole rows pass as few as possible.
    (key, mark), row_key = numbers, new_key(row_hash)
    older, hashed = with_row_hash(older, fields, row_key)
    of_older, of_joined = Observation(), Observation()
    older = older.selectExpr(f"{key} AS {_OLDER_KEY}", f"{hashed} AS {_HASH}", f"{mark} AS {_MARK}")
    older = older.observe(of_older, *map(F.expr, (_ROWS, *_SUMS))).drop(_MARK)
    newer, hashed = with_row_hash(newer.selectExpr("*", f"{key} AS {_KEY}", f"{mark} AS {_MARK}"), fields, row_key)
    joined = newer.join(F.broadcast(older), F.expr(f"{_KEY} = {_OLDER_KEY}"), "left")
    whole = ", ".join(quoted(field.name) for field in fields)
    # Rows leave generated code here, and only changed ones take their values with them.
    packed = joined.selectExpr(
        _KEY,
        f"{_HASH} IS NOT NULL AS {WAS_THERE}",
        f"if({_HASH} IS NULL, 0L, {_MARK}) AS {_MARK}",
        f"CASE WHEN NOT ({_HASH} <=> {hashed}) THEN struct({whole}) END AS {_CHANGED}",
    ).observe(of_joined, *map(F.expr, (_ROWS, _MET, *_SUMS)))
    return packed.where(f"{_CHANGED} IS NOT NULL").select(_CHANGED, WAS_THERE, _KEY), of_older, of_joined


def deleted_rows(
    older: DataFrame,
    newer: DataFrame,
    identifier_columns: Sequence[str],
    numbers: tuple[str, str],
    newer_is_small: bool,
) -> DataFrame:
    key, mark = numbers
    ids = map(quoted, identifier_columns)
    older = older.selectExpr(*ids, f"{key} AS {_KEY}", f"{mark} AS {_MARK}", f"true AS {WAS_THERE}")
    newer = newer.selectExpr(f"{key} AS {_KEY}")
    return older.join(F.broadcast(newer) if newer_is_small else newer, _KEY, "left_anti")


def are_distinct(keys: DataFrame, count: int) -> bool:
    """Whether so many keys are distinct, which one task finds sooner than a shuffle if they are few."""
    return count < 2 or (keys.coalesce(1) if count <= JOINED_ROWS else keys).distinct().count() == count


def find_joined_changes(
    older_side: DataFrame,
    newer_side: DataFrame,
    identifier_columns: Sequence[str],
    step: Step,
    older_rows: int,
    newer_rows: int,
    row_hash: str = FAST,
    file_bytes: int = 0,
) -> NetChanges | None:
    """Find the changes of one step by ``join_sides``; None if an identifier may be a duplicate or null."""
    schema = schema_of(newer_side)
    numbers = identifier_numbers([schema[name] for name in identifier_columns], new_key(row_hash))
    joined, of_older, of_joined = join_sides(older_side, newer_side, schema.fields, numbers, row_hash)
    null = f"{_KEY} IS NULL"
    with ExitStack() as resources:
        with storage_level_for(newer_side.sparkSession, file_bytes) as level:
            upserts, counts = cached_and_counted(joined, level, changed="true", inserted=f"NOT {WAS_THERE}", nulls=null)
            resources.callback(unpersist, upserts)
            older, met = observed(of_older), observed(of_joined)
            if not older or not met or (older["rows"], met["rows"], counts.nulls) != (older_rows, newer_rows, 0):
                return None
            missing: Mapping[str, Any] = _NOTHING
            rows = upserts.selectExpr(f"{_CHANGED}.*", *change_columns(INSERT, step), WAS_THERE)
            keys, cached = upserts.where(f"NOT {WAS_THERE}").select(_KEY), [upserts]
            if deletes := older_rows - met["met"]:
                are_few = newer_rows <= 2 * older_rows
                deleted = deleted_rows(older_side, newer_side, identifier_columns, numbers, are_few)
                deleted, counted = cached_and_counted(deleted, level, *_SUMS, rows="true", nulls=null)
                resources.callback(unpersist, deleted)
                missing = counted.asDict()
                if missing["nulls"]:
                    return None
                rows = with_deletes(rows, deleted, identifier_columns, str(step.ordinal))
                keys, cached = keys.unionAll(deleted.select(_KEY)), [upserts, deleted]
        if not met_once(older, met, missing) or not are_distinct(keys, counts.inserted + deletes):
            return None
        carryovers = newer_rows - counts.changed
        found = NetChanges(rows, "joined", counts.changed, deletes, carryovers_removed=carryovers, cached=tuple(cached))
        resources.pop_all()  # the changes close it
        return found
