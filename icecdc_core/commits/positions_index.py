"""The index that stores positions and the commit log: its mapping, its creation, and which indexes are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opensearchpy import OpenSearch
from opensearchpy.exceptions import NotFoundError, RequestError

from icecdc_core.errors import PositionError
from icecdc_core.opensearch.physical_indexes import write_alias

_LONG = {"type": "long"}
_KEYWORD = {"type": "keyword"}
MAPPING: dict[str, Any] = {
    "dynamic": False,
    "properties": {
        "type": _KEYWORD,
        "kind": _KEYWORD,
        "index": _KEYWORD,
        "table": _KEYWORD,
        "snapshot_id": _LONG,
        "epoch": _LONG,
        "updated_at": {"type": "date"},
    },
}
"""The mapping of a positions index; OpenSearch guesses no field."""


def ensure_positions_index(client: OpenSearch, positions_index: str) -> None:
    """Create the positions index if there is none, and its write alias.

    All writes go through the write alias, which disappears with the index. So no write creates the index by accident,
    with a mapping that OpenSearch guesses.
    """
    alias, found = write_alias(positions_index), _indexes_of(client, positions_index)
    if not found:
        settings = {"number_of_shards": 1, "auto_expand_replicas": "0-1"}
        body = {"mappings": MAPPING, "settings": settings, "aliases": {alias: {}}}
        try:
            client.indices.create(index=positions_index, body=body)
        except RequestError as error:
            if error.error != "resource_already_exists_exception":
                raise
        found = _indexes_of(client, positions_index)
    if len(found) != 1:
        raise PositionError(
            f"'{positions_index}' is not one index but {sorted(found)}",
            subject="positions_index",
            value=positions_index,
            remedy="set positions_index to the name of one index",
        )
    ((name, entry),) = found.items()
    require_mapping(name, entry["mappings"])
    if alias not in entry["aliases"]:  # an older release created the index
        client.indices.update_aliases(body={"actions": [{"add": {"index": name, "alias": alias}}]})


def require_mapping(name: str, mappings: Mapping[str, Any]) -> None:
    """Check that a positions index has the mapping it was created with."""
    properties = mappings.get("properties") or {}
    wrong = [
        f"{field} is mapped as {properties[field].get('type')}"
        for field, mapped in MAPPING["properties"].items()
        if field in properties and properties[field].get("type") != mapped["type"]
    ]
    if str(mappings.get("dynamic")).lower() != "false":
        wrong.insert(0, "its mapping was guessed")
    if mappings.get("_source"):
        wrong.append("it does not store whole sources")
    if wrong:
        raise PositionError(
            f"icecdc did not create the positions index '{name}': {', '.join(wrong)}",
            subject="positions_index",
            value=name,
            remedy="restore it from a snapshot of the cluster, or delete it and run the exports; make sure that no "
            "index template changes its mapping",
        )


def _indexes_of(client: OpenSearch, name: str) -> dict[str, Any]:
    try:
        return dict(client.indices.get(index=name))
    except NotFoundError:
        return {}
