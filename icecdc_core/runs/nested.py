"""Documents of several tables in a run: the tables, their rows at a vector of snapshots, and what changed of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, functions as F
from pyspark.sql.types import IntegerType, LongType, StringType

from icecdc_core.changes.narrow_rows import BROADCAST_ROWS
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
    is_reserved,
    quoted,
)
from icecdc_core.config import SyncConfig
from icecdc_core.config.entries import iterate_entries, nested_tables
from icecdc_core.documents.changed_roots import changed_keys, find_affected_roots, used_changes
from icecdc_core.documents.nested_documents import TreeProjection
from icecdc_core.documents.nested_tables import Relation, States, Tree, key_names, matching_keys, open_tree
from icecdc_core.errors import ConfigError
from icecdc_core.runs.plan import BatchPlan, Vector, heads
from icecdc_core.session.jvm import active_session, java_class, unpersist
from icecdc_core.session.spark import cached_bytes, can_broadcast, settings_unless_set
from icecdc_core.shuffle import shuffle_by_identifiers
from icecdc_core.table.iceberg_table import IcebergTable
from icecdc_core.table.schema import require_distinct
from icecdc_core.table.snapshots import MAIN_BRANCH, head_snapshot_id
from icecdc_core.table.source import Selection, Source
from icecdc_core.updates import first_is_delete, merge_updates

_FIRST_IS_DELETE = f"{OWN_PREFIX}first_is_delete"

# Rows of links that stay in the driver; Iceberg compares fewer values with the bounds of a file.
_FEW, _FEW_VALUES = 20_000, 200
# Spark would read one partition first, then four, and so on; of each come up to that many rows to the driver.
_AT_ONCE = {"spark.sql.limit.initialNumPartitions": "32"}

# By the Iceberg type of a column, the types whose values it compares with the bounds of a file as Spark does. UUIDs,
# which are strings in Spark, have another order (apache/iceberg 14216).
_WHOLE = (IntegerType(), LongType())
_BOUNDED = {"int": _WHOLE, "long": _WHOLE, "string": (StringType(),)}


class TableStates(States):
    """The rows of every table at one vector of snapshots, read by key where only some are wanted."""

    def __init__(self, source: Source, tree: Tree, snapshot_id: int | None, vector: Vector, whole: bool) -> None:
        super().__init__({}, whole)
        self.tree = tree
        self.cached: list[DataFrame] = []
        self._sources = {**source.nested, source.table.name: source}
        self._vector = {**vector, source.table.name: snapshot_id}

    def rows(self, relation: Relation, keys: Sequence[str] = (), wanted: DataFrame | None = None) -> DataFrame:
        table, snapshot_id = self._sources[relation.table].table, self._vector[relation.table]
        values: dict[str, Sequence[Any]] = {}
        if wanted is not None and not self.whole:
            # A null equals nothing.
            wanted, count = self.counted(wanted.where(" AND ".join(f"{name} IS NOT NULL" for name in wanted.columns)))
            if not count:
                snapshot_id = None
            elif snapshot_id is not None:
                values = self._values(relation.table, keys, wanted, count)
        files = table.union() if snapshot_id is None else table.plan(snapshot_id, values=values)
        rows = relation.matching(table.read(files).select(*map(quoted, table.schema().names)))
        return rows if wanted is None else matching_keys(relation, rows, keys, wanted)

    def computed(self, frame: DataFrame) -> DataFrame:
        return self.counted(frame)[0]

    def counted(self, frame: DataFrame) -> tuple[DataFrame, int]:
        """Return the rows of a frame, of equal ones few, and their number: in the driver, many in a cache."""
        spark = frame.sparkSession
        with settings_unless_set(spark, _AT_ONCE), active_session(spark):
            # As Spark keeps them: Java's objects have no text that is not UTF-8, and other dates before 1582.
            few = frame.limit(_FEW + 1)._jdf.queryExecution().executedPlan().executeCollect()
        if len(few) > _FEW:
            frame = cached = frame.distinct().persist()
            self.cached.append(frame)
            count = frame.count()
            # As rows of an RDD, because every plan that is made of the frame would have all of its plan, perhaps twice.
            plan = frame._jdf
            made = spark._jsparkSession.internalCreateDataFrame(plan.queryExecution().toRdd(), plan.schema(), False)
            frame = DataFrame(made, spark)
            are_few = count <= BROADCAST_ROWS and can_broadcast(spark, cached_bytes(cached))
            return frame.hint("broadcast") if are_few else frame, count
        rows = java_class(spark, "scala.Predef").genericWrapArray(few).toSeq().distinct()
        empty = spark._jsparkSession.createDataFrame(java_class(spark, "java.util.ArrayList")(), frame._jdf.schema())
        plan = empty.queryExecution().analyzed()
        plan = plan.copy(plan.output(), rows, plan.isStreaming(), plan.stream())
        made = java_class(spark, "org.apache.spark.sql.classic.Dataset").ofRows(spark._jsparkSession, plan)
        return DataFrame(made, spark), rows.size()

    def close(self) -> None:
        for frame in self.cached:
            unpersist(frame)

    def _values(self, table: str, keys: Sequence[str], wanted: DataFrame, count: int) -> dict[str, Sequence[Any]]:
        """The values of plain columns that prune data files, see ``IcebergTable.plan``."""
        fields = self._sources[table].metadata.schema["fields"]
        # Iceberg 1.11 takes a column that a file lacks for null, also if it has a default (apache/iceberg 16690).
        types = {each["name"]: str(each["type"]) for each in fields if "initial-default" not in each}
        columns = {}
        for name, key in zip(wanted.columns, keys, strict=True):
            column = self.tree.plain.get((table, key), "")
            if wanted.schema[name].dataType in _BOUNDED.get(types.get(column, ""), ()):
                columns[name] = column
        if not columns:
            return {}
        found: dict[str, Sequence[Any]]
        if count > _FEW:
            ends = wanted.selectExpr(*(f"array(min({name}), max({name})) AS {name}" for name in columns))
            found = {name: tuple(each) for name, each in ends.collect()[0].asDict().items()}
        else:
            rows = wanted.select(*columns).collect()
            found = {name: sorted({row[name] for row in rows}) for name in columns}
            found = {name: each if len(each) <= _FEW_VALUES else (each[0], each[-1]) for name, each in found.items()}
        # Iceberg replaces what is not UTF-8 in the bounds of a file, which leaves their order to ASCII texts alone.
        return {columns[name]: each for name, each in found.items() if all(str(value).isascii() for value in each)}


def open_nested(source: Source, config: SyncConfig, needs_history: bool) -> Source:
    """Return a source whose rows are documents of several tables, at the newest snapshot of each."""
    if not config.nest:
        return source
    source.require_identifier_columns("documents of several tables are found by them")
    spark, root = source.table.spark, source.table
    tables = {name: IcebergTable(spark, name) for name in nested_tables(config.entries) if name != root.name}
    schemas = {table.name: table.schema() for table in (*tables.values(), root)}
    for schema in schemas.values():  # all columns are read
        require_distinct(spark, schema, schema.names)
    unreadable = {table.name: table.unreadable for table in (*tables.values(), root)}
    tree = open_tree(spark, config, schemas, source.identifier_columns, unreadable)
    for name, used in tree.used.items():
        if taken := [*filter(is_reserved, used.names)]:
            raise ConfigError(
                f"{', '.join(sorted(taken))} of '{name}' would be taken for the columns of a change",
                subject="nest",
                value=name,
                remedy="leave these columns out of select, row_filter and on, or give them other names in the table",
            )
    entries = [entry for _, entry in iterate_entries(config.entries)]
    nested = {}
    for name, table in tables.items():
        metadata, used = table.metadata(needs_history and config.on_history_gap == "fail"), tree.used[name]
        nested[name] = Source(
            table=table,
            metadata=metadata,
            head=head_snapshot_id(metadata),
            columns=[each for each in schemas[name].names if each in used.names],
            identifier_columns=[],
            schema=schemas[name],
            row_filter="",
            branch=MAIN_BRANCH,
            chosen_columns=[],
            # Of its schema's changes, those count that change what any expression makes of its rows.
            projection=replace(
                tree.root.projection,
                computed_from=used.computed_from,
                stored=tuple(text for each in entries if each.table == name for text in each.select or ["*"]),
            ),
        )
    source = replace(
        source,
        columns=[each for each in schemas[root.name].names if each in tree.used[root.name].names],
        schema=tree.schema,
        nest={name: entry.model_dump(by_alias=True) for name, entry in config.entries.items()},
        nested=nested,
    )
    states = TableStates(source, tree, source.head, heads(source), whole=True)
    return replace(source, projection=TreeProjection.of(tree, states))


def at_vector(source: Source, snapshot_id: int | None, vector: Vector) -> Source:
    """Return a source whose documents have the rows that nested tables had at a vector of snapshots."""
    if not isinstance(source.projection, TreeProjection):
        return source
    states = TableStates(source, source.projection.tree, snapshot_id, vector, whole=True)
    return replace(source, projection=replace(source.projection, states=states))


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
        net = NetChanges.from_rows(_documents_of(roots, source, config, states, own), planned, "nested")
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
