"""Positions and the commit log, kept in OpenSearch next to the data; who holds a table, and who lost it.

A batch is *begun* (range, epoch; a conditional write), its documents are *written*, and it is *committed*
(the position moves, an immutable log entry stays). A crash anywhere leaves the old position or a begun batch,
and the next run replays exactly that batch with the same epoch, which external versions turn into a no-op for
what was already done.
"""

from __future__ import annotations

import logging
import threading
import time
from contextvars import copy_context
from dataclasses import asdict, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from opensearchpy import OpenSearch
from opensearchpy.exceptions import ConflictError, NotFoundError, RequestError

from icecdc_core.commits.lease import LeaseHolder, begin_work, end_work, is_gone
from icecdc_core.commits.position_format import (
    MAPPING,
    Batch,
    Position,
    position_document,
    require_mapping,
    source_of,
    sources_of,
    stored_position,
    version_of,
)
from icecdc_core.config.values import MAX_LEASE_SECONDS
from icecdc_core.errors import FencedError, IndexNotFoundError, PositionError, TableLockedError
from icecdc_core.logs import event, set_fields
from icecdc_core.opensearch.client import Connection, typed_errors
from icecdc_core.opensearch.indexes import write_alias
from icecdc_core.opensearch.retry import without_retries

if TYPE_CHECKING:
    from icecdc_core.config import SyncConfig

__all__ = ["Batch", "IndexLock", "Position", "PositionStore"]

MAX_EPOCH = 2**52
"""No epoch is raised above it: versions up to 2^53 are exact in every JSON reader, and leave room to count on."""

# How long a run that ends waits for a renewal under way, and for the answer when it gives the table back.
_RELEASE_SECONDS = 10.0


class PositionStore:
    """Reads and writes positions.

    Args:
        client: A client of the cluster that holds the documents.
        config: The job's parameters; ``positions_index``, ``index`` and ``lease_seconds`` are used.
    """

    def __init__(self, client: OpenSearch, config: SyncConfig) -> None:
        self.client = client
        self._config = config
        self._url = config.opensearch_url
        self._where = config.positions_index
        self._index = config.index

    def read(self) -> Position | None:
        """Return the position of the index, None when it has none."""
        document = self._get()
        return stored_position(source_of(document, "reading the position")) if document else None

    def log(self, size: int = 100) -> list[dict[str, Any]]:
        """Return the newest committed batches of the index, newest first."""
        query = {"bool": {"filter": [{"term": {"type": "commit"}}, {"term": {"index": self._index}}]}}
        with typed_errors(self._url, "reading the commit log"):
            if not self.client.indices.exists(index=self._where):
                return []
            self.client.indices.refresh(index=self._where)
            found = self.client.search(
                index=self._where, body={"query": query, "sort": [{"epoch": "desc"}], "size": size}
            )
        return sources_of(found, "reading the commit log")

    def lock(self, table: str, table_uuid: str, run_id: str) -> IndexLock:
        """Take the table for one run.

        A holder that is known to be dead, or does not renew its lease for its own ``lease_seconds``, loses it.

        Raises:
            TableLockedError: Another run holds the table and is alive.
        """
        owner = LeaseHolder.this(run_id, self._config.lease_seconds)
        watched: tuple[int, int] | None = None
        watched_since = 0.0
        with typed_errors(self._url, "taking the table"):
            self._ensure_index()
            while True:
                document = self._get()
                if document is None:
                    position, version = Position(self._index, table, table_uuid), None
                else:
                    source = source_of(document, "reading the position")
                    position, version = stored_position(source), version_of(document, "reading the position")
                    holder = source.get("owner") or {}
                    gone = is_gone(holder, owner) if holder else True
                    # Whether a holder elsewhere renews its lease is seen without comparing two machines'
                    # clocks.
                    if gone is False or (gone is None and watched not in (None, version)):
                        raise self._locked(holder)
                    if gone is None:
                        watched, watched_since = version, watched_since or time.monotonic()
                        lease = self._lease_of(holder)
                        if time.monotonic() - watched_since < lease:
                            time.sleep(min(1.0, lease / 4))
                            continue
                written = self._write(position, owner, version, run_id)
                if written is not None:
                    begin_work(run_id)
                    return IndexLock(self, position, owner, written)

    def renewing(self, timeout_seconds: float) -> PositionStore:
        """Return a store for renewals: with a client of its own, which waits no longer than this and never retries."""
        connection = replace(Connection.of(self._config), timeout_seconds=timeout_seconds)
        return PositionStore(connection.client(1), self._config)

    def _lease_of(self, holder: dict[str, Any]) -> float:
        """Return the lease of the holder; for one of an older release, which did not record it, a usual one."""
        lease = holder.get("lease_seconds")
        if isinstance(lease, (int, float)) and 0 < lease <= MAX_LEASE_SECONDS:
            return float(lease)
        usual = type(self._config).model_fields["lease_seconds"].default
        return max(self._config.lease_seconds, float(usual))

    def _locked(self, holder: dict[str, Any]) -> TableLockedError:
        return TableLockedError(
            f"Another run holds the index '{self._index}': run {holder.get('run_id')}, process {holder.get('pid')} "
            f"on {str(holder.get('host', '')).split('/')[0]}, since {holder.get('since')}",
            subject="index",
            value=self._index,
            remedy="wait until it has ended; schedule at most one run at a time for each index",
        )

    def _get(self, timeout_seconds: float | None = None) -> Any:
        params = {} if timeout_seconds is None else {"request_timeout": timeout_seconds}
        with typed_errors(self._url, "reading the position"):
            try:
                return self.client.get(index=self._where, id=f"position:{self._index}", params=params)
            except NotFoundError:
                return None

    def _put(self, identity: str, body: dict[str, Any], params: dict[str, Any]) -> Any:
        """Write a document through the write alias, which dies with the index: so no write ever creates an index."""
        try:
            return self.client.index(
                index=write_alias(self._where), id=identity, body=body, params={**params, "require_alias": "true"}
            )
        except NotFoundError as error:
            raise self._deleted() from error

    def _deleted(self) -> IndexNotFoundError:
        return IndexNotFoundError(
            f"The position of '{self._index}' is gone: '{self._where}' or what it held was deleted under the run",
            subject="positions_index",
            value=self._where,
            remedy="restore it from a snapshot of the cluster, or run the export again",
        )

    def _write(
        self,
        position: Position,
        owner: LeaseHolder | None,
        version: tuple[int, int] | None,
        run_id: str,
        timeout_seconds: float | None = None,
    ) -> tuple[int, int] | None:
        """Write the position if nobody else did since ``version``; return its new version, None when somebody did."""
        condition: dict[str, Any] = {"op_type": "create"}
        if version is not None:
            condition = {"if_seq_no": version[0], "if_primary_term": version[1]}
        if timeout_seconds is not None:
            condition["request_timeout"] = timeout_seconds
        doing = "writing the position"
        try:
            answer = self._put(f"position:{self._index}", position_document(position, owner), condition)
        except ConflictError:
            # The answer to an earlier write of this run may have been lost: then what is there is its own.
            document = self._get(timeout_seconds)
            if document is None:
                if version is not None:
                    raise self._deleted() from None
                return None
            found, holder = version_of(document, doing), source_of(document, doing).get("owner")
            # An owner that somebody edited into something else is another holder.
            if not isinstance(holder, dict) or holder.get("run_id") != run_id or version == found:
                return None
            return self._write(position, owner, found, run_id, timeout_seconds)
        return version_of(answer, doing)

    def _append_log(self, epoch: int, entry: dict[str, Any]) -> None:
        identity = f"commit:{self._index}:{epoch}"
        try:
            self._put(identity, {"type": "commit", **entry}, {"op_type": "create"})
        except ConflictError:
            return  # the same batch, committed by an earlier attempt that died after it

    def _ensure_index(self) -> None:
        """Create the positions index where there is none; it is never one that OpenSearch mapped by guessing."""
        alias, found = write_alias(self._where), self._found_index()
        if not found:
            settings = {"number_of_shards": 1, "auto_expand_replicas": "0-1"}
            body = {"mappings": MAPPING, "settings": settings, "aliases": {alias: {}}}
            try:
                self.client.indices.create(index=self._where, body=body)
            except RequestError as error:
                if error.error != "resource_already_exists_exception":
                    raise
            found = self._found_index()
        if len(found) != 1:
            raise PositionError(
                f"'{self._where}' is not one index but {sorted(found)}",
                subject="positions_index",
                value=self._where,
                remedy="name one index in positions_index",
            )
        ((name, entry),) = found.items()
        require_mapping(name, entry["mappings"])
        if alias not in entry["aliases"]:  # an older release created it
            self.client.indices.update_aliases(body={"actions": [{"add": {"index": name, "alias": alias}}]})

    def _found_index(self) -> dict[str, Any]:
        try:
            return dict(self.client.indices.get(index=self._where))
        except NotFoundError:
            return {}


class IndexLock:
    """The table while this run holds it; a thread renews the lease.

    Attributes:
        position: The position as last written by this run.
    """

    def __init__(
        self,
        store: PositionStore,
        position: Position,
        owner: LeaseHolder,
        version: tuple[int, int],
    ) -> None:
        self.position = position
        self._store = store
        self._owner = owner
        self._version = version
        self._mutex = threading.Lock()
        self._ended = threading.Event()
        self._lost = False
        self._interval = owner.lease_seconds / 4
        # Retries of a renewal would keep the run waiting, and there is a next one.
        self._renewals = store.renewing(max(1.0, min(self._interval, _RELEASE_SECONDS)))
        context = copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._renew,), name="icecdc-lease", daemon=True)
        self._thread.start()

    def next_epoch(self, sequence_number: int, new_index: bool = False) -> int:
        """Return the epoch of the next batch: greater than any before, never below the snapshot's sequence number.

        Args:
            sequence_number: That of the snapshot the batch ends with.
            new_index: Whether the batch creates its index. Then it goes back to the epochs of the commit log if the
                position's has no room left for versions: an earlier release raised it to those of foreign documents.
        """
        epoch = self.position.epoch
        if new_index and epoch > MAX_EPOCH:
            logged = (int(entry.get("epoch") or 0) for entry in self._store.log())
            epoch = max((each for each in logged if each <= MAX_EPOCH), default=0)
        return max(epoch + 1, sequence_number)

    def begin(self, batch: Batch) -> None:
        """Record the batch before its first write."""
        self.write(replace(self.position, batch=batch, epoch=batch.epoch))
        set_fields(batch=batch.epoch)
        ends: dict[str, Any] = {"from_snapshot_id": batch.from_snapshot_id, "to_snapshot_id": batch.to_snapshot_id}
        event("batch begun", kind=batch.kind, **ends)

    def record_index(self, uuid: str, digest: str) -> None:
        """Record which index the begun export created, before the first document goes there."""
        if self.position.batch:
            batch = replace(self.position.batch, index_uuid=uuid, index_digest=digest)
            self.write(replace(self.position, batch=batch))

    def progress(self, groups_done: int, rejected: int = 0) -> None:
        """Record how many file groups of an export are in, and how many of their documents were rejected."""
        if self.position.batch:
            batch = replace(self.position.batch, groups_done=groups_done, rejected=rejected)
            self.write(replace(self.position, batch=batch))

    def commit(self, position: Position, entry: dict[str, Any]) -> None:
        """Move the position and keep a log entry; the log entry comes first, so that none is ever missing."""
        batch = self.position.batch
        if batch:
            log = {"index": position.index, "table": position.table, **asdict(batch), **entry}
            log |= {"snapshot_id": position.snapshot_id, "updated_at": datetime.now(timezone.utc).isoformat()}
            with typed_errors(self._store._url, "writing the commit log"):
                self._store._append_log(batch.epoch, log)
        self.write(replace(position, batch=None))
        event("batch committed", snapshot_id=position.snapshot_id)

    def fail(self, reason: str) -> None:
        """Record why the begun batch ended without a commit."""
        if self.position.batch:
            self.write(replace(self.position, batch=replace(self.position.batch, failure=reason[:2000])))

    def write(self, position: Position) -> None:
        """Write the position.

        Raises:
            FencedError: Another run took the table over in the meantime.
        """
        with self._mutex, typed_errors(self._store._url, "writing the position"):
            run_id = self._owner.run_id
            version = None if self._lost else self._store._write(position, self._owner, self._version, run_id)
            if version is None:
                self._lost = True
                raise FencedError(
                    f"This run no longer holds the index '{position.index}': another run took it over",
                    subject="lease_seconds",
                    value=self._owner.lease_seconds,
                    remedy="nothing is lost, the other run replays the batch; raise lease_seconds if this run was "
                    "only paused",
                )
            self._version, self.position = version, position

    def release(self) -> None:
        """Give the table back; a begun batch stays for the next run.

        It waits for nobody long and raises nothing: a run that failed has a reason of its own. If the table cannot be
        given back, the next run finds this one ended, or its lease not renewed.
        """
        self._ended.set()
        end_work(self._owner.run_id)
        if not self._mutex.acquire(timeout=_RELEASE_SECONDS):
            event("the lock was not released: a renewal is under way", logging.WARNING)
            return
        try:
            if not self._lost:
                with without_retries(self._store.client):
                    self._store._write(self.position, None, self._version, self._owner.run_id, _RELEASE_SECONDS)
        except Exception as error:
            event(f"the lock was not released: {error}", logging.WARNING)
        finally:
            self._lost = True
            self._mutex.release()
        self._thread.join()

    def _renew(self) -> None:
        try:
            while not self._ended.wait(self._interval):
                with self._mutex:
                    if self._lost:
                        return
                    try:
                        version = self._renewals._write(self.position, self._owner, self._version, self._owner.run_id)
                    except Exception as error:
                        # A later renewal may succeed, and a lost lock shows at the next write.
                        event(f"the lease was not renewed: {error}", logging.WARNING)
                        continue
                    self._lost = version is None
                    self._version = version or self._version
        finally:
            self._renewals.client.close()
