"""Where identifiers may be duplicates, the last row of each counts: the rows that remain in the end snapshot say it."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, functions as F

from icecdc_core.changes.narrow_rows import find_changed_identifiers
from icecdc_core.changes.places import look_up_old_places
from icecdc_core.changes.row_changes import NetChanges, PlannedRange
from icecdc_core.columns import CHANGE_ORDINAL, IS_DELETE, IS_DUPLICATE, IS_INSERT, OWN_PREFIX, ROWS, WAS_THERE, quoted
from icecdc_core.session.jvm import unpersist
from icecdc_core.table.schema import require_no_null
from icecdc_core.updates import merge_updates, with_deletes

_KNOWN = f"{OWN_PREFIX}known"  # `WAS_THERE`, under a name that `merge_updates` does not give to one of its own


def find_last_rows(planned: PlannedRange, remaining: DataFrame, on_duplicate: str) -> NetChanges:
    """Look up the rows that remain in the end snapshot: of several rows of one identifier, changes do not show it."""
    ids = planned.identifier_columns
    found = find_changed_identifiers(planned.changes(), ids, row_hash=planned.row_hash)
    try:
        if found.nulls:
            require_no_null(found.identifiers, ids, planned.table.name)
        names = [quoted(name) for name in ids]
        changed = [f"_icecdc_changed_{position}" for position in range(len(ids))]
        same = [F.col(name) == F.col(alias) for name, alias in zip(names, changed, strict=True)]
        # A row that was not there shows nothing: another one of its identifier may have been.
        of_changed = f"nullif({WAS_THERE} AND NOT {IS_DUPLICATE}, false) AS {WAS_THERE}"
        wanted = found.identifiers.selectExpr(*names, of_changed)
        rows = remaining.join(wanted.toDF(*changed, _KNOWN), same).drop(*changed)
        rows = merge_updates(rows, ids, on_duplicate).withColumnRenamed(_KNOWN, WAS_THERE)
        deleted = wanted.join(rows.select(*names).toDF(*changed), same, "left_anti")
        deleted = deleted.selectExpr("*", f"0 AS {CHANGE_ORDINAL}")
        rows = with_deletes(rows, deleted, ids, CHANGE_ORDINAL)
        if planned.selection.has_places:
            # Any of the rows that remain may have been the last one before.
            rows = look_up_old_places(rows, [planned.changes().where(IS_DELETE), remaining], found.identifiers, ids)
        return NetChanges.from_rows(rows, planned, "last-rows", found.carryovers)
    finally:
        unpersist(found.identifiers)


def has_duplicates(rows: DataFrame, identifier_columns: Sequence[str], remaining: DataFrame) -> bool:
    """Whether the table has several rows of an identifier that a range inserted, or one of those it deleted again."""
    ids, stays = list(identifier_columns), f"{OWN_PREFIX}stays"
    new = rows.where(f"NOT {WAS_THERE}").groupBy(*map(quoted, ids)).agg(F.expr(f"max({IS_INSERT}) AS {stays}"))
    found = remaining.toDF(*ids).join(new, ids, "left_semi")
    counted = found.groupBy(*map(quoted, ids)).agg(F.count(F.lit(1)).alias(ROWS))
    return not new.join(counted, ids, "left").where(f"coalesce({ROWS}, 0) <> cast({stays} AS int)").isEmpty()
