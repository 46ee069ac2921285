"""Changes of the index itself that a sync makes before its first batch: a changed spec, or a new, empty index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from icecdc_core.commits.preconditions import index_identity
from icecdc_core.documents.spec import dynamic_settings
from icecdc_core.errors import SchemaChangeError
from icecdc_core.opensearch.aliases import publish_index
from icecdc_core.opensearch.index_definitions import definition_errors
from icecdc_core.opensearch.index_settings import settings_in_place
from icecdc_core.opensearch.indexes import create_physical, evolve_mapping, unused_epoch
from icecdc_core.opensearch.physical_indexes import physical_index
from icecdc_core.runs.batch import position_at

if TYPE_CHECKING:
    from icecdc_core.commits.lock import IndexLock
    from icecdc_core.commits.position_format import Position
    from icecdc_core.runs.run import Run
    from icecdc_core.table.source import Source


def follow_spec(run: Run, source: Source, lock: IndexLock) -> bool:
    """Put a changed spec in place, where that leaves every indexed document right."""
    physical, was, unfinished = lock.position.physical_index, lock.position.selection, lock.position.unfinished_specs
    # Recorded before the first write: a run that dies halfway leaves parts of this spec, and the next one must know.
    lock.write(
        replace(
            lock.position, unfinished_specs=[*(each for each in unfinished if each != source.spec), dict(source.spec)]
        )
    )
    changed: dict[str, Any] = {}
    for each in (was, *unfinished):
        changed |= dynamic_settings(each, source.spec)
    # First: a new field may need a limit that was raised.
    _put_settings(run, physical, changed)
    try:
        evolve_mapping(run.client, run.config, physical, source.schema)
    except SchemaChangeError:
        _put_settings(run, physical, dynamic_settings(source.spec, was))  # as they were
        if run.config.on_schema_change != "reexport":
            raise
        return False
    lock.write(replace(lock.position, selection=source.stored_selection, unfinished_specs=[]))
    return True


def create_empty_index(run: Run, source: Source, lock: IndexLock, start: Position) -> None:
    """Create an empty index, which readers see at once, and record its position."""
    config = run.config
    seen = run.confirm_readers_indexes(lock)
    epoch = unused_epoch(run.client, config.index, lock.next_epoch(0, new_index=True))
    physical = physical_index(config.index, epoch)
    identity = index_identity(source.stored_selection)
    create_physical(run.client, config, physical, source.schema, run.run_id, loading=False, identity=identity)
    publish_index(run.client, config, physical, seen)
    lock.write(position_at(replace(start, epoch=epoch, physical_index=physical), source, start.snapshot_id))


def _put_settings(run: Run, physical: str, changed: Mapping[str, Any]) -> None:
    if changed:
        with definition_errors(run.config):
            settings = settings_in_place(run.config, changed)
            run.client.indices.put_settings(index=physical, body={"index": settings})
