"""Schema changes: the differences of two Iceberg schemas by field id, and whether an index can follow them in place.

An index can follow if every document in it stays right: columns were added (old rows read null there), or only
optionality, order or comments changed. Everything else changes documents or field types, which needs a new index.

    was  1 id: long, 2 name: string         is  1 id: long, 2 title: string, 3 age: int
    gives  column 'name' was renamed to 'title'; column 'age' was added
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal[
    "added",
    "added_with_default",
    "dropped",
    "name_reused",
    "renamed",
    "type_widened",
    "type_changed",
    "made_optional",
    "made_required",
    "reordered",
]
_WIDER = {("int", "long"), ("float", "double"), ("date", "timestamp"), ("date", "timestamp_ns")}


@dataclass(frozen=True)
class SchemaChange:
    """One change of one column."""

    kind: Kind
    column: str
    was: str = ""
    now: str = ""
    additive: bool = False

    def __str__(self) -> str:
        texts = {
            "added": "was added",
            "added_with_default": f"was added with the default {self.now} for old rows",
            "dropped": "was dropped",
            "name_reused": "was dropped and another column took its name",
            "renamed": f"was renamed to '{self.now}'",
            "type_widened": f"was widened from {self.was} to {self.now}",
            "type_changed": f"changed from {self.was} to {self.now}",
            "made_optional": "became optional",
            "made_required": "became required",
            "reordered": "was moved",
        }
        return f"column '{self.column}' {texts[self.kind]}"


@dataclass(frozen=True)
class _Field:
    key: int
    path: str
    name: str
    top: str
    type: str
    required: bool
    default: object
    parent: int
    siblings: tuple[int, ...]


def schema_change(old_schema: str, new_schema: str, columns: Sequence[str] = ()) -> list[SchemaChange]:
    """Compare two Iceberg schemas."""
    old = {key: field for key, field in _flatten(old_schema) if not columns or field.top in columns}
    new = {key: field for key, field in _flatten(new_schema) if not columns or field.top in columns}
    new_paths = {field.path for key, field in new.items() if key not in old}
    changes: list[SchemaChange] = []
    for key, was in old.items():
        if key not in new:
            if was.parent not in old or was.parent in new:  # a dropped struct stands for its fields
                changes.append(SchemaChange("name_reused" if was.path in new_paths else "dropped", was.path))
            continue
        changes += _compare(was, new[key])
        if _moved(was, new[key]):
            changes.append(SchemaChange("reordered", was.path, additive=True))
    for key, now in new.items():
        if key in old or (now.parent in new and now.parent not in old):
            continue
        if now.default is None:
            changes.append(SchemaChange("added", now.path, additive=True))
        else:
            changes.append(SchemaChange("added_with_default", now.path, now=json.dumps(now.default)))
    return changes


def is_additive(changes: Sequence[SchemaChange]) -> bool:
    """Whether an index can follow all of these changes in place."""
    return all(change.additive for change in changes)


def _compare(was: _Field, now: _Field) -> Iterator[SchemaChange]:
    if was.name != now.name:
        yield SchemaChange("renamed", was.path, was.name, now.name)
    if was.type != now.type:
        # If only the precision grows, a decimal's text and index field stay the same.
        decimal = _wider_decimal(was.type, now.type)
        wider = decimal or (was.type, now.type) in _WIDER
        kind: Kind = "type_widened" if wider else "type_changed"
        yield SchemaChange(kind, was.path, was.type, now.type, additive=decimal)
    if was.required != now.required:
        yield SchemaChange("made_required" if now.required else "made_optional", was.path, additive=True)


def _moved(was: _Field, now: _Field) -> bool:
    """Whether the field comes after another one than before, among the fields that both schemas have."""
    kept = set(was.siblings) & set(now.siblings)
    before = [sibling for sibling in was.siblings[: was.siblings.index(was.key)] if sibling in kept]
    after = [sibling for sibling in now.siblings[: now.siblings.index(now.key)] if sibling in kept]
    return before[-1:] != after[-1:]


def _wider_decimal(was: str, now: str) -> bool:
    if not (was.startswith("decimal(") and now.startswith("decimal(")):
        return False
    (precision, scale), (new_precision, new_scale) = _digits(was), _digits(now)
    return scale == new_scale and new_precision > precision


def _digits(decimal: str) -> tuple[int, int]:
    precision, scale = decimal.removeprefix("decimal(").rstrip(")").split(",")
    return int(precision), int(scale)


def _flatten(schema: str) -> Iterator[tuple[int, _Field]]:
    yield from _children(json.loads(schema)["fields"], "", "", 0)


def _children(fields: list[dict[str, Any]], prefix: str, top: str, parent: int) -> Iterator[tuple[int, _Field]]:
    siblings = tuple(field["id"] for field in fields)
    for field in fields:
        key, name, kind = field["id"], field["name"], field["type"]
        path, outer = f"{prefix}{name}", top or name
        text = kind if isinstance(kind, str) else str(kind["type"])
        text = text.replace(" ", "")
        default = field.get("initial-default", field.get("initial_default"))
        yield key, _Field(key, path, name, outer, text, bool(field.get("required")), default, parent, siblings)
        yield from _children(_inner(kind), f"{path}.", outer, key)


def _inner(kind: Any) -> list[dict[str, Any]]:
    """The fields of a nested type, with list elements and map entries as fields of their own."""
    if isinstance(kind, str):
        return []
    if kind["type"] == "struct":
        return list(kind["fields"])
    parts = ("element",) if kind["type"] == "list" else ("key", "value")
    return [
        {"id": kind[f"{part}-id"], "name": part, "type": kind[part], "required": kind.get(f"{part}-required", True)}
        for part in parts
    ]
