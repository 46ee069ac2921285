"""The aliases of a physical index: a new index takes over those of the old one in one atomic step."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from opensearchpy import OpenSearch
from opensearchpy.exceptions import NotFoundError

from icecdc_core.errors import FencedError
from icecdc_core.opensearch.index_definitions import definition_errors
from icecdc_core.opensearch.index_settings import published_settings
from icecdc_core.opensearch.physical_indexes import indexes_behind, write_alias

if TYPE_CHECKING:
    from icecdc_core.config import SyncConfig


def indexes_of_readers(client: OpenSearch, index: str) -> frozenset[str]:
    """Return the names of the physical indexes that readers see."""
    return frozenset(indexes_behind(client, index))


def publish_index(
    client: OpenSearch, config: SyncConfig, physical: str, expected: Collection[str] | None = None
) -> None:
    """Make a loaded index searchable and move the readers' alias to it in one atomic step; may be repeated.

    The aliases that users gave the old index move with it, because the old index is deleted.
    """
    with definition_errors(config):
        client.indices.put_settings(index=physical, body={"index": published_settings(config)})
    client.indices.refresh(index=physical)
    actions: list[dict[str, Any]] = []
    seen = indexes_behind(client, config.index)
    if expected is not None and seen.keys() - {physical} - {*expected}:
        raise _fenced_error(config, sorted(seen))
    for name, entry in seen.items():
        if name != physical:
            actions += _moved_aliases(name, entry, physical, config.index)
    # The write alias is the condition: an export that takes over removes it with the alias of readers. So a stalled run
    # whose index readers have not seen, or see no more, cannot put it beside the one that they see now.
    own = {"index": physical, "alias": write_alias(physical)}
    actions += [{"remove": {**own, "must_exist": True}}, {"add": own}]
    actions.append({"add": {"index": physical, "alias": config.index}})
    try:
        client.indices.update_aliases(body={"actions": actions})
    except NotFoundError as error:
        # The request is sent again if its answer is lost, and then finds nothing left to move.
        if indexes_behind(client, config.index).keys() != {physical}:
            raise _fenced_error(config, sorted(seen)) from error


def _fenced_error(config: SyncConfig, seen: list[str]) -> FencedError:
    return FencedError(
        f"Another run has moved the alias '{config.index}' while this one was stalled",
        subject="index",
        value=seen,
        remedy="nothing is lost, the other run has exported; raise lease_seconds if this run was only paused",
    )


def _moved_aliases(old: str, entry: dict[str, Any], physical: str, index: str) -> list[dict[str, Any]]:
    """The actions that move the readers' alias and the aliases of users, with their filters and routings."""
    actions: list[dict[str, Any]] = [
        {"remove": {"index": old, "alias": index, "must_exist": True}},
        {"remove": {"index": old, "alias": write_alias(old), "must_exist": False}},
    ]
    for alias, options in entry["aliases"].items():
        if alias not in (index, write_alias(old)):
            actions.append({"remove": {"index": old, "alias": alias, "must_exist": False}})
            actions.append({"add": {"index": physical, "alias": alias, **options}})
    return actions
