"""What changed between two schemas of a table, each as the JSON of Iceberg's specification."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Field = Mapping[str, Any]
"""A field of a schema, as Iceberg's specification defines its JSON."""

_WIDER = {("int", "long"), ("float", "double"), ("date", "timestamp"), ("date", "timestamp_ns")}
# A `*` that is an argument: nothing that could be multiplied is before it.
STAR = re.compile(r"[(,]\s*(?:(?:`(?:[^`]|``)+`|\w+)\s*\.\s*)*\*")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


@dataclass(frozen=True)
class SchemaChange:
    """One change of one column; an index can follow an additive one in place."""

    kind: str
    column: str
    what: str
    additive: bool = False

    def __str__(self) -> str:
        return f"column '{self.column}' {self.what}"


def schema_change(old_schema: str, new_schema: str, has_name_mapping: bool = False) -> Iterator[SchemaChange]:
    old, new = (dict(_flatten(json.loads(text)["fields"])) for text in (old_schema, new_schema))
    new_paths = {field["path"] for key, field in new.items() if key not in old}
    for key, was in old.items():
        if key in new:
            yield from _compare(key, was, new[key])
        elif was["parent"] not in old or was["parent"] in new:  # a dropped struct stands for its fields
            successor = " and another column took its name" if was["path"] in new_paths else ""
            yield SchemaChange("dropped", was["path"], f"was dropped{successor}")
    for key, now in new.items():
        if key in old or (now["parent"] in new and now["parent"] not in old):
            continue
        if now.get("initial-default") is None:
            # Files without field ids are read by the names of a mapping, and may have had the column all along.
            what = "was added" + has_name_mapping * ", and old files may have it by the table's name mapping"
            yield SchemaChange("added", now["path"], what, additive=not has_name_mapping)
        else:
            what = f"was added with the default {json.dumps(now['initial-default'])} for old rows"
            yield SchemaChange("added_with_default", now["path"], what)


def _compare(key: int, was: Field, now: Field) -> Iterator[SchemaChange]:
    path, was_type, now_type = was["path"], was["type_text"], now["type_text"]
    if was["name"] != now["name"]:
        yield SchemaChange("renamed", path, f"was renamed to '{now['name']}'")
    if was_type != now_type:
        # If only the precision grows, a decimal's text and index field stay the same.
        old, new = _DECIMAL.fullmatch(was_type), _DECIMAL.fullmatch(now_type)
        decimal = bool(old and new and old[2] == new[2] and int(new[1]) > int(old[1]))
        wider = decimal or (was_type, now_type) in _WIDER
        what = f"{'was widened' if wider else 'changed'} from {was_type} to {now_type}"
        yield SchemaChange("type_widened" if wider else "type_changed", path, what, additive=decimal)
    # Whether it comes after another field than before, among those that both schemas have.
    kept = {*was["siblings"]} & {*now["siblings"]}
    before, after = (
        [each for each in side["siblings"][: side["siblings"].index(key)] if each in kept] for side in (was, now)
    )
    if before[-1:] != after[-1:]:
        yield SchemaChange("reordered", path, "was moved", additive=True)


def _flatten(fields: Sequence[Field], prefix: str = "", parent: int = 0) -> Iterator[tuple[int, Field]]:
    """Yield all fields by id, with their place; list elements and map entries are fields of their own."""
    siblings = [field["id"] for field in fields]
    for field in fields:
        kind, path = field["type"], f"{prefix}{field['name']}"
        text = str(kind if isinstance(kind, str) else kind["type"]).replace(" ", "")
        yield field["id"], {**field, "path": path, "type_text": text, "parent": parent, "siblings": siblings}
        if isinstance(kind, str):
            continue
        parts = {"struct": (), "list": ("element",), "map": ("key", "value")}[text]
        inner = [{"id": kind[f"{part}-id"], "name": part, "type": kind[part]} for part in parts]
        yield from _flatten(kind.get("fields", inner), f"{path}.", field["id"])
