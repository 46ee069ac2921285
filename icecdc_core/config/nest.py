"""The entries of `nest`: rows of other tables that a document contains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter

from icecdc_core.config import values

MAX_LEVELS = 3

_REMEDY = (
    'give for each field {"table": "lake.shop.language", "alias": "l", "on": "l.language_id = f.language_id", "as": '
    '"object"}; as is object or array; through, select, row_filter, order_by, type and nest may be added'
)
_Table = Annotated[str, Field(min_length=1), AfterValidator(values.check_table_name)]
_Expressions = Annotated[list[str], BeforeValidator(values.parse_expressions)]


class Link(BaseModel):
    """A table, and which of its rows belong to a row of the table around it."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)

    table: _Table
    alias: str = ""
    on: Annotated[str, Field(min_length=1)]
    row_filter: str = ""

    @property
    def name(self) -> str:
        """The name of the table in expressions: its alias, or the last part of its name."""
        return self.alias or values.split_table_name(self.table)[-1]


class Nested(Link):
    """An entry of `nest`: a field with one row of another table, or an array of several."""

    shape: Literal["object", "array"] = Field(default="object", alias="as")
    through: Link | None = None
    select: _Expressions = Field(default_factory=list)
    order_by: _Expressions = Field(default_factory=list)
    type: Literal["object", "nested"] = "object"
    nest: dict[str, Nested] = Field(default_factory=dict)


_NEST = TypeAdapter(dict[str, Nested])


def parse_nest(nest: Mapping[str, Any]) -> dict[str, Nested]:
    return _NEST.validate_python(nest)


def check_nest(nest: dict[str, Any]) -> dict[str, Any]:
    """A `nest` as it is, refused if it has a wrong entry."""
    _check_names(values.check_entries(_NEST, nest, _REMEDY), "", 1)
    return nest


def _check_names(entries: Mapping[str, Nested], outer: str, level: int) -> None:
    names = [name.lower() for name in entries]
    for name, entry in entries.items():
        problem = ""
        if "." in name or names.count(name.lower()) > 1:
            problem = "has a dot, or is there twice (upper and lower case are the same)"
        elif level > MAX_LEVELS:
            problem = f"is below the level {MAX_LEVELS}"
        if problem:
            remedy = f"nest tables in at most {MAX_LEVELS} levels, each field with a name of its own, without dots"
            raise values.parameter_problem(f"has the field '{outer}{name}', which {problem}", remedy)
        _check_names(entry.nest, f"{outer}{name}.", level + 1)


def iterate_entries(entries: Mapping[str, Nested], prefix: str = "") -> Iterator[tuple[str, Nested]]:
    """Every entry by the path of its field, outer ones first."""
    for name, entry in entries.items():
        yield f"{prefix}{name}", entry
        yield from iterate_entries(entry.nest, f"{prefix}{name}.")


def nested_tables(entries: Mapping[str, Nested]) -> list[str]:
    links = (link for _, entry in iterate_entries(entries) for link in (entry.through, entry) if link)
    return list(dict.fromkeys(link.table for link in links))


def with_nested_types(mapping: Mapping[str, Any], entries: Mapping[str, Nested]) -> dict[str, Any]:
    """Return the user's mapping, in which the entries of the type `nested` have it unless the user gives another."""
    merged = deepcopy(dict(mapping))
    try:
        for path in (path for path, entry in iterate_entries(entries) if entry.type == "nested"):
            fields, name = merged, path
            while name not in fields and (outer := next((each for each in fields if name.startswith(f"{each}.")), "")):
                fields, name = fields[outer].setdefault("properties", {}), name[len(outer) + 1 :]
            fields[name] = {"type": "nested", **fields.get(name, {})}
    except (AttributeError, TypeError):  # a field that is no object; it is refused as in any mapping
        return dict(mapping)
    return merged
