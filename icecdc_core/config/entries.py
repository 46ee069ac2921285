"""The entries of `nest` and `embed`: rows of other tables, and vectors of texts, that a document contains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from icecdc_core.config import values

MAX_LEVELS = 3

_FieldName = Annotated[str, Field(pattern=r"^[^.]*[^.\s][^.]*$")]
_Table = Annotated[str, Field(min_length=1), AfterValidator(values.check_table_name)]
_Expressions = Annotated[list[str], BeforeValidator(values.parse_expressions)]
_Given = Annotated[str, Field(pattern=r"\S")]


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
    shape: Literal["object", "array"] = Field(default="object", alias="as")
    through: Link | None = None
    select: _Expressions = Field(default_factory=list)
    order_by: _Expressions = Field(default_factory=list)
    type: Literal["object", "nested"] = "object"
    nest: dict[_FieldName, Nested] = Field(default_factory=dict)


class Embedding(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    text: _Given
    function: Annotated[str, Field(pattern=r"^\w+(\.\w+)*:\w+(\.\w+)*$")]
    model: _Given
    dimension: Annotated[int, Field(ge=1, le=16_000)]


NEST, EMBED = TypeAdapter(dict[_FieldName, Nested]), TypeAdapter(dict[_FieldName, Embedding])


def _check(entries: dict[str, Any], adapter: TypeAdapter[Any], remedy: str) -> dict[str, Any]:
    try:
        adapter.validate_python(entries)
    except ValidationError as error:
        found = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors(include_url=False))
        raise values.parameter_problem(f"is wrong at {'; '.join(found)}", remedy) from None
    return entries


check_embed = partial(
    _check,
    adapter=EMBED,
    remedy='give for each field {"text": "title", "function": "package.module:name", "model": "a name and version", '
    '"dimension": 384}; names without dots',
)


def check_nest(nest: dict[str, Any]) -> dict[str, Any]:
    remedy = (
        'give for each field {"table": "lake.shop.language", "alias": "l", "on": "l.language_id = f.language_id", '
        '"as": "object"}; as is object or array; through, select, row_filter, order_by, type and nest may be added; '
        f"in at most {MAX_LEVELS} levels, each field with a name of its own, without dots"
    )
    paths = [path for path, _ in iterate_entries(NEST.validate_python(_check(nest, NEST, remedy)))]
    lower_case = [path.lower() for path in paths]
    for path in paths:
        is_twice = lower_case.count(path.lower()) > 1
        if is_twice or path.count(".") >= MAX_LEVELS:
            twice = "is there twice (upper and lower case are the same)"
            which = twice if is_twice else f"is below the level {MAX_LEVELS}"
            raise values.parameter_problem(f"has the field '{path}', which {which}", remedy)
    return nest


def iterate_entries(entries: Mapping[str, Nested], prefix: str = "") -> Iterator[tuple[str, Nested]]:
    """Every entry by the path of its field, outer ones first."""
    for name, entry in entries.items():
        yield f"{prefix}{name}", entry
        yield from iterate_entries(entry.nest, f"{prefix}{name}.")


def nested_tables(entries: Mapping[str, Nested]) -> list[str]:
    links = (link for _, entry in iterate_entries(entries) for link in (entry.through, entry) if link)
    return list(dict.fromkeys(link.table for link in links))


def with_entries(
    mapping: Mapping[str, Any], nest: Mapping[str, Nested], embed: Mapping[str, Embedding]
) -> dict[str, Any]:
    """Return the user's mapping with `knn_vector` for each vector, and `nested` where the user gives no other type."""
    merged = deepcopy(dict(mapping))
    try:
        for path in (path for path, entry in iterate_entries(nest) if entry.type == "nested"):
            fields, name = merged, path
            while name not in fields and (outer := next((each for each in fields if name.startswith(f"{each}.")), "")):
                fields, name = fields[outer].setdefault("properties", {}), name[len(outer) + 1 :]
            fields[name] = {"type": "nested", **fields.get(name, {})}
        for name, entry in embed.items():
            merged[name] = {**merged.get(name, {}), "type": "knn_vector", "dimension": entry.dimension}
    except (AttributeError, TypeError):  # a field that is no object; it is refused as in any mapping
        return dict(mapping)
    return merged
