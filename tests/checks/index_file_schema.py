"""The JSON schema of the index file, for editors and checks before a deployment; made from the parameters."""

from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from icecdc_core.config import SyncConfig
from icecdc_core.config.index_file import ONLY_IN_AN_INDEX

_VARIABLE = {"type": "string", "pattern": r"\$\{env:|^$"}  # an empty text means the default, too


class _Generator(GenerateJsonSchema):
    ignored_warning_kinds = {"non-serializable-default"}  # noqa: RUF012  # no mapping has a default worth showing


def index_file_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of an index file: pydantic's, where every value may be a text, too."""
    fields = SyncConfig.model_json_schema(schema_generator=_Generator)["properties"]
    parameters = {name: _parameter(field) for name, field in fields.items()}
    section = {"type": "object", "additionalProperties": False}
    parameters_of = {"$ref": "#/$defs/parameters"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "icecdc index file",
        "description": "The parameters of one or many indexes, and what they share.",
        "required": ["indexes"],
        **section,
        "properties": {
            "defaults": {
                "description": "Parameters of all indexes. An index may set them again; mappings are merged.",
                **parameters_of,
                "propertyNames": {"not": {"enum": [*ONLY_IN_AN_INDEX]}},
            },
            "indexes": {
                "description": "The indexes by name. The name is the default of index.",
                "type": "object",
                "minProperties": 1,
                "additionalProperties": {**parameters_of, "required": ["table"]},
            },
        },
        "$defs": {"parameters": {**section, "properties": parameters}},
    }


def _parameter(field: dict[str, Any]) -> dict[str, Any]:
    about = {"description": " ".join(field["description"].split())}
    about |= {"default": field["default"]} if field.get("default") not in (None, "") else {}
    value = {key: item for key, item in field.items() if key not in ("title", "description", "default")}
    if "enum" in value:
        return {**about, "anyOf": [value, _VARIABLE]}
    # The other rules of a value are about its own type alone.
    return {**about, **value} if "string" in value["type"] else {**about, **value, "type": [value["type"], "string"]}
