"""Physical indexes behind the alias: created explicitly, written through an alias of their own, swapped at the end."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from opensearchpy import OpenSearch
from opensearchpy.exceptions import NotFoundError, RequestError

from icecdc_core.documents.mapping import index_limits, index_mapping
from icecdc_core.errors import IndexConflictError, IndexNotFoundError, SchemaChangeError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from icecdc_core.config import SyncConfig

# How long a deleted document's version is remembered. A write that comes later than that could bring the
# document back, so it must be longer than any task can linger; OpenSearch's own default is one minute.
_GC_DELETES = "1h"
# What lets an alias show only a part of its index.
_NARROWING = {"filter", "search_routing"}
# Settings that differ between two indexes made the same way.
_OWN_SETTINGS = frozenset({"uuid", "creation_date", "provided_name", "version"})


def physical_index(index: str, epoch: int) -> str:
    """Return the name of the index that an export with this epoch builds behind the alias."""
    return f"{index}--{epoch:06d}"


def write_alias(physical: str) -> str:
    """Return the alias through which a physical index is written; it dies with the index."""
    return f"{physical}--write"


class Created(NamedTuple):
    """A physical index right after its creation: its identity, and a digest of its settings, mapping and aliases."""

    uuid: str
    digest: str


def require_ours(client: OpenSearch, config: SyncConfig) -> None:
    """Check that nothing but this table's index stands where the alias goes.

    Raises:
        IndexConflictError: An index or alias of that name exists and was not made by icecdc, or for another table.
    """
    index = config.index
    found = _behind(client, index)
    foreign = [name for name, entry in found.items() if name == index or _meta(entry).get("index") != index]
    if foreign:
        raise IndexConflictError(
            f"'{index}' exists and was not made by icecdc ({', '.join(sorted(foreign))})",
            subject="index",
            value=index,
            remedy="choose another index name, or delete that index or alias if it is no longer needed",
        )
    for entry in found.values():
        require_table(config, str(_meta(entry).get("table")))


def require_table(config: SyncConfig, table: str) -> None:
    """Check that the index is kept equal to no other table.

    Raises:
        IndexConflictError: It is.
    """
    if table != config.table:
        raise IndexConflictError(
            f"The index '{config.index}' is kept equal to another table, {table}",
            subject="index",
            value=config.index,
            remedy=f"give the index of {config.table} another name",
        )


def unused_epoch(client: OpenSearch, index: str, epoch: int) -> int:
    """Return this epoch or the next one whose physical index does not exist.

    One exists already when the positions were lost. Its documents have versions that a new export would not beat.
    """
    while client.indices.exists(index=physical_index(index, epoch)):
        epoch += 1
    return epoch


def create_physical(
    client: OpenSearch, config: SyncConfig, physical: str, schema: StructType, run_id: str, loading: bool = True
) -> Created:
    """Create an index with an explicit mapping and its write alias.

    Args:
        client: The client.
        config: The job's parameters.
        physical: The name of the index.
        schema: The columns of a document.
        run_id: The run, which the index keeps: so its own index differs from one that somebody else created.
        loading: Whether the index is loaded before anybody reads it.

    Returns:
        What proves later that it is still the same index, created with the settings that would apply then.

    Raises:
        IndexConflictError: Somebody else created an index of that name.
    """
    settings: dict[str, Any] = {
        "number_of_shards": config.number_of_shards,
        "number_of_replicas": 0 if loading else config.number_of_replicas,
        "gc_deletes": _GC_DELETES,
        **index_limits(schema),
    }
    if loading:
        # Nobody reads it yet: neither refreshes nor copies are worth their cost until it is complete.
        settings["refresh_interval"] = "-1"
    mapping = index_mapping(schema)
    mapping["_meta"] = {"icecdc": {"table": config.table, "index": config.index, "run": run_id}}
    body = {"settings": {"index": settings}, "mappings": mapping, "aliases": {write_alias(physical): {}}}
    try:
        client.indices.create(index=physical, body=body)
    except RequestError as error:
        # Made by an attempt whose answer was lost, or by somebody else.
        if error.error != "resource_already_exists_exception":
            raise
    entry = _behind(client, physical).get(physical, {})
    if _meta(entry).get("run") != run_id:
        raise IndexConflictError(
            f"Somebody else created '{physical}' just now",
            subject="index",
            value=config.index,
            remedy="find out who creates indexes of that name, then run again",
        )
    return Created(entry["settings"]["index"]["uuid"], _digest(entry, write_alias(physical)))


def index_uuid(client: OpenSearch, physical: str) -> str:
    """Return the identity of a physical index; empty when there is none of that name."""
    entry = _behind(client, physical).get(physical, {})
    return str(entry["settings"]["index"]["uuid"]) if entry else ""


def require_same_index(client: OpenSearch, config: SyncConfig, physical: str, uuid: str) -> None:
    """Check that the index a begun export created is still the one that its documents went to.

    Raises:
        IndexNotFoundError: It was deleted, or created again.
    """
    if index_uuid(client, physical) != uuid:
        raise IndexNotFoundError(
            f"The index '{physical}' was deleted or created again while the export wrote to it",
            subject="index",
            value=config.index,
            remedy="run the export again; it starts over with a new index",
        )


def digest_of_new_index(client: OpenSearch, config: SyncConfig, schema: StructType, run_id: str, epoch: int) -> str:
    """Return the digest that a physical index created now has.

    Only the cluster knows what its templates and defaults add to what is asked for, so an empty index is created and
    deleted again.
    """
    probe = physical_index(config.index, unused_epoch(client, config.index, epoch))
    created = create_physical(client, config, probe, schema, run_id)
    client.indices.delete(index=probe, params={"ignore_unavailable": "true"})
    return created.digest


def drop_unread(client: OpenSearch, config: SyncConfig, physical: str) -> None:
    """Delete a physical index of ours that no reader sees; one behind the readers' alias stays."""
    entry = _behind(client, physical).get(physical, {})
    if _meta(entry).get("index") == config.index and config.index not in entry["aliases"]:
        client.indices.delete(index=physical, params={"ignore_unavailable": "true"})


def publish(client: OpenSearch, config: SyncConfig, physical: str) -> None:
    """End the loading of an index and let the alias point to it, in one atomic step; may be repeated."""
    client.indices.put_settings(
        index=physical,
        body={"index": {"number_of_replicas": config.number_of_replicas, "refresh_interval": None}},
    )
    client.indices.refresh(index=physical)
    try:
        holders = list(client.indices.get_alias(name=config.index))
    except NotFoundError:
        holders = []
    actions: list[dict[str, Any]] = [
        {"remove": {"index": name, "alias": config.index, "must_exist": False}} for name in holders if name != physical
    ]
    actions.append({"add": {"index": physical, "alias": config.index}})
    client.indices.update_aliases(body={"actions": actions})


def drop_leftovers(client: OpenSearch, config: SyncConfig, keep: set[str]) -> None:
    """Delete physical indexes of ours that no position refers to any more."""
    for name, entry in client.indices.get(index=f"{config.index}--*").items():
        if name not in keep and _meta(entry).get("index") == config.index:
            client.indices.delete(index=name, params={"ignore_unavailable": "true"})


def evolve_mapping(client: OpenSearch, physical: str, schema: StructType) -> None:
    """Add the mapping of columns that are new; known ones stay as they are.

    Raises:
        SchemaChangeError: A new column has the name of one that the index knows with another type, from a batch that
            was never committed.
    """
    if limits := index_limits(schema):
        client.indices.put_settings(index=physical, body={"index": limits})
    try:
        client.indices.put_mapping(index=physical, body={"properties": index_mapping(schema)["properties"]})
    except RequestError as error:
        raise SchemaChangeError(
            f"The mapping of index '{physical}' cannot take the table's new columns: {_reason(error)}",
            subject="on_schema_change",
            value="fail",
            remedy="run the export (it builds a new index behind the alias, without downtime), "
            "or set on_schema_change=reexport",
        ) from error


def _reason(error: RequestError) -> str:
    details = error.info.get("error") if isinstance(error.info, dict) else None
    return str(details.get("reason")) if isinstance(details, dict) else str(error)


def require_present(client: OpenSearch, index: str, physical: str, exported: str = "") -> None:
    """Check that a committed index is still there and is what readers see through the alias.

    Args:
        client: The client.
        index: The alias of the readers.
        physical: The index that the last commit wrote.
        exported: The index of a begun export; it moves the alias to that before it commits.

    Raises:
        IndexNotFoundError: It was deleted, or its aliases were.
        IndexConflictError: Readers see something else, or only a part of it.
    """
    seen = _behind(client, index)
    ours = seen.get(physical)
    if write_alias(physical) not in ours["aliases"] if ours else not client.indices.exists(index=physical):
        raise IndexNotFoundError(
            f"The index '{physical}' behind '{index}' is gone, though it has a position",
            subject="index",
            value=index,
            remedy="run the export again; it builds a new index behind the alias",
        )
    remedy = f"let the alias '{index}' point to '{physical}' alone, without filter and routing (POST /_aliases)"
    if not seen:
        raise IndexNotFoundError(
            f"The alias '{index}', through which readers see '{physical}', is gone",
            subject="index",
            value=index,
            remedy=f"{remedy}, or run the export again",
        )
    if len(seen) != 1 or not seen.keys() <= {physical, exported or physical}:
        what = "an index of that name" if index in seen else ", ".join(sorted(seen))
        raise IndexConflictError(
            f"Readers of '{index}' see {what} instead of '{physical}'", subject="index", value=index, remedy=remedy
        )
    if any(entry["aliases"][index].keys() & _NARROWING for entry in seen.values()):
        raise IndexConflictError(
            f"Readers of '{index}' see only a part of '{physical}': the alias has a filter or a routing",
            subject="index",
            value=index,
            remedy=f"{remedy}, or run the export again",
        )


def _behind(client: OpenSearch, index: str) -> dict[str, dict[str, Any]]:
    """The physical indexes behind a name, with their aliases, mappings and settings; empty when there is none."""
    try:
        return dict(client.indices.get(index=index))
    except NotFoundError:
        return {}


def _meta(entry: dict[str, Any]) -> dict[str, Any]:
    meta = (entry.get("mappings") or {}).get("_meta") or {}
    return dict(meta.get("icecdc") or {})


def _digest(entry: dict[str, Any], own_alias: str) -> str:
    settings = {name: value for name, value in entry["settings"]["index"].items() if name not in _OWN_SETTINGS}
    mapping = {name: value for name, value in entry["mappings"].items() if name != "_meta"}
    aliases = {name: value for name, value in entry["aliases"].items() if name != own_alias}
    return hashlib.sha256(json.dumps([settings, mapping, aliases], sort_keys=True).encode()).hexdigest()
