"""Keep the last change of each identifier, where an identifier must belong to one row of the table.

    ==  ============  ===============      ==  ============  ===============
    id  _change_type  _change_ordinal      id  _change_type  _change_ordinal
    ==  ============  ===============      ==  ============  ===============
    1   DELETE        0                    1   INSERT        0
    1   INSERT        0               ->   2   DELETE        1
    2   INSERT        0
    2   DELETE        1
    ==  ============  ===============      ==  ============  ===============

In the order of steps, DELETE before INSERT, the changes of one row alternate. If two changes of the same type follow
each other, two rows have the identifier, whether the rows are equal or not:

    =========================  ==================================================
    steps of one identifier
    =========================  ==================================================
    INSERT | DELETE            one row: inserted, then deleted
    DELETE, INSERT | DELETE    one row: updated, then deleted
    INSERT | INSERT            two rows: nothing deleted the first one
    DELETE | DELETE, INSERT    two rows: one is deleted, the other one updated
    =========================  ==================================================

``merge_updates`` cannot see that, as it collapses equal rows and compares the rows of one step only. So the jobs use
this, which compares no values at all.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from icecdc_core.columns import CHANGE_ORDINAL, is_insert, quoted, resolve_identifiers, unused_name
from icecdc_core.equality import with_keys
from icecdc_core.updates import keep_unless_duplicate

TWO_ROWS = "two rows have "


def merge_unique_changes(changes: DataFrame, identifier_columns: Sequence[str]) -> DataFrame:
    """Keep one row for each identifier: the last step decides, within a step INSERT beats DELETE.

    After ``shuffle_by_identifiers`` this adds no exchange.
    """
    names = resolve_identifiers(changes, identifier_columns)
    rows, keys = with_keys(changes, [changes.schema[name] for name in names])
    identifier = [key for name in names for key in keys[name].columns()]
    window = Window.partitionBy(*identifier).orderBy(F.desc(CHANGE_ORDINAL), F.desc(is_insert()))
    next_is_insert = unused_name("_next_is_insert", rows.columns)
    duplicate = F.col(next_is_insert) == is_insert()
    for name in names:
        duplicate &= F.col(quoted(name)).isNotNull()
    is_last = F.col(next_is_insert).isNull()
    kept = rows.withColumn(next_is_insert, F.lag(is_insert()).over(window)).where(
        keep_unless_duplicate(duplicate, is_last, names, TWO_ROWS)
    )
    return kept.select(*(quoted(name) for name in changes.columns))
