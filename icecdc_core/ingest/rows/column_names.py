"""The names that a new column may have, such that Iceberg, Spark and the ingest can still read the table.

Spark and the ingest do not distinguish names that differ only in case, Iceberg reserves some names for its metadata
columns, and neither accepts an empty name. A dotted name must not equal the path of a nested field.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyspark.sql import types as T

from icecdc_core.columns import OWN_PREFIX

Path = tuple[str, ...]
"""The names from a top-level field down to a nested one."""

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
"""The names of Iceberg's metadata columns and of the columns in its changelogs."""


class ColumnNames:
    """The names of a table's fields, nested ones included."""

    def __init__(self, schema: T.StructType, others: Iterable[str] = ()) -> None:
        self._names = {fold_case(name) for name in others} | {fold_case(".".join(path)) for path in _paths(schema, ())}

    def add(self, path: Path) -> bool:
        """Add the name of a new field; False if the field must not have it."""
        dotted = fold_case(".".join(path))
        if dotted in self._names or name_problem(path[-1], (), len(path) == 1):
            return False
        self._names.add(dotted)
        return True


def name_problem(name: str, siblings: Iterable[str], top: bool) -> str | None:
    """Return why a field cannot become a column because of its name; None if it can.

    Example:
        >>> name_problem("Id", ["id"], True)
        'has no column: its name differs from id only in case'
    """
    if not name:
        return "has no column: its name is empty"
    if top and (fold_case(name) in RESERVED or fold_case(name).startswith(OWN_PREFIX)):
        return "has no column: its name is reserved"
    same = [other for other in siblings if fold_case(other) == fold_case(name)]
    return f"has no column: its name differs from {same[0]} only in case" if same else None


def nested_name_problem(kind: T.DataType | None) -> str | None:
    """Return why a field cannot become a column because of its nested fields; None if it can."""
    if isinstance(kind, T.ArrayType):
        return nested_name_problem(kind.elementType)
    if isinstance(kind, T.MapType):
        return nested_name_problem(kind.valueType)
    if not isinstance(kind, T.StructType):
        return None
    if not kind.fields:
        return "has no column: it is an object without fields"
    for position, field in enumerate(kind.fields):
        why = name_problem(field.name, kind.names[:position], False) or nested_name_problem(field.dataType)
        if why:
            return f"(its {path_text((field.name,))}) {why}"
    return None


def fold_case(name: str) -> str:
    """Return a name in the form in which Java compares names in any case, character by character."""
    return "".join(lower if len(lower := each.upper().lower()) == 1 else each.lower() for each in name)


def path_text(path: Iterable[str]) -> str:
    """Return a path as dotted text; an empty name is shown as two quotes."""
    return ".".join(name or '""' for name in path)


def _paths(kind: T.DataType, path: Path) -> Iterator[Path]:
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
