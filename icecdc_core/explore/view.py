"""The view of a table and its index at one moment, which all parts of the exploration share."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from icecdc_core.commits.position import Position
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import ConfigError, IcecdcError
from icecdc_core.opensearch.client import typed_errors
from icecdc_core.opensearch.indexes import require_index_of_table
from icecdc_core.reporting.tables import as_html
from icecdc_core.runs.nested import heads
from icecdc_core.runs.run import connect, open_indexable_source, require_readable_index
from icecdc_core.session.catalog import require_catalog
from icecdc_core.session.job_session import job_session
from icecdc_core.table.failures import spark_errors
from icecdc_core.table.snapshots import TableMetadata, ancestors, committed_at, rows_added, rows_removed
from icecdc_core.table.source import Source

if TYPE_CHECKING:
    from opensearchpy import OpenSearch
    from pyspark.sql import SparkSession

    from icecdc_core.explore.config import ExploreConfig


class Part(ABC):
    """A part of the exploration, which shows itself as HTML, and without its tables where there is none."""

    @abstractmethod
    def shown(self) -> Iterator[str | pd.DataFrame]:
        """Yield paragraphs, headings and tables."""

    def _repr_html_(self) -> str:
        return as_html(self.shown())

    def __repr__(self) -> str:
        return " ".join(part for part in self.shown() if isinstance(part, str) and part)


SnapshotRange = tuple[int | None, int | None, str]
"""Two snapshots to compare, and why these."""


def choose_snapshots(
    metadata: TableMetadata, head: int | None, position: int | None, from_snapshot: str, to_snapshot: str
) -> SnapshotRange:
    """Return the two snapshots that the parameters name, or those that a person most likely wants to compare."""
    known = metadata.by_id
    start = _named(metadata, head, position, "from_snapshot", from_snapshot) if from_snapshot else None
    end = _named(metadata, head, position, "to_snapshot", to_snapshot) if to_snapshot else head
    if end is None:
        return None, None, "The table has no snapshot yet, or is compared before its first one."
    if from_snapshot:
        return start, end, ""
    if position in known and position != end and not to_snapshot:
        return position, end, "That is what the index lacks."
    # A compaction changes no row, so the snapshot before it is the one to look at.
    changing = next((each for each in ancestors(metadata, end) if known[each].operation != "replace"), end)
    parent = known[changing].parent_snapshot_id
    if parent is not None and parent not in known:
        return None, None, f"The snapshot before {changing} has expired: nothing to compare with."
    reason = "The index has every snapshot, so these are the changes" if position == end else "The changes"
    return parent, end, f"{reason} of snapshot {changing} alone."


def _named(metadata: TableMetadata, head: int | None, position: int | None, parameter: str, text: str) -> int | None:
    """The snapshot that a text names; None is the empty table before the first snapshot."""
    chain = ancestors(metadata, head)
    oldest = metadata.by_id[chain[-1]] if chain else None
    if text == "earliest" and (oldest is None or oldest.parent_snapshot_id is None):
        return None
    if text == "current" and head is None:
        return None
    names = {**metadata.refs, "current": head, "position": position}
    found = names.get(text)
    if re.fullmatch(r"-?\d+", text):
        number = int(text)
        found = chain[-number] if 0 <= -number < len(chain) else number
    if found in [each.snapshot_id for each in metadata.snapshots]:
        return found
    raise ConfigError(
        "The table has no such snapshot, or it has expired",
        subject=parameter,
        value=text,
        remedy="use the id of a snapshot, a branch, a tag, position, current, earliest or -1, -2 to count back",
    )


OTHER_DOCUMENTS = "The index was built with other columns or another select, row_filter or nest"
"""Why documents of an index are hidden, see `View.hides_documents`."""


@dataclass(frozen=True)
class View:
    spark: SparkSession
    config: ExploreConfig
    source: Source
    chosen: SnapshotRange
    position: Position | None = None
    missing: str = ""

    @property
    def position_snapshot_id(self) -> int | None:
        return self.position.snapshot_id if self.position else None

    @property
    def is_behind(self) -> bool:
        """Whether the table, or a nested one, has a newer snapshot than the index."""
        nested = self.position.nested_snapshots if self.position else {}
        return self.position_snapshot_id != self.source.head or nested != heads(self.source)

    @property
    def masks_columns(self) -> bool:
        return bool(self.source.projection or self.source.chosen_columns)

    @property
    def hides_documents(self) -> bool:
        """Whether documents of the index may have what these parameters hide, because others made them."""
        stored, wanted = self.position.selection if self.position else {}, self.source.stored_selection
        hiding = (
            *(("columns", "select") if self.masks_columns else ()),
            *(("row_filter",) if self.source.row_filter else ()),
            "nest",  # which may have a select or a row_filter of its own
        )
        return any(stored.get(name) != wanted.get(name) for name in hiding)

    @contextmanager
    def reading(self) -> Iterator[Source]:
        """Yield the table; failures of Spark become typed errors, and what was staged is released."""
        with job_session(self.spark), spark_errors(self.config, *self.source.tables):
            try:
                yield self.source
            finally:
                self.source.release()

    @contextmanager
    def searching(self, doing: str) -> Iterator[OpenSearch]:
        """Yield a client; its failures become typed errors, and ``doing`` says what failed."""
        errors = typed_errors(self.config, doing)
        with closing(connect(self.config)) as client, errors:
            yield client

    def visible_fields(self, document: dict[str, Any]) -> dict[str, Any]:
        if self.hides_documents:
            return {}
        if not self.masks_columns:
            return document
        made = [f"{path}." for path in self.config.pipeline_fields]
        columns = self.source.schema.names
        return {
            name: value
            for name, value in document.items()
            if name in columns or any(path.startswith(f"{name}.") for path in made)
        }


def open_view(spark: SparkSession, config: ExploreConfig) -> View:
    """Open the table and find out what is known about its index; a missing index is a note, no error."""
    position, missing = _position(config)  # first: the table then knows its snapshot
    with job_session(spark) as own:
        require_catalog(own, config)
        source = open_indexable_source(own, config, needs_history=False)
    snapshot_id = position.snapshot_id if position else None
    chosen = choose_snapshots(source.metadata, source.head, snapshot_id, config.from_snapshot, config.to_snapshot)
    return View(spark, config, source, chosen, position, missing)


def _position(config: ExploreConfig) -> tuple[Position | None, str]:
    try:
        with closing(connect(config)) as client:
            position = PositionStore(client, config).read()
            if position is None or not position.exists:
                return None, f"There is no index '{config.index}' yet: nothing was exported. The first sync exports it."
            require_index_of_table(config, position.table)
            with typed_errors(config, "reading the index"):
                require_readable_index(client, position)
            return position, ""
    except IcecdcError as error:
        return None, f"The index cannot be read. {error}"


@dataclass(frozen=True, repr=False)
class TimeLine(Part):
    """The newest snapshots of a table, and where its index stands; of nested tables the newest one."""

    entries: tuple[dict[str, Any], ...]
    snapshots: int
    notes: tuple[str, ...] = ()
    nested: tuple[dict[str, Any], ...] = ()

    def shown(self) -> Iterator[str | pd.DataFrame]:
        yield f"{len(self.entries):,} of {self.snapshots:,} snapshots; max_snapshots shows more."
        yield from self.notes
        yield pd.DataFrame(list(self.entries))
        yield pd.DataFrame(list(self.nested), dtype=object)  # a missing snapshot would make the ids floats


def show_time_line(view: View) -> TimeLine:
    """Return the newest snapshots of the table; reads metadata only."""
    metadata, position = view.source.metadata, view.position_snapshot_id
    entries = time_line(metadata, view.source.head, position, view.config.max_snapshots)
    notes = [view.missing]
    if not view.source.identifier_columns:
        notes.append(
            "The table has no identifier columns: changes are inserts and deletes, never updates, and documents cannot "
            "be looked up. identifier_columns names some."
        )
    if position is not None and position not in metadata.by_id:
        notes.append(f"The snapshot of the index, {position}, has expired.")
    stored = view.position.nested_snapshots if view.position else {}
    nested = [
        {"nested_table": name, "position_snapshot_id": stored.get(name), "current_snapshot_id": each.head}
        for name, each in view.source.nested.items()
    ]
    return TimeLine(entries, len(metadata.snapshots), tuple(filter(None, notes)), tuple(nested))


def time_line(metadata: TableMetadata, head: int | None, position: int | None, most: int) -> tuple[dict[str, Any], ...]:
    heads = dict(sorted(metadata.refs.items()))
    reachable = {each for named in (*heads.values(), head) for each in ancestors(metadata, named)}

    def what(snapshot_id: int) -> str:
        names = [name for name, named in heads.items() if named == snapshot_id]
        names += ["the index"] if snapshot_id == position else []
        return ", ".join([*names, *([] if snapshot_id in reachable else ["rolled back"])])

    # Clocks of writers may differ; sequence numbers do not (format v1 has none).
    newest = sorted(metadata.snapshots, key=lambda each: (-int(each.sequence_number or 0), -each.timestamp_ms))[:most]
    return tuple(
        {
            "what": what(each.snapshot_id),
            "operation": each.operation,
            "rows_added": rows_added(each),
            "rows_removed": rows_removed(each),
            "committed_at": committed_at(each),
            "snapshot_id": each.snapshot_id,
        }
        for each in newest
    )
