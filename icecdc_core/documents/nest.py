"""Documents of several tables: which of them changed, and how they are put together.

A spec is a tree of tables. Its root has a row for each document, and each other table is linked to the one around it:

    film f            root: a document for each row
    ├── language l    l.language_id = f.language_id              an object
    └── actor a       a.actor_id = fa.actor_id, through
        film_actor fa    fa.film_id = f.film_id                  an array

Affected roots are those of every DELETE image, joined upwards to rows of the state before, and those of every INSERT
image, joined upwards to rows of the state after. A tree in which nothing was deleted before and nothing inserted after
is the same tree. This holds for left equi-joins and deterministic expressions, which `open_tree` checks.

The jobs join all images to the state after alone, which finds the same roots: on the path from a root to an image take
the topmost row that has an image. The rows above it have none, so they are in every state of the range.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from functools import reduce
from operator import attrgetter
from typing import Any

from pydantic_core import PydanticCustomError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType, VariantType

from icecdc_core.carryover import remove_carryovers
from icecdc_core.columns import JSON_OPTIONS, OWN_PREFIX, RESERVED, convert_within, is_insert, quoted, types_within
from icecdc_core.config import SyncConfig
from icecdc_core.config.entries import Link, Nested, nested_tables
from icecdc_core.config.values import check_table_name
from icecdc_core.equality import is_comparable
from icecdc_core.errors import SEVERAL_MESSAGE, ConfigError, IdentifierColumnsError
from icecdc_core.session.jvm import failure_message
from icecdc_core.table.select import Projection, UsedColumns, condition_columns, example_rows, open_projection

KEY = f"{OWN_PREFIX}key_"
_LINK, _ENTRY, _ORDER, _TIES = (f"{OWN_PREFIX}{name}" for name in ("link_", "entry", "order_", "ties"))
_DESCENDING = re.compile(r" desc\Z", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Place:
    """A table in its place in a tree, with the keys on both sides of its link; those of a root are identifiers."""

    table: str
    alias: str
    row_filter: str
    above: Place | None = None
    keys: tuple[str, ...] = ()
    keys_above: tuple[str, ...] = ()

    def matching(self, rows: DataFrame) -> DataFrame:
        rows = rows.alias(self.alias)
        return rows.where(F.expr(self.row_filter)) if self.row_filter else rows

    def with_keys(self, rows: DataFrame, texts: Sequence[str], prefix: str = KEY) -> DataFrame:
        """Return rows with the values of key expressions as columns of their own."""
        return rows.alias(self.alias).withColumns({f"{prefix}{n}": F.expr(text) for n, text in enumerate(texts)})

    def keys_of(self, rows: DataFrame) -> DataFrame:
        return self.with_keys(rows, self.keys).select(*key_names(self.keys))


@dataclass(frozen=True, eq=False)
class Node:
    """A table whose rows are fields of documents, and what is nested in them."""

    place: Place
    projection: Projection
    name: str = ""
    through: Place | None = None
    is_object: bool = False
    order_by: Sequence[str] = ()
    inner: tuple[Node, ...] = ()

    @property
    def first(self) -> Place:
        """The place that is linked to the rows around a nested table."""
        return self.through or self.place

    def nodes(self) -> Iterator[Node]:
        for node in self.inner:
            yield from node.nodes()
        yield self

    def places(self) -> Iterator[Place]:
        for node in self.nodes():
            yield node.place
            if node.through:
                yield node.through


@dataclass(frozen=True)
class Tree:
    root: Node
    schema: StructType
    identifier_columns: tuple[str, ...]
    used: Mapping[str, UsedColumns]
    """By table: the columns that any expression reads."""
    plain: Mapping[tuple[str, str], str]
    """By table and key expression: the column that it is, perhaps cast."""


@dataclass(eq=False)
class States:
    """The rows of every table at one vector of snapshots, given as frames by the name of their table."""

    frames: Mapping[str, DataFrame]
    whole: bool = False
    """Whether all roots are wanted, so that it does not pay to look for the rows of some keys."""

    def rows(self, place: Place, texts: Sequence[str] = (), wanted: DataFrame | None = None) -> DataFrame:
        """Return the rows that a place shows, or those of them whose keys are wanted; a key may be there repeatedly."""
        rows = place.matching(self.frames[place.table])
        return rows if wanted is None else matching_keys(place, rows, texts, wanted)

    def computed(self, frame: DataFrame) -> DataFrame:
        """Return the rows of a frame that is used more than once; of equal rows one is enough."""
        return frame


def matching_keys(place: Place, rows: DataFrame, texts: Sequence[str], wanted: DataFrame) -> DataFrame:
    """Return the rows whose keys are wanted; ``wanted`` has the columns of `Place.with_keys`."""
    return place.with_keys(rows, texts).join(wanted, wanted.columns, "left_semi").select(*map(quoted, rows.columns))


def key_names(texts: Sequence[str], prefix: str = KEY) -> list[str]:
    return [f"{prefix}{n}" for n in range(len(texts))]


# --- The spec -------------------------------------------------------------------------------------------------------


def open_tree(
    spark: SparkSession,
    config: SyncConfig,
    schemas: Mapping[str, StructType],
    identifier_columns: Sequence[str],
    unreadable: Mapping[str, Mapping[str, str]] | None = None,
) -> Tree:
    alias = config.alias or config.table_name
    identifiers = tuple(f"{quoted(alias)}.{quoted(name)}" for name in identifier_columns)
    place = Place(config.table, alias, config.row_filter, keys=identifiers)
    texts, schema = config.select or [*map(quoted, config.columns)] or ["*"], schemas[config.table]
    plain = {(config.table, text): name for text, name in zip(identifiers, identifier_columns, strict=True)}
    opening = _Opening(spark, schemas, unreadable or {}, {}, plain)
    unknown = opening.unreadable.get(config.table, {})
    projection = open_projection(spark, schema, texts, alias, identifier_columns, unknown)
    used = projection.used_columns.union(identifier_columns, [config.routing] if config.routing else [])
    opening.note(config.table, UsedColumns(used, projection.computed_from))
    if config.row_filter:
        opening.note(config.table, condition_columns(spark, schema, config.row_filter, alias))
    root = Node(place, projection, inner=opening.inner("", projection, config.entries, place))
    return Tree(root, _schema(root), tuple(identifier_columns), opening.used, opening.plain)


def _schema(node: Node) -> StructType:
    fields = [*node.projection.schema.fields]
    for inner in node.inner:
        kind = _schema(inner)
        fields.append(StructField(inner.name, kind if inner.is_object else ArrayType(kind, False), inner.is_object))
    return StructType(fields)


@dataclass(frozen=True)
class _Opening:
    spark: SparkSession
    schemas: Mapping[str, StructType]
    unreadable: Mapping[str, Mapping[str, str]]
    used: dict[str, UsedColumns]
    plain: dict[tuple[str, str], str]

    def note(self, table: str, used: UsedColumns) -> None:
        known = self.used.get(table, UsedColumns())
        self.used[table] = UsedColumns(known.names | used.names, known.computed_from | used.computed_from)

    def inner(
        self, prefix: str, projection: Projection, entries: Mapping[str, Nested], above: Place
    ) -> tuple[Node, ...]:
        for name in entries:
            if name.lower() in (field_name.lower() for field_name in projection.schema.names):
                raise _refused(f"{prefix}{name}", "is a field of select, too", "give one of them another name")
        return tuple(self.node(f"{prefix}{name}", name, entry, above) for name, entry in entries.items())

    def node(self, path: str, name: str, entry: Nested, above: Place) -> Node:
        through = self.place(path, entry.through, above) if entry.through else None
        place = self.place(path, entry, through or above)
        projection = self.expressions(path, place, entry.select or ["*"])
        if entry.order_by:
            ordered = [f"{_DESCENDING.sub('', text)} AS {KEY}{n}" for n, text in enumerate(entry.order_by)]
            found = self.expressions(path, place, ordered)
            if _contains(found.schema, _UNORDERED):
                raise _refused(path, "is ordered by a map or variant", "order by values that Spark can compare")
            if any(_contains(each.dataType, (StructType,)) for each in found.schema):
                # Spark compares structs field by field, in the order of the table's schema.
                self.note(place.table, UsedColumns(computed_from=found.used_columns))
        inner = self.inner(f"{path}.", projection, entry.nest, place)
        return Node(place, projection, name, through, entry.shape == "object", entry.order_by, inner)

    def place(self, path: str, link: Link, above: Place) -> Place:
        if link.name.lower() == above.alias.lower():
            raise _refused(path, f"has the name '{link.name}', as the table around it", "give it another alias")
        if link.row_filter:
            with _naming(path):
                used = condition_columns(self.spark, self.schemas[link.table], link.row_filter, link.name)
                self.note(link.table, used)
        pairs = self.equalities(path, link, above)
        keys, keys_above = (tuple(text for text, _ in sides) for sides in zip(*pairs, strict=True))
        place = Place(link.table, link.name, link.row_filter, above, keys, keys_above)
        for each, sides in zip((place, above), zip(*pairs, strict=True), strict=True):
            found = self.expressions(path, each, [f"{text} AS {KEY}{n}" for n, (text, _) in enumerate(sides)])
            plain = {text: found.repeated[f"{KEY}{n}"] for n, (text, is_plain) in enumerate(sides) if is_plain}
            self.plain.update({(each.table, text): column for text, column in plain.items()})
        return place

    def expressions(self, path: str, place: Place, texts: Sequence[str]) -> Projection:
        with _naming(path):
            unreadable = self.unreadable.get(place.table, {})
            found = open_projection(self.spark, self.schemas[place.table], texts, place.alias, (), unreadable)
        self.note(place.table, UsedColumns(found.used_columns, found.computed_from))
        return found

    def equalities(self, path: str, link: Link, above: Place) -> list[list[tuple[str, bool]]]:
        """Return both sides of each equality as Spark compares them, and whether one is a column, cast at most once."""
        inner, outer = (
            example_rows(self.spark, self.schemas[table])[0].alias(alias)
            for table, alias in ((link.table, link.name), (above.table, above.alias))
        )
        wanted = f"must be equalities of {link.name} and {above.alias}, joined by AND"
        remedy = f"write {link.name}.<column> = {above.alias}.<column>; other conditions belong into row_filter"
        try:
            plan: Any = outer.join(inner, F.expr(link.on))._jdf.queryExecution().analyzed()
            parsed = self.spark._jsparkSession.sessionState().sqlParser().parseExpression(link.on)
        except PySparkException as error:
            raise _refused(path, f"{wanted}: {failure_message(str(error))}", remedy) from error
        inside, outside = plan.right().outputSet(), plan.left().outputSet()
        pairs = []
        open_ends = [(plan.condition().get(), parsed)]
        while open_ends:
            analyzed, parsed = open_ends.pop()
            kind = str(analyzed.nodeName())
            if kind not in ("And", "EqualTo") or kind != parsed.nodeName():
                raise _refused(path, wanted, remedy)
            sides = [(analyzed.left(), parsed.left()), (analyzed.right(), parsed.right())]
            if kind == "And":
                open_ends += reversed(sides)
                continue
            if sides[0][0].references().subsetOf(outside):
                sides.reverse()
            for (side, _), attributes in zip(sides, (inside, outside), strict=True):
                if side.references().isEmpty() or not side.references().subsetOf(attributes):
                    raise _refused(path, wanted, remedy)
            pairs.append([_key(*side) for side in sides])
        return pairs


def _key(analyzed: Any, parsed: Any) -> tuple[str, bool]:
    origin, cast = parsed.origin(), analyzed.nodeName() == "Cast"
    text = origin.sqlText().get()[origin.startIndex().get() : origin.stopIndex().get() + 1]
    # A second cast may change what the first one made of a value.
    is_plain = (analyzed.child() if cast else analyzed).nodeName() == "AttributeReference"
    return f"CAST({text} AS {analyzed.dataType().sql()})" if cast else text, is_plain


@contextmanager
def _naming(path: str) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        raise _refused(path, error.message.removeprefix("select "), error.remedy) from error


def _refused(path: str, problem: str, remedy: str) -> ConfigError:
    return ConfigError(f"nest.{path} {problem}", subject="nest", value=path, remedy=remedy)


# --- Which documents changed ----------------------------------------------------------------------------------------


def find_affected_roots(tree: Tree, changed: Mapping[Place, DataFrame], states: States) -> DataFrame | None:
    """Return the keys, with repeats, of the roots to which changed rows (their keys by place) belong; None if none."""
    found = dict(changed)
    for place in tree.root.places():
        if place.above is not None and place in found:
            keys = place.above.keys_of(states.rows(place.above, place.keys_above, found[place]))
            found[place.above] = found[place.above].unionAll(keys) if place.above in found else keys
    return found.get(tree.root.place)


def changed_keys(tree: Tree, images: Mapping[str, DataFrame], states: States) -> dict[Place, DataFrame]:
    """Return the keys of changed rows by each place but the root; null for rows that the place does not show."""
    changed: dict[Place, DataFrame] = {}
    for table, rows in images.items():
        names: dict[Place, list[str]] = {}
        for number, place in enumerate(tree.root.places()):
            if place.table == table and place.above is not None:
                shown = f"CASE WHEN ({place.row_filter}\n) THEN " if place.row_filter else "CASE WHEN true THEN "
                rows = place.with_keys(rows, [f"{shown}{text} END" for text in place.keys], f"{KEY}{number}_")
                names[place] = key_names(place.keys, f"{KEY}{number}_")
        if names:
            keys = states.computed(rows.select(*itertools.chain(*names.values())))
            changed |= {place: keys.select(*each).toDF(*key_names(each)) for place, each in names.items()}
    return changed


def used_changes(tree: Tree, table: str, changes: DataFrame) -> DataFrame:
    """Return the changes of the columns of a table that matter, without carryovers."""
    names = [name for name in changes.columns if name in (*tree.used[table].names, *RESERVED)]
    return changes.select(*map(quoted, names)).transform(remove_carryovers)


# --- How a document is put together ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class TreeProjection(Projection):
    """The fields of documents of several tables, as functions of a row of the root and of the states."""

    tree: Tree = field(kw_only=True)
    states: States = field(kw_only=True)

    @classmethod
    def of(cls, tree: Tree, states: States) -> TreeProjection:
        known = {each.name: getattr(tree.root.projection, each.name) for each in fields(Projection)}
        used = tree.used[tree.root.place.table]
        known |= {"schema": tree.schema, "used_columns": used.names, "computed_from": used.computed_from}
        return cls(**known, tree=tree, states=states)

    def apply(self, rows: DataFrame) -> DataFrame:
        """Return the documents of rows of the root, and the columns of these rows that are none of the table's."""
        beside = rows.columns[len(self.columns) :]
        return _documents(self.tree.root, rows, self.states).select(*map(quoted, (*self.schema.names, *beside)))


def _documents(node: Node, rows: DataFrame, states: States) -> DataFrame:
    """The fields of rows, the columns beside those of the table, and the entries nested in them."""
    links: list[str] = []
    for number, inner in enumerate(node.inner):
        rows = node.place.with_keys(rows, inner.first.keys_above, f"{_LINK}{number}_")
        links += key_names(inner.first.keys, f"{_LINK}{number}_")
    wanted = None if states.whole or not links else states.computed(rows.select(*links))
    keyed = rows
    for number, inner in enumerate(node.inner):
        # Rows that no document contains may have objects of several rows.
        has_objects = any(each.is_object for each in inner.nodes() if each is not inner)
        needed = keyed.select(*links) if states.whole and has_objects else wanted
        rows = _with_entries(rows, inner, number, states, needed)
    documents = node.projection.apply(rows)
    return documents.withColumnsRenamed({f"{_ENTRY}{number}": inner.name for number, inner in enumerate(node.inner)})


def _with_entries(rows: DataFrame, node: Node, number: int, states: States, wanted: DataFrame | None) -> DataFrame:
    """Add what of a nested table belongs to each row: an object or null, or an array."""
    place, first = node.place, node.first
    links = key_names(first.keys, f"{_LINK}{number}_")
    if wanted is not None:
        wanted = wanted.select(*links).toDF(*key_names(first.keys))
    if node.through:
        through = first.with_keys(states.rows(first, first.keys, wanted), first.keys, f"{_LINK}{number}_")
        keys = key_names(place.keys)
        through = first.with_keys(through, place.keys_above).select(*links, *keys)
        wanted = None if wanted is None else through.select(*keys)
        found = through.join(_entries(node, states.rows(place, place.keys, wanted), states), keys)
    else:
        found = _entries(node, states.rows(place, place.keys, wanted), states)
        found = found.withColumnsRenamed(dict(zip(key_names(place.keys), links, strict=True)))
    name = f"{_ENTRY}{number}"
    one = _object() if node.is_object else _array(node)
    rows = rows.join(found.groupBy(*links).agg(one.alias(name)), links, "left").drop(*links)
    if not node.is_object:
        return rows.withColumn(name, F.coalesce(name, F.array()))
    # Only here: rows that no document contains may have any keys.
    several = F.concat(F.lit(f"{SEVERAL_MESSAGE} '{node.name}' of {place.table}: "), f"{name}.least", F.lit(", "))
    error = F.raise_error(F.concat(several, f"{name}.most"))
    return rows.withColumn(name, F.when(F.col(f"{name}.count") > 1, error).otherwise(F.col(f"{name}.entry")))


def _entries(node: Node, rows: DataFrame, states: States) -> DataFrame:
    """The rows of a nested table as entries, with their keys and what they are ordered by."""
    place, names, orders = node.place, key_names(node.place.keys), key_names(node.order_by, _ORDER)
    rows = place.with_keys(rows, place.keys)
    rows = place.with_keys(rows, [_DESCENDING.sub("", text) for text in node.order_by], _ORDER)
    rows = rows.select(*map(quoted, node.projection.columns), *names, *orders)
    documents = _documents(node, rows, states)
    made = (*node.projection.schema.names, *(inner.name for inner in node.inner))
    return documents.select(*names, *orders, F.struct(*map(quoted, made)).alias(_ENTRY))


def _object() -> Column:
    """One entry of a group, how many there are, and two of them as texts."""
    texts = F.to_json(_ENTRY, JSON_OPTIONS)
    return F.struct(
        *(F.count(F.lit(1)).alias("count"), F.first(_ENTRY).alias("entry")),
        *(F.min(texts).alias("least"), F.max(texts).alias("most")),
    )


def _array(node: Node) -> Column:
    """The entries of a group in the order of `order_by`, then of their values by the names of the fields."""
    kind = _schema(node)
    by_name = sorted(kind.fields, key=attrgetter("name"))
    values = [(_by_name(F.col(_ENTRY).getField(each.name), each.dataType), each.dataType) for each in by_name]
    ties = [value for value, of_type in values if not _contains(of_type, _UNORDERED)]
    # 0.0 and -0.0 are equal and have different texts.
    as_text = [value for value, of_type in values if not is_comparable(of_type)]
    if as_text:
        ties.append(F.to_json(F.struct(*(each.alias(f"t{n}") for n, each in enumerate(as_text))), JSON_OPTIONS))
    orders = key_names(node.order_by, _ORDER)
    by = [F.struct(F.col(name).alias("value")).alias(name) for name in orders]
    by.append(F.struct(*(tie.alias(f"t{n}") for n, tie in enumerate(ties))).alias(_TIES))
    entries = F.collect_list(F.struct(*by, _ENTRY))
    descending = {name for name, text in zip(orders, node.order_by, strict=True) if _DESCENDING.search(text)}
    if not descending and not _contains(kind, _UNORDERED):
        entries = F.sort_array(entries)
    else:

        def compare(one: Column, other: Column) -> Column:
            order = F.lit(0)
            for name in (_TIES, *reversed(orders)):
                less, more = (other, one) if name in descending else (one, other)
                less, more = less.getField(name), more.getField(name)
                order = F.when(less < more, F.lit(-1)).when(less > more, F.lit(1)).otherwise(order)
            return order

        entries = F.array_sort(entries, compare)
    return F.transform(entries, lambda each: each.getField(_ENTRY))


def _by_name(value: Column, kind: DataType) -> Column:
    """A value whose structs have their fields in the order of their names: a table may move fields."""
    if not _contains(kind, (StructType,)):
        return value
    by_name = StructType(sorted(kind.fields, key=attrgetter("name"))) if isinstance(kind, StructType) else kind
    return convert_within(value, by_name, _by_name)


_UNORDERED = (MapType, VariantType)


def _contains(kind: DataType, kinds: tuple[type[DataType], ...]) -> bool:
    return any(isinstance(each, kinds) for each in types_within(kind))


# --- The two transforms, for frames of any origin -------------------------------------------------------------------


def affected_roots(
    spec: SyncConfig | Mapping[str, Any],
    changes: Mapping[str, DataFrame],
    states_from: Mapping[str, DataFrame],
    states_to: Mapping[str, DataFrame],
) -> DataFrame:
    """Find the documents of several tables that changes of any of these tables affect.

    They are the roots of every DELETE image, joined upwards to the rows before, and of every INSERT image, joined
    upwards to the rows after. There may be more than had to be: that costs time, and never makes a document wrong.

    Args:
        spec: The parameters of the index, or a mapping of them: ``table``, ``alias``, ``identifier_columns``,
            ``select``, ``row_filter``, ``nest``.
        changes: By the name of a table, its changes as ``read_changes`` returns them; a table without changes may be
            missing. Columns that the spec does not use, and carryovers, are dropped here.
        states_from: By the name of a table, all its rows before the changes; one without rows may be missing here.
        states_to: The same after the changes.

    Returns:
        The identifier columns of the affected roots, each once.

    Raises:
        ConfigError: The spec is wrong: a parameter, an expression, or a link that is no equality of two tables.
        IdentifierColumnsError: The spec has no identifier columns.
    """
    changes, states_from, states_to = map(_by_table, (changes, states_from, states_to))
    tree, before, after = _open(spec, [states_to, states_from, changes], states_from, states_to)
    images = {table: used_changes(tree, table, frame) for table, frame in changes.items() if table in tree.used}
    root = tree.root.place
    found = [root.keys_of(before.frames[root.table].limit(0))]
    for is_of_kind, state in ((~is_insert(), before), (is_insert(), after)):
        of_kind = {name: each.where(is_of_kind) for name, each in images.items()}
        changed = changed_keys(tree, of_kind, state)
        if root.table in of_kind:
            changed[root] = root.keys_of(root.matching(of_kind[root.table]))
        if (roots := find_affected_roots(tree, changed, state)) is not None:
            found.append(roots)
    return reduce(DataFrame.unionAll, found).distinct().toDF(*tree.identifier_columns)


def assemble(
    spec: SyncConfig | Mapping[str, Any], states: Mapping[str, DataFrame], roots: DataFrame | None = None
) -> DataFrame:
    """Put documents of several tables together, as they are at one state of each table.

    An object without a matching row is null, an array without one is empty. Arrays are ordered by ``order_by``, then by
    all their values.

    Args:
        spec: The parameters of the index, see ``affected_roots``.
        states: By the name of a table, all its rows.
        roots: The identifier columns of the documents to make; by default all.

    Returns:
        The fields of ``select`` (by default all columns of the root), then one for each entry of ``nest``.

    Raises:
        ConfigError: The spec is wrong: a parameter, an expression, or a link that is no equality of two tables.
        IdentifierColumnsError: The spec has no identifier columns.
        pyspark.errors.PySparkException: Lazily, when several rows match where the document has one object.
    """
    states = _by_table(states)
    tree, known, _ = _open(spec, [states], states, states)
    projection = TreeProjection.of(tree, States(known.frames, whole=roots is None))
    rows = known.rows(tree.root.place)
    if roots is not None:
        ids = [*tree.identifier_columns]
        rows = rows.join(roots.select(*map(quoted, ids)).distinct(), ids, "left_semi")
    return projection.apply(rows.select(*map(quoted, projection.columns)))


def _by_table(frames: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """The frames by the names of their tables as parameters have them, whatever parts are back-quoted."""
    known = {}
    for name, frame in frames.items():
        with suppress(PydanticCustomError):
            name = check_table_name(name)
        known[name] = frame
    return known


def _open(
    spec: SyncConfig | Mapping[str, Any],
    known: Sequence[Mapping[str, DataFrame]],
    states_from: Mapping[str, DataFrame],
    states_to: Mapping[str, DataFrame],
) -> tuple[Tree, States, States]:
    """Analyse a spec by the schemas of frames; with it, both states with a frame of each of its tables."""
    config = spec if isinstance(spec, SyncConfig) else SyncConfig(**spec)
    if not config.identifier_columns:
        raise IdentifierColumnsError(
            "Documents of several tables need identifier columns",
            subject="identifier_columns",
            value=[],
            remedy="name the columns that identify a row of the root",
        )
    frames = {table: frame for each in reversed(known) for table, frame in each.items()}
    missing = [table for table in (config.table, *nested_tables(config.entries)) if table not in frames]
    if missing:
        raise ConfigError(
            f"There are no rows of {', '.join(missing)}", subject="states", value=sorted(frames), remedy="add a frame"
        )
    schemas = {
        table: StructType([each for each in frame.schema if each.name not in RESERVED])
        for table, frame in frames.items()
    }
    spark = frames[config.table].sparkSession
    tree = open_tree(spark, config, schemas, config.identifier_columns)
    empty = {table: example_rows(spark, schema)[0] for table, schema in schemas.items()}
    return tree, States({**empty, **states_from}), States({**empty, **states_to})
