"""Problems of the ingest's parameters that do not go together, as sentences with the remedy; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import PydanticCustomError

from icecdc_core.config.parsing.names import split_table_name
from icecdc_core.ingest.parameters import parse_routes

# Formats whose records name their schema by its id in a registry.
_WITH_REGISTRY = ("avro", "json_schema", "debezium_avro")


def combination_problems(given: Mapping[str, Any]) -> list[str]:
    """Return the problems of parameters that do not go together."""
    route_by = str(given.get("route_by") or "table").lower()
    problems = []
    if bool(given.get("topics")) == bool(given.get("topic_pattern")):
        problems.append("topics: give either topics or topic_pattern. Remedy: name the topics.")
    needed = {"table": ["table"], "regex": ["routes"], "field": ["route_field", "namespace"], "topic": ["namespace"]}
    for name in needed.get(route_by, []):
        if not given.get(name):
            problems.append(f"{name}: missing for route_by={route_by!r}. Remedy: set it.")
    if given.get("table") and route_by != "table":
        problems.append(f"table: given together with route_by={route_by!r}. Remedy: use routes or namespace instead.")
    if given.get("routes") and route_by != "regex":
        problems.append(f"routes: given together with route_by={route_by!r}. Remedy: set route_by=regex.")
    kind = str(given.get("format") or "json").lower()
    if kind in _WITH_REGISTRY and not given.get("schema_registry_url"):
        problems.append(f"schema_registry_url: missing for format={kind!r}. Remedy: set it, or choose another format.")
    if given.get("ordering_column") and str(given.get("mode") or "append").lower() == "append":
        problems.append("ordering_column: given for mode='append'. Remedy: set mode=upsert, or leave it out.")
    if given.get("schema_registry_password") and not given.get("schema_registry_username"):
        problems.append("schema_registry_username: missing, though the password is set. Remedy: set it.")
    problems += _catalog_problems(given)
    return problems


def _catalog_problems(given: Mapping[str, Any]) -> list[str]:
    """Every table must be in the one catalog that is configured."""
    named = [given.get(name) for name in ("table", "commit_log_table", "dead_letter_table")]
    try:
        named += list(parse_routes(given.get("routes") or {}))
        catalogs = {split_table_name(name)[0] for name in named if name}
        if given.get("namespace"):
            catalogs.add(split_table_name(f"{given['namespace']}.t")[0])
    except (PydanticCustomError, TypeError):
        return []  # reported with the parameter itself
    if len(catalogs) > 1:
        return [f"namespace: the tables are in several catalogs: {', '.join(sorted(catalogs))}. Remedy: use one."]
    return []
