"""The documents that changes of any of their tables affect.

Affected roots are those of every DELETE image, joined upwards to rows of the state before, and those of every INSERT
image, joined upwards to rows of the state after. A tree in which nothing was deleted before and nothing inserted after
is the same tree.

The jobs join all images to the state after alone, which finds the same roots: on the path from a root to an image take
the topmost row that has an image. The rows above it have none, so they are in every state of the range.
"""

from collections.abc import Mapping
from functools import reduce
from itertools import chain
from typing import Any

from pyspark.sql import DataFrame

from icecdc_core.carryover import remove_carryovers
from icecdc_core.columns import RESERVED, is_insert, quoted
from icecdc_core.config import SyncConfig
from icecdc_core.documents.nested_tables import KEY, Relation, States, Tree, by_table, key_names, open_frames


def find_affected_roots(tree: Tree, changed: Mapping[Relation, DataFrame], states: States) -> DataFrame | None:
    """Return the keys, with repeats, of the roots to which changed rows, given by their keys, belong; None if none."""
    found = dict(changed)
    for relation in tree.root.relations():
        if relation.parent is not None and relation in found:
            keys = relation.parent.keys_of(states.rows(relation.parent, relation.parent_keys, found[relation]))
            found[relation.parent] = found[relation.parent].unionAll(keys) if relation.parent in found else keys
    return found.get(tree.root.relation)


def changed_keys(tree: Tree, images: Mapping[str, DataFrame], states: States) -> dict[Relation, DataFrame]:
    """Return the keys of changed rows by each relation but the root; null for rows that its filter leaves out."""
    changed: dict[Relation, DataFrame] = {}
    for table, rows in images.items():
        names: dict[Relation, list[str]] = {}
        for number, relation in enumerate(tree.root.relations()):
            if relation.table == table and relation.parent is not None:
                shown = f"CASE WHEN ({relation.row_filter}\n) THEN " if relation.row_filter else "CASE WHEN true THEN "
                rows = relation.with_keys(rows, [f"{shown}{text} END" for text in relation.keys], f"{KEY}{number}_")
                names[relation] = key_names(relation.keys, f"{KEY}{number}_")
        if names:
            keys = states.computed(rows.select(*chain(*names.values())))
            changed |= {relation: keys.select(*each).toDF(*key_names(each)) for relation, each in names.items()}
    return changed


def used_changes(tree: Tree, table: str, changes: DataFrame) -> DataFrame:
    """Return the changes of the columns of a table that matter, without carryovers."""
    names = [name for name in changes.columns if name in (*tree.used[table].names, *RESERVED)]
    return changes.select(*map(quoted, names)).transform(remove_carryovers)


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
    changes = by_table(changes)
    tree, (after, before, _) = open_frames(spec, by_table(states_to), by_table(states_from), changes)
    images = {table: used_changes(tree, table, frame) for table, frame in changes.items() if table in tree.used}
    root = tree.root.relation
    found = [root.keys_of(before.frames[root.table].limit(0))]
    for is_of_kind, state in ((~is_insert(), before), (is_insert(), after)):
        of_kind = {name: each.where(is_of_kind) for name, each in images.items()}
        changed = changed_keys(tree, of_kind, state)
        if root.table in of_kind:
            changed[root] = root.keys_of(root.matching(of_kind[root.table]))
        if (roots := find_affected_roots(tree, changed, state)) is not None:
            found.append(roots)
    return reduce(DataFrame.unionAll, found).distinct().toDF(*tree.identifier_columns)
