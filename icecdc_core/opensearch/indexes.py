"""The life of a physical index: created with an explicit mapping, loaded, published by an alias swap, deleted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from opensearchpy import OpenSearch
from opensearchpy.exceptions import RequestError

from icecdc_core.documents.field_types import VECTOR, has_field_type
from icecdc_core.documents.mapping import index_limits, index_mapping
from icecdc_core.documents.spec import spec_digest
from icecdc_core.errors import ConfigError, IndexConflictError, SchemaChangeError
from icecdc_core.opensearch.index_definitions import definition_errors, error_reason, major_version
from icecdc_core.opensearch.index_settings import flat_settings, new_index_settings
from icecdc_core.opensearch.physical_indexes import icecdc_meta, indexes_behind, physical_index, write_alias

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from icecdc_core.config import SyncConfig

# Settings that differ between two indexes that were created the same way.
_OWN_SETTINGS = frozenset({"uuid", "creation_date", "provided_name", "version"})


class CreatedIndex(NamedTuple):
    """A physical index right after its creation."""

    uuid: str
    digest: str


def unused_epoch(client: OpenSearch, index: str, epoch: int) -> int:
    """Return the epoch, or the next one whose physical index does not exist.

    If the positions were lost, an index of that epoch may exist. A new export could not overwrite its documents,
    because their versions are not lower.
    """
    while client.indices.exists(index=physical_index(index, epoch)):
        epoch += 1
    return epoch


def create_physical(
    client: OpenSearch,
    config: SyncConfig,
    physical: str,
    schema: StructType,
    run_id: str,
    loading: bool = True,
    identity: Mapping[str, Any] | None = None,
) -> CreatedIndex:
    """Create an index with an explicit mapping and its write alias."""
    mapping = index_mapping(schema, config.mapping, config.pipeline_fields)
    server_major = major_version(client) if has_field_type(config.mapping, VECTOR) else None
    settings = new_index_settings(config, _limits(config, schema), loading, server_major)
    meta = {"table": config.table, "index": config.index, "run": run_id, **(identity or {})}
    mapping["_meta"] = {"icecdc": {**meta, "spec": spec_digest(config.mapping, config.settings)}}
    body = {"settings": {"index": settings}, "mappings": mapping, "aliases": {write_alias(physical): {}}}
    with definition_errors(config):
        try:
            client.indices.create(index=physical, body=body)
        except RequestError as error:
            # An attempt whose answer was lost created it, or somebody else.
            if error.error != "resource_already_exists_exception":
                raise
    entry = indexes_behind(client, physical).get(physical, {})
    if icecdc_meta(entry).get("run") != run_id:
        raise IndexConflictError(
            f"Another program has just created '{physical}'",
            subject="index",
            value=config.index,
            remedy="find out who creates indexes of that name, then run again",
        )
    if (entry["mappings"].get("_source") or {"enabled": True}) != {"enabled": True}:
        client.indices.delete(index=physical, params={"ignore_unavailable": "true"})
        raise ConfigError(
            "An index template changes `_source`, so the index would not keep whole documents",
            subject="index",
            value=config.index,
            remedy=f"remove `_source` from the template for '{physical}' (GET /_index_template), then run again",
        )
    return CreatedIndex(entry["settings"]["index"]["uuid"], _digest(entry, write_alias(physical)))


def probe_new_index_digest(client: OpenSearch, config: SyncConfig, schema: StructType, run_id: str, epoch: int) -> str:
    """Create an empty physical index, delete it, and return its digest.

    Only the cluster knows which settings its templates and defaults add to a new index.
    """
    probe = physical_index(config.index, unused_epoch(client, config.index, epoch))
    created = create_physical(client, config, probe, schema, run_id)
    client.indices.delete(index=probe, params={"ignore_unavailable": "true"})
    return created.digest


def drop_unless_read(client: OpenSearch, config: SyncConfig, physical: str) -> None:
    """Delete a physical index unless it is behind the readers' alias or icecdc did not create it."""
    entry = indexes_behind(client, physical).get(physical, {})
    if icecdc_meta(entry).get("index") == config.index and config.index not in entry["aliases"]:
        client.indices.delete(index=physical, params={"ignore_unavailable": "true"})


def drop_leftovers(client: OpenSearch, config: SyncConfig, physical: str) -> None:
    """Delete the physical indexes that were created before this one and that readers do not see.

    A run that stalls after its commit may get here when another run has exported again. The index of that run is newer.
    """
    found = client.indices.get(index=f"{config.index}--*")
    if physical not in found:
        return
    for name, entry in found.items():
        is_earlier = _created_at(entry) < _created_at(found[physical])
        if is_earlier and icecdc_meta(entry).get("index") == config.index and config.index not in entry["aliases"]:
            client.indices.delete(index=name, params={"ignore_unavailable": "true"})


def evolve_mapping(client: OpenSearch, config: SyncConfig, physical: str, schema: StructType) -> None:
    """Add the fields of new columns to the mapping, and what the user's mapping may change of existing fields."""
    if limits := _limits(config, schema):
        client.indices.put_settings(index=physical, body={"index": limits})
    properties = index_mapping(schema, config.mapping, config.pipeline_fields)["properties"]
    meta = icecdc_meta(indexes_behind(client, physical).get(physical, {}))
    meta["spec"] = spec_digest(config.mapping, config.settings)
    meta |= {"mapping": bool(config.mapping), "settings": bool(config.settings)}
    try:
        client.indices.put_mapping(index=physical, body={"properties": properties, "_meta": {"icecdc": meta}})
    except RequestError as error:
        raise SchemaChangeError(
            f"The table's new columns cannot be added to the mapping of index '{physical}': {error_reason(error)}",
            subject="on_schema_change",
            value="fail",
            remedy="run the export (it builds a new index behind the alias, without downtime), "
            "or set on_schema_change=reexport",
        ) from error


def _created_at(entry: dict[str, Any]) -> int:
    return int(entry["settings"]["index"]["creation_date"])


def _limits(config: SyncConfig, schema: StructType) -> dict[str, int]:
    """The limits that the mapping needs and the user does not set."""
    given = flat_settings(config.settings)
    limits = index_limits(schema, config.mapping, config.pipeline_fields)
    return {name: value for name, value in limits.items() if name not in given}


def _digest(entry: dict[str, Any], own_alias: str) -> str:
    settings = {name: value for name, value in entry["settings"]["index"].items() if name not in _OWN_SETTINGS}
    mapping = {name: value for name, value in entry["mappings"].items() if name != "_meta"}
    aliases = {name: value for name, value in entry["aliases"].items() if name != own_alias}
    return hashlib.sha256(json.dumps([settings, mapping, aliases], sort_keys=True).encode()).hexdigest()
