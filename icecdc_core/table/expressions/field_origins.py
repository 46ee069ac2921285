"""Where the fields of a document come from: the columns of each field, from the plan that Spark made of a selection."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from icecdc_core.table.expressions.determinism import end_of

_PLAIN = frozenset({"Alias", "AttributeReference"})
_MASKING = frozenset({"Md5", "Sha1", "Sha2", "Crc32", "Murmur3Hash", "XxHash64", "Mask", "HashExpression"})


class FieldOrigin(NamedTuple):
    """Where a field comes from."""

    columns: frozenset[str]
    is_identity: bool = False
    is_masked: bool = False


def field_origins(
    selections: Sequence[list[list[dict[str, Any]]]], table_columns: Mapping[str, str]
) -> dict[str, FieldOrigin]:
    """Return the origin of each field."""
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
    sources, shown = _sources(item, known), _sources(_outside_of_masks(item), known)
    return FieldOrigin(
        frozenset[str]().union(*(source.columns for source in sources)),
        is_identity=len(sources) == 1 and sources[0].is_identity and {node_class(node) for node in item} <= _PLAIN,
        is_masked=bool(sources) and all(source.is_masked for source in shown),
    )


def _sources(nodes: Iterable[dict[str, Any]], known: Mapping[str, FieldOrigin]) -> list[FieldOrigin]:
    return [known[expression_id(node)] for node in nodes if is_attribute(node) and expression_id(node) in known]


def _outside_of_masks(item: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The nodes of an expression that are in no hash."""
    position = 0
    while position < len(item):
        if node_class(item[position]) in _MASKING:
            position = end_of(item, position)
        else:
            yield item[position]
            position += 1
