"""Find what really changed from narrow rows, then fetch whole rows for just that.

A copy-on-write UPDATE of half a percent of the rows makes every file differ, so nearly all rows that are read are
carryover. Sending them through the shuffle whole, only to cancel them, is what makes change feeds slow. Here a row
travels as its identifier and 63 bits of hash over all its columns:

    ====  ====  ======  ========      ====  ========
    id    step  side    hash          id    left
    ====  ====  ======  ========      ====  ========
    1     0     DELETE  a5…           2     upsert
    2     0     DELETE  17…      ->   3     delete
    3     0     DELETE  90…
    1     0     INSERT  a5…
    2     0     INSERT  c4…
    ====  ====  ======  ========      ====  ========

Whole rows are then fetched from the newer side by a join with the few that are left. The result is that of
``shuffle_by_identifiers``, ``remove_carryovers`` and ``merge_updates``. Only the old and the new row of one identifier
are ever compared, so an update goes unseen with a probability of 2^-63: one in 9 * 10^18 updates. Identifiers that
occur several times on one side of a step, which proper identifier columns do not allow, are left to the exact
transforms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from icecdc_core.carryover import remove_carryovers
from icecdc_core.columns import CHANGE_ORDINAL, CHANGE_TYPE, DELETE, INSERT, RESERVED, quoted
from icecdc_core.documents import JSON_OPTIONS
from icecdc_core.equality import keys
from icecdc_core.shuffle import shuffle_by_identifiers
from icecdc_core.updates import merge_updates

_DELETED, _UPSERTED = 1, 2
# Room for the kinds above beside the step's ordinal, in one number whose maximum is the step that decides.
_KINDS = 4
# Of an int.
_BITS = 32
# So many identifiers are sent to every task that reads the newer side; more of them are shuffled, as any join.
_BROADCAST_ROWS = 300_000


@dataclass(frozen=True)
class Survivors:
    """What is left to do after a range.

    Attributes:
        identifiers: One row for each identifier that is left: the identifier columns and ``_icecdc_decision``; cached.
        upserts: Identifiers to write.
        deletes: Identifiers to delete.
        doubtful: Identifiers that occur several times on one side of a step; not among the two above.
        nulls: Identifiers of which a part is null.
        carryovers: Unchanged rows that were dropped.
    """

    identifiers: DataFrame
    upserts: int
    deletes: int
    doubtful: int
    nulls: int
    carryovers: int

    def close(self) -> None:
        """Let go of what is cached."""
        self.identifiers.unpersist()


def find_survivors(changes: DataFrame, identifier_columns: Sequence[str], only_step: int | None = None) -> Survivors:
    """Decide for every identifier what is left to do, moving only identifiers and hashes.

    Args:
        changes: Raw changes, see ``read_changes``.
        identifier_columns: The columns that identify a row.
        only_step: The ordinal of all changes where they are of one step, which saves moving it; None: not known.
    """
    ids = [F.col(quoted(name)) for name in identifier_columns]
    own = [field for field in changes.schema.fields if field.name not in RESERVED]
    inserted = (F.col(CHANGE_TYPE) == F.lit(INSERT)).cast("long")
    values = F.xxhash64(*(part for field in own for part in _hashed(field)), *_nulls(own))
    # 63 bits of hash, and the side as the last bit.
    row = F.shiftleft(values, 1).bitwiseOR(inserted)
    ordinal = [F.col(CHANGE_ORDINAL)] if only_step is None else []
    narrow = changes.select(*ids, *ordinal, row.alias("_icecdc_row")).transform(
        shuffle_by_identifiers, identifier_columns
    )
    step = narrow.groupBy(*ids, *ordinal).agg(
        F.count(F.lit(1)).alias("_icecdc_rows"), F.bit_xor("_icecdc_row").alias("_icecdc_both")
    )
    rows, both, one = F.col("_icecdc_rows"), F.col("_icecdc_both"), F.lit(1)
    # A DELETE and an INSERT with one hash leave nothing but the INSERT's last bit.
    carried = (rows == F.lit(2)) & (both == one)
    has_insert = both.bitwiseAND(one) == one
    once = (rows == one) | ((rows == F.lit(2)) & has_insert)
    kind = F.when(has_insert, F.lit(_UPSERTED)).otherwise(F.lit(_DELETED))
    at = F.col(CHANGE_ORDINAL) if only_step is None else F.lit(only_step)
    dropped = Observation()
    left = step.observe(dropped, F.count_if(carried).alias("rows")).where(~carried)
    decided = left.groupBy(*ids).agg(
        F.max(at * F.lit(_KINDS) + kind).alias("_icecdc_decision"), F.max(~once).alias("_icecdc_doubtful")
    )
    identifiers = decided.persist(StorageLevel.MEMORY_AND_DISK)
    counts = identifiers.agg(
        F.count_if(_is(_UPSERTED)).alias("upserts"),
        F.count_if(_is(_DELETED)).alias("deletes"),
        F.count_if("_icecdc_doubtful").alias("doubtful"),
        F.count_if(reduce(Column.__or__, [name.isNull() for name in ids])).alias("nulls"),
    ).collect()[0]
    return Survivors(
        identifiers, counts.upserts, counts.deletes, counts.doubtful, counts.nulls, rows_observed(dropped, changes)
    )


def fetch_survivors(changes: DataFrame, identifier_columns: Sequence[str], survivors: Survivors) -> DataFrame:
    """Return one change row for each surviving identifier, as ``merge_updates`` would.

    Of a DELETE only the identifier columns are filled, as nothing else of it is needed.

    Args:
        changes: The frame that ``find_survivors`` was given; its newer sides are read a second time.
        identifier_columns: The columns that identify a row.
        survivors: What ``find_survivors`` found.
    """
    newer = changes.where(F.col(CHANGE_TYPE) == F.lit(INSERT))
    parts = [
        _semi_join(newer, survivors.identifiers.where(_is(_UPSERTED)), identifier_columns, survivors.upserts, True),
        delete_rows(survivors.identifiers.where(_is(_DELETED)), changes.schema, identifier_columns),
    ]
    if survivors.doubtful:
        doubtful = survivors.identifiers.where("_icecdc_doubtful")
        rows = _semi_join(changes, doubtful, identifier_columns, survivors.doubtful, False)
        exact = rows.transform(shuffle_by_identifiers, identifier_columns).transform(remove_carryovers)
        parts.append(merge_updates(exact, identifier_columns))
    return reduce(DataFrame.unionAll, parts)


def _hashed(field: StructField) -> list[Column]:
    """What of a column goes into the hash, such that different values differ there.

    Spark's hash passes over nulls, within arrays and structs too, so (1, null) and (null, 1) would be the same: `_nulls`
    are hashed beside them, and nested values are hashed as the JSON text they have in documents, which keeps
    microseconds, unlike that of `to_json` by itself.
    """
    value = F.col(quoted(field.name))
    parts = keys(value, field.dataType)
    if isinstance(field.dataType, (ArrayType, MapType, StructType)):
        parts = [F.to_json(F.struct(part.alias("v")), JSON_OPTIONS) for part in parts]
    return parts


def _nulls(fields: Sequence[StructField]) -> list[Column]:
    """Which values of a row are null, a bit each: hashing a number costs as much as hashing a flag."""
    bits = [
        F.shiftleft(F.col(quoted(field.name)).isNull().cast("int"), position % _BITS)
        for position, field in enumerate(field for field in fields if field.nullable)
    ]
    return [reduce(Column.bitwiseOR, bits[first : first + _BITS]) for first in range(0, len(bits), _BITS)]


def _is(kind: int) -> Column:
    return ~F.col("_icecdc_doubtful") & (F.col("_icecdc_decision") % F.lit(_KINDS) == F.lit(kind))


def _semi_join(
    rows: DataFrame, wanted: DataFrame, identifier_columns: Sequence[str], count: int, at_step: bool
) -> DataFrame:
    """Rows of the wanted identifiers; ``at_step``: only those of the step that decides. Nulls are equal."""
    own = [f"_icecdc_wanted_{position}" for position in range(len(identifier_columns))]
    pairs = list(zip(identifier_columns, own, strict=True))
    ordinal = F.floor(F.col("_icecdc_decision") / F.lit(_KINDS)).cast("int").alias("_icecdc_wanted_ordinal")
    keyed = wanted.select(*(F.col(quoted(name)).alias(alias) for name, alias in pairs), ordinal)
    keyed = F.broadcast(keyed) if count <= _BROADCAST_ROWS else keyed
    matches = [F.col(quoted(name)).eqNullSafe(F.col(alias)) for name, alias in pairs]
    if at_step:
        matches.append(F.col(CHANGE_ORDINAL) == F.col("_icecdc_wanted_ordinal"))
    return rows.join(keyed, reduce(Column.__and__, matches), "left_semi")


def rows_observed(observation: Observation, source: DataFrame) -> int:
    """Return the count ``rows`` of an observation.

    Where Spark sees beforehand that there are no rows, as under a condition that is false for any, it reads and
    observes nothing.
    """
    most = source._jdf.queryExecution().optimizedPlan().maxRows()
    known_empty = most.isDefined() and most.get() == 0
    return 0 if known_empty else int(observation.get["rows"])


def delete_rows(identifiers: DataFrame, schema: StructType, identifier_columns: Sequence[str]) -> DataFrame:
    """Return a DELETE row of this schema for each identifier, its other columns null."""
    filled = {
        **{name: F.col(quoted(name)) for name in identifier_columns},
        CHANGE_TYPE: F.lit(DELETE),
        CHANGE_ORDINAL: F.floor(F.col("_icecdc_decision") / F.lit(_KINDS)),
    }
    return identifiers.select(
        *(filled.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in schema.fields)
    )
