"""The tables of a document, as `nest` links them: a tree that is read from the spec and checked by Spark.

Its root has a row for each document, and each other table is linked to the one around it:

    film f            root: a document for each row
    ├── language l    l.language_id = f.language_id              an object
    └── actor a       a.actor_id = fa.actor_id, through
        film_actor fa    fa.film_id = f.film_id                  an array

Links are equalities of two tables (left equi-joins), and all expressions are deterministic: `open_tree` refuses others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic_core import PydanticCustomError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.types import ArrayType, MapType, StructField, StructType, VariantType

from icecdc_core.columns import OWN_PREFIX, RESERVED, contains_type, quoted
from icecdc_core.config import SyncConfig
from icecdc_core.config.entries import Link, Nested, nested_tables
from icecdc_core.config.values import check_table_name
from icecdc_core.errors import ConfigError, IdentifierColumnsError
from icecdc_core.session.jvm import failure_message
from icecdc_core.table.select import Projection, UsedColumns, condition_columns, example_rows, open_projection

KEY = f"{OWN_PREFIX}key_"
UNORDERED = (MapType, VariantType)
"""Types whose values Spark cannot compare."""
_DESCENDING = re.compile(r" desc\Z", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Relation:
    """A table of a tree under its alias, with the keys on both sides of its link; those of a root are identifiers."""

    table: str
    alias: str
    row_filter: str
    parent: Relation | None = None
    keys: tuple[str, ...] = ()
    parent_keys: tuple[str, ...] = ()

    def matching(self, rows: DataFrame) -> DataFrame:
        rows = rows.alias(self.alias)
        return rows.where(F.expr(self.row_filter)) if self.row_filter else rows

    def with_keys(self, rows: DataFrame, expressions: Sequence[str], prefix: str = KEY) -> DataFrame:
        """Return rows with the values of key expressions as columns of their own."""
        names = key_names(expressions, prefix)
        return rows.alias(self.alias).withColumns(dict(zip(names, map(F.expr, expressions), strict=True)))

    def keys_of(self, rows: DataFrame) -> DataFrame:
        return self.with_keys(rows, self.keys).select(*key_names(self.keys))


class Order(NamedTuple):
    expression: str
    is_descending: bool


@dataclass(frozen=True, eq=False)
class Node:
    """A table whose rows are fields of documents, and what is nested in them."""

    relation: Relation
    projection: Projection
    name: str = ""
    through: Relation | None = None
    is_object: bool = False
    order_by: Sequence[Order] = ()
    inner: tuple[Node, ...] = ()

    @property
    def linked(self) -> Relation:
        """The table that is linked to the rows around a nested table."""
        return self.through or self.relation

    @property
    def schema(self) -> StructType:
        fields = [*self.projection.schema.fields]
        for inner in self.inner:
            kind = inner.schema if inner.is_object else ArrayType(inner.schema, False)
            fields.append(StructField(inner.name, kind, inner.is_object))
        return StructType(fields)

    def nodes(self) -> Iterator[Node]:
        for node in self.inner:
            yield from node.nodes()
        yield self

    def relations(self) -> Iterator[Relation]:
        for node in self.nodes():
            yield node.relation
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

    def rows(self, relation: Relation, keys: Sequence[str] = (), wanted: DataFrame | None = None) -> DataFrame:
        """Return the rows of a relation, or those of them whose keys are wanted; a key may be there repeatedly."""
        rows = relation.matching(self.frames[relation.table])
        return rows if wanted is None else matching_keys(relation, rows, keys, wanted)

    def computed(self, frame: DataFrame) -> DataFrame:
        """Return the rows of a frame that is used more than once; of equal rows one is enough."""
        return frame


def matching_keys(relation: Relation, rows: DataFrame, keys: Sequence[str], wanted: DataFrame) -> DataFrame:
    """Return the rows whose keys are wanted; ``wanted`` has the columns of `Relation.with_keys`."""
    return relation.with_keys(rows, keys).join(wanted, wanted.columns, "left_semi").select(*map(quoted, rows.columns))


def key_names(expressions: Sequence[Any], prefix: str = KEY) -> list[str]:
    return [f"{prefix}{n}" for n in range(len(expressions))]


def open_tree(
    spark: SparkSession,
    config: SyncConfig,
    schemas: Mapping[str, StructType],
    identifier_columns: Sequence[str],
    unreadable: Mapping[str, Mapping[str, str]] | None = None,
) -> Tree:
    alias = config.alias or config.table_name
    identifiers = tuple(f"{quoted(alias)}.{quoted(name)}" for name in identifier_columns)
    relation = Relation(config.table, alias, config.row_filter, keys=identifiers)
    texts, schema = config.select or [*map(quoted, config.columns)] or ["*"], schemas[config.table]
    plain = {(config.table, text): name for text, name in zip(identifiers, identifier_columns, strict=True)}
    opening = _Opening(spark, schemas, unreadable or {}, {}, plain)
    unknown = opening.unreadable.get(config.table, {})
    projection = open_projection(spark, schema, texts, alias, identifier_columns, unknown)
    used = projection.used_columns.union(identifier_columns, [config.routing] if config.routing else [])
    opening.note(config.table, UsedColumns(used, projection.computed_from))
    if config.row_filter:
        opening.note(config.table, condition_columns(spark, schema, config.row_filter, alias))
    root = Node(relation, projection, inner=opening.inner("", projection, config.entries, relation))
    return Tree(root, root.schema, tuple(identifier_columns), opening.used, opening.plain)


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
        self, prefix: str, projection: Projection, entries: Mapping[str, Nested], parent: Relation
    ) -> tuple[Node, ...]:
        for name in entries:
            if name.lower() in (field_name.lower() for field_name in projection.schema.names):
                raise _refused(f"{prefix}{name}", "is a field of select, too", "give one of them another name")
        return tuple(self.node(f"{prefix}{name}", name, entry, parent) for name, entry in entries.items())

    def node(self, path: str, name: str, entry: Nested, parent: Relation) -> Node:
        through = self.relation(path, entry.through, parent) if entry.through else None
        relation = self.relation(path, entry, through or parent)
        projection = self.expressions(path, relation, entry.select or ["*"])
        order_by = [Order(_DESCENDING.sub("", text), bool(_DESCENDING.search(text))) for text in entry.order_by]
        if order_by:
            ordered = [f"{order.expression} AS {KEY}{n}" for n, order in enumerate(order_by)]
            found = self.expressions(path, relation, ordered)
            if contains_type(found.schema, UNORDERED):
                raise _refused(path, "is ordered by a map or variant", "order by values that Spark can compare")
            if any(contains_type(each.dataType, StructType) for each in found.schema):
                # Spark compares structs field by field, in the order of the table's schema.
                self.note(relation.table, UsedColumns(computed_from=found.used_columns))
        inner = self.inner(f"{path}.", projection, entry.nest, relation)
        return Node(relation, projection, name, through, entry.shape == "object", order_by, inner)

    def relation(self, path: str, link: Link, parent: Relation) -> Relation:
        if link.name.lower() == parent.alias.lower():
            raise _refused(path, f"has the name '{link.name}', as the table around it", "give it another alias")
        if link.row_filter:
            with _naming(path):
                used = condition_columns(self.spark, self.schemas[link.table], link.row_filter, link.name)
                self.note(link.table, used)
        own, others = self.equalities(path, link, parent)
        keys, parent_keys = (tuple(key.expression for key in side) for side in (own, others))
        relation = Relation(link.table, link.name, link.row_filter, parent, keys, parent_keys)
        for each, side in ((relation, own), (parent, others)):
            found = self.expressions(path, each, [f"{key.expression} AS {KEY}{n}" for n, key in enumerate(side)])
            for n, key in enumerate(side):
                if key.is_plain:
                    self.plain[each.table, key.expression] = found.repeated[f"{KEY}{n}"]
        return relation

    def expressions(self, path: str, relation: Relation, texts: Sequence[str]) -> Projection:
        with _naming(path):
            unreadable = self.unreadable.get(relation.table, {})
            found = open_projection(self.spark, self.schemas[relation.table], texts, relation.alias, (), unreadable)
        self.note(relation.table, UsedColumns(found.used_columns, found.computed_from))
        return found

    def equalities(self, path: str, link: Link, parent: Relation) -> tuple[list[_Key], list[_Key]]:
        """Return the keys of the linked table and those of the one around it, as Spark compares them."""
        inner, outer = (
            example_rows(self.spark, self.schemas[table])[0].alias(alias)
            for table, alias in ((link.table, link.name), (parent.table, parent.alias))
        )
        wanted = f"must be equalities of {link.name} and {parent.alias}, joined by AND"
        remedy = f"write {link.name}.<column> = {parent.alias}.<column>; other conditions belong into row_filter"
        try:
            plan: Any = outer.join(inner, F.expr(link.on))._jdf.queryExecution().analyzed()
            parsed = self.spark._jsparkSession.sessionState().sqlParser().parseExpression(link.on)
        except PySparkException as error:
            raise _refused(path, f"{wanted}: {failure_message(str(error))}", remedy) from error
        inside, outside = plan.right().outputSet(), plan.left().outputSet()
        own, others = list[_Key](), list[_Key]()
        conditions = [(plan.condition().get(), parsed)]
        while conditions:
            analyzed, parsed = conditions.pop()
            kind = str(analyzed.nodeName())
            if kind not in ("And", "EqualTo") or kind != parsed.nodeName():
                raise _refused(path, wanted, remedy)
            sides = [(analyzed.left(), parsed.left()), (analyzed.right(), parsed.right())]
            if kind == "And":
                conditions += reversed(sides)
                continue
            if sides[0][0].references().subsetOf(outside):
                sides.reverse()
            for (side, text), attributes, keys in zip(sides, (inside, outside), (own, others), strict=True):
                if side.references().isEmpty() or not side.references().subsetOf(attributes):
                    raise _refused(path, wanted, remedy)
                keys.append(_key(side, text))
        return own, others


class _Key(NamedTuple):
    expression: str
    is_plain: bool
    """Whether it is a column, cast at most once."""


def _key(analyzed: Any, parsed: Any) -> _Key:
    origin, cast = parsed.origin(), analyzed.nodeName() == "Cast"
    text = origin.sqlText().get()[origin.startIndex().get() : origin.stopIndex().get() + 1]
    # A second cast may change what the first one made of a value.
    is_plain = (analyzed.child() if cast else analyzed).nodeName() == "AttributeReference"
    return _Key(f"CAST({text} AS {analyzed.dataType().sql()})" if cast else text, is_plain)


@contextmanager
def _naming(path: str) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        raise _refused(path, error.message.removeprefix("select "), error.remedy) from error


def _refused(path: str, problem: str, remedy: str) -> ConfigError:
    return ConfigError(f"nest.{path} {problem}", subject="nest", value=path, remedy=remedy)


def by_table(frames: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """The frames by the names of their tables as parameters have them, whatever parts are back-quoted."""
    known = {}
    for name, frame in frames.items():
        with suppress(PydanticCustomError):
            name = check_table_name(name)
        known[name] = frame
    return known


def open_frames(spec: SyncConfig | Mapping[str, Any], *known: Mapping[str, DataFrame]) -> tuple[Tree, list[States]]:
    """Analyse a spec by the schemas of frames, of which the first count; with it, each state with all of its tables."""
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
    return tree, [States({**empty, **each}) for each in known]
