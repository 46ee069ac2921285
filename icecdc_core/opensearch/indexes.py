"""The life of a physical index: created with an explicit mapping, loaded, published by an alias swap, deleted."""

import hashlib
import json
import logging
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

import pyarrow as pa
from opensearchpy import OpenSearch, exceptions
from pyspark.sql.types import StructType

from icecdc_core.config import SyncConfig
from icecdc_core.documents.bulk_lines import index_with_suffix, suffix_of, write_alias as write_alias
from icecdc_core.documents.mapping import index_limits, index_mapping, sample_document
from icecdc_core.documents.spec import spec_digest
from icecdc_core.errors import ConfigError, FencedError, IndexConflictError, IndexNotFoundError
from icecdc_core.logs import event
from icecdc_core.opensearch import index_settings
from icecdc_core.opensearch.bulk import ANY_VERSION, BulkResult, bulk_requests, count_outcomes
from icecdc_core.opensearch.client import exception_reason, without_retries


def physical_index(index: str, epoch: int) -> str:
    return f"{index}--{epoch:06d}"


def with_suffixes(config: SyncConfig, physical: str) -> str:
    """Return the name for requests to a physical index and, with `index_column`, to those with suffixes."""
    # Not `physical*`: the epoch of another export may begin with the digits of this one.
    return f"{physical},{physical}-*" if config.index_column else physical


def index_uuid(client: OpenSearch, physical: str) -> str:
    entry = indexes_behind(client, physical).get(physical)
    return uuid_of(entry) if entry else ""


def is_intact(client: OpenSearch, uuids: Mapping[str, str]) -> bool:
    """Return whether the indexes are there, open and the same; a position of an earlier release may know no uuid."""
    for physical, created in uuids.items():
        entry = indexes_behind(client, physical).get(physical)
        is_closed = entry is not None and "verified_before_close" in entry["settings"]["index"]
        if entry is None or is_closed or created not in ("", uuid_of(entry)):
            return False
    return True


def uuid_of(entry: Mapping[str, Any]) -> str:
    """The identity of a physical index. One that was restored while it was closed keeps its uuid, not its history."""
    settings = entry["settings"]["index"]
    return str(settings["uuid"] + settings.get("history", {}).get("uuid", ""))


def count_operations(client: OpenSearch, physical: str) -> int:
    """Return how many writes an index has seen, the refused ones included: OpenSearch's own counters."""
    answer = client.indices.stats(index=physical, metric="indexing")["_all"]["primaries"]["indexing"]
    return sum(int(answer[name]) for name in ("index_total", "index_failed", "delete_total"))


def indexes_behind(client: OpenSearch, index: str) -> dict[str, dict[str, Any]]:
    try:
        return dict(client.indices.get(index=index))
    except exceptions.NotFoundError:
        return {}


def create_index(client: OpenSearch, index: str, body: Mapping[str, Any]) -> None:
    """Create an index; one that is there was created by somebody else, or by an attempt whose answer was lost."""
    try:
        client.indices.create(index=index, body=body)
    except exceptions.RequestError as error:
        if error.error != "resource_already_exists_exception":
            raise


def icecdc_meta(entry: dict[str, Any]) -> dict[str, Any]:
    """Return what icecdc stored in the mapping of an index, its own name too (a copy has another one); else nothing."""
    return dict(entry.get("mappings", {}).get("_meta", {}).get("icecdc") or {})


def epochs_of(index: str, found: Mapping[str, dict[str, Any]]) -> dict[str, int]:
    """Return which of the indexes found are physical indexes of this one, and the epoch of the export of each."""
    epochs = {}
    for name, entry in found.items():
        # Another index may be named `{index}--eu`, and a trial index belongs to its run.
        epoch = name.removeprefix(f"{index}--").partition("-")[0]
        if epoch.isdecimal() and _is_made_for(index, name, entry):
            epochs[name] = int(epoch)
    return epochs


def _is_made_for(index: str, name: str, entry: dict[str, Any]) -> bool:
    meta = icecdc_meta(entry)
    return (meta.get("index"), meta.get("name", name)) == (index, name)


def unused_epoch(client: OpenSearch, index: str, epoch: int) -> int:
    """Return the epoch, or the next one whose physical index does not exist: its documents could not be overwritten."""
    taken = client.indices.get(index=f"{index}--*", params={"expand_wildcards": "all"})
    return next(each for each in count(epoch) if physical_index(index, each) not in taken)


def index_definition(
    client: OpenSearch, config: SyncConfig, schema: StructType, loading: bool = True
) -> dict[str, dict[str, Any]]:
    needed = _limits(config, schema) | index_settings.vector_settings(client, config)
    mapping = index_mapping(schema, config.full_mapping, config.pipeline_fields)
    if config.routing:
        mapping["_routing"] = {"required": True}
    return {"settings": {"index": index_settings.new_index_settings(config, needed, loading)}, "mappings": mapping}


def definition_digest(client: OpenSearch, config: SyncConfig, schema: StructType) -> str:
    return hashlib.sha256(json.dumps(index_definition(client, config, schema), sort_keys=True).encode()).hexdigest()


def create_physical(
    client: OpenSearch,
    config: SyncConfig,
    physical: str,
    schema: StructType,
    run_id: str,
    loading: bool = True,
    identity: Mapping[str, Any] | None = None,
) -> str:
    """Create an index with its write alias; return its uuid."""
    body = index_definition(client, config, schema, loading)
    meta = {"table": config.table, "index": config.index, "name": physical, "run": run_id, **(identity or {})}
    body["mappings"]["_meta"] = {"icecdc": {**meta, "spec": spec_digest(config.full_mapping, config.settings)}}
    body["aliases"] = {write_alias(physical): {}}
    with index_settings.definition_errors(config):
        create_index(client, physical, body)
    entry = indexes_behind(client, physical).get(physical, {})
    if icecdc_meta(entry).get("run") != run_id:
        raise IndexConflictError(
            f"Another program has just created '{physical}'",
            subject="index",
            value=config.index,
            remedy="find out who creates indexes of that name, then run again",
        )
    made, asked = entry["mappings"], body["mappings"]
    changed = [f"`{name}`" for name in ("_source", "_routing") if made.get(name) != asked.get(name)]
    changed += [f"the alias '{config.index}'"] if config.index in entry["aliases"] else []
    try:
        index_settings.check_settings(entry["settings"]["index"])
        if changed:
            raise ConfigError(
                f"An index template changes {' and '.join(changed)} of a new index",
                subject="index",
                value=config.index,
                remedy=f"remove that from the template for '{physical}' (GET /_index_template), then run again",
            )
    except ConfigError:
        _delete(client, physical)
        raise
    return uuid_of(entry)


def create_suffixed(
    client: OpenSearch,
    config: SyncConfig,
    indexes: Collection[str],
    schema: StructType,
    run_id: str,
    loading: bool = True,
    identity: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    return {
        name: index_uuid(client, name) or create_physical(client, config, name, schema, run_id, loading, identity)
        for name in indexes
    }


def show_suffixed(client: OpenSearch, config: SyncConfig, physical: str, indexes: Collection[str]) -> None:
    """Let readers see indexes with suffixes beside the index that they see."""
    actions = [*_unless_taken_over(physical), *({"add": {"index": name, "alias": config.index}} for name in indexes)]
    try:
        client.indices.update_aliases(body={"actions": actions})
    except exceptions.NotFoundError as error:
        raise _fenced(config, []) from error


def _unless_taken_over(physical: str) -> list[dict[str, Any]]:
    """The actions on aliases that fail if another run has moved the readers' alias, and the write alias with it."""
    own = {"index": physical, "alias": write_alias(physical)}
    return [{"remove": {**own, "must_exist": True}}, {"add": own}]


def _fenced(config: SyncConfig, seen: Collection[str]) -> FencedError:
    return FencedError(
        f"Another run has moved the alias '{config.index}' while this one was stalled",
        subject="index",
        value=sorted(seen),
        remedy="nothing is lost, the other run has exported; raise lease_seconds if this run was only paused",
    )


# What OpenSearch gives every index itself, and blocks of writes.
_NOT_COPIED = ("uuid", "history", "creation_date", "provided_name", "version", "resize", "remote_store", "blocks")


_TRIAL = "--check"


@contextmanager
def trial_index(client: OpenSearch, config: SyncConfig, schema: StructType, like: str = "") -> Iterator[str]:
    """An index of its own, as a new one would be or ``like`` one that exists; it goes with the block."""
    run_id = uuid.uuid4().hex
    trial = f"{config.index}{_TRIAL}{run_id[:12]}"  # other runs may try at the same time
    try:
        if not like:
            create_physical(client, config, trial, schema, run_id)
        else:
            entry = indexes_behind(client, like)[like]
            settings = {name: each for name, each in entry["settings"]["index"].items() if name not in _NOT_COPIED}
            meta = {"_meta": {"icecdc": {**icecdc_meta(entry), "name": trial}}}  # one that is left is dropped later
            body = {"settings": {"index": settings}, "mappings": {**entry["mappings"], **meta}}
            create_index(client, trial, {**body, "aliases": {write_alias(trial): {}}})
        yield trial
    finally:
        _delete(client, trial)


def try_documents(client: OpenSearch, config: SyncConfig, trial: str, actions: Sequence[str]) -> BulkResult:
    """Index documents in a trial index; the result has those that OpenSearch refuses."""
    result, alias = BulkResult(), write_alias(trial)
    for part in bulk_requests(pa.array(actions, pa.string()), config.bulk_bytes) if actions else ():
        answer = client.bulk(index=alias, body="".join(part.to_pylist()), params={"require_alias": "true"})
        tried, _, _ = count_outcomes(answer, part, alias, len(actions), ANY_VERSION)
        if tried.failure:
            raise tried.failure
        result += tried
    return result


def check_mapping(client: OpenSearch, config: SyncConfig, schema: StructType) -> None:
    """Let the server index a document in an index of its own: do the fields of the mapping accept the columns?"""
    if not config.full_mapping:
        return
    given = index_settings.given_settings(config.settings).items()
    settings = {name: value for name, value in given if name not in ("default_pipeline", "final_pipeline")}
    properties = index_mapping(schema, config.full_mapping, config.pipeline_fields)["properties"]
    head = {"_id": "1", "version": 1, "version_type": "external", **({"routing": "a"} if config.routing else {})}
    action = f"{json.dumps({'index': head})}\n{json.dumps(sample_document(schema, properties))}\n"
    with trial_index(client, config.replace(settings=settings), schema) as trial:
        tried = try_documents(client, config, trial, [action])
    for refused in tried.rejected_samples:
        raise ConfigError(
            f"OpenSearch refuses a document of the table's columns: {refused['reason']}",
            subject="mapping",
            value=config.full_mapping,
            remedy="map the fields as types that read the columns, or cast the columns in select",
        )


def drop_unless_read(client: OpenSearch, config: SyncConfig, physical: str, kept: Collection[str] = ()) -> None:
    """Delete a physical index, and those with suffixes, if readers do not see them and icecdc created them."""
    for name, entry in indexes_behind(client, with_suffixes(config, physical)).items():
        if _is_made_for(config.index, name, entry) and config.index not in entry["aliases"] and name not in kept:
            _delete(client, name)


def drop_leftovers(client: OpenSearch, config: SyncConfig, physical: str, kept: Collection[str], epoch: int) -> None:
    """Delete what is older than this index (a stalled run may be late), not kept and read by nobody; and old trials."""
    found = client.indices.get(index=f"{config.index}--*", params={"expand_wildcards": "open,hidden"})
    created = {name: entry["settings"]["index"]["creation_date"].zfill(20) for name, entry in found.items()}
    an_hour_ago = str(int((time.time() - 3600) * 1000)).zfill(20)
    epochs = epochs_of(config.index, found)
    between = range(epochs.get(physical, epoch) + 1, epoch)  # a stalled run cannot judge what is newer than its batch
    for name, entry in found.items():
        if name in epochs:
            is_older = physical in created and created[name] < created[physical]
            # A killed rollback leaves a newer index without its write alias.
            is_leftover = is_older or (epochs[name] in between and write_alias(name) not in entry["aliases"])
        else:
            is_leftover = name.startswith(f"{config.index}{_TRIAL}") and created[name] < an_hour_ago
        if is_leftover:
            drop_unless_read(client, config, name, kept)


def evolve_mapping(client: OpenSearch, config: SyncConfig, physical: str, schema: StructType) -> None:
    """Add the fields of new columns to the mapping, and what the user's mapping may change of existing fields."""
    if limits := _limits(config, schema):
        client.indices.put_settings(index=with_suffixes(config, physical), body={"index": limits})
    properties = index_mapping(schema, config.full_mapping, config.pipeline_fields)["properties"]
    spec = {
        "spec": spec_digest(config.full_mapping, config.settings),
        "mapping": bool(config.full_mapping),
        "settings": bool(config.settings),
    }
    try:
        for name, entry in sorted(indexes_behind(client, with_suffixes(config, physical)).items()):
            meta = {"icecdc": {**icecdc_meta(entry), **spec}}
            client.indices.put_mapping(index=name, body={"properties": properties, "_meta": meta})
    except exceptions.RequestError as error:
        raise index_settings.not_in_place_error(
            f"The table's new columns cannot be added to the mapping of index '{physical}': {exception_reason(error)}"
        ) from error


def _delete(client: OpenSearch, physical: str) -> None:
    try:
        client.indices.delete(index=physical, params={"ignore_unavailable": "true"})
    except (exceptions.AuthenticationException, exceptions.AuthorizationException):
        raise
    except exceptions.OpenSearchException as error:  # while the cluster takes a snapshot: a later commit deletes it
        event(f"the index '{physical}' was not deleted: {exception_reason(error)}", logging.WARNING)


def _limits(config: SyncConfig, schema: StructType) -> dict[str, int]:
    limits = index_limits(schema, config.full_mapping, config.pipeline_fields)
    return {name: value for name, value in limits.items() if name not in index_settings.given_settings(config.settings)}


def publish_index(
    client: OpenSearch,
    config: SyncConfig,
    physical: str,
    expected: Collection[str] | None = None,
    suffixed: Collection[str] = (),
) -> None:
    """Make a loaded index searchable and move all aliases of readers to it in one atomic step; may be repeated."""
    with index_settings.definition_errors(config):
        settings = index_settings.published_settings(config)
        client.indices.put_settings(index=with_suffixes(config, physical), body={"index": settings})
    client.indices.refresh(index=with_suffixes(config, physical))
    _move_readers(client, config, physical, suffixed, expected, _unless_taken_over(physical))


def publish_again(
    client: OpenSearch,
    config: SyncConfig,
    physical: str,
    suffixed: Collection[str],
    expected: Collection[str],
    left: Collection[str],
) -> None:
    """Move all aliases of readers back to an earlier index; no stalled run can publish one of those they leave."""
    client.indices.refresh(index=with_suffixes(config, physical))
    actions = [{"remove": {"index": name, "alias": write_alias(name), "must_exist": name in expected}} for name in left]
    actions += [{"add": {"index": name, "alias": write_alias(name)}} for name in sorted({physical, *suffixed})]
    _move_readers(client, config, physical, suffixed, expected, actions)


def _move_readers(
    client: OpenSearch,
    config: SyncConfig,
    physical: str,
    suffixed: Collection[str],
    expected: Collection[str] | None,
    writers: Sequence[Mapping[str, Any]],
) -> None:
    """Move all aliases of readers in one step with these actions on write aliases."""
    actions: list[Mapping[str, Any]] = [*writers]
    seen, own = indexes_behind(client, config.index), {physical, *suffixed}
    if expected is not None and seen.keys() - own - {*expected}:
        raise _fenced(config, seen)
    for old in seen.keys() - own:
        actions.append({"remove": {"index": old, "alias": config.index, "must_exist": True}})
        actions.append({"remove": {"index": old, "alias": write_alias(old), "must_exist": False}})
        for alias, options in seen[old]["aliases"].items():
            if alias not in (config.index, write_alias(old)):
                actions.append({"remove": {"index": old, "alias": alias, "must_exist": False}})
                # An alias of some indexes goes to those of their suffixes: another one may be for other readers.
                suffix = suffix_of(old)
                same = index_with_suffix(physical, suffix) if suffix else physical
                is_of_all = all(seen[each]["aliases"].get(alias) == options for each in seen.keys() - own)
                targets = own if is_of_all else own & {same}
                if len(targets) > 1:  # one alias writes to one index
                    options = {name: value for name, value in options.items() if name != "is_write_index"}
                actions += [{"add": {"index": name, "alias": alias, **options}} for name in sorted(targets)]
    actions += [{"add": {"index": name, "alias": config.index}} for name in sorted(own)]
    try:
        client.indices.update_aliases(body={"actions": actions})
    except exceptions.NotFoundError as error:
        # The request is sent again if its answer is lost, and then finds nothing left to move.
        if indexes_behind(client, config.index).keys() != own:
            raise _fenced(config, seen) from error


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
    if table != config.table:
        raise IndexConflictError(
            f"The index '{config.index}' is in sync with another table, {table}",
            subject="index",
            value=config.index,
            remedy=f"give table={table}, or give the index of {config.table} another name",
        )


def require_same_index(client: OpenSearch, config: SyncConfig, uuids: Mapping[str, str]) -> None:
    for physical, created in uuids.items():
        if index_uuid(client, physical) != created:
            raise IndexNotFoundError(
                f"The index '{physical}' was deleted or created again while the export wrote to it",
                subject="index",
                value=config.index,
                remedy="run the export again; it starts over with a new index",
            )


@contextmanager
def point_in_time(client: OpenSearch, index: str) -> Iterator[str]:
    """Open a point in time of all shards of an index, for the longest of these times that the cluster allows."""
    # With segment replication, replicas may be behind their primary shards.
    params = {"allow_partial_pit_creation": "false", "preference": "_primary"}
    for keep_alive in ("2h", "1h", "30m", "10m", "1m"):
        try:
            pit = client.create_pit(index=index, params={**params, "keep_alive": keep_alive})["pit_id"]
            break
        except exceptions.RequestError as error:
            if "max_keep_alive" not in str(error.info) or keep_alive == "1m":
                raise
    try:
        yield pit
    finally:
        # If it cannot be closed, it expires by itself.
        with suppress(exceptions.OpenSearchException), without_retries(client):
            client.delete_pit(body={"pit_id": [pit]})
