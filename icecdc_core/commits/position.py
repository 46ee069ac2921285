"""Positions, batches and the holder of a lock: their fields, and how they are stored."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import ConfigDict, Field, PositiveInt, TypeAdapter, ValidationError

from icecdc_core.config.values import MAX_LEASE_SECONDS
from icecdc_core.errors import PositionError
from icecdc_core.session.processes import host_name, is_running, started_at

FORMAT = 3
"""The format of a stored position. It grows when an older release could misread it."""

CONFIRMED_EVERY = 60.0
"""Seconds between two writes of `current_at` by polls that find nothing new."""

_DOCUMENT_FIELDS = frozenset({"type", "format", "owner", "updated_at"})
_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class LeaseHolder:
    __pydantic_config__ = _STRICT

    run_id: str
    host: str
    pid: PositiveInt
    started: str
    since: str
    lease_seconds: Annotated[float, Field(ge=0, le=MAX_LEASE_SECONDS)]
    renewed: float

    @classmethod
    def this_process(cls, run_id: str, lease_seconds: float = 0.0) -> LeaseHolder:
        pid, now = os.getpid(), datetime.now(UTC).isoformat(timespec="seconds")
        return cls(run_id, host_name(), pid, started_at(pid), now, lease_seconds, time.monotonic())


active_runs: set[str] = set()
"""Runs of this process that hold a lock."""


def is_gone(holder: LeaseHolder, here: LeaseHolder) -> bool | None:
    """Return whether a holder lost its lock; None if this machine cannot know."""
    if holder.host != here.host:
        return None
    is_here = (holder.pid, holder.started) == (here.pid, here.started)
    is_alive = holder.run_id in active_runs if is_here else is_running(holder.pid, holder.started)
    return not (is_alive and 0 <= time.monotonic() - holder.renewed < holder.lease_seconds)


@dataclass(frozen=True)
class NestedPosition:
    __pydantic_config__ = _STRICT

    table_uuid: str
    snapshot_id: int | None
    schema: str
    identity: str = ""


@dataclass(frozen=True)
class Batch:
    __pydantic_config__ = _STRICT

    kind: str
    epoch: int
    from_snapshot_id: int | None
    to_snapshot_id: int | None
    physical_index: str
    table_uuid: str = ""
    selection: dict[str, Any] = field(default_factory=dict)
    schema: str = ""
    groups_done: int = 0
    operations: int = 0
    rejected: int = 0
    group_bytes: int = 0
    groups_digest: str = ""
    on_duplicate_identifier: str = ""
    index_uuid: str = ""
    index_digest: str = ""
    failure: str = ""
    met_duplicates: bool = False
    cuts: list[int | None] = field(default_factory=list)
    nested: dict[str, NestedPosition] = field(default_factory=dict)
    nested_cuts: list[dict[str, int | None]] = field(default_factory=list)
    """The snapshots of nested tables at each of the cuts."""
    indexes: dict[str, str] = field(default_factory=dict)
    """With `index_column`: the uuids of the indexes it writes, by their names."""
    identity: str = ""
    """Of the snapshot at its end, as in a position."""
    largest: int = 0
    """Bytes of the largest document that it wrote."""
    over: Batch | None = None
    """The begun batch that an export or a rollback took the place of: it may have written to the position's index."""

    @property
    def uuids(self) -> dict[str, str]:
        return {self.physical_index: self.index_uuid, **self.indexes}

    @property
    def nested_snapshots(self) -> dict[str, int | None]:
        return {table: at.snapshot_id for table, at in self.nested.items()}


@dataclass(frozen=True)
class Position:
    """The state of an index: which snapshot it is in sync with, and the batch that was begun."""

    __pydantic_config__ = _STRICT

    index: str
    table: str
    table_uuid: str
    snapshot_id: int | None = None
    epoch: int = 0
    physical_index: str = ""
    selection: dict[str, Any] = field(default_factory=dict)
    schema: str = ""
    batch: Batch | None = None
    unfinished_specs: list[dict[str, Any]] = field(default_factory=list)
    nested: dict[str, NestedPosition] = field(default_factory=dict)
    indexes: dict[str, str] = field(default_factory=dict)
    """With `index_column`: the uuids of the indexes that have documents, by their names."""
    index_uuid: str = ""
    is_partial: bool = False
    """Whether it began with an empty index at a snapshot that has rows, see `start_from`."""
    is_unique: bool = True
    """Whether no two rows of the table had one identifier; not known with `on_duplicate_identifier=last`."""
    drifted: int = 0
    """Documents that syncs did not find since an export, a repair or a validation proved all of them."""
    identity: str = ""
    """What makes the snapshot that one, see `Snapshot.identity`; earlier releases stored none."""
    largest: int = 0
    """Bytes that no document exceeds; 0: an earlier release wrote them."""
    committed_at: str | None = None
    """When the newest of its snapshots was committed, of all its tables."""
    current_at: str | None = None
    """When its snapshots were last known to be the newest: a moment before their tables were read."""
    lag_seconds: float | None = None
    """How long the oldest commit of the last batch waited until searches found it; None after an export."""
    earlier: Position | None = None
    """That of the index before the last export, if `keep_index` keeps it for a rollback."""
    earlier_until: str = ""

    @property
    def every_index(self) -> dict[str, str]:
        """The indexes with documents that readers see, those of a begun batch included."""
        begun = self.batch.indexes if self.batch and self.batch.physical_index == self.physical_index else {}
        return {**self.indexes, **begun}

    @property
    def uuids(self) -> dict[str, str]:
        return {self.physical_index: self.index_uuid, **{name: uuid for name, uuid in self.every_index.items() if uuid}}

    @property
    def nested_snapshots(self) -> dict[str, int | None]:
        return {table: at.snapshot_id for table, at in self.nested.items()}

    def of_nested(self, table: str) -> Position:
        """Return this position as if it were that of an index of a nested table."""
        at, batch = self.nested[table], self.batch
        if batch is not None:
            cuts = [cut.get(table) for cut in batch.nested_cuts]
            end = batch.nested.get(table, NestedPosition("", None, ""))
            batch = replace(batch, cuts=cuts, to_snapshot_id=end.snapshot_id, identity=end.identity)
        moved = replace(self, table=table, table_uuid=at.table_uuid, snapshot_id=at.snapshot_id)
        return replace(moved, schema=at.schema, identity=at.identity, batch=batch)

    @property
    def exists(self) -> bool:
        """Whether a batch was ever committed."""
        return bool(self.physical_index)

    @property
    def content_version(self) -> tuple[object, ...]:
        """What differs as soon as another batch may have written to its index."""
        return self.snapshot_id, self.physical_index, self.epoch

    @property
    def largest_document(self) -> int:
        return max(self.largest, self.batch.largest if self.batch else 0)

    @property
    def begun_export(self) -> str:
        """The index of a begun export; empty: no export is begun."""
        return self.batch.physical_index if self.batch and self.batch.kind == "export" else ""

    @property
    def begun_rollback(self) -> bool:
        return self.batch is not None and self.batch.kind == "rollback"


_POSITION, _HOLDER = TypeAdapter(Position), TypeAdapter(LeaseHolder | None)


def position_document(position: Position, holder: LeaseHolder | None) -> dict[str, Any]:
    """Return the document of a position; it renews the lease of the holder."""
    return {
        "type": "position",
        "format": FORMAT,
        **asdict(position),
        "owner": asdict(replace(holder, renewed=time.monotonic())) if holder else None,
        "updated_at": datetime.now(UTC).isoformat(),
    }


def parse_position(source: Mapping[str, Any]) -> tuple[Position, LeaseHolder | None]:
    try:
        if source.get("format") != FORMAT:
            raise ValueError(f"it has format {source.get('format')!r}, and this release reads {FORMAT}")
        fields = {name: source[name] for name in source.keys() - _DOCUMENT_FIELDS}
        return _POSITION.validate_python(fields), _HOLDER.validate_python(source.get("owner"))
    except ValueError as error:
        found = error.errors(include_url=False) if isinstance(error, ValidationError) else ()
        problems = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in found)
        raise PositionError(
            f"The position of '{source.get('index')}' cannot be read: {problems or error}",
            subject="index",
            value=source.get("index"),
            remedy="use the release of icecdc that wrote it, undo an edit, or delete the position and run the export",
        ) from None
