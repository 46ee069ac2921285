"""The fields of a document that no document had when the table had an earlier schema.

was  place struct<city>         is  place struct<city, zip>, tags list<struct<name>>
gives  place.zip, tags, tags.name
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from icecdc_core.table.expressions.projection import Projection

_ALL = ".*"


def new_document_fields(
    was: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]], projection: Projection | None = None
) -> frozenset[str]:
    """Return the paths of the fields that documents got.

    With a projection these are fields of columns that it takes as they are (``*``, ``place AS p``), and what
    ``place.*`` takes out of a struct. Other fields may come from a new column, but every document has them already.
    """
    new = frozenset(_paths(now)) - frozenset(_paths(was))
    if projection is None:
        return new
    columns = {name: next(iter(origin.columns)) for name, origin in projection.origins.items() if origin.is_identity}
    repeated = {f"{name}{path}" for name, column in columns.items() for path in _below(new, column)}
    structs = [item.removesuffix(_ALL).strip("`") for item in projection.stored if item.endswith(_ALL)]
    taken_out = {path.removeprefix(".") for struct in structs for path in _below(new, struct) if path}
    return frozenset(repeated | taken_out)


def _below(paths: Collection[str], column: str) -> Iterator[str]:
    """The rest of the paths that begin with a column; empty for the column itself."""
    for path in paths:
        if path == column or path.startswith(f"{column}."):
            yield path.removeprefix(column)


def _paths(fields: Sequence[Mapping[str, Any]], prefix: str = "") -> Iterator[str]:
    for field in fields:
        path = f"{prefix}{field['name']}"
        yield path
        kind = field["type"]
        while isinstance(kind, Mapping) and kind["type"] == "list":  # a document has no level for a list
            kind = kind["element"]
        if isinstance(kind, Mapping) and kind["type"] == "struct":
            yield from _paths(kind["fields"], f"{path}.")
