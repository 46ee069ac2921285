"""Which names a new column may have, so that Iceberg, Spark and the ingest can read the table with it.

Spark and the ingest do not tell names apart that differ only in case, Iceberg keeps some names for its metadata
columns, and neither takes an empty name. A dotted name may not be that of a nested field, either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyspark.sql import types as T

from icecdc_core.columns import OWN_PREFIX

RESERVED = frozenset(
    {
        "_file",
        "_pos",
        "_deleted",
        "_spec_id",
        "_partition",
        "_row_id",
        "_last_updated_sequence_number",
        "_change_type",
        "_change_ordinal",
        "_commit_snapshot_id",
    }
)
"""Names of Iceberg's metadata columns and of what its changelogs add."""


class Names:
    """The names of a table's fields, nested ones too.

    Args:
        schema: The table's columns.
        others: Further names that no new column may have, such as those of partition fields.
    """

    def __init__(self, schema: T.StructType, others: Iterable[str] = ()) -> None:
        self._taken = {folded(name) for name in others} | {folded(".".join(path)) for path in _paths(schema, ())}

    def take(self, path: tuple[str, ...]) -> bool:
        """Take the name of a new field; False if it may not have it.

        Args:
            path: Names from the top-level column down, with Iceberg's ``element`` and ``value``.
        """
        full = folded(".".join(path))
        if full in self._taken or refusal(path[-1], (), len(path) == 1):
            return False
        self._taken.add(full)
        return True


def refusal(name: str, siblings: Iterable[str], top: bool) -> str | None:
    """Return why a field cannot become a column; None if its name says nothing against it.

    Args:
        name: The field's name.
        siblings: The names of the columns beside it.
        top: Whether it would be a column of the table, rather than of a struct.

    Example:
        >>> refusal("Id", ["id"], True)
        'has no column: its name differs from id only in case'
    """
    if not name:
        return "has no column: its name is empty"
    if top and (folded(name) in RESERVED or folded(name).startswith(OWN_PREFIX)):
        return "has no column: its name is reserved"
    same = [other for other in siblings if folded(other) == folded(name)]
    return f"has no column: its name differs from {same[0]} only in case" if same else None


def inner_refusal(kind: T.DataType | None) -> str | None:
    """Return why a new field cannot become a column because of the fields in it; None if it can."""
    if isinstance(kind, T.ArrayType):
        return inner_refusal(kind.elementType)
    if isinstance(kind, T.MapType):
        return inner_refusal(kind.valueType)
    if not isinstance(kind, T.StructType):
        return None
    if not kind.fields:
        return "has no column: it is an object without fields"
    for place, field in enumerate(kind.fields):
        why = refusal(field.name, kind.names[:place], False) or inner_refusal(field.dataType)
        if why:
            return f"(its {shown((field.name,))}) {why}"
    return None


def folded(name: str) -> str:
    """Return a name as Java compares names in any case: character by character."""
    return "".join(lower if len(lower := each.upper().lower()) == 1 else each.lower() for each in name)


def shown(path: Iterable[str]) -> str:
    """Return a path as text; an empty name can be seen in it."""
    return ".".join(name or '""' for name in path)


def _paths(kind: T.DataType, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(kind, T.StructType):
        for field in kind.fields:
            yield (*path, field.name)
            yield from _paths(field.dataType, (*path, field.name))
    elif isinstance(kind, T.ArrayType):
        yield (*path, "element")
        yield from _paths(kind.elementType, (*path, "element"))
    elif isinstance(kind, T.MapType):
        yield from ((*path, "key"), (*path, "value"))
        yield from _paths(kind.valueType, (*path, "value"))
