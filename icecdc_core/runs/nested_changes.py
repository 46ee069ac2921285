"""The changes of documents of several tables: the roots that changes of any table affect, and their documents."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame, functions as F

from icecdc_core.changes.places import look_up_old_places
from icecdc_core.changes.row_changes import NetChanges, PlannedRange, changes_frame
from icecdc_core.columns import (
    CHANGE_ORDINAL,
    CHANGE_TYPE,
    COMMIT_SNAPSHOT_ID,
    DELETE,
    INSERT,
    IS_DELETE,
    IS_INSERT,
    OWN_PREFIX,
    PLACE,
    WAS_THERE,
    quoted,
)
from icecdc_core.config import SyncConfig
from icecdc_core.documents.changed_roots import changed_keys, find_affected_roots, used_changes
from icecdc_core.documents.nested_documents import TreeProjection
from icecdc_core.documents.nested_tables import Tree, key_names
from icecdc_core.errors import ConfigError
from icecdc_core.runs.nested import TableStates
from icecdc_core.runs.plan import BatchPlan
from icecdc_core.shuffle import shuffle_by_identifiers
from icecdc_core.table.source import Selection, Source
from icecdc_core.updates import first_is_delete, merge_updates

NESTED = "nested"
_FIRST_IS_DELETE = f"{OWN_PREFIX}first_is_delete"


def compute_nested_changes(source: Source, config: SyncConfig, plan: BatchPlan, planned: PlannedRange) -> NetChanges:
    """Find the roots that changes of any table affect, and put their documents together as they are at the end."""
    vector = {name: at.snapshot_id for name, at in plan.nested.items()}
    assert isinstance(source.projection, TreeProjection)
    tree = source.projection.tree
    states = TableStates(source, tree, plan.end, vector, whole=False)
    source = replace(source, projection=replace(source.projection, states=states))
    sources, scans = {source.table.name: source, **source.nested}, {source.table.name: plan.scans, **plan.nested_scans}
    try:
        images = {}
        for name in (name for name, each in scans.items() if each):
            used = Selection(tuple(sorted(tree.used[name].names)))
            images[name] = used_changes(tree, name, changes_frame(sources[name].table, scans[name], used))
        own = None
        if (root := source.table.name) in images:
            # The identifiers of changed rows of the root, and their places.
            names = [*source.identifier_columns, CHANGE_TYPE, CHANGE_ORDINAL]
            own = tree.root.relation.matching(images[root])
            if source.selection.has_places:
                own, names = _with_places(source, tree, own, names), [*names, PLACE]
            own = states.computed(own.select(*map(quoted, names)))
        roots = _changed_roots(source, config, states, images, own)
        net = NetChanges.from_rows(_documents_of(roots, source, config, states, own), planned, NESTED)
    except BaseException:
        states.close()
        raise
    return replace(net, cached=(*net.cached, *states.cached))


def _changed_roots(
    source: Source, config: SyncConfig, states: TableStates, images: Mapping[str, DataFrame], own: DataFrame | None
) -> DataFrame:
    """The identifiers of the roots that changed rows of any table belong to, each once."""
    found = [] if own is None else [own.select(*map(quoted, source.identifier_columns)).distinct()]
    reached = find_affected_roots(states.tree, changed_keys(states.tree, images, states), states)
    if reached is not None:
        reached, count = states.counted(reached.distinct())
        found.append(reached)
        if count > config.max_fan_out and not config.dry_run:
            raise ConfigError(
                f"The changes of nested tables affect {count:,} documents of '{config.index}'",
                subject="max_fan_out",
                value=config.max_fan_out,
                remedy="run the export, which builds a new index and is faster for so many, or raise max_fan_out",
            )
    # Alone, each of the two has every root once.
    roots = found[0] if len(found) == 1 else reduce(DataFrame.unionAll, found).distinct()
    return states.computed(roots.toDF(*source.key_columns))


def _documents_of(
    roots: DataFrame, source: Source, config: SyncConfig, states: TableStates, own: DataFrame | None
) -> DataFrame:
    """A change for each root: its document, or a DELETE if it has no row (of both the INSERT counts)."""
    tree, ids = states.tree, source.key_columns
    keys = tree.root.relation.keys
    rows = states.rows(tree.root.relation, keys, roots.toDF(*key_names(keys)))
    change = f"0 AS {CHANGE_ORDINAL}", f"cast(0 AS bigint) AS {COMMIT_SNAPSHOT_ID}"
    documents = source.selection.select(rows, f"'{INSERT}' AS {CHANGE_TYPE}", *change)
    deletes = roots.selectExpr(*map(quoted, ids), f"'{DELETE}' AS {CHANGE_TYPE}", *change)
    merged = (
        deletes.unionByName(documents, allowMissingColumns=True)
        .transform(shuffle_by_identifiers, ids)
        .transform(merge_updates, ids, config.on_duplicate_identifier)
    )
    # Without a change of its own, a root had a row before exactly if it has one now.
    was_there = IS_INSERT
    if own is not None:
        first = F.expr(f"{first_is_delete(IS_INSERT)} AS {_FIRST_IS_DELETE}")
        own_ids = [*map(quoted, source.identifier_columns)]
        merged = merged.join(own.groupBy(*own_ids).agg(first).toDF(*ids, _FIRST_IS_DELETE), ids, "left")
        was_there = f"coalesce({_FIRST_IS_DELETE}, {IS_INSERT})"
    if config.on_duplicate_identifier == "last":  # of several rows, changes do not show whether one was there
        was_there = f"nullif({was_there}, false)"
    merged = merged.selectExpr(*map(quoted, documents.columns), f"{was_there} AS {WAS_THERE}")
    if not source.selection.has_places:
        return merged
    placed = [_with_places(source, tree, rows, source.identifier_columns)]
    placed += [] if own is None else [own.where(IS_DELETE).drop(CHANGE_TYPE, CHANGE_ORDINAL)]
    return look_up_old_places(merged, [each.toDF(*ids, PLACE) for each in placed], roots, ids)


def _with_places(source: Source, tree: Tree, rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return columns of rows of the root, and the place of each row's document."""
    # The expressions of a document take all columns of the table; those that they do not use are not read.
    unread = [each for each in tree.root.projection.columns if each not in rows.columns]
    table = source.table.schema()
    rows = rows.withColumns({each: F.lit(None).cast(table[each].dataType) for each in unread})
    kept = [f"{OWN_PREFIX}kept_{n}" for n in range(len(names))]
    selection = replace(source.selection, projection=tree.root.projection, row_filter="")
    texts = [f"{quoted(name)} AS {each}" for name, each in zip(names, kept, strict=True)]
    return selection.select(rows, *texts).select(*kept, PLACE).toDF(*names, PLACE)
