"""The lock of an index while a run works on it: batches begin and end under it, and a thread renews its lease."""

from __future__ import annotations

import logging
import threading
import time
from contextvars import copy_context
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from icecdc_core.commits.position import Batch, LeaseHolder, Position
from icecdc_core.errors import FencedError
from icecdc_core.logs import event, set_fields
from icecdc_core.session.processes import is_running

if TYPE_CHECKING:
    from icecdc_core.commits.store import PositionStore


MAX_EPOCH = 2**52
"""The highest epoch that a repair may choose: versions up to 2^53 are exact in every JSON parser."""

# How long a run that ends waits for a renewal in flight, and for each answer when it releases the lock.
_RELEASE_SECONDS = 10.0


active_runs: set[str] = set()
"""Runs of this process that hold a lock."""


def is_gone(holder: LeaseHolder, here: LeaseHolder) -> bool | None:
    """Return whether a holder lost its lock; None if this machine cannot know."""
    if holder.host != here.host:
        return None
    is_here = (holder.pid, holder.started) == (here.pid, here.started)
    is_alive = holder.run_id in active_runs if is_here else is_running(holder.pid, holder.started)
    return not (is_alive and 0 <= time.monotonic() - holder.renewed < holder.lease_seconds)


class IndexLock:
    def __init__(self, store: PositionStore, position: Position, holder: LeaseHolder, version: tuple[int, int]) -> None:
        self.position = position
        self._store = store
        self._holder = holder
        self._version = version
        self._mutex = threading.Lock()
        self._released = threading.Event()
        self._lost = False
        # A write without an answer may have been executed: a renewal would restore the position before it.
        self._unanswered = False
        self._interval = holder.lease_seconds / 4
        # A renewal is not retried: the run would wait for it, and the next renewal follows soon.
        self._renewals = store.without_retries(max(1.0, min(self._interval, _RELEASE_SECONDS)))
        self._thread = threading.Thread(
            target=copy_context().run, args=(self._renew,), name="icecdc-lease", daemon=True
        )
        try:
            self._thread.start()
        except BaseException:
            self._released.set()  # an interrupt while it starts: nobody gets this lock, and nobody could release it
            raise

    def next_epoch(self, sequence_number: int, new_index: bool = False) -> int:
        """Return the epoch of the next batch: greater than all before, and not below the snapshot's sequence number."""
        epoch = self.position.epoch
        if new_index and (epoch > MAX_EPOCH or not self.position.exists):  # the log may be older than the position
            logged = (int(entry.get("epoch") or 0) for entry in self._store.log(size=1))
            epoch = max(epoch if epoch <= MAX_EPOCH else 0, *logged, 0)
        return max(epoch + 1, sequence_number)

    def begin(self, batch: Batch) -> None:
        # Readers see the indexes of a batch that broke off, too.
        self.write(replace(self.position, indexes=self.position.every_index, batch=batch, epoch=batch.epoch))
        set_fields(batch=batch.epoch)
        start, end = batch.from_snapshot_id, batch.to_snapshot_id
        event("batch begun", kind=batch.kind, from_snapshot_id=start, to_snapshot_id=end)

    def record(self, **changes: Any) -> None:
        """Record fields of the begun batch: its index before the first document, its progress, why it failed."""
        if self.position.batch:
            self.write(replace(self.position, batch=replace(self.position.batch, **changes)))

    def commit(self, position: Position, entry: dict[str, Any]) -> None:
        """Write the entry of the commit log, then move the position; in this order no entry is ever missing."""
        if batch := self.position.batch:
            log = {"index": position.index, "table": position.table, **asdict(batch), **entry}
            log |= {"snapshot_id": position.snapshot_id, "updated_at": datetime.now(UTC).isoformat()}
            self._store.append_log(batch.epoch, log)
        self.write(replace(position, batch=None))
        event("batch committed", snapshot_id=position.snapshot_id)

    def write(self, position: Position) -> None:
        with self._mutex:
            run_id = self._holder.run_id
            try:
                version = None if self._lost else self._store.write(position, self._holder, self._version, run_id)
            except BaseException:
                self._unanswered = True
                raise
            if version is None:
                self._lost = True
                raise FencedError(
                    f"This run lost the lock of the index '{position.index}': another run acquired it",
                    subject="lease_seconds",
                    value=self._holder.lease_seconds,
                    remedy="nothing is lost; raise lease_seconds if this run was only paused",
                )
            self._version, self.position = version, position

    def release(self) -> None:
        """Release the lock; it raises nothing, because a run that failed has an error of its own, and waits seconds."""
        self._released.set()
        active_runs.discard(self._holder.run_id)
        if not self._mutex.acquire(timeout=_RELEASE_SECONDS):
            event("the lock was not released: a renewal is in flight", logging.WARNING)
            return
        try:
            if not self._lost:
                self._renewals.write(self.position, None, self._version, self._holder.run_id)
        except Exception as error:
            event(f"the lock was not released: {error}", logging.WARNING)
        finally:
            self._lost = True
            self._mutex.release()
        self._thread.join()
        self._renewals.client.close()

    def _renew(self) -> None:
        while not self._released.wait(self._interval):
            with self._mutex:
                if self._lost or self._unanswered:
                    return
                try:
                    version = self._renewals.write(self.position, self._holder, self._version, self._holder.run_id)
                except Exception as error:
                    # A later renewal may succeed, and a lost lock shows at the next write.
                    event(f"the lease was not renewed: {error}", logging.WARNING)
                    continue
                self._lost = version is None
                self._version = version or self._version
