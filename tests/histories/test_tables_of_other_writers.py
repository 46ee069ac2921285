"""Histories as other engines write them: the changes between any two snapshots are those that Spark's SELECT shows.

``ICECDC_FUZZ`` says how many, ``ICECDC_SEED`` which.
"""

import contextlib
import itertools
import json
import os
from collections import Counter
from functools import reduce
from unittest import mock

import pytest
from hypothesis import Phase, strategies as st
from pyspark.sql import DataFrame, functions as F

from icecdc_core import export_table, status, sync_changes, validate_table
from icecdc_core.carryover import remove_carryovers
from icecdc_core.changes import narrow_rows, net_changes, read_changes, row_changes, row_lineage
from icecdc_core.changes.net_changes import compute_net_changes
from icecdc_core.changes.row_changes import PlannedRange
from icecdc_core.changes.scan_planning import file_bytes, plan_scans
from icecdc_core.errors import HistoryGapError
from icecdc_core.table import iceberg_table
from icecdc_core.table.iceberg_table import IcebergTable
from icecdc_core.table.source import Selection
from tests.checks.examples import SEED, for_examples
from tests.conftest import ACCELERATOR
from tests.histories.other_writer import DATA, LAST_UPDATED, ROW_ID, OtherWriter
from tests.histories.proof import balance, difference

MANY = int(os.environ.get("ICECDC_FUZZ", "2"))
SHRINK = [Phase.shrink] if MANY > 5 else []
REGIONS = 1, 2


def _rows(writer, count, n):
    first, writer.next_id = writer.next_id, writer.next_id + count
    names = {number: name for number, (name, _) in writer.schemas[-1].items()}
    values = {1: lambda at: at, 2: lambda at: f"row {at} {n}", 3: lambda at: REGIONS[n % 2]}
    return [
        {name: values.get(number, lambda at: at * n)(at) for number, name in names.items()}
        for at in range(first, first + count)
    ]


def _file(writer, rows, lineage=False):
    regions = {row.get("region") for row in rows}
    return writer.data_file(rows, regions.pop() if writer.spec and len(regions) == 1 else None, lineage)


def _chosen(writer, n):
    files = [file for file in writer.current.files if file.content == DATA]
    return files[n % len(files)] if files else None


def _with_ids(writer, file, changed=()):
    """The live rows of a file, with the row ids that they have."""
    rows = []
    for at, row in writer.alive(file):
        own = {ROW_ID: file.first_row_id + at, LAST_UPDATED: file.sequence} if writer.version > 2 else {}
        own = {name: row.get(name) if row.get(name) is not None else value for name, value in own.items()}
        rows.append({**row, **own, **({LAST_UPDATED: None} if own and row["id"] in changed else {})})
    return rows


def append(writer, n, how):
    writer.commit([_file(writer, _rows(writer, 1 + n % 4, n))], operation="append", **how)


def rewrite(writer, n, how):
    """Copy-on-write: of a file's rows one is dropped, one is changed."""
    file = _chosen(writer, n)
    rows = _with_ids(writer, file, {row["id"] for _, row in writer.alive(file)[1:2]})
    name = writer.schemas[-1][2][0]
    rows = [{**row, name: f"{row.get(name)}!"} if at == 1 else row for at, row in enumerate(rows) if at or n % 2]
    gone = {each.key for each in writer.current.files if each.key == file.key or each.target == file.path}
    made = [_file(writer, rows, writer.version > 2)] if rows else []
    writer.commit(made, gone if n % 5 else set(), **how)


def remove(writer, n, how):
    writer.commit([], {_chosen(writer, n).key}, operation="delete", **how)


def delete_positions(writer, n, how):
    file = _chosen(writer, n)
    if writer.version == 1 or not file.rows:
        return remove(writer, n, how)
    at = n % len(file.rows)
    if writer.version > 2:
        other = _chosen(writer, n + 1)
        files = [(file, at)] + ([(other, 0)] if n % 2 and other.rows and other.path != file.path else [])
        known = [each for each in writer.current.files if each.blob and each.target in {each.path for each, _ in files}]
        positions = [
            (each, {position, *(at for old in known for path, at in old.positions if path == each.path)})
            for each, position in files
        ]
        return writer.commit(writer.deletion_vectors(positions), {each.key for each in known}, **how)
    positions, named = {(file.path, at)}, bool(n % 3)
    if not named:
        other = _chosen(writer, n + 1)
        positions |= {(other.path, 0)} if other.region == file.region and other.spec == file.spec else set()
    return writer.commit([writer.position_deletes(positions, file, named)], **how)


def delete_equal(writer, n, how):
    if writer.version == 1:
        return append(writer, n, how)
    number = (1, 2, *writer.schemas[-1])[n % (2 + len(writer.schemas[-1]))]
    name = writer.schemas[-1][number][0]
    file = _chosen(writer, n)
    values = [row.get(name) for row in file.rows[:2]]
    rows = [_file(writer, _rows(writer, 2, n))] if n % 2 else []
    return writer.commit([*rows, writer.equality_deletes(name, values, file)], **how)


def delete_deletes(writer, n, how):
    """Deletes are undone, by a writer that drops their files."""
    deletes = [file for file in writer.current.files if file.content != DATA]
    if not deletes:
        return append(writer, n, how)
    return writer.commit([], {deletes[n % len(deletes)].key}, **how)


def compact(writer, n, how):
    files = [file for file in writer.current.files if file.content == DATA and file.region == _chosen(writer, n).region]
    rows = [row for file in files for row in _with_ids(writer, file)]
    gone = {file.key for file in files} | {
        each.key for each in writer.current.files if each.blob and each.target in {f.path for f in files}
    }
    writer.commit([_file(writer, rows, writer.version > 2)] if rows else [], gone, operation="replace", **how)


def list_again(writer, n, how):
    """A file that the table has already."""
    file = _chosen(writer, n)
    writer.commit([file], operation="append", **how)


def restore(writer, n, how):
    writer.restore(writer.snapshots[n % len(writer.snapshots)]["snapshot-id"])


def rewrite_manifests(writer, n, how):
    writer.commit([], operation="replace", **{**how, "layout": ("merge", "split")[n % 2]})


def evolve(writer, n, how):
    """The schema, or the partition spec."""
    columns = dict(writer.schemas[-1])
    last = max(columns)
    if n % 6 == 0 and 3 in columns:
        writer.spec = 1 - writer.spec
    elif n % 6 == 1 and last > 2 + writer.spec:  # also the source of an older partition spec
        del columns[last]
    elif n % 6 == 2 and columns[2][0] == "name":
        columns[2] = "title", "string"
    elif n % 6 == 3 and last > 2:
        columns[last] = columns[last][0], "long"
    elif n % 6 == 4:
        columns = dict(reversed(columns.items()))
    else:
        writer.last_column += 1
        columns[writer.last_column] = f"extra_{writer.last_column}", "int"
    writer.schemas.append(columns)
    append(writer, n, how)


def copy_with_row_ids(writer, n, how):
    """Rows of new identifiers with the row ids of others; an old number of the commit would hide them in this range."""
    if writer.version < 3:
        return append(writer, n, how)
    rows = _with_ids(writer, _chosen(writer, n))
    for row in rows:
        row["id"], row[LAST_UPDATED], writer.next_id = writer.next_id, None, writer.next_id + 1
    return writer.commit([_file(writer, rows, lineage=True)], **how)


def set_row_ids_back(writer, n, how):
    writer.commit([_file(writer, _rows(writer, 3, n))], row_ids_from=n % 4, **how)


OPERATIONS = {
    each.__name__: each
    for each in (
        append, rewrite, remove, delete_positions, delete_equal, delete_deletes, compact, list_again, restore,
        rewrite_manifests, evolve, copy_with_row_ids, set_row_ids_back,
    )
}  # fmt: skip
HOW = st.fixed_dictionaries(
    {
        "layout": st.sampled_from(["delta", "delta", "merge", "split"]),
        "marks": st.sampled_from(["none", "own", "older", "carried", "of live files"]),
        "counts": st.sampled_from(["right", "wrong", "none"]),
        "orphan": st.sampled_from([False, False, False, True]),
        "late": st.sampled_from([0, 0, 0, 0, 2]),
        "renamed": st.sampled_from(["", "", "compaction"]),
    }
)
# Few operations, so that they meet: of all of them, those that must come together to break something seldom do.
SOME = st.lists(st.sampled_from(sorted(OPERATIONS)), min_size=2, max_size=3, unique=True)
STEPS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20), HOW), min_size=3, max_size=7)


def live(writer, some, steps):
    writer.commit([_file(writer, _rows(writer, 4, n)) for n in (0, 1)], operation="append")
    for number, n, how in steps:
        operation = append if _chosen(writer, n) is None else OPERATIONS[some[number % len(some)]]
        operation(writer, n, how)


def counted(frames, width, *more):
    """How often each frame has each row: JSON of its first columns, and what is asked for more; one job reads them."""
    parts = [
        frame.select(F.lit(n), F.to_json(F.struct(*frame.columns[:width]), {"ignoreNullFields": "false"}), *more)
        for n, frame in enumerate(frames)
    ]
    found = [Counter() for _ in frames]
    for n, *row in reduce(DataFrame.unionAll, parts).collect():
        found[n][tuple(row)] += 1
    return found


def states_of(spark, table, writer):
    """What Spark reads of each snapshot, under the current names of columns."""
    current, frames = writer.schemas[-1], []
    for snapshot in writer.snapshots:
        rows = spark.read.option("versionAsOf", snapshot["snapshot-id"]).table(table)
        schema = writer.schemas[snapshot.get("schema-id", -1)]
        names = {number: name for number, (name, _) in schema.items() if name in rows.columns}
        columns = (
            (F.col(names[n]) if n in names else F.lit(None).cast(kind), name) for n, (name, kind) in current.items()
        )
        frames.append(rows.select(*(column.alias(name) for column, name in columns)))
    ids = [each["snapshot-id"] for each in writer.snapshots]
    return dict(zip(ids, counted(frames, len(current)), strict=True))


@pytest.mark.timeout(12 * 3600)
def it_finds_the_changes_that_a_select_at_both_ends_shows(spark, sql, warehouse, name):
    lived = []

    def follow(field_ids, has_key, some, steps, rows, is_sent, slots):
        lived.append((3, 2, 4, 1)[len(lived) % 4])
        writer = OtherWriter(warehouse / f"{name}_{len(lived)}", lived[-1], field_ids, has_key)
        live(writer, some, steps)
        table = f"lake.ns.{name}_{len(lived)}"
        _register(spark, table, writer)
        try:
            with (
                mock.patch.multiple(net_changes, ROW_IDS_FROM_ROWS=rows, JOINED_ROWS=rows),
                mock.patch.object(iceberg_table, "SLOTS", slots),
                mock.patch.object(row_lineage, "can_broadcast", return_value=is_sent),
                mock.patch.object(row_changes, "can_broadcast", return_value=is_sent),
                mock.patch.object(net_changes, "can_broadcast", return_value=is_sent),
                mock.patch.object(narrow_rows, "can_broadcast", return_value=is_sent),
            ):
                _follow(spark, table, writer)
        finally:
            spark.sql(f"DROP TABLE {table}")

    for_examples(
        follow,
        MANY,
        *SHRINK,
        field_ids=st.just(True) if ACCELERATOR else st.booleans(),  # Comet refuses files without field ids
        has_key=st.sampled_from([False, False, True]),
        some=SOME,
        steps=STEPS,
        rows=st.sampled_from([0, 10**6]),
        is_sent=st.booleans(),
        slots=st.sampled_from([1, 4, iceberg_table.SLOTS]),
    )
    print(f"{len(lived)} histories, seed {SEED}")


def _register(spark, table, writer):
    name = table.removeprefix("lake.")
    spark.sql(f"CALL lake.system.register_table('{name}', '{writer.metadata_file()}')")


def _follow(spark, table, writer):
    states = states_of(spark, table, writer)
    ids = list(states)
    pairs = [
        *itertools.pairwise(ids),
        (ids[0], ids[-1]),
        (ids[-1], ids[0]),
        (None, ids[-1]),
        *zip(ids, ids[2:], strict=False),
    ]
    changes = [remove_carryovers(read_changes(spark, table, *pair)) for pair in pairs]
    for pair, found in zip(pairs, counted(changes, len(writer.schemas[-1]), "_change_type"), strict=True):
        before, after = (states.get(end, Counter()) for end in pair)
        assert balance(found) == balance(difference(before, after)), pair
    for pair in pairs[-3:-1]:
        before, after = (states.get(end, Counter()) for end in pair)
        _apply(spark, table, pair, before, after)


def _by_id(state):
    rows = {json.loads(row)["id"]: row for (row,) in state}
    return rows if len(rows) == sum(state.values()) else None


def _apply(spark, table, pair, before, after):
    """What a sync would write, where identifiers are unique."""
    old, new = _by_id(before), _by_id(after)
    if old is None or new is None:
        return
    loaded = IcebergTable(spark, table)
    scans = plan_scans(loaded, loaded.metadata(), *pair, "net")
    planned = PlannedRange(loaded, scans, ["id"], file_bytes(loaded, scans), Selection(tuple(loaded.column_names())))
    if not scans:
        assert old == new, pair
        return
    with contextlib.closing(compute_net_changes(planned)) as changes:
        columns = len(loaded.column_names())
        rows = changes.rows.select(
            "id", "_change_type", F.to_json(F.struct(*changes.rows.columns[:columns]), {"ignoreNullFields": "false"})
        ).collect()
    loaded.release()
    counts = Counter(kind for _, kind, _ in rows)
    assert not changes.is_counted or (changes.upserts, changes.deletes) == (counts["INSERT"], counts["DELETE"])
    for key, kind, row in rows:
        if kind == "DELETE":
            old.pop(key, None)
        else:
            old[key] = row
    assert old == new, (pair, changes.strategy)


def _problem(spark, config):
    return next(each.problem for each in status(spark, config).indexes if each.index == config.index)


def it_refuses_a_snapshot_whose_id_was_used_again(spark, warehouse, opensearch, make_config, name):
    config = make_config(identifier_columns=["id"])
    writer = OtherWriter(warehouse / f"{name}_other", 4)
    append(writer, 3, {})
    _register(spark, config.table, writer)
    export_table(spark, config)
    assert (validate_table(spark, config).ok, _problem(spark, config)) == (True, "")
    # The first snapshot was rolled back.
    writer.commit([_file(writer, _rows(writer, 2, 1))], orphan=True, snapshot_id=writer.current.snapshot_id)
    spark.sql(f"DROP TABLE {config.table}")
    _register(spark, config.table, writer)
    with pytest.raises(HistoryGapError, match=r"id was used again.*on_history_gap=reexport"):
        sync_changes(spark, config)
    report = sync_changes(spark, config.model_copy(update={"on_history_gap": "reexport"}))
    assert (report.strategy, report.upserts) == ("reexport", spark.table(config.table).count())
    spark.sql(f"DROP TABLE {config.table}")
