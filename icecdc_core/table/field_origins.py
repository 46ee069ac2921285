"""Where the fields of a document come from: the columns of each field, from the plan that Spark made of a selection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_PLAIN = frozenset({"Alias", "AttributeReference"})
_MASKING = frozenset({"Md5", "Sha1", "Sha2", "Crc32", "Murmur3Hash", "XxHash64", "Mask", "HashExpression"})


class FieldOrigin(NamedTuple):
    """Where a field comes from.

    Attributes:
        columns: The table's columns that the field is made of.
        is_identity: Whether it is a column as it is.
        is_masked: Whether it hides the column's value, as a hash does.
    """

    columns: frozenset[str]
    is_identity: bool = False
    is_masked: bool = False


def field_origins(
    selections: Sequence[list[list[dict[str, Any]]]], table_columns: Mapping[str, str]
) -> dict[str, FieldOrigin]:
    """Return the origin of each field.

    Args:
        selections: The lists of expressions in Spark's JSON form, from the last selection down to the first.
        table_columns: The table's columns by the id that Spark gave them.
    """
    known = {key: FieldOrigin(frozenset({name}), is_identity=True) for key, name in table_columns.items()}
    for number, selection in enumerate(reversed(selections), 1):
        made = {expression_id(item[0]): _origin(item, known) for item in selection}
        if number == len(selections):
            return {str(item[0]["name"]): made[expression_id(item[0])] for item in selection}
        known |= made
    return {name: known[key] for key, name in table_columns.items()}


def node_class(node: dict[str, Any]) -> str:
    """The class of a node of a plan, without its package."""
    return str(node["class"]).rsplit(".", 1)[-1]


def expression_id(node: dict[str, Any]) -> str:
    """The id that Spark gave a named expression; empty if it has none."""
    return str((node.get("exprId") or {}).get("id", ""))


def is_attribute(node: dict[str, Any]) -> bool:
    """Whether a node stands for a column."""
    return node_class(node) == "AttributeReference"


def _origin(item: Sequence[dict[str, Any]], known: Mapping[str, FieldOrigin]) -> FieldOrigin:
    sources = [known[expression_id(node)] for node in item if is_attribute(node) and expression_id(node) in known]
    classes = {node_class(node) for node in item}
    columns = frozenset[str]().union(*(source.columns for source in sources))
    return FieldOrigin(
        columns,
        is_identity=len(sources) == 1 and sources[0].is_identity and classes <= _PLAIN,
        is_masked=bool(sources) and (bool(classes & _MASKING) or all(source.is_masked for source in sources)),
    )
