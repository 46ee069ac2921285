"""Compute one change row for each identifier that changed in a range, by the strategy that moves the fewest rows.

=================  ====================================================  =============================================
strategy           when                                                  what it does
=================  ====================================================  =============================================
``insert-only``    files were only added                                 reads their rows; nothing is left to compare
``joined``         only values show which rows of rewritten files        joins whole newer rows with identifiers and
                   changed (copy-on-write before format v3), and the     hashes of older ones, which every task gets,
                   older ones are few                                    see ``joined_rows``
``narrow-rows``    the same, and they are many, or so few that a         shuffles identifiers and hashes, then fetches
                   look-up of deleted ones takes longer; or there are    changed rows
                   several steps, delete files, a filter or places; or
                   an identifier may be a duplicate
``row-ids``        row lineage shows it, and the older states are large  reads the row ids of the newer states first,
                                                                         see ``row_lineage``
``at-once``        row lineage, delete files or appends show it          shuffles the changed rows
``last-rows``      identifiers may be duplicates; the last row of each   finds identifiers as ``narrow-rows`` does, then
                   counts                                                fetches their rows of the end snapshot
=================  ====================================================  =============================================

All of them leave one row for each identifier, and all but ``last-rows`` fail if two rows have one. Carryovers are
dropped by their values or already in the scan. Each row says whether the table had one of its identifier before
(``WAS_THERE``), so that what OpenSearch answers to its operation shows whether index and table agree.

An UPDATE to equal values ("no-op update") changes no document. ``joined``, ``narrow-rows`` and ``last-rows``
compare values and skip it. The others do not, so its document is written again, which is harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, functions as F
from pyspark.sql.types import BinaryType, StringType

from icecdc_core.carryover import remove_narrow_carryovers
from icecdc_core.changes.joined_rows import join_sides, rows_met
from icecdc_core.changes.narrow_rows import FAST, narrow_rows
from icecdc_core.changes.places import at_each_place, look_up_old_places, with_old_places
from icecdc_core.changes.row_changes import changes_by_row_ids, changes_frame
from icecdc_core.changes.row_lineage import count_unchanged, unchanged_row_ids
from icecdc_core.changes.scan_planning import StepScan, is_insert_only
from icecdc_core.changes.steps import Step
from icecdc_core.columns import (
    CHANGE_ORDINAL,
    CHANGE_TYPE,
    DELETE,
    IS_DUPLICATE,
    IS_INSERT,
    KIND,
    OLD_PLACES,
    PLACE,
    ROWS,
    WAS_THERE,
    quoted,
)
from icecdc_core.errors import DUPLICATE_MESSAGE
from icecdc_core.session.jvm import active_session, unpersist
from icecdc_core.session.spark import (
    RowCount,
    cached_bytes,
    can_broadcast,
    observed,
    storage_level_for,
    tuned_for_many_groups,
)
from icecdc_core.shuffle import shuffle_by_identifiers
from icecdc_core.table.iceberg_table import IcebergTable
from icecdc_core.table.schema import any_null, require_no_null, require_unique
from icecdc_core.table.source import Selection
from icecdc_core.updates import (
    DECIDING_STEP,
    IS_DELETED,
    IS_UPSERTED,
    keep_unless_duplicate,
    merge_narrow_updates,
    merge_updates,
    net_rows,
)


@dataclass(frozen=True)
class PlannedRange:
    table: IcebergTable
    scans: Sequence[StepScan]
    identifier_columns: Sequence[str]
    file_bytes: int
    selection: Selection
    row_hash: str = FAST

    def changes(self) -> DataFrame:
        return changes_frame(self.table, self.scans, self.selection)

    @property
    def only_step(self) -> int | None:
        steps = {scan.step.ordinal for scan in self.scans}
        return steps.pop() if len(steps) == 1 else None

    def side_counts(self) -> tuple[int, int] | None:
        """Return the rows of the older and of the newer states; None if the files alone do not show them."""
        if self.selection.row_filter or any(scan.unchanged_until is not None for scan in self.scans):
            return None
        older = self.table.union(*(tasks for scan in self.scans for tasks in scan.read_older))
        newer = self.table.union(*(tasks for scan in self.scans for tasks in scan.read_newer))
        if any(self.table.delete_digests(older)) or any(self.table.delete_digests(newer)):
            return None
        return sum(self.table.row_counts(older)), sum(self.table.row_counts(newer))

    def older_row_count(self) -> int | None:
        """Return the rows of the older states; None if row lineage does not cover every step or deletes hide it."""
        changing = [scan for scan in self.scans if not is_insert_only([scan])]
        # Rows that come back show only where both sides are compared.
        undoes = any(scan.step.from_snapshot_id in (scan.step.path or ()) for scan in changing)
        if undoes or any(scan.unchanged_until is None for scan in changing):
            return None
        older = self.table.union(*(tasks for scan in changing for tasks in scan.read_older))
        return None if any(self.table.delete_digests(older)) else sum(self.table.row_counts(older))


def cached_and_counted(
    frame: DataFrame, level: StorageLevel, total_of: str = "", **conditions: str
) -> tuple[DataFrame, Row]:
    counts = [f"count_if({condition}) AS {quoted(name)}" for name, condition in conditions.items()]
    counts += [f"coalesce(sum({total_of}), 0) AS total"] if total_of else []
    cached = frame.persist(level)
    try:
        return cached, cached.selectExpr(*counts).collect()[0]
    except BaseException:
        unpersist(cached)
        raise


# Up to here identifiers are sent to every task that reads the newer side; more of them are shuffled, as in any join.
BROADCAST_ROWS = 300_000

# Older rows times the square of the cores, up to which ``joined`` pays: one core makes the table that every task gets,
# whereas all cores share a shuffle.
JOINED_ROWS = 8_000_000
# Of a row in a hash table, without the values of its key.
_ROW_BYTES = 48
# Bytes of values for one of a file, at most, unless values are alike; and the rows whose texts are looked at.
_DENSITY, _SAMPLE_ROWS = 16, 1000
# With fewer older rows a shuffle takes less time than the job in which ``joined`` looks up deleted identifiers.
LOOK_UP_FROM_ROWS = 300_000


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
        total_of=ROWS,
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
    rows = _with_deletes(rows, found.identifiers.where(IS_DELETED), identifier_columns)
    if not found.duplicates:
        return rows
    # The check for nulls names an identifier with one.
    complete = " AND ".join(f"{quoted(name)} IS NOT NULL" for name in identifier_columns)
    fail = keep_unless_duplicate(F.expr(complete), F.lit(True), identifier_columns)
    duplicates = found.identifiers.where(IS_DUPLICATE).where(fail)
    return _with_deletes(rows, duplicates, identifier_columns)


def _with_deletes(
    rows: DataFrame, identifiers: DataFrame, identifier_columns: Sequence[str], step: str = DECIDING_STEP
) -> DataFrame:
    """Add a DELETE row for each of the changed identifiers, whose other columns are null."""
    change = (f"'{DELETE}' AS {CHANGE_TYPE}", f"{step} AS {CHANGE_ORDINAL}")
    deletes = identifiers.selectExpr(*map(quoted, identifier_columns), *change, WAS_THERE)
    return rows.unionByName(deletes, allowMissingColumns=True)


_IS_DELETE = f"NOT ({IS_INSERT})"
JOINED, NARROW_ROWS, ROW_IDS, AT_ONCE = "joined", "narrow-rows", "row-ids", "at-once"
NONE, INSERT_ONLY, LAST_ROWS = "none", "insert-only", "last-rows"

# Rows of the older states from which on ``row-ids`` pays; fewer are read whole in less time than a Spark job takes.
ROW_IDS_FROM_ROWS = 100_000


@dataclass(frozen=True)
class NetChanges:
    rows: DataFrame | None = None
    strategy: str = NONE
    upserts: int = 0
    deletes: int = 0
    nulls: int = 0
    carryovers_removed: int = 0
    cached: tuple[DataFrame, ...] = ()

    @property
    def is_counted(self) -> bool:
        return self.strategy != INSERT_ONLY

    @classmethod
    def from_rows(
        cls, rows: DataFrame, planned: PlannedRange, strategy: str, carryovers_removed: int = 0
    ) -> NetChanges:
        """Compute, count and cache these rows; one row for each place where they have places."""
        if OLD_PLACES in rows.columns:
            rows = at_each_place(rows)
        with storage_level_for(rows.sparkSession, planned.file_bytes) as level:
            nulls = any_null(planned.identifier_columns)
            rows, counts = cached_and_counted(rows, level, upserts=IS_INSERT, deletes=_IS_DELETE, nulls=nulls)
        return cls(rows, strategy, counts.upserts, counts.deletes, counts.nulls, carryovers_removed, (rows,))

    def close(self) -> None:
        for frame in self.cached:
            unpersist(frame)


def compute_net_changes(planned: PlannedRange) -> NetChanges:
    if any(scan.by_value for scan in planned.scans):
        return _by_values(planned)
    # Nothing else of a DELETE is needed than its identifiers.
    bare = replace(planned.selection, delete_columns=tuple(planned.identifier_columns))
    planned = replace(planned, selection=bare)
    older_rows = planned.older_row_count()
    if older_rows is not None and older_rows > ROW_IDS_FROM_ROWS and (found := _by_row_ids(planned, older_rows)):
        return found
    return NetChanges.from_rows(_merged(planned.changes(), planned.identifier_columns), planned, AT_ONCE)


def compute_inserts(planned: PlannedRange, count: Callable[[DataFrame], int] | None) -> NetChanges:
    rows = planned.changes()
    if planned.identifier_columns:
        require_unique(rows, planned.identifier_columns, planned.table.name, allow_duplicates=False)
    upserts = count(rows) if count else 0
    return NetChanges(rows.selectExpr("*", f"false AS {WAS_THERE}"), INSERT_ONLY, upserts)


def compute_last_rows(planned: PlannedRange, remaining: DataFrame, on_duplicate: str) -> NetChanges:
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
        rows = remaining.join(wanted.toDF(*changed, KIND), same).drop(*changed)
        rows = merge_updates(rows, ids, on_duplicate).withColumnRenamed(KIND, WAS_THERE)
        deleted = wanted.join(rows.select(*names).toDF(*changed), same, "left_anti")
        deleted = deleted.selectExpr("*", f"0 AS {CHANGE_ORDINAL}")
        rows = _with_deletes(rows, deleted, ids, CHANGE_ORDINAL)
        if planned.selection.has_places:
            # Any of the rows that remain may have been the last one before.
            rows = look_up_old_places(rows, [planned.changes().where(_IS_DELETE), remaining], found.identifiers, ids)
        return NetChanges.from_rows(rows, planned, LAST_ROWS, found.carryovers)
    finally:
        unpersist(found.identifiers)


def agree(rows: DataFrame, identifier_columns: Sequence[str], remaining: DataFrame) -> bool:
    """Whether the table has one row of each identifier that a range inserted, and none of those it deleted again."""
    ids = list(identifier_columns)
    new = rows.where(f"NOT {WAS_THERE}").groupBy(*map(quoted, ids)).agg(F.expr(f"max({IS_INSERT}) AS {KIND}"))
    found = remaining.toDF(*ids).join(new, ids, "left_semi")
    counted = found.groupBy(*map(quoted, ids)).agg(F.count(F.lit(1)).alias(ROWS))
    return new.join(counted, ids, "left").where(f"coalesce({ROWS}, 0) <> cast({KIND} AS int)").isEmpty()


def _by_values(planned: PlannedRange) -> NetChanges:
    counts, table, ids = planned.side_counts(), planned.table, planned.identifier_columns
    changes = planned.changes()
    if counts and len(planned.scans) == 1 and not planned.selection.has_places:
        scan, cores = planned.scans[0], table.spark.sparkContext.defaultParallelism
        with storage_level_for(table.spark, sum(table.sizes(scan.read_older[0]))) as level:
            fits = level == StorageLevel.MEMORY_AND_DISK
        quick = counts[0] <= counts[1] or counts[0] >= LOOK_UP_FROM_ROWS
        if fits and quick and counts[0] * cores**2 <= JOINED_ROWS and _can_join(planned, changes, counts[0]):
            joined = find_joined_changes(changes, ids, scan.step, *counts, planned.row_hash, planned.file_bytes)
            if joined is not None:
                return joined
    with tuned_for_many_groups(changes.sparkSession):
        row_count = sum(counts) if counts else None
        found = find_changed_identifiers(changes, ids, planned.only_step, row_count, planned.row_hash)
    rows = fetch_changed_rows(changes, ids, found)
    if planned.selection.has_places:
        rows = look_up_old_places(rows, [changes.where(_IS_DELETE)], found.identifiers, ids)
    elif not found.duplicates:
        counted = found.upserts, found.deletes, found.nulls, found.carryovers
        return NetChanges(rows, NARROW_ROWS, *counted, (found.identifiers,))
    try:
        # Computed now, because it fails if an identifier is a duplicate, or because its places are counted.
        return NetChanges.from_rows(rows, planned, NARROW_ROWS, found.carryovers)
    finally:
        unpersist(found.identifiers)


def _can_join(planned: PlannedRange, changes: DataFrame, older_rows: int) -> bool:
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
            older, newer = (changes.where(side).select(*names) for side in (_IS_DELETE, IS_INSERT))
            newer = F.broadcast(newer) if newer_rows <= 2 * older_rows else newer
            deleted = older.join(newer, list(identifier_columns), "left_anti")
            deleted = deleted.groupBy(*names).agg(F.count(F.lit(1)).alias(ROWS), F.lit(True).alias(WAS_THERE))
            deleted, missing = cached_and_counted(deleted, level, total_of=ROWS, identifiers="true", nulls=null)
            cached.append(deleted)
            if (missing.identifiers, missing.total, missing.nulls) != (deletes, deletes, 0):
                return None
            rows = _with_deletes(rows, deleted, identifier_columns, str(step.ordinal))
        found = NetChanges(rows, JOINED, counts.changed, deletes, 0, newer_rows - counts.changed, tuple(cached))
        return found
    finally:
        for frame in cached if found is None else ():
            unpersist(frame)


def _by_row_ids(planned: PlannedRange, older_rows: int) -> NetChanges | None:
    table, scans = planned.table, planned.scans
    newer_states = {
        scan.step.ordinal: (table.read(table.union(*scan.read_newer)), scan.unchanged_until)
        for scan in scans
        if scan.unchanged_until is not None
    }
    unchanged = unchanged_row_ids(newer_states).persist(StorageLevel.MEMORY_AND_DISK)

    def build() -> tuple[RowCount, DataFrame]:
        with active_session(table.spark):  # a new thread has none, and the run may have a session of its own
            changes, removed = changes_by_row_ids(table, scans, unchanged, planned.selection)
            return removed, _merged(changes, planned.identifier_columns)

    try:
        with ThreadPoolExecutor(1) as pool:
            # Building frames keeps the driver busy for about as long as counting keeps the executors busy.
            building = pool.submit(build)
            unchanged_rows = count_unchanged(unchanged)
            removed, rows = building.result()
        if unchanged_rows is None:
            return None
        try:
            found = NetChanges.from_rows(rows, planned, ROW_IDS)
        except PySparkException as error:
            # The INSERT of a row that came back is missing here, so that its next DELETE looks like a second one.
            if DUPLICATE_MESSAGE not in str(error):
                raise
            return None
        if removed.value() == older_rows - unchanged_rows:
            return found
        found.close()
        return None
    finally:
        unpersist(unchanged)


def _merged(changes: DataFrame, ids: Sequence[str]) -> DataFrame:
    """Shuffle and updates; carryovers are not among these changes."""
    shuffled = changes.transform(shuffle_by_identifiers, ids)
    if PLACE in changes.columns:
        shuffled = shuffled.transform(with_old_places, ids)
    return shuffled.transform(net_rows, ids)
