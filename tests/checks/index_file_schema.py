"""The JSON schemas of the files of indexes and ingests, for editors and checks; made from the parameters."""

from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from icecdc_core.config import SyncConfig
from icecdc_core.config.index_file import INDEXES, INGESTS, FileKind
from icecdc_core.ingest.config import OF_A_TABLE, IngestConfig

_VARIABLE = {"type": "string", "pattern": r"\$\{env:|^$"}  # an empty text means the default, too


class _Generator(GenerateJsonSchema):
    ignored_warning_kinds = {"non-serializable-default"}  # noqa: RUF012  # no mapping has a default worth showing


def index_file_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of an index file: pydantic's, where every value may be a text, too."""
    return _schema(SyncConfig, INDEXES, ["table"])


def ingest_file_schema() -> dict[str, Any]:
    schema = _schema(IngestConfig, INGESTS, [])
    own = {"$ref": "#/$defs/parameters", "propertyNames": {"enum": [*OF_A_TABLE]}}
    schema["$defs"]["parameters"]["properties"]["tables"]["additionalProperties"] = own
    return schema


def _schema(kind: Any, of: FileKind, required: list[str]) -> dict[str, Any]:
    fields = kind.model_json_schema(schema_generator=_Generator)["properties"]
    parameters = {name: _parameter(field) for name, field in fields.items()}
    section = {"type": "object", "additionalProperties": False}
    parameters_of = {"$ref": "#/$defs/parameters"}
    shared = f"Parameters of all {of.section}. An {of.entry} may set them again; mappings are merged."
    named = f"The {of.section} by name. The name is the default of {of.name}."
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"icecdc {of.entry} file",
        "description": f"The parameters of one or many {of.section}, and what they share.",
        "required": [of.section],
        **section,
        "properties": {
            "defaults": {
                "description": shared,
                **parameters_of,
                "propertyNames": {"not": {"enum": [*of.only_in_one]}},
            },
            of.section: {
                "description": named,
                "type": "object",
                "minProperties": 1,
                "additionalProperties": {**parameters_of, **({"required": required} if required else {})},
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
