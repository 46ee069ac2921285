"""One change row for each identifier that changed in a range: the three transforms, by the way that moves the least.

Where files were rewritten and nothing but values tells which of their rows changed, nearly all rows are carryover; they
are told by narrow rows first, see `survivors`. Everywhere else (row lineage, delete files, appends) what is read is
what changed, so whole rows go through the three transforms at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from icecdc_core.carryover import remove_carryovers
from icecdc_core.columns import IS_INSERT, quoted
from icecdc_core.grouping import keeping, many_groups
from icecdc_core.scans import StepScan
from icecdc_core.shuffle import shuffle_by_identifiers
from icecdc_core.survivors import fetch_survivors, find_survivors, rows_observed
from icecdc_core.updates import merge_updates


@dataclass
class Merged:
    """What is left to do after a range.

    Attributes:
        rows: One change row for each identifier; of a DELETE no more than the identifier need be filled.
        upserts: INSERT rows among them.
        deletes: DELETE rows among them.
        nulls: Rows of which a part of the identifier is null.
        carryovers: Unchanged rows that were dropped.
        cached: Frames that are kept (memory, then disk) until ``close``.
    """

    rows: DataFrame
    upserts: int = 0
    deletes: int = 0
    nulls: int = 0
    carryovers: int = 0
    cached: list[DataFrame] = field(default_factory=list)

    @classmethod
    def kept(cls, rows: DataFrame, identifier_columns: Sequence[str], file_bytes: int) -> Merged:
        """Compute these rows now, count and keep them; ``file_bytes`` is the size of the files they are read from."""
        some_null = " OR ".join(f"{quoted(name)} IS NULL" for name in identifier_columns)
        with keeping(rows.sparkSession, file_bytes) as level:
            rows = rows.persist(level)
            try:
                counts = rows.selectExpr(
                    f"count_if({IS_INSERT}) AS upserts",
                    f"count_if(NOT ({IS_INSERT})) AS deletes",
                    f"count_if({some_null}) AS `nulls`",
                ).collect()[0]
            except BaseException:
                rows.unpersist()
                raise
        return cls(rows, counts.upserts, counts.deletes, counts.nulls, cached=[rows])

    def close(self) -> None:
        """Let go of what is cached."""
        while self.cached:
            self.cached.pop().unpersist()


def merged_changes(
    changes: DataFrame, identifier_columns: Sequence[str], scans: Sequence[StepScan], file_bytes: int
) -> Merged:
    """Drop carryovers and merge the changes of each identifier.

    Args:
        changes: Raw changes, see ``read_changes``; they may be read twice.
        identifier_columns: The columns that identify a row.
        scans: What the changes are read from.
        file_bytes: Size of the data files in them.

    Raises:
        PySparkException: Two different rows of one identifier within one step ("duplicate identifier").
    """
    if not any(scan.by_value for scan in scans):
        return _at_once(changes, identifier_columns, file_bytes)
    steps = {scan.step.ordinal for scan in scans}
    return _by_narrow_rows(changes, identifier_columns, steps.pop() if len(steps) == 1 else None, file_bytes)


def _at_once(changes: DataFrame, identifier_columns: Sequence[str], file_bytes: int) -> Merged:
    read, left = Observation(), Observation()
    count = F.count(F.lit(1)).alias("rows")
    shuffled = changes.observe(read, count).transform(shuffle_by_identifiers, identifier_columns)
    changed = remove_carryovers(shuffled).observe(left, count)
    merged = Merged.kept(merge_updates(changed, identifier_columns), identifier_columns, file_bytes)
    merged.carryovers = (rows_observed(read, changes) - rows_observed(left, changes)) // 2
    return merged


def _by_narrow_rows(
    changes: DataFrame, identifier_columns: Sequence[str], only_step: int | None, file_bytes: int
) -> Merged:
    with many_groups(changes.sparkSession):
        found = find_survivors(changes, identifier_columns, only_step)
    rows = fetch_survivors(changes, identifier_columns, found)
    if not found.doubtful:
        return Merged(rows, found.upserts, found.deletes, found.nulls, found.carryovers, [found.identifiers])
    try:
        # Computed now, because it may show that identifiers are not unique.
        merged = Merged.kept(rows, identifier_columns, file_bytes)
    finally:
        found.close()
    merged.carryovers = found.carryovers
    return merged
