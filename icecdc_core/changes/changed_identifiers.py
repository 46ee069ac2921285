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

Where identifiers are integers and neighbours lie in one file, eight of them travel as one row, see ``_left_of_words``.

Whole rows are then fetched from the newer side by a join with the few that are left, if not all of them are. The
result is that of ``shuffle_by_identifiers``, ``remove_carryovers`` and ``merge_updates``. Only the old and the new row
of one identifier are ever compared. Who can make two rows with one hash hides that update, see `row_hash`.
Identifiers that occur several times on one side of a step, equal or not, are counted, and end the query that fetches
their rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from icecdc_core.changes.row_hash import FAST, hash_key, hash_text, new_key
from icecdc_core.columns import CHANGE_ORDINAL, CHANGE_TYPE, DELETE, IS_INSERT, RESERVED, quoted
from icecdc_core.equality import keyed
from icecdc_core.session.row_counts import RowCount
from icecdc_core.shuffle import shuffle_by_identifiers
from icecdc_core.updates import last_changes, unique_changes

_DELETED, _UPSERTED = 1, 2
# Room for the kinds above beside the step's ordinal, in one number whose maximum is the step that decides.
_KINDS = 4
_ORDINAL = f"cast(floor(_icecdc_decision / {_KINDS}) AS int)"
# So many identifiers are sent to every task that reads the newer side; more of them are shuffled, as any join.
_BROADCAST_ROWS = 300_000
_NEIGHBOUR_BITS = 3
_NEIGHBOURS = 1 << _NEIGHBOUR_BITS


@dataclass(frozen=True)
class ChangedIdentifiers:
    """What is left to do after a range.

    Attributes:
        identifiers: One row for each identifier that is left: the identifier columns and ``_icecdc_decision``; cached.
        upserts: Identifiers to write.
        deletes: Identifiers to delete.
        doubtful: Identifiers that occur several times on one side of a step, and maybe neighbours of theirs; not among
            the two above.
        nulls: Identifiers of which a part is null.
        carryovers: Unchanged rows that were dropped.
        all_newer: Whether every row of the newer side is one to write.
    """

    identifiers: DataFrame
    upserts: int
    deletes: int
    doubtful: int
    nulls: int
    carryovers: int
    all_newer: bool

    def close(self) -> None:
        """Let go of what is cached."""
        self.identifiers.unpersist()


def find_changed_identifiers(
    changes: DataFrame,
    identifier_columns: Sequence[str],
    only_step: int | None = None,
    row_count: int | None = None,
    neighbours: bool = False,
    row_hash: str = FAST,
) -> ChangedIdentifiers:
    """Decide for every identifier what is left to do, moving only identifiers and hashes.

    Args:
        changes: Raw changes, see ``read_changes``.
        identifier_columns: The columns that identify a row.
        only_step: The ordinal of all changes where they are of one step, which saves moving it; None: not known.
        row_count: How many changes these are, which saves counting them; None: not known.
        neighbours: Whether the one identifier column is of integers, and most have their neighbours in the same file.
        row_hash: ``fast`` or ``keyed``, see `row_hash`.
    """
    ids = [quoted(name) for name in identifier_columns]
    own = [field for field in changes.schema.fields if field.name not in RESERVED]
    rows, keys = keyed(changes, own, hash_key)
    ordinal = [CHANGE_ORDINAL] if only_step is None else []
    # 63 bits of hash, and the side as the last bit.
    row = f"shiftleft({hash_text(own, keys, new_key(row_hash))}, 1) | cast({IS_INSERT} AS bigint) AS _icecdc_row"
    narrow = rows.selectExpr(*ids, *ordinal, row)
    read = None
    if row_count is None:
        # Here, where rows leave generated code anyway: between grouping and filter it would part that code in two.
        read = RowCount(narrow)
        narrow = read.rows
    left = (
        _left_of_words(narrow, changes.schema[identifier_columns[0]], ordinal)
        if neighbours
        else _left(narrow, ids, ordinal)
    )
    if only_step is None:
        decided = left.groupBy(*ids).agg(
            F.expr(f"max({CHANGE_ORDINAL} * {_KINDS} + _icecdc_kind) AS _icecdc_decision"),
            F.expr("max(_icecdc_doubtful) AS _icecdc_doubtful"),
            F.expr("sum(_icecdc_rows) AS _icecdc_rows"),
        )
    else:
        decision = f"{only_step * _KINDS} + _icecdc_kind AS _icecdc_decision"
        decided = left.selectExpr(*ids, decision, "_icecdc_doubtful", "_icecdc_rows")
    identifiers = decided.persist(StorageLevel.MEMORY_AND_DISK)
    counts = identifiers.selectExpr(
        f"count_if({_is(_UPSERTED)}) AS upserts",
        f"count_if({_is(_DELETED)}) AS deletes",
        "count_if(_icecdc_doubtful) AS doubtful",
        f"count_if({' OR '.join(f'{name} IS NULL' for name in ids)}) AS `nulls`",
        "coalesce(sum(_icecdc_rows), 0) AS left_rows",
    ).collect()[0]
    row_count = row_count if read is None else read.value()
    assert row_count is not None
    # Within one step an identifier that is not in doubt has one row on the newer side, or none.
    all_newer = row_count == counts.left_rows and only_step is not None and not counts.doubtful
    return ChangedIdentifiers(
        identifiers,
        counts.upserts,
        counts.deletes,
        counts.doubtful,
        counts.nulls,
        (row_count - counts.left_rows) // 2,
        all_newer,
    )


def _left(narrow: DataFrame, ids: Sequence[str], ordinal: Sequence[str]) -> DataFrame:
    """What is left of narrow rows once each identifier's are together: its kind, how many rows, whether in doubt."""
    step = (
        narrow.repartition(*ids)
        .groupBy(*ids, *ordinal)
        .agg(F.count(F.lit(1)).alias("_icecdc_rows"), F.bit_xor("_icecdc_row").alias("_icecdc_both"))
    )
    has_insert = "(_icecdc_both & 1) = 1"
    doubtful = f"NOT (_icecdc_rows = 1 OR (_icecdc_rows = 2 AND {has_insert}))"
    if ordinal:
        # A row is deleted where the step before left one, and only there; else there are two.
        before = f"lag({has_insert}) OVER (PARTITION BY {', '.join(ids)} ORDER BY {', '.join(ordinal)})"
        has_delete = f"(_icecdc_rows = 2 OR NOT ({has_insert}))"
        step = step.selectExpr("*", f"coalesce({has_delete} <> {before}, false) AS _icecdc_repeated")
        doubtful += " OR _icecdc_repeated"
    # A DELETE and an INSERT with one hash leave nothing but the INSERT's last bit.
    carried = f"_icecdc_rows = 2 AND _icecdc_both = 1 AND NOT ({doubtful})"
    return step.where(f"NOT ({carried})").selectExpr(
        *ids,
        *ordinal,
        f"if({has_insert}, {_UPSERTED}, {_DELETED}) AS _icecdc_kind",
        f"{doubtful} AS _icecdc_doubtful",
        "_icecdc_rows",
    )


def _left_of_words(narrow: DataFrame, identifier: StructField, ordinal: Sequence[str]) -> DataFrame:
    """Return what ``_left`` does, but where an identifier is in doubt its neighbours are too.

    Eight neighbours are a word. It has which of them were seen on which side, a bit each, and an XOR for each, so the
    rows of a word that one task reads are one row before they are moved, and most words are dropped without a look at
    their identifiers.
    """
    name = quoted(identifier.name)
    # Nulls are a word of their own.
    slot = f"coalesce(cast({name} & {_NEIGHBOURS - 1} AS int), 0)"
    seen = f"shiftleft(1, {slot} + if(_icecdc_row & 1 = 1, {_NEIGHBOURS}, 0))"
    words = narrow.groupBy(
        F.expr(f"shiftright(cast({name} AS bigint), {_NEIGHBOUR_BITS})").alias("_icecdc_word"), *ordinal
    ).agg(
        F.count(F.lit(1)).alias("_icecdc_count"),
        F.expr(f"bit_or({seen})").alias("_icecdc_seen"),
        *(F.expr(f"bit_xor(if({slot} = {at}, _icecdc_row, 0L))").alias(f"_icecdc_{at}") for at in range(_NEIGHBOURS)),
    )
    in_doubt = "_icecdc_count <> bit_count(_icecdc_seen)"
    older, newer = f"(_icecdc_seen & {(1 << _NEIGHBOURS) - 1})", f"shiftright(_icecdc_seen, {_NEIGHBOURS})"
    every_xor = " | ".join(f"_icecdc_{at}" for at in range(_NEIGHBOURS))
    differing = words.where(f"{in_doubt} OR {older} <> {newer} OR ({every_xor}) <> 1")
    slots = ", ".join(f"named_struct('slot', {at}, 'both', _icecdc_{at})" for at in range(_NEIGHBOURS))
    each = differing.selectExpr(
        "_icecdc_word",
        *ordinal,
        "_icecdc_count",
        "_icecdc_seen",
        f"{in_doubt} AS _icecdc_doubtful",
        f"inline(array({slots}))",
    )
    of_slot = f"shiftright(_icecdc_seen, slot) & {1 | 1 << _NEIGHBOURS}"
    is_first = f"({older} | {newer}) & (shiftleft(1, slot) - 1) = 0"
    left = each.where(f"({of_slot}) <> 0 AND (_icecdc_doubtful OR NOT (bit_count({of_slot}) = 2 AND both = 1))")
    return left.selectExpr(
        f"cast(shiftleft(_icecdc_word, {_NEIGHBOUR_BITS}) | slot AS {identifier.dataType.simpleString()}) AS {name}",
        *ordinal,
        f"if(({of_slot}) > 1, {_UPSERTED}, {_DELETED}) AS _icecdc_kind",
        "_icecdc_doubtful",
        # Rows beyond one on each side are those of the word's first identifier.
        f"bit_count({of_slot}) + if({is_first}, _icecdc_count - bit_count(_icecdc_seen), 0) AS _icecdc_rows",
    )


def fetch_changed_rows(
    changes: DataFrame, identifier_columns: Sequence[str], survivors: ChangedIdentifiers
) -> DataFrame:
    """Return one change row for each surviving identifier, as ``merge_updates`` would.

    Identifiers that occur several times on one side of a step end the query, see ``unique_changes``. A DELETE has only
    its identifier columns, as nothing else of it is needed.

    Args:
        changes: The frame that ``find_changed_identifiers`` was given; its newer sides are read a second time.
        identifier_columns: The columns that identify a row.
        survivors: What ``find_changed_identifiers`` found.
    """
    newer = changes.where(IS_INSERT)
    equal = "<=>" if survivors.nulls else "="
    if not survivors.all_newer:
        wanted = survivors.identifiers.where(_is(_UPSERTED))
        newer = _semi_join(newer, wanted, identifier_columns, survivors.upserts, True, equal)
    deleted = survivors.identifiers.where(_is(_DELETED))
    parts = [newer, delete_rows(deleted, changes.schema, identifier_columns)]
    if survivors.doubtful:
        doubtful = survivors.identifiers.where("_icecdc_doubtful")
        rows = _semi_join(changes, doubtful, identifier_columns, survivors.doubtful, False, equal)
        exact = unique_changes(rows.transform(shuffle_by_identifiers, identifier_columns), identifier_columns)
        parts.append(last_changes(exact, identifier_columns))
    return reduce(DataFrame.unionAll, parts)


def _is(kind: int) -> str:
    return f"(NOT _icecdc_doubtful AND _icecdc_decision % {_KINDS} = {kind})"


def _semi_join(
    rows: DataFrame, wanted: DataFrame, identifier_columns: Sequence[str], count: int, at_step: bool, equal: str
) -> DataFrame:
    """Rows of the wanted identifiers; ``at_step``: only those of the step that decides."""
    pairs = [(quoted(name), f"_icecdc_wanted_{position}") for position, name in enumerate(identifier_columns)]
    sought = wanted.selectExpr(
        *(f"{name} AS {alias}" for name, alias in pairs), f"{_ORDINAL} AS _icecdc_wanted_ordinal"
    )
    sought = F.broadcast(sought) if count <= _BROADCAST_ROWS else sought
    matches = [f"{name} {equal} {alias}" for name, alias in pairs]
    if at_step:
        matches.append(f"{CHANGE_ORDINAL} = _icecdc_wanted_ordinal")
    return rows.join(sought, F.expr(" AND ".join(matches)), "left_semi")


def delete_rows(identifiers: DataFrame, schema: StructType, identifier_columns: Sequence[str]) -> DataFrame:
    """Return a DELETE row for each identifier, with the columns of this schema; the others are null, of no type yet."""
    filled = {
        **{name: quoted(name) for name in identifier_columns},
        CHANGE_TYPE: f"'{DELETE}'",
        CHANGE_ORDINAL: _ORDINAL,
    }
    return identifiers.selectExpr(
        *(f"{filled.get(field.name, 'null')} AS {quoted(field.name)}" for field in schema.fields)
    )
