"""Preconditions of a sync: whether the changes since a position can be read, checked before anything is written."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from icecdc_core.commits.history import REEXPORT, SCHEMA_POLICY, history_error, schema_error
from icecdc_core.commits.position import Position
from icecdc_core.documents.nested_documents import TreeProjection
from icecdc_core.documents.nested_tables import Node
from icecdc_core.documents.spec import MAPPING, SETTINGS, SPEC_KEYS, spec_changes
from icecdc_core.errors import IcecdcError, IndexConflictError, SchemaChangeError
from icecdc_core.table.schema_changes import schema_change
from icecdc_core.table.select import ALIAS, new_document_fields
from icecdc_core.table.source import Source

_IDENTIFIERS = "identifier_columns"
_DROPPABLE = ("columns", "row_filter", "select", "nest", "embed", "routing", "index_column", MAPPING, SETTINGS)


def check_preconditions(position: Position, source: Source) -> IcecdcError | None:
    """Return why the changes since a position cannot be read; None if they can."""
    for check in (_other_history, _other_selection, _other_spec, _other_schema):
        if (error := check(position, source)) is not None:
            return error
    for (table, nested), check in product(source.nested.items(), (_other_history, _other_schema)):
        if (error := check(position.of_nested(table), nested)) is not None:
            error.message = f"Of the nested table '{table}': {error.message}"
            return error
    return None


def index_identity(selection: Mapping[str, Any]) -> dict[str, Any]:
    """What of a stored selection an index keeps in its `_meta`; expressions may be secret from readers of the index."""
    return {_IDENTIFIERS: selection[_IDENTIFIERS], **{name: True for name in _DROPPABLE if selection.get(name)}}


def check_identity(position: Position, stored: Mapping[str, Any], source: Source) -> None:
    stored = _with_current_names(position, stored, source)
    given = {"table": source.table.name, **source.stored_selection}
    if names := _other_identity(stored, given):
        raise IndexConflictError(
            f"The index '{position.index}' was built with {_shown(names, stored)}; this run has "
            f"{_shown(names, given)}, and an export gives an index another identity only with replace_index=true",
            subject=names[0],
            value=given.get(names[0]),
            remedy=_keep(names, stored, source),
        )


def _with_current_names(position: Position, stored: Mapping[str, Any], source: Source) -> Mapping[str, Any]:
    """A stored selection with the names that its identifier columns have now: a rename makes no other identity."""
    if not position.schema or _IDENTIFIERS not in stored or position.table_uuid != source.metadata.table_uuid:
        return stored
    ids = {each["name"]: each["id"] for each in json.loads(position.schema)["fields"]}
    names = {each["id"]: each["name"] for each in source.metadata.schema["fields"]}
    return {**stored, _IDENTIFIERS: [names.get(ids.get(name), name) for name in stored[_IDENTIFIERS]]}


def _other_identity(stored: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """The parameters that make another index of this one: a table, identifiers, or a spec that is gone altogether."""
    changed = [name for name in ("table", _IDENTIFIERS) if name in stored and stored[name] != given.get(name)]
    kept = {name for name in _DROPPABLE if given.get(name)} | ({"columns"} if given.get("select") else set())
    return [*changed, *(name for name in _DROPPABLE if stored.get(name) and name not in kept)]


def parameter_changes(position: Position, source: Source) -> list[str]:
    """What a run changes of an index that this position describes; expressions are named without their texts."""
    if not position.exists:
        return []
    given = source.stored_selection
    table = ["table"] if position.table != source.table.name else []
    spec = spec_changes(position.selection, given, (), source.schema, source.number_of_shards)
    return [*table, *_changed(position.selection, given), *spec]


def _changed(stored: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """The parts of a selection, other than its spec, that differ; another release may have more or fewer of them."""
    return sorted(key for key in (stored.keys() | given.keys()) - SPEC_KEYS if stored.get(key) != given.get(key))


def _shown(names: Sequence[str], values: Mapping[str, Any]) -> str:
    shown = []
    for name in names:
        value = values.get(name)
        if value is True:
            shown.append(name)
        elif not value and name in _DROPPABLE:
            shown.append(f"no {name}")
        elif value and name == "select" and value[0].startswith(ALIAS):
            select = f", select={json.dumps(value[1:])}" if value[1:] else ""
            shown.append(f"alias={json.dumps(value[0].removeprefix(ALIAS))}{select}")
        else:
            shown.append(f"{name}={json.dumps(value) if isinstance(value, (list, dict)) else repr(value)}")
    return ", ".join(shown)


def _keep(names: Sequence[str], stored: Mapping[str, Any], source: Source) -> str:
    """The remedy that leaves the index as it is: the stored values."""
    parts, columns = [], {each["name"] for each in source.metadata.schema["fields"]}
    for name in names:
        value = stored.get(name)
        if name == _IDENTIFIERS and not value:
            parts.append(
                "leave identifier_columns out; if the table has identifier fields now, run the export with "
                "replace_index=true, because they make other document ids"
            )
        elif name == _IDENTIFIERS and not columns.issuperset(value or ()):
            parts.append("if this is the table of the index, run the export with replace_index=true: a column is gone")
        elif value is True:
            parts.append(f"give the {name} that the index was built with")
        elif value and name == "embed":
            parts.append(f"give embed with {json.dumps(value)} and its function")
        else:
            parts.append(f"leave {name} out" if not value else f"give {_shown([name], stored)}")
    return "; ".join(parts)


def _remedy(names: Sequence[str], stored: Mapping[str, Any], source: Source) -> str:
    """What to do about changed parameters; only a change that an export may make is offered as one."""
    if identity := _other_identity(stored, source.stored_selection):
        return _keep([*identity, *(name for name in names if name not in identity)], stored, source)
    change = REEXPORT.format(SCHEMA_POLICY)
    return f"to keep the index as it is, {_keep(names, stored, source)}; to change it, {change}"


def _other_history(position: Position, source: Source) -> IcecdcError | None:
    return history_error(position, source.table.name, source.metadata, source.head, source.branch)


def _other_selection(position: Position, source: Source) -> IcecdcError | None:
    stored, current = _with_current_names(position, position.selection, source), source.stored_selection
    if not (changed := _changed(stored, current)):
        return None
    return SchemaChangeError(
        f"The index was built with another {', '.join(changed)}: {_shown(changed, stored)}; this run has "
        f"{_shown(changed, current)}",
        subject=changed[0],
        value=current.get(changed[0]),
        remedy=_remedy(changed, stored, source),
    )


def _other_spec(position: Position, source: Source) -> IcecdcError | None:
    if isinstance(source.projection, TreeProjection):
        new_fields = frozenset(_new_fields(source.projection.tree.root, position, source))
    else:
        new_fields = new_document_fields(position.schema, source.schema_json, source.projection)
    changes = spec_changes(
        position.selection, source.stored_selection, new_fields, source.schema, source.number_of_shards
    )
    breaking = [change for change, in_place in changes.items() if not in_place]
    if not breaking:
        return None
    names = [name for name in (MAPPING, SETTINGS) if any(each.startswith(f"{name}.") for each in breaking)]
    return SchemaChangeError(
        f"The index '{position.index}' was built with another mapping or other settings: {'; '.join(breaking)}",
        subject=SCHEMA_POLICY,
        value="fail",
        remedy=_remedy(names, _with_current_names(position, position.selection, source), source),
    )


def _new_fields(node: Node, position: Position, source: Source, prefix: str = "") -> Iterator[str]:
    """The paths of the fields that documents got from new columns of any table."""
    table, was, now = node.relation.table, position.schema, source.schema_json
    if nested := source.nested.get(table):
        was, now = position.nested[table].schema, nested.schema_json
    yield from (f"{prefix}{each}" for each in new_document_fields(was, now, node.projection))
    for inner in node.inner:
        yield from _new_fields(inner, position, source, f"{prefix}{inner.name}.")


def _other_schema(position: Position, source: Source) -> IcecdcError | None:
    if not position.schema or position.schema == source.schema_json:
        return None
    differences = [*schema_change(position.schema, source.schema_json, source.metadata.has_name_mapping)]
    if all(change.additive for change in differences) and not source.recomputes(differences):
        return None
    return schema_error(source.table.name, differences)
