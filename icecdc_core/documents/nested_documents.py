"""Documents of several tables, put together: to each row of the root what the tables nested in it have for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any

from pyspark.sql import Column, DataFrame, functions as F
from pyspark.sql.types import DataType, StructType

from icecdc_core.columns import JSON_OPTIONS, OWN_PREFIX, contains_type, convert_within, quoted
from icecdc_core.config import SyncConfig
from icecdc_core.documents.nested_tables import UNORDERED, Node, States, Tree, by_table, key_names, open_frames
from icecdc_core.equality import is_comparable
from icecdc_core.errors import SEVERAL_MESSAGE
from icecdc_core.table.select import Projection

_LINK, _ENTRY, _ORDER, _TIES = (f"{OWN_PREFIX}{name}" for name in ("link_", "entry", "order_", "ties"))


@dataclass(frozen=True)
class TreeProjection(Projection):
    """The fields of documents of several tables, as functions of a row of the root and of the states."""

    tree: Tree = field(kw_only=True)
    states: States = field(kw_only=True)

    @classmethod
    def of(cls, tree: Tree, states: States) -> TreeProjection:
        known = {each.name: getattr(tree.root.projection, each.name) for each in fields(Projection)}
        used = tree.used[tree.root.relation.table]
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
        rows = node.relation.with_keys(rows, inner.linked.parent_keys, f"{_LINK}{number}_")
        links += key_names(inner.linked.keys, f"{_LINK}{number}_")
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
    relation, linked = node.relation, node.linked
    links = key_names(linked.keys, f"{_LINK}{number}_")
    if wanted is not None:
        wanted = wanted.select(*links).toDF(*key_names(linked.keys))
    if node.through:
        through = linked.with_keys(states.rows(linked, linked.keys, wanted), linked.keys, f"{_LINK}{number}_")
        keys = key_names(relation.keys)
        through = linked.with_keys(through, relation.parent_keys).select(*links, *keys)
        wanted = None if wanted is None else through.select(*keys)
        found = through.join(_entries(node, states.rows(relation, relation.keys, wanted), states), keys)
    else:
        found = _entries(node, states.rows(relation, relation.keys, wanted), states)
        found = found.withColumnsRenamed(dict(zip(key_names(relation.keys), links, strict=True)))
    name = f"{_ENTRY}{number}"
    one = _object() if node.is_object else _array(node)
    rows = rows.join(found.groupBy(*links).agg(one.alias(name)), links, "left").drop(*links)
    if not node.is_object:
        return rows.withColumn(name, F.coalesce(name, F.array()))
    # Only here: rows that no document contains may have any keys.
    several = F.concat(F.lit(f"{SEVERAL_MESSAGE} '{node.name}' of {relation.table}: "), f"{name}.least", F.lit(", "))
    error = F.raise_error(F.concat(several, f"{name}.most"))
    return rows.withColumn(name, F.when(F.col(f"{name}.count") > 1, error).otherwise(F.col(f"{name}.entry")))


def _entries(node: Node, rows: DataFrame, states: States) -> DataFrame:
    """The rows of a nested table as entries, with their keys and what they are ordered by."""
    relation, names, orders = node.relation, key_names(node.relation.keys), key_names(node.order_by, _ORDER)
    rows = relation.with_keys(rows, relation.keys)
    rows = relation.with_keys(rows, [order.expression for order in node.order_by], _ORDER)
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
    kind = node.schema
    by_name = sorted(kind.fields, key=attrgetter("name"))
    values = [(_by_name(F.col(_ENTRY).getField(each.name), each.dataType), each.dataType) for each in by_name]
    ties = [value for value, of_type in values if not contains_type(of_type, UNORDERED)]
    # 0.0 and -0.0 are equal and have different texts.
    as_text = [value for value, of_type in values if not is_comparable(of_type)]
    if as_text:
        ties.append(F.to_json(F.struct(*(each.alias(f"t{n}") for n, each in enumerate(as_text))), JSON_OPTIONS))
    orders = key_names(node.order_by, _ORDER)
    by = [F.struct(F.col(name).alias("value")).alias(name) for name in orders]
    by.append(F.struct(*(tie.alias(f"t{n}") for n, tie in enumerate(ties))).alias(_TIES))
    entries = F.collect_list(F.struct(*by, _ENTRY))
    descending = {name for name, order in zip(orders, node.order_by, strict=True) if order.is_descending}
    if not descending and not contains_type(kind, UNORDERED):
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
    if not contains_type(kind, StructType):
        return value
    by_name = StructType(sorted(kind.fields, key=attrgetter("name"))) if isinstance(kind, StructType) else kind
    return convert_within(value, by_name, _by_name)


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
    tree, (known,) = open_frames(spec, by_table(states))
    projection = TreeProjection.of(tree, States(known.frames, whole=roots is None))
    rows = known.rows(tree.root.relation)
    if roots is not None:
        ids = [*tree.identifier_columns]
        rows = rows.join(roots.select(*map(quoted, ids)).distinct(), ids, "left_semi")
    return projection.apply(rows.select(*map(quoted, projection.columns)))
