"""Waits until searches find what a table has: it asks OpenSearch, and a catalog that PyIceberg reads; no Spark."""

import time
from contextlib import closing, suppress
from datetime import UTC, datetime
from multiprocessing import TimeoutError
from multiprocessing.pool import ThreadPool

from opensearchpy.exceptions import NotFoundError

from icecdc_core.commits.position import Position, parse_position
from icecdc_core.config import SyncConfig
from icecdc_core.config.sync import WaitConfig
from icecdc_core.errors import ConfigError, IcecdcError, IndexLaggingError, SnapshotNotFoundError
from icecdc_core.opensearch.client import Connection, typed_errors
from icecdc_core.runs.cluster_status import IndexStatus, StatusReport, position_facts, positions_of_tables
from icecdc_core.table.metadata_reader import read_metadata
from icecdc_core.table.snapshots import TableMetadata, ancestors, head_snapshot_id

_PAUSE, _CATALOG_PAUSE, _CATALOG_SECONDS = 0.25, 5.0, 10.0  # a call is early when it moved; the first loads PyIceberg


def wait_for(
    config: SyncConfig, *, snapshot_id: int | None = None, committed_by: datetime | None = None, timeout: float = 60.0
) -> IndexStatus:
    """Wait until searches find what a table has, by default what was committed before the call; it starts no Spark.

    Args:
        config: The index and its cluster, and for ``snapshot_id`` the catalog.
        snapshot_id: A snapshot of the table, or of a nested one; one that follows it will do.
        committed_by: A time by the clock of the machine that syncs; UTC if it has no zone.
        timeout: Seconds to wait; 0 looks once.

    Raises:
        IndexLaggingError: The time is over.
        SnapshotNotFoundError: The table does not have the snapshot, or was rolled back behind it.
        IcecdcError: Any other error of the package.
    """
    if snapshot_id is not None and committed_by is not None:
        raise ConfigError("Given with snapshot_id", subject="committed_by", remedy="leave one of them out")
    began, by = time.monotonic(), committed_by or datetime.now(UTC)
    by = by if by.tzinfo else by.replace(tzinfo=UTC)
    what = f"what was committed by {by.isoformat()}" if snapshot_id is None else f"snapshot {snapshot_id}"
    asked: tuple[object, float] = None, 0.0
    unanswered: Exception | None = None
    heads: dict[str, int | None] = {}  # of the tables, when a catalog first answered
    known, retries, asks = "it was never exported", min(config.retry_timeout_seconds, timeout), by <= datetime.now(UTC)
    with closing(Connection.of(config).client(1, retries)) as client:
        while True:
            position = Position(config.index, "", "")
            with typed_errors(config, "reading the position"), suppress(NotFoundError):
                found = client.get(index=config.positions_index, id=f"position:{config.index}")["_source"]
                position = parse_position(found)[0]
            now, has = time.monotonic(), False
            left = timeout - (now - began)
            if position.begun_rollback:
                known = "a rollback is not finished, so readers may see either index"
            elif position.exists:
                known = f"it has snapshot {position.snapshot_id}, current at {position.current_at}"
                is_current = position.current_at is not None and datetime.fromisoformat(position.current_at) >= by
                if snapshot_id is not None:
                    has = snapshot_id in (position.snapshot_id, *position.nested_snapshots.values())
                elif committed_by is not None:
                    has = is_current
                if not has and asks and (position.content_version != asked[0] or now - asked[1] > _CATALOG_PAUSE):
                    seconds = max(1.0, min(left, _CATALOG_SECONDS)) if asked[0] else _CATALOG_SECONDS
                    asked, unanswered = (position.content_version, now), None
                    try:
                        with ThreadPool(1) as pool:  # one for each call, because it may hang
                            has = pool.apply_async(_is_in_history, (config, position, snapshot_id, heads)).get(seconds)
                    except SnapshotNotFoundError:
                        raise
                    except (TimeoutError, IcecdcError) as error:  # a later call may be answered
                        unanswered = error
                # The clock of the sync need not be that of who waits.
                if has or (is_current and snapshot_id is None and not heads):
                    return IndexStatus(config.index, position.table, **position_facts(config, found), state="ok")
            if left <= 0:
                if snapshot_id is not None and isinstance(unanswered, IcecdcError):
                    raise unanswered
                raise IndexLaggingError(
                    f"After {timeout:g} s searches in '{config.index}' may lack {what}: {known}",
                    subject="timeout",
                    value=timeout,
                    remedy="see with icecdc status whether syncs run, then wait again, or longer",
                )
            time.sleep(min(_PAUSE, left))


def wait(config: WaitConfig) -> StatusReport:
    found = wait_for(config, snapshot_id=config.snapshot, committed_by=config.committed_by, timeout=config.timeout)
    return StatusReport([found])


def _is_in_history(config: SyncConfig, position: Position, wanted: int | None, heads: dict[str, int | None]) -> bool:
    """Whether an index has a snapshot or a later one; without a snapshot, those of ``heads``, or of its tables now."""
    tables = [(at, read_metadata(config, at.table), branch) for at, branch in positions_of_tables(position, config)]
    newest = {at.table: head_snapshot_id(table, branch) for at, table, branch in tables}
    if wanted is None:
        heads.update(newest | heads)  # which keeps the first ones
        return all(
            at.table_uuid == table.table_uuid
            and at.snapshot_id in _history(table, newest[at.table])
            and {newest[at.table], heads[at.table]} & {*_history(table, at.snapshot_id)}
            for at, table, _ in tables
        )
    if any(wanted in _history(table, at.snapshot_id) for at, table, _ in tables):
        return True
    if any(wanted in _history(table, newest[at.table]) for at, table, _ in tables):
        return False
    raise SnapshotNotFoundError(
        f"'{position.table}' does not have the snapshot: it is of another table, expired, or rolled back",
        subject="snapshot",
        value=wanted,
        remedy="give one in the history of its branch, or none to wait for all that the table has",
    )


def _history(table: TableMetadata, snapshot_id: int | None) -> list[int | None]:
    """A snapshot and those before it, including the last one that has expired."""
    return [snapshot_id, *(table.by_id[each].parent_snapshot_id for each in ancestors(table, snapshot_id))]
