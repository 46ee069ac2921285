"""The view of a table and its index at one moment, which all parts of the exploration share."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from icecdc_core.columns import literal_names
from icecdc_core.commits.position_format import Position
from icecdc_core.commits.positions import PositionStore
from icecdc_core.commits.preconditions import check_preconditions
from icecdc_core.documents.field_paths import outer_paths
from icecdc_core.errors import IcecdcError
from icecdc_core.explore.snapshot_choice import SnapshotRange, choose_snapshots
from icecdc_core.opensearch.client import typed_errors
from icecdc_core.opensearch.index_checks import require_index_of_table, require_readable_index
from icecdc_core.runs.run import connect, open_indexable_source
from icecdc_core.session.catalog import require_catalog
from icecdc_core.session.compat import require_supported
from icecdc_core.table.lag import lag
from icecdc_core.table.read_failures import spark_errors
from icecdc_core.table.source import Source

if TYPE_CHECKING:
    from opensearchpy import OpenSearch
    from pyspark.sql import SparkSession

    from icecdc_core.explore.config import ExploreConfig

OTHER_DOCUMENTS = "The index was built with other columns or another select or row_filter"
"""Why documents of an index are hidden, see `View.hides_documents`."""


@dataclass(frozen=True)
class View:
    """A table and its index."""

    spark: SparkSession
    config: ExploreConfig
    source: Source
    chosen: SnapshotRange
    position: Position | None = None
    missing: str = ""
    notes: tuple[str, ...] = ()
    since: float = field(default_factory=time.monotonic)

    @property
    def position_snapshot_id(self) -> int | None:
        """The snapshot that the index equals, if it is known."""
        return self.position.snapshot_id if self.position else None

    @property
    def masks_columns(self) -> bool:
        """Whether the parameters hide columns of the table or their values."""
        return bool(self.source.projection or self.source.chosen_columns)

    @property
    def hides_documents(self) -> bool:
        """Whether documents of the index may have what these parameters hide, because others made them."""
        stored, wanted = self.position.selection if self.position else {}, self.source.stored_selection
        hiding = (
            *(("columns", "select") if self.masks_columns else ()),
            *(("row_filter",) if self.source.row_filter else ()),
        )
        return any(stored.get(name) != wanted.get(name) for name in hiding)

    @property
    def seconds(self) -> float:
        """Seconds since the view was opened."""
        return round(time.monotonic() - self.since, 3)

    @contextmanager
    def reading(self) -> Iterator[Source]:
        """Yield the table; failures of Spark become typed errors, and what was staged is released."""
        with literal_names(self.spark), spark_errors(self.config, self.source.table):
            try:
                yield self.source
            finally:
                self.source.table.release()

    @contextmanager
    def searching(self, doing: str) -> Iterator[OpenSearch]:
        """Yield a client; its failures become typed errors, and ``doing`` says what failed."""
        with closing(connect(self.config)) as client, opensearch_errors(self.config, doing):
            yield client

    def visible_fields(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of a document that the parameters let through."""
        if self.hides_documents:
            return {}
        if not self.masks_columns:
            return document
        made = [each for path in self.config.pipeline_fields for each in (path, *outer_paths(path))]
        allowed = {*self.source.schema.names, *made}
        return {name: value for name, value in document.items() if name in allowed}


def opensearch_errors(config: ExploreConfig, doing: str) -> Any:
    """Return the context in which failures of OpenSearch become typed errors."""
    return typed_errors(config.opensearch_url, doing, config.opensearch_username)


def open_view(spark: SparkSession, config: ExploreConfig) -> View:
    """Open the table and find out what is known about its index; a missing index is a note, no error."""
    since = time.monotonic()
    require_supported(spark)
    require_catalog(spark, config)
    with literal_names(spark):
        position, missing = _position(config)  # first: the table then knows its snapshot
        source = open_indexable_source(spark, config, needs_history=False)
    snapshot_id = position.snapshot_id if position else None
    chosen = choose_snapshots(source.metadata, source.head, snapshot_id, config.from_snapshot, config.to_snapshot)
    return View(spark, config, source, chosen, position, missing, tuple(index_notes(source, position)), since)


def _position(config: ExploreConfig) -> tuple[Position | None, str]:
    """The position of the index, and why the index cannot be read."""
    try:
        with closing(connect(config)) as client, opensearch_errors(config, "reading the position"):
            position = PositionStore(client, config).read()
            if position is None or not position.exists:
                return None, f"There is no index '{config.index}' yet: nothing was exported. The first sync exports it."
            require_index_of_table(config, position.table)
            require_readable_index(client, *position.committed_index)
            return position, ""
    except IcecdcError as error:
        return None, f"The index cannot be read. {error}"


def index_notes(source: Source, position: Position | None) -> Iterator[str]:
    """Yield what is good to know about the index and its table: what a sync cannot do, and how far the index is behind."""
    if not source.identifier_columns:
        yield (
            "The table has no identifier columns: changes are inserts and deletes, never updates, and documents cannot "
            "be looked up. identifier_columns names some."
        )
    if position is None:
        return
    failed = check_preconditions(position, source)
    if failed is not None:
        yield f"The next sync cannot continue from the position: {failed.error}"
    snapshots, seconds = lag(source.metadata, position.snapshot_id, source.head)
    if snapshots and position.snapshot_id in (None, *source.snapshot_ids):
        yield f"The index is {snapshots:,} snapshots and {seconds:,.0f} s behind the table."
    elif failed is None and position.snapshot_id == source.head:
        yield "The index is up to date."
    elif failed is None:
        yield "The table was rolled back to an earlier snapshot than that of the index. The next sync goes back to it."
