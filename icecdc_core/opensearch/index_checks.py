"""Checks of the physical index and the readers' alias before a run reads or writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opensearchpy import OpenSearch

from icecdc_core.errors import IndexConflictError, IndexNotFoundError
from icecdc_core.opensearch.physical_indexes import icecdc_meta, index_uuid, indexes_behind, write_alias

if TYPE_CHECKING:
    from icecdc_core.config import SyncConfig

# Properties of an alias that hide a part of its index from readers.
_NARROWING = {"filter", "search_routing"}


def require_own_alias(client: OpenSearch, config: SyncConfig) -> None:
    """Check that the name of the alias is free or belongs to this table's index."""
    index = config.index
    found = indexes_behind(client, index)
    foreign = [name for name, entry in found.items() if name == index or icecdc_meta(entry).get("index") != index]
    if foreign:
        raise IndexConflictError(
            f"'{index}' exists and was not made by icecdc ({', '.join(sorted(foreign))})",
            subject="index",
            value=index,
            remedy="choose another index name, or delete that index or alias if it is no longer needed",
        )
    if not config.replace_index:
        for entry in found.values():
            require_index_of_table(config, str(icecdc_meta(entry).get("table")))


def require_index_of_table(config: SyncConfig, table: str) -> None:
    """Check that the index belongs to the table of the job."""
    if table != config.table:
        raise IndexConflictError(
            f"The index '{config.index}' is in sync with another table, {table}",
            subject="index",
            value=config.index,
            remedy=f"give table={table}, or give the index of {config.table} another name",
        )


def require_same_index(client: OpenSearch, config: SyncConfig, physical: str, uuid: str) -> None:
    """Check that the index is still the one that the begun export created."""
    if index_uuid(client, physical) != uuid:
        raise IndexNotFoundError(
            f"The index '{physical}' was deleted or created again while the export wrote to it",
            subject="index",
            value=config.index,
            remedy="run the export again; it starts over with a new index",
        )


def require_readable_index(client: OpenSearch, index: str, physical: str, exported: str = "") -> None:
    """Check that a committed index exists and that readers see all of it through the alias."""
    seen = indexes_behind(client, index)
    ours = seen.get(physical)
    if write_alias(physical) not in ours["aliases"] if ours else not client.indices.exists(index=physical):
        raise IndexNotFoundError(
            f"The index '{physical}' behind '{index}' is gone, although it has a position",
            subject="index",
            value=index,
            remedy="run the export again; it builds a new index behind the alias",
        )
    remedy = f"make the alias '{index}' point only to '{physical}', without filter and routing (POST /_aliases)"
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
