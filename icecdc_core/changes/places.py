"""The places of documents that `routing` distributes over shards, and how a document moves from one to another.

OpenSearch finds a document by its id within one shard only, so a document that moves is deleted at the old place and
indexed at the new one. Here the row of identifier ``1`` was in ``a``, was moved to ``b`` and is in ``c`` now:

    ==  ======  =====  ===========      ==  ======  =====
    id  change  place  old places       id  change  place
    ==  ======  =====  ===========      ==  ======  =====
    1   INSERT  c      [a, b]      ->   1   DELETE  a
    2   INSERT  a      [a]              1   DELETE  b
    3   DELETE         [b]              1   INSERT  c
                                        2   INSERT  a
                                        3   DELETE  b
    ==  ======  =====  ===========      ==  ======  =====

The old places are those of all DELETE rows of a range, of intermediate steps too: an earlier batch that failed may have
written its documents there. Whether two places are one shard does not matter, nor in which order a shard gets its
operations: of one batch, an INSERT has a higher version than a DELETE.
"""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame, Window, functions as F

from icecdc_core.columns import CHANGE_TYPE, DELETE, INSERT, IS_DELETE, IS_INSERT, OLD_PLACES, PLACE, WAS_THERE, quoted

_DELETED_AT = f"collect_set(CASE WHEN {IS_DELETE} THEN {PLACE} END)"


def with_old_places(changes: DataFrame, identifier_columns: Sequence[str]) -> DataFrame:
    """Add the places of the DELETE rows of each identifier, if documents have places; it adds no exchange."""
    if PLACE not in changes.columns:
        return changes
    window = Window.partitionBy(*map(quoted, identifier_columns))
    return changes.withColumn(OLD_PLACES, F.expr(_DELETED_AT).over(window))


def look_up_old_places(
    rows: DataFrame, images: Sequence[DataFrame], changed: DataFrame, identifier_columns: Sequence[str]
) -> DataFrame:
    ids = list(identifier_columns)
    every = reduce(DataFrame.unionAll, (image.select(*map(quoted, ids), PLACE) for image in images))
    found = every.join(changed.select(*map(quoted, ids)), ids, "left_semi")
    places = found.groupBy(*map(quoted, ids)).agg(F.collect_set(PLACE).alias(OLD_PLACES))
    return rows.join(places, ids, "left").select(*map(quoted, rows.columns), OLD_PLACES)


def at_each_place(rows: DataFrame) -> DataFrame:
    """Return a DELETE row for each old place of a row that is not its own, then the row if it is an INSERT."""
    elsewhere = f"coalesce(if({IS_INSERT}, array_except({OLD_PLACES}, array({PLACE})), {OLD_PLACES}), array())"
    deleted, inserted = "", ""
    if WAS_THERE in rows.columns:
        # Of several old places nobody knows which the document had. At a new place there may be one: that of the old
        # place, if both are in one shard and its delete comes later.
        deleted = f", CASE WHEN size({OLD_PLACES}) = 1 OR NOT {WAS_THERE} THEN {WAS_THERE} END AS {WAS_THERE}"
        stays = f"coalesce(size({OLD_PLACES}), 0) = 0 OR {OLD_PLACES} = array({PLACE})"
        inserted = f", CASE WHEN {stays} THEN {WAS_THERE} END AS {WAS_THERE}"
    deletes = f"transform({elsewhere}, place -> struct('{DELETE}' AS {CHANGE_TYPE}, place AS {PLACE}{deleted}))"
    insert = f"if({IS_INSERT}, array(struct('{INSERT}' AS {CHANGE_TYPE}, {PLACE}{inserted})), array())"
    others = [quoted(name) for name in rows.columns if name not in (CHANGE_TYPE, PLACE, OLD_PLACES, WAS_THERE)]
    return rows.selectExpr(*others, f"inline(concat({deletes}, {insert}))")
