"""The entries of `embed`: fields with the vectors that a model makes of texts."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from icecdc_core.config import values

_REMEDY = (
    'give for each field {"text": "title", "function": "package.module:name", "model": "a name and version", '
    '"dimension": 384}; names without dots'
)
_Given = Annotated[str, Field(pattern=r"\S")]


class Embedding(BaseModel):
    """An entry of `embed`: a text of the document, and the model that makes a vector of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: _Given
    function: Annotated[str, Field(pattern=r"^\w+(\.\w+)*:\w+(\.\w+)*$")]
    model: _Given
    dimension: Annotated[int, Field(ge=1, le=16_000)]


_EMBED = TypeAdapter(dict[Annotated[str, Field(pattern=r"^[^.]*[^.\s][^.]*$")], Embedding])


def parse_embed(embed: Mapping[str, Any]) -> dict[str, Embedding]:
    return _EMBED.validate_python(embed)


def check_embed(embed: dict[str, Any]) -> dict[str, Any]:
    values.check_entries(_EMBED, embed, _REMEDY)
    return embed


def with_vector_fields(mapping: Mapping[str, Any], entries: Mapping[str, Embedding]) -> dict[str, Any]:
    """Return the user's mapping, in which each vector is a `knn_vector`; its other options, as `method`, stay."""
    merged = dict(mapping)
    for name, entry in entries.items():
        given = merged.get(name, {})
        if isinstance(given, Mapping):  # else it is refused as any mapping is
            merged[name] = {**given, "type": "knn_vector", "dimension": entry.dimension}
    return merged
