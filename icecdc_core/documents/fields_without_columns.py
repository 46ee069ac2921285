"""Fields that no column makes: those of an ingest pipeline, targets of `copy_to`, field aliases.

The index accepts only fields with a mapping, so each of them needs one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from icecdc_core.documents.field_paths import OBJECTS, Properties, field_names, find_field, mapping_error, outer_paths

_SHOWN = 20


def require_no_column(generated: Properties, name: str) -> None:
    """Check that a field of a pipeline is not also a column."""
    closed = [
        each for each in outer_paths(name) if "properties" not in (find_field(generated, each) or {"properties": {}})
    ]
    is_column = any(each == name or each.startswith(f"{name}.") for each in field_names(generated))
    if is_column or closed:
        what = "a column of the documents" if is_column else f"inside the column '{closed[0]}'"
        raise mapping_error(
            f"The pipeline field '{name}' is {what}",
            name,
            "let the pipeline make a field of another name; what it changes in a column would always differ from the "
            "table",
            subject="pipeline_fields",
        )


def require_mapped(merged: Properties, name: str) -> None:
    """Check that a field of a pipeline has a mapping."""
    if not _is_accepted(merged, name):
        raise mapping_error(
            f"The pipeline field '{name}' has no mapping, and the index accepts only fields that have one",
            name,
            f'give it one in mapping, such as {{"{name}": {{"type": "keyword"}}}}',
            subject="pipeline_fields",
        )


def require_object(merged: Properties, path: str) -> None:
    """Check that the fields around a path are objects."""
    for outer in outer_paths(path):
        field = find_field(merged, outer)
        if field is not None and (field.get("type", "object") not in OBJECTS or field.get("enabled") is False):
            raise mapping_error(
                f"The field '{path}' is inside '{outer}', which is a field of the type {field.get('type', 'object')} "
                "without fields of its own",
                path,
                "map the outer field as object or nested, or choose another name",
            )


def check_references(merged: Properties) -> None:
    """Check that the fields which `copy_to` and field aliases name exist."""
    names = field_names(merged)
    for path in names:
        field = find_field(merged, path) or {}
        for target in copy_targets(field):
            if not _is_accepted(merged, target):
                raise mapping_error(
                    f"The field '{path}' is copied to '{target}', which has no mapping",
                    target,
                    f'give it one in mapping, such as {{"{target}": {{"type": "text"}}}}; the index accepts only '
                    "fields that have one",
                )
        if field.get("type") == "alias" and find_field(merged, str(field.get("path", ""))) is None:
            raise mapping_error(
                f"The field alias '{path}' is for '{field.get('path', '')}', which is no field",
                path,
                f"set its path to a field of the mapping ({first_names(names)})",
            )


def copy_targets(field: Mapping[str, Any]) -> list[str]:
    """Return the fields that a field is copied to."""
    targets = field.get("copy_to") or []
    return [targets] if isinstance(targets, str) else [str(each) for each in targets]


def open_columns(generated: Properties) -> list[str]:
    """Return the columns that are maps or variants: only the data show which fields they have."""
    fields = {name: find_field(generated, name) or {} for name in field_names(generated)}
    return [name for name, field in fields.items() if field.get("type") == "flat_object" or "enabled" in field]


def overlaps_any(path: str, fields: Iterable[str]) -> bool:
    """Return whether one of the fields is at a path, inside it or around it."""
    return any(path == each or each.startswith(f"{path}.") or path.startswith(f"{each}.") for each in fields)


def first_names(names: Sequence[str]) -> str:
    """Return the first names as a text."""
    shown = sorted(names)[:_SHOWN]
    return ", ".join(shown) + (", ..." if len(names) > len(shown) else "")


def _is_accepted(merged: Properties, path: str) -> bool:
    """Whether a document may have the field: it has a mapping, or an object around it accepts any field."""
    if find_field(merged, path) is not None or any(each.startswith(f"{path}.") for each in field_names(merged)):
        return True
    around = [find_field(merged, each) or {} for each in outer_paths(path)]
    return any(
        each.get("enabled") is False
        or each.get("type") == "flat_object"
        or str(each.get("dynamic", "strict")).lower() in ("true", "false")
        for each in around
    )
