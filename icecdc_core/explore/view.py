"""The view of a table and its index at one moment, which all parts of the exploration share."""

import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession

from icecdc_core.commits.position import Position
from icecdc_core.commits.store import PositionStore
from icecdc_core.errors import ConfigError, IcecdcError
from icecdc_core.explore.config import ExploreConfig
from icecdc_core.opensearch.client import typed_errors
from icecdc_core.opensearch.indexes import require_index_of_table
from icecdc_core.reporting.tables import as_html
from icecdc_core.runs.plan import heads
from icecdc_core.runs.run import connect, open_indexable_source, require_readable_index
from icecdc_core.session.catalog import require_catalog
from icecdc_core.session.job_session import job_session
from icecdc_core.table.failures import spark_errors
from icecdc_core.table.snapshots import TableMetadata, ancestors, committed_at, rows_added, rows_removed
from icecdc_core.table.source import Source


@dataclass(frozen=True, repr=False)
class Part:
    """A part of the exploration: what the report has of it, and the paragraphs and tables that show it."""

    report: dict[str, Any]
    shown: Sequence[str | pd.DataFrame]
    document_id: str = ""  # to be looked up, unless the parameters name one

    def _repr_html_(self) -> str:
        return as_html(self.shown)

    def __repr__(self) -> str:
        return " ".join(part for part in self.shown if isinstance(part, str) and part)


def choose_snapshots(
    metadata: TableMetadata, head: int | None, position: int | None, from_snapshot: str, to_snapshot: str
) -> tuple[int | None, int | None, str]:
    """Return the two snapshots that the parameters name, or that a person most likely compares, and why these."""
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
    has_first = not chain or metadata.by_id[chain[-1]].parent_snapshot_id is None
    if (text == "earliest" and has_first) or (text == "current" and head is None):
        return None
    found = {**metadata.refs, "current": head, "position": position}.get(text)
    if re.fullmatch(r"-?\d+", text):
        number = int(text)
        found = chain[-number] if 0 <= -number < len(chain) else number
    if found in metadata.by_id:
        return found
    raise ConfigError(
        "The table has no such snapshot, or it has expired",
        subject=parameter,
        value=text,
        remedy="use the id of a snapshot, a branch, a tag, position, current, earliest or -1, -2 to count back",
    )


# Why documents of an index are hidden, see `View.hides_documents`.
OTHER_DOCUMENTS = "The index was built with other columns or another select, row_filter or nest"


@dataclass(frozen=True)
class View:
    spark: SparkSession
    config: ExploreConfig
    source: Source
    chosen: tuple[int | None, int | None, str]
    position: Position
    missing: str = ""  # why nothing of the index can be shown

    @property
    def masks_columns(self) -> bool:
        return bool(self.source.projection or self.source.chosen_columns)

    @property
    def hides_documents(self) -> bool:
        """Whether documents of the index may have what these parameters hide, because others made them."""
        stored, wanted = self.position.selection, self.source.stored_selection
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
    position, missing = Position(config.index, config.table, ""), ""
    try:  # first: the table then knows its snapshot
        with closing(connect(config)) as client:
            found = PositionStore(client, config).read()
            if found is None or not found.exists:
                missing = f"There is no index '{config.index}' yet: nothing was exported. The first sync exports it."
            else:
                require_index_of_table(config, found.table)
                with typed_errors(config, "reading the index"):
                    require_readable_index(client, found)
                position = found
    except IcecdcError as error:
        missing = f"The index cannot be read. {error}"
    with job_session(spark) as own:
        require_catalog(own, config)
        source = open_indexable_source(own, config, needs_history=False, position=position)
    named = config.from_snapshot, config.to_snapshot
    chosen = choose_snapshots(source.metadata, source.head, position.snapshot_id, *named)
    return View(spark, config, source, chosen, position, missing)


def show_time_line(view: View) -> Part:
    """Show the newest snapshots of the table, and where its index stands; reads metadata only."""
    source, metadata, position = view.source, view.source.metadata, view.position.snapshot_id
    names = [*sorted(metadata.refs.items()), ("the index", position)]
    reachable = {each for named in (*metadata.refs.values(), source.head) for each in ancestors(metadata, named)}
    # Clocks of writers may differ; sequence numbers do not (format v1 has none).
    newest = sorted(metadata.snapshots, key=lambda each: (-int(each.sequence_number or 0), -each.timestamp_ms))
    entries = [
        {
            "what": ", ".join(
                [name for name, named in names if named == each.snapshot_id]
                + ([] if each.snapshot_id in reachable else ["rolled back"])
            ),
            "operation": each.operation,
            "rows_added": f"{rows_added(each):,}",
            "rows_removed": f"{rows_removed(each):,}",
            "committed_at": committed_at(each),
            "snapshot_id": each.snapshot_id,
        }
        for each in newest[: view.config.max_snapshots]
    ]
    notes = [view.missing] if view.missing else []
    if not source.identifier_columns:
        notes.append(
            "The table has no identifier columns: changes are inserts and deletes, never updates, and documents cannot "
            "be looked up. identifier_columns names some."
        )
    if position is not None and position not in metadata.by_id:
        notes.append(f"The snapshot of the index, {position}, has expired.")
    stored = view.position.nested_snapshots
    nested = [
        {"nested_table": name, "position_snapshot_id": stored.get(name), "current_snapshot_id": head}
        for name, head in heads(source).items()
    ]
    shown: list[str | pd.DataFrame] = [
        f"{len(entries):,} of {len(metadata.snapshots):,} snapshots; max_snapshots shows more.",
        *notes,
        pd.DataFrame(entries),
        pd.DataFrame(nested, dtype=object),  # a missing snapshot would make the ids floats
    ]
    return Part({"snapshots": len(metadata.snapshots), "notes": notes}, shown)
