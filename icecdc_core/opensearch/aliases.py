"""The aliases of a physical index: a new index takes over those of the old one in one atomic step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opensearchpy import OpenSearch

from icecdc_core.opensearch.index_definitions import typed_refusals
from icecdc_core.opensearch.index_settings import published_settings
from icecdc_core.opensearch.physical_indexes import indexes_behind, write_alias

if TYPE_CHECKING:
    from icecdc_core.config import SyncConfig


def publish(client: OpenSearch, config: SyncConfig, physical: str) -> None:
    """Make a loaded index searchable and move the readers' alias to it in one atomic step; may be repeated.

    The aliases that users gave the old index move with it, because the old index is deleted.

    Args:
        client: The client.
        config: The job's parameters.
        physical: The name of the index.

    Raises:
        ConfigError: OpenSearch refuses the user's settings.
    """
    with typed_refusals(config):
        client.indices.put_settings(index=physical, body={"index": published_settings(config)})
    client.indices.refresh(index=physical)
    actions: list[dict[str, Any]] = []
    for name, entry in indexes_behind(client, config.index).items():
        if name != physical:
            actions += _moved_aliases(name, entry, physical, config.index)
    actions.append({"add": {"index": physical, "alias": config.index}})
    client.indices.update_aliases(body={"actions": actions})


def _moved_aliases(old: str, entry: dict[str, Any], physical: str, index: str) -> list[dict[str, Any]]:
    """The actions that move the readers' alias and the aliases of users, with their filters and routings."""
    actions: list[dict[str, Any]] = [{"remove": {"index": old, "alias": index, "must_exist": False}}]
    for alias, options in entry["aliases"].items():
        if alias not in (index, write_alias(old)):
            actions.append({"remove": {"index": old, "alias": alias, "must_exist": False}})
            actions.append({"add": {"index": physical, "alias": alias, **options}})
    return actions
