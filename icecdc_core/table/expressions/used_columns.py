"""Which columns expressions use, and from which columns, or fields within them, they compute something.

    named_struct('n', s.inner.x) AS p, s AS t    uses s, computes with s.inner.x
    cast(s.inner AS string) AS p                 uses s, computes with s.inner: a field that it gets changes p

All is read from Spark's JSON form, in which an expression is the list of its nodes, a node before its children.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from icecdc_core.table.expressions.field_origins import expression_id, is_attribute, node_class

_OF_STRUCTS = frozenset({"GetStructField", "GetArrayStructFields"})

Node = dict[str, Any]
Path = tuple[str, tuple[str, ...]]
"""The id of a column, and the names that lead to a field within it."""


class UsedColumns(NamedTuple):
    """What expressions use."""

    names: frozenset[str] = frozenset()
    computed_from: frozenset[str] = frozenset()
    time_zone: str = ""


def used_columns(selections: Sequence[Sequence[list[Node]]], table_columns: Mapping[str, str]) -> UsedColumns:
    """Return what the fields of the last selection use, through the selections before it."""
    used: set[str] = set()
    computed: set[Path] = set()
    for number, selection in enumerate(selections):
        for item in selection:
            key = expression_id(item[0])
            if number and key not in used:
                continue
            paths = _paths(item)
            used |= {column for column, _ in paths}
            if _only_repeats(item):
                # What is computed from the field is computed from what it repeats.
                computed |= {(column, path + rest) for column, path in paths for at, rest in computed if at == key}
            else:
                computed |= set(paths)
    return UsedColumns(
        frozenset(name for key, name in table_columns.items() if key in used),
        frozenset(".".join((table_columns[key], *path)) for key, path in computed if key in table_columns),
    )


def _only_repeats(item: Sequence[Node]) -> bool:
    """Whether an expression is a column or a field within it, perhaps under another name."""
    inside = item[1:] if node_class(item[0]) == "Alias" else item
    return bool(inside) and is_attribute(inside[-1]) and all(node_class(node) in _OF_STRUCTS for node in inside[:-1])


def _paths(item: Sequence[Node]) -> list[Path]:
    return [_path(item, position) for position, node in enumerate(item) if is_attribute(node)]


def _path(item: Sequence[Node], position: int) -> Path:
    """The path of the field that the nodes around a column take from it; the column's own without such nodes."""
    column, kind, names = expression_id(item[position]), item[position].get("dataType"), []
    while position and node_class(item[position - 1]) in _OF_STRUCTS and isinstance(kind, dict):
        position -= 1
        if kind["type"] == "array":
            names.append("element")
            kind = kind["elementType"]
        field = kind["fields"][item[position]["ordinal"]]
        names.append(str(field["name"]))
        kind = field["type"]
    return column, tuple(names)
