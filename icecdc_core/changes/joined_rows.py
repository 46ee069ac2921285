"""Find what one step changed in one pass: newer rows are joined with the identifiers and hashes of the older ones.

========  ========  ==========================================================================
older     newer     what it is
========  ========  ==========================================================================
1, hash   1, hash   a carryover, dropped
2, hash   2, other  an upsert
(none)    3, hash   an upsert
4, hash   (none)    a DELETE: only if older rows are left over, identifiers alone are read
========  ========  ==========================================================================

This is right only if an identifier has one row on each side. Counts of the same pass prove it; if they do not, the
answer is None. Say an identifier has ``a`` rows on the older side and ``b`` on the newer:

1. The join has as many rows as the newer side, so ``a`` is 1 wherever both sides have it.
2. Inserted rows have distinct identifiers, without a null: ``b`` is 1 wherever only the newer side has it.
3. The identifiers that only the older side has are distinct (``a`` is 1), and as many as the older rows that the join
   did not meet, if it met each once (``b`` is 1). If all rows seem to be met, nothing is read for that: the sum of the
   fingerprints of all older identifiers is that of the identifiers met. One that is met twice while another is not
   makes these sums differ, because the fingerprint has a seed of its own in each comparison.
"""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, Observation, functions as F
from pyspark.sql.types import BinaryType, StringType

from icecdc_core.changes.narrow_rows import FAST, keyed_hash, new_key, with_row_hash
from icecdc_core.changes.row_changes import NetChanges, PlannedRange, change_columns
from icecdc_core.changes.steps import Step
from icecdc_core.columns import INSERT, IS_DELETE, IS_INSERT, OWN_PREFIX, RESERVED, ROWS, WAS_THERE, quoted
from icecdc_core.session.jvm import unpersist
from icecdc_core.session.spark import cached_and_counted, can_broadcast, observed, storage_level_for
from icecdc_core.table.schema import any_null
from icecdc_core.updates import with_deletes

_HASH, _MARK, _CHANGED = f"{OWN_PREFIX}older_hash", f"{OWN_PREFIX}fingerprint", f"{OWN_PREFIX}changed"
_COUNTS = [f"count(1) AS {quoted('rows')}", f"count_if({WAS_THERE}) AS met"]
# Halves, because a sum of whole ones overflows.
_SUMS = [f"sum({_MARK} & 2147483647L) AS low", f"sum(shiftrightunsigned({_MARK}, 33)) AS high"]

# Of a row in a hash table, without the values of its key.
_ROW_BYTES = 48
# Bytes of values for one of a file, at most, unless values are alike; and the rows whose texts are looked at.
_DENSITY, _SAMPLE_ROWS = 16, 1000


def rows_met(
    older: Mapping[str, Any] | None, joined: Mapping[str, Any] | None, older_rows: int, newer_rows: int
) -> int | None:
    """Return how many older rows the join met; None if it met one twice while all seem to be met."""
    if not older or not joined or (older["rows"], joined["rows"]) != (older_rows, newer_rows):
        return None
    met = int(joined["met"])
    met_each_once = all(older[half] == joined[half] for half in ("low", "high"))
    return met if met < older_rows or (met == older_rows and met_each_once) else None


def join_sides(
    changes: DataFrame, identifier_columns: Sequence[str], step: Step, row_hash: str
) -> tuple[DataFrame, Observation, Observation]:
    """Return the changed rows, and what computing them counts of the older side and of the join, see ``rows_met``."""
    key, ids = new_key(row_hash), [quoted(name) for name in identifier_columns]
    fields = [field for field in changes.schema.fields if field.name not in RESERVED]
    rows, hashed = with_row_hash(changes, fields, key)
    # The seed is a text: with every other number in it, Spark would generate and compile other code. Two functions,
    # because whoever makes two texts alike for one of them, whatever its seed, must not hide a duplicate.
    seeded = f"('{secrets.token_hex(8)}', {', '.join(ids)})"
    mark = f"(xxhash64{seeded} & 2147483647L) | shiftleft(cast(hash{seeded} AS bigint), 33)"
    if key:
        own = [changes.schema[name] for name in identifier_columns]
        mark = keyed_hash(own, dict(zip(identifier_columns, ids, strict=True)), key)
    of_older, of_joined = Observation(), Observation()
    older = rows.where(IS_DELETE).selectExpr(*ids, f"{hashed} AS {_HASH}", f"{mark} AS {_MARK}")
    older = older.observe(of_older, *map(F.expr, (_COUNTS[0], *_SUMS))).drop(_MARK)
    names = [f"{OWN_PREFIX}older_{position}" for position in range(len(ids))]
    same = " AND ".join(f"{name} = {other}" for name, other in zip(ids, names, strict=True))
    joined = rows.where(IS_INSERT).join(F.broadcast(older.toDF(*names, _HASH)), F.expr(same), "left")
    whole = ", ".join(quoted(field.name) for field in fields)
    # Rows leave generated code here, and only changed ones take their values with them.
    packed = joined.selectExpr(
        f"{_HASH} IS NOT NULL AS {WAS_THERE}",
        f"if({_HASH} IS NULL, 0L, {mark}) AS {_MARK}",
        f"CASE WHEN NOT ({_HASH} <=> {hashed}) THEN struct({whole}) END AS {_CHANGED}",
    ).observe(of_joined, *map(F.expr, (*_COUNTS, *_SUMS)))
    changed = packed.where(f"{_CHANGED} IS NOT NULL").selectExpr(
        f"{_CHANGED}.*", *change_columns(INSERT, step), WAS_THERE
    )
    return changed.select(*map(quoted, changes.columns), WAS_THERE), of_older, of_joined


def can_join(planned: PlannedRange, changes: DataFrame, older_rows: int) -> bool:
    """Whether every task can get the identifiers and hashes of the older rows; some rows show how long texts are."""
    spark, ids = changes.sparkSession, planned.identifier_columns
    texts = [quoted(name) for name in ids if isinstance(changes.schema[name].dataType, (StringType, BinaryType))]
    row_bytes = _ROW_BYTES + 8 * len(ids)
    if texts and not can_broadcast(spark, planned.file_bytes * _DENSITY):
        longest = " + ".join(f"max(octet_length({text}))" for text in texts)
        row_bytes += changes.limit(_SAMPLE_ROWS).selectExpr(f"coalesce({longest}, 0)").collect()[0][0]
    return can_broadcast(spark, older_rows * row_bytes)


def find_joined_changes(
    changes: DataFrame,
    identifier_columns: Sequence[str],
    step: Step,
    older_rows: int,
    newer_rows: int,
    row_hash: str = FAST,
    file_bytes: int = 0,
) -> NetChanges | None:
    """Find the changes of one step by ``join_sides``; None if an identifier may be a duplicate or null."""
    names, null = [quoted(name) for name in identifier_columns], any_null(identifier_columns)
    joined, of_older, of_joined = join_sides(changes, identifier_columns, step, row_hash)
    cached: list[DataFrame] = []
    found = None
    try:
        with storage_level_for(changes.sparkSession, file_bytes) as level:
            upserts, counts = cached_and_counted(joined, level, changed="true", inserted=f"NOT {WAS_THERE}", nulls=null)
        cached.append(upserts)
        met = rows_met(observed(of_older), observed(of_joined), older_rows, newer_rows)
        inserted = upserts.where(f"NOT {WAS_THERE}").select(*names)
        if met is None or counts.nulls or (counts.inserted > 1 and inserted.distinct().count() < counts.inserted):
            return None
        rows = upserts
        if deletes := older_rows - met:
            older, newer = (changes.where(side).select(*names) for side in (IS_DELETE, IS_INSERT))
            newer = F.broadcast(newer) if newer_rows <= 2 * older_rows else newer
            deleted = older.join(newer, list(identifier_columns), "left_anti")
            deleted = deleted.groupBy(*names).agg(F.count(F.lit(1)).alias(ROWS), F.lit(True).alias(WAS_THERE))
            deleted, missing = cached_and_counted(deleted, level, total_of=ROWS, identifiers="true", nulls=null)
            cached.append(deleted)
            if (missing.identifiers, missing.total, missing.nulls) != (deletes, deletes, 0):
                return None
            rows = with_deletes(rows, deleted, identifier_columns, str(step.ordinal))
        carryovers = newer_rows - counts.changed
        found = NetChanges(rows, "joined", counts.changed, deletes, carryovers_removed=carryovers, cached=tuple(cached))
        return found
    finally:
        for frame in cached if found is None else ():
            unpersist(frame)
