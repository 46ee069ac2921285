"""The JSON schema of the index file, made from the parameters, for editors and checks before a deployment; pure."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from icecdc_core.config.index_file import ONLY_IN_AN_INDEX
from icecdc_core.config.model import ParameterModel
from icecdc_core.config.sync import SyncConfig
from icecdc_core.config.values import UNIT_SECONDS

_VARIABLE = r"\$\{env:|^$"  # an empty text means the default, too
_LAG = rf"^ *[0-9]+(\.[0-9]+)? *({'|'.join(UNIT_SECONDS)})? *$|{_VARIABLE}"
_TEXTS_FOR = {
    "integer": rf"^ *[-+]?[0-9]+ *$|{_VARIABLE}",
    "number": rf"^ *[-+]?[0-9]+(\.[0-9]+)? *$|{_VARIABLE}",
    "boolean": rf"^ *([Tt]rue|TRUE|[Ff]alse|FALSE|[Yy]es|YES|[Nn]o|NO|[Oo]n|ON|[Oo]ff|OFF|0|1) *$|{_VARIABLE}",
    "array": "",
    "object": r"^ *\{|^$",
}
"""The texts that are read as a value of another type."""
_INDEX = r'^[^A-Z\\/*?"<>|\s,#:_+-][^A-Z\\/*?"<>|\s,#:]*$'
_TABLE = r"^([^`.\s]+|`([^`]|``)+`)(\.([^`.\s]+|`([^`]|``)+`)){2,}$"
_REFERENCE = r"^(env:[A-Za-z_][A-Za-z0-9_]*|secret:[^/\s]+/\S+)?$"
_PATTERNS = {
    "table": _TABLE,
    "index": _INDEX,
    "positions_index": _INDEX,
    "dead_letter_table": _TABLE,
    "opensearch_url": r"^https?://[^@\s]+$",
    "metrics_url": r"^https?://[^@\s]+$",
}


class _Generator(GenerateJsonSchema):
    ignored_warning_kinds = {"non-serializable-default"}  # noqa: RUF012  # no mapping has a default worth showing


def index_file_schema(kind: type[ParameterModel] = SyncConfig) -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of an index file.

    A file that the schema accepts can still have parameters that do not fit together. A parameter may be a text
    wherever another type is expected, and a text may hold `${env:NAME}`.
    """
    fields = kind.model_json_schema(schema_generator=_Generator)["properties"]
    defaults = {parameter.name: parameter.default for parameter in kind.parameters()}
    parameters = {
        name: _parameter(name, field, defaults[name])
        for name, field in fields.items()
        if not field["description"].startswith("Reserved")
    }
    shared = {name: {"$ref": f"#/$defs/index/properties/{name}"} for name in parameters if name not in ONLY_IN_AN_INDEX}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "icecdc index file",
        "description": "The parameters of one or many indexes, and what they share.",
        "type": "object",
        "required": ["indexes"],
        "additionalProperties": False,
        "properties": {
            "defaults": {
                "description": "Parameters of all indexes. An index may set them again; mappings are merged.",
                "type": "object",
                "additionalProperties": False,
                "properties": shared,
            },
            "indexes": {
                "description": "The indexes by name. The name is the default of index.",
                "type": "object",
                "minProperties": 1,
                "additionalProperties": {"$ref": "#/$defs/index"},
            },
        },
        "$defs": {
            "index": {
                "type": "object",
                "required": ["table"],
                "additionalProperties": False,
                "properties": parameters,
            }
        },
    }


def _parameter(name: str, field: dict[str, Any], default: Any) -> dict[str, Any]:
    """The schema of a parameter: the values of its type, and the texts that are read as such."""
    about = {"description": field["description"]}
    if default not in ("", [], {}):
        about["default"] = default
    if field.get("examples"):
        about["examples"] = field["examples"]
    value = {key: item for key, item in field.items() if key not in ("title", "description", "default", "examples")}
    if "anyOf" in value:  # types that only Python has are left out
        (value,) = value["anyOf"]
    if name == "opensearch_password":
        return {**about, "type": "string", "pattern": _REFERENCE}  # a variable must not be written into it
    if "enum" in value or "const" in value:
        choices = value.get("enum") or [value["const"]]
        return {**about, "anyOf": [{"enum": choices}, {"type": "string", "pattern": _VARIABLE}]}
    if name in _PATTERNS:
        return {**about, "type": "string", "pattern": f"{_PATTERNS[name]}|{_VARIABLE}"}
    if name == "start_from":
        return {**about, "type": ["string", "integer"]}
    if value["type"] == "string":
        return {**about, **value}
    text: dict[str, Any] = {"type": "string"}
    if pattern := _TEXTS_FOR[value["type"]]:
        text["pattern"] = _LAG if name == "target_lag" else pattern
    return {**about, "anyOf": [value, text]}
