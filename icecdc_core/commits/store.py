"""Positions and the commit log, stored in OpenSearch beside the data, and the lock of an index while a run works on it.

A batch is *begun* (range, epoch; a conditional write), *written* and *committed*. A crash anywhere leaves the old
position or a begun batch, which the next run replays with the same epoch.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from opensearchpy import OpenSearch
from opensearchpy.exceptions import ConflictError, NotFoundError

from icecdc_core.commits.audit import known_parts, with_parts
from icecdc_core.commits.position import (
    CONFIRMED_EVERY,
    Batch,
    LeaseHolder,
    Position,
    active_runs,
    is_gone,
    parse_position,
    position_document,
)
from icecdc_core.config import SyncConfig
from icecdc_core.errors import FencedError, IcecdcError, IndexNotFoundError, PositionError, TableLockedError
from icecdc_core.logs import event, set_fields
from icecdc_core.opensearch.client import Backoff, Connection, reading, typed_errors, without_retries
from icecdc_core.opensearch.indexes import create_index, indexes_behind, write_alias

MAX_EPOCH = 2**52
"""The highest epoch that a repair may choose: versions up to 2^53 are exact in every JSON parser."""

# How long a run that ends waits for a renewal in flight, and for each answer when it releases the lock.
_RELEASE_SECONDS = 10.0

MAPPING: dict[str, Any] = {
    "dynamic": False,  # OpenSearch guesses no field
    "properties": {
        **{name: {"type": "keyword"} for name in ("type", "kind", "index", "table")},
        **{name: {"type": "long"} for name in ("snapshot_id", "epoch")},
        "updated_at": {"type": "date"},
    },
}


def ensure_positions_index(client: OpenSearch, positions_index: str) -> None:
    """Create the positions index if there is none, and its write alias: no write creates the index by accident."""
    alias, found = write_alias(positions_index), indexes_behind(client, positions_index)
    if not found:
        settings = {"number_of_shards": 1, "auto_expand_replicas": "0-1"}
        create_index(client, positions_index, {"mappings": MAPPING, "settings": settings, "aliases": {alias: {}}})
        found = indexes_behind(client, positions_index)
    if len(found) != 1:
        raise PositionError(
            f"'{positions_index}' is not one index but {sorted(found)}",
            subject="positions_index",
            value=positions_index,
            remedy="set positions_index to the name of one index",
        )
    ((name, entry),) = found.items()
    with reading(entry):
        require_mapping(name, entry["mappings"])
    if alias not in entry["aliases"]:  # somebody restored the index without it
        client.indices.update_aliases(body={"actions": [{"add": {"index": name, "alias": alias}}]})


def require_mapping(name: str, mappings: Mapping[str, Any]) -> None:
    found, ours = mappings.get("properties") or {}, MAPPING["properties"]
    is_other = any(found[name].get("type") != ours[name]["type"] for name in found.keys() & ours.keys())
    if is_other or str(mappings.get("dynamic")).lower() != "false" or mappings.get("_source"):
        raise PositionError(
            f"icecdc did not create the positions index '{name}': its mapping is another one",
            subject="positions_index",
            value=name,
            remedy="set positions_index to another name; if this one is icecdc's, delete it and run the exports (no "
            "index template may change its mapping)",
        )


def _version_of(answer: dict[str, Any]) -> tuple[int, int]:
    return answer["_seq_no"], answer["_primary_term"]


def _only_if(version: tuple[int, int] | None) -> dict[str, Any]:
    """The parameters of a write to a document of this version, or without one to a document that does not exist."""
    return {"op_type": "create"} if version is None else {"if_seq_no": version[0], "if_primary_term": version[1]}


class PositionStore:
    def __init__(self, client: OpenSearch, config: SyncConfig) -> None:
        self.client = client
        self.config = config
        self._typed_errors = partial(typed_errors, config)
        self._positions_index = config.positions_index
        self._index = config.index

    def read(self) -> Position | None:
        document = self._get()
        return parse_position(document["_source"])[0] if document else None

    def log(
        self, size: int = 100, order: str = "epoch", fields: Sequence[str] = ("*",), **terms: str | None
    ) -> list[dict[str, Any]]:
        """Return entries, the newest first: those of the index, or with ``index=None`` those of all."""
        terms = {"type": "commit", "index": self._index, **terms}
        wanted: list[Any] = [{"term": {name: value}} for name, value in terms.items() if value is not None]
        wanted.append({"range": {"epoch": {"lte": MAX_EPOCH}}})
        body: dict[str, Any] = {"query": {"bool": {"filter": wanted}}, "sort": [{order: "desc"}]}
        body |= {"size": size, "_source": [*fields]}
        with self._typed_errors("reading the commit log"):
            if not self.client.indices.exists(index=self._positions_index):
                return []
            self.client.indices.refresh(index=self._positions_index)
            found = self.client.search(index=self._positions_index, body=body)
            with reading(found):
                return [dict(hit["_source"]) for hit in found["hits"]["hits"]]

    def lock(self, table: str, table_uuid: str, run_id: str) -> IndexLock:
        """Acquire the lock of the index; a holder that ended or whose own lease expired loses it."""
        this_run = LeaseHolder.this_process(run_id, self.config.lease_seconds)
        # Another run of this process must not take it for one that has ended, from the moment it can read the write.
        active_runs.add(run_id)
        try:
            with self._typed_errors("acquiring the lock"):
                ensure_positions_index(self.client, self._positions_index)
                backoff = Backoff(max(self.config.retry_timeout_seconds, 1.0), first_pause=0.1)
                while True:
                    document = self.require_unlocked()
                    position, version = Position(self._index, table, table_uuid), None
                    if document is not None:
                        (position, _), version = parse_position(document["_source"]), _version_of(document)
                    if (written := self.write(position, this_run, version)) is not None:
                        return IndexLock(self, position, this_run, written)
                    if not backoff.wait("another run wrote the position in the meantime"):
                        raise self._locked("other runs write its position all the time")
        except BaseException:
            active_runs.discard(run_id)
            raise

    def require_unlocked(self) -> Any:
        """Return the document of the position, once it is known that no run has the lock."""
        here, seen, seen_since = LeaseHolder.this_process(""), None, 0.0
        while (document := self._get()) is not None:
            version = _version_of(document)
            _, holder = parse_position(document["_source"])
            if holder is None or (gone := is_gone(holder, here)):
                break
            # A holder on another machine is alive if its renewals change the version: the clocks need not agree.
            if gone is False or seen not in (None, version):
                host = holder.host.split("/")[0]
                raise self._locked(f"run {holder.run_id}, process {holder.pid} on {host}, since {holder.since}")
            seen, seen_since = version, seen_since or time.monotonic()
            if time.monotonic() - seen_since >= holder.lease_seconds:
                break
            time.sleep(min(1.0, holder.lease_seconds / 4))
        return document

    def _locked(self, by: str) -> TableLockedError:
        return TableLockedError(
            f"Another run has the lock of the index '{self._index}': {by}",
            subject="index",
            value=self._index,
            remedy="wait until it ends; schedule at most one run at a time for each index",
        )

    def confirm(self, position: Position, confirmed: Position) -> None:
        """Record without the lock that a position was still current, at most once a minute; any other write wins."""
        times = (each.current_at or "0001-01-01T00:00+00:00" for each in (position, confirmed))
        last, now = map(datetime.fromisoformat, times)
        if abs((now - last).total_seconds()) < CONFIRMED_EVERY:
            return
        # A run that has the lock writes the position itself; any other problem meets the next sync with changes, too.
        with suppress(IcecdcError), self._typed_errors("confirming the position"), without_retries(self.client):
            if (document := self._get()) is None:
                return
            found, holder = parse_position(document["_source"])
            if found == position and (holder is None or is_gone(holder, LeaseHolder.this_process(""))):
                body, condition = position_document(confirmed, None), _only_if(_version_of(document))
                with suppress(ConflictError):
                    self._put(f"position:{self._index}", body, condition)

    def write(
        self, position: Position, holder: LeaseHolder, version: tuple[int, int] | None, releases: bool = False
    ) -> tuple[int, int] | None:
        with self._typed_errors("writing the position"):
            try:
                body = position_document(position, None if releases else holder)
                return _version_of(self._put(f"position:{self._index}", body, _only_if(version)))
            except ConflictError:
                document = self._get()
        if document is None:
            if version is not None:
                raise self._deleted()
            return None
        # If the answer to an earlier write of this run was lost, the conflict is with that write.
        found, stored = _version_of(document), document["_source"].get("owner")
        if not isinstance(stored, dict) or stored.get("run_id") != holder.run_id or version == found:
            return None
        written, _ = parse_position(document["_source"])
        if releases:  # which changes nothing else, so it leaves what that write stored
            position = written
        elif written == position:  # it was that very write, and its repetition may lose its answer, too
            return found
        return self.write(position, holder, found, releases)

    def append_log(self, epoch: int, entry: dict[str, Any]) -> None:
        # A conflict: an earlier attempt committed the same batch and died before it moved the position.
        with self._typed_errors("writing the commit log"), suppress(ConflictError):
            self._put(f"commit:{self._index}:{epoch}", {"type": "commit", **entry}, _only_if(None))

    def audit(self, position: Position, parts: int = 0) -> dict[str, Any]:
        document = self._get("audit") or {}
        return known_parts(document.get("_source", {}), position.physical_index, parts)

    def remember_parts(self, position: Position, numbers: Collection[int], parts: int, *found: int) -> None:
        """Store differences of each part, and repaired documents; another run may store other parts meanwhile."""
        while True:
            document = self._get("audit")
            version, stored = (_version_of(document), document["_source"]) if document else (None, {})
            known = known_parts(stored, position.physical_index, parts)
            body = {**with_parts(known, numbers, *found), "type": "audit", "index": self._index}
            with self._typed_errors("writing the audit"), suppress(ConflictError):
                self._put(f"audit:{self._index}", body, _only_if(version))
                return

    def _get(self, kind: str = "position") -> Any:
        with self._typed_errors(f"reading the {kind}"):
            try:
                return self.client.get(index=self._positions_index, id=f"{kind}:{self._index}")
            except NotFoundError:
                return None

    def _put(self, identity: str, body: dict[str, Any], params: dict[str, Any]) -> Any:
        alias = write_alias(self._positions_index)
        try:
            return self.client.index(index=alias, id=identity, body=body, params={**params, "require_alias": "true"})
        except NotFoundError as error:
            raise self._deleted() from error

    def _deleted(self) -> IndexNotFoundError:
        return IndexNotFoundError(
            f"The position of '{self._index}' is gone: it was deleted under the run",
            subject="positions_index",
            value=self._positions_index,
            remedy="run the export again (an older copy would take later changes for applied)",
        )


class IndexLock:
    """The lock of an index; a thread renews its lease until it is released."""

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
        # A renewal is not retried: the run would wait for it, and the next renewal follows soon.
        seconds = max(1.0, min(holder.lease_seconds / 4, _RELEASE_SECONDS))
        config = store.config.replace(request_timeout_seconds=seconds)
        self._renewals = PositionStore(Connection.of(config).client(1), config)
        self._thread = threading.Thread(
            target=copy_context().run, args=(self._renew,), name="icecdc-lease", daemon=True
        )
        try:
            self._thread.start()
        except BaseException:
            self._released.set()  # an interrupt while it starts: nobody gets this lock, and nobody could release it
            raise

    @property
    def batch(self) -> Batch:
        assert self.position.batch is not None, "a batch is begun before it is written"
        return self.position.batch

    @property
    def largest(self) -> int:
        """Bytes of the largest document that the index of the begun batch has."""
        return self.batch.largest if self.batch.kind in ("export", "rollback") else self.position.largest_document

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
        self.write(replace(self.position, batch=replace(self.batch, **changes)))

    def commit(self, position: Position, entry: dict[str, Any], batch: Batch | None = None) -> None:
        """Write the entry of the commit log, then move the position; in this order no entry is ever missing."""
        log = {"index": position.index, "table": position.table, **asdict(self.batch), **entry}
        log |= {"snapshot_id": position.snapshot_id, "updated_at": datetime.now(UTC).isoformat()}
        self._store.append_log(self.batch.epoch, log)
        self.write(replace(position, batch=batch, largest=self.largest))
        event("batch committed", snapshot_id=position.snapshot_id)

    def write(self, position: Position) -> None:
        with self._mutex:
            try:
                version = None if self._lost else self._store.write(position, self._holder, self._version)
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
                self._renewals.write(self.position, self._holder, self._version, releases=True)
        except Exception as error:
            event(f"the lock was not released: {error}", logging.WARNING)
        finally:
            self._lost = True
            self._mutex.release()
        self._thread.join()
        self._renewals.client.close()

    def _renew(self) -> None:
        while not self._released.wait(self._holder.lease_seconds / 4):
            with self._mutex:
                if self._lost or self._unanswered:
                    return
                try:
                    version = self._renewals.write(self.position, self._holder, self._version)
                except Exception as error:
                    # A later renewal may succeed, and a lost lock shows at the next write.
                    event(f"the lease was not renewed: {error}", logging.WARNING)
                    continue
                self._lost = version is None
                self._version = version or self._version
