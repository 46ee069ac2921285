"""The setup check: everything a run depends on, and everything that would block it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from opensearchpy import OpenSearch
from pyspark.sql import SparkSession

from icecdc_core.commits.position import Position
from icecdc_core.commits.store import PositionStore
from icecdc_core.config import SyncConfig
from icecdc_core.documents.mapping import index_mapping
from icecdc_core.errors import IcecdcError
from icecdc_core.opensearch.bulk import try_workers
from icecdc_core.opensearch.client import typed_errors
from icecdc_core.opensearch.index_settings import require_pipelines
from icecdc_core.opensearch.indexes import check_mapping, require_own_alias
from icecdc_core.reporting.card import Card
from icecdc_core.reporting.exit_states import state_of
from icecdc_core.reporting.reports import Report, check_report_path
from icecdc_core.runs.batch import find_suffixes
from icecdc_core.runs.plan import needs_reexport, start_position
from icecdc_core.runs.run import (
    connect,
    open_indexable_source,
    require_identity,
    require_no_documents,
    require_readable_index,
)
from icecdc_core.session.catalog import require_catalog
from icecdc_core.session.compat import versions
from icecdc_core.session.job_session import with_job_session
from icecdc_core.table.failures import spark_errors
from icecdc_core.table.source import Source

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class SetupReport(Report):
    """What a run depends on, and everything that would block it.

    Attributes:
        ok: Whether a run can start.
        table: ``catalog.namespace.table``.
        index: The alias that readers use.
        kind: ``setup``.
        versions: The versions of icecdc, Python, Java, Spark, Iceberg, OpenSearch and its client.
        snapshot_id: The table's current snapshot; null if it is empty or cannot be read.
        position_snapshot_id: The snapshot that the index equals; null before the first export.
        source_rows: Rows of the current snapshot; null if they cannot be read.
        identifier_columns: The columns that make a document's id.
        columns: Each column with its type and the OpenSearch field it becomes; then the fields that no column makes,
            with an empty type.
        problems: What would block a run, each with its remedy.
        notes: What is good to know.
        seconds: Seconds the check took.
        errors: The problems as errors.
    """

    ok: bool
    table: str
    index: str
    kind: str = "setup"
    versions: dict[str, str] = field(default_factory=dict)
    snapshot_id: int | None = None
    position_snapshot_id: int | None = None
    source_rows: int | None = None
    identifier_columns: list[str] = field(default_factory=list)
    columns: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    errors: list[IcecdcError] = field(default_factory=list, repr=False, compare=False)

    @property
    def state(self) -> str:
        return state_of(self.errors[0]) if self.errors else "ok"

    @property
    def word(self) -> str:
        return "failed" if self.errors else "ready"

    def to_dict(self) -> dict[str, Any]:
        return {**{each.name: getattr(self, each.name) for each in fields(self) if each.repr}, "state": self.state}

    @property
    def line(self) -> str:
        return "ready" if self.ok else f"NOT ready: {len(self.problems)} problem{'s'[: len(self.problems) != 1]}"

    def card(self) -> Card:
        card, rows = super().card(), "" if self.source_rows is None else f"{self.source_rows:,}"
        facts = [
            ("Snapshot", f"{self.snapshot_id or 'none'}; of the index: {self.position_snapshot_id or 'none yet'}"),
            ("Rows", rows),
            ("Identifiers", ", ".join(self.identifier_columns) or "none"),
            ("Versions", ", ".join(f"{name} {version}" for name, version in self.versions.items())),
            ("Note", "\n".join(self.notes)),
        ]
        what = "Everything that a run needs is there." if self.ok else card.what
        return card._replace(what=what, facts=[*facts, *card.facts])

    def mapping_table(self) -> pd.DataFrame:
        from icecdc_core.reporting.tables import NotebookFrame

        return NotebookFrame(self.columns)


@with_job_session
def check_setup(spark: SparkSession, config: SyncConfig) -> SetupReport:
    """Check everything a run depends on, and collect all problems instead of stopping at the first."""
    begin = time.monotonic()
    errors: list[IcecdcError] = []
    of_index: list[IcecdcError] = []
    stored: Position | None = None
    found: dict[str, Any] = {"versions": versions(spark)}
    source: Source | None = None
    with _collecting(errors):
        check_report_path(config.report_path)
    with _collecting(errors):
        require_catalog(spark, config)
    with _collecting(of_index), closing(connect(config)) as client:
        stored = PositionStore(client, config).read()  # first: the table then knows its snapshot
    with _collecting(errors), spark_errors(config):
        try_workers(spark)
    with _collecting(errors):
        source = open_indexable_source(spark, config, position=stored)
        found |= _about(source, config)
        with spark_errors(config, *source.tables):
            found["source_rows"] = source.current_rows(source.head, "fail").count()
            source.require_unique_identifiers(config.on_duplicate_identifier, source.head)
            find_suffixes(config, source.placed_rows(source.head))
    with _collecting(of_index), closing(connect(config)) as client, typed_errors(config, "reading the index"):
        _check_index(client, config, source, stored, found)
    errors += of_index[:1]
    if source is not None:
        source.release()
    return SetupReport(
        ok=not errors,
        table=config.table,
        index=config.index,
        problems=[str(error) for error in errors],
        errors=errors,
        seconds=round(time.monotonic() - begin, 3),
        **found,
    )


@contextmanager
def _collecting(errors: list[IcecdcError]) -> Iterator[None]:
    try:
        yield
    except IcecdcError as error:
        errors.append(error)


def _about(source: Source, config: SyncConfig) -> dict[str, Any]:
    fields = index_mapping(source.schema, config.full_mapping, config.pipeline_fields)["properties"]
    identifiers = source.identifier_columns
    own = {each.name: each for each in source.schema}
    columns = [
        {
            "column": name,
            "type": own[name].dataType.simpleString() if name in own else "",
            "required": name in own and not own[name].nullable,
            "identifier": name in own and name in identifiers,
            "OpenSearch field": fields.get(name, {}).get("type", "object"),
        }
        for name in {**own, **fields}
    ]
    shown = source.columns if source.projection is None else source.projection.repeated.values()
    hidden = [name for name in identifiers if name not in shown]
    notes = [f"document ids contain the values of '{name}', although no field has them" for name in hidden]
    if not identifiers:
        notes.append("no identifier columns: a sync accepts appends only and refuses updates and deletes")
    return {"snapshot_id": source.head, "identifier_columns": list(identifiers), "columns": columns, "notes": notes}


def _check_index(
    client: OpenSearch, config: SyncConfig, source: Source | None, stored: Position | None, found: dict[str, Any]
) -> None:
    found["versions"]["OpenSearch"] = str(client.info()["version"]["number"])
    require_own_alias(client, config)
    require_pipelines(client, config)
    position = stored or Position(config.index, config.table, source.metadata.table_uuid if source else "")
    if source is not None:
        check_mapping(client, config, source.schema)
        require_identity(client, config, position, source)
    require_no_documents(client, config, position)
    if not position.exists:
        if source is not None:
            start_position(position, source, config)
        return
    if not (position.begun_export or position.begun_rollback):
        require_readable_index(client, position)
    found["position_snapshot_id"] = position.snapshot_id
    notes = found.setdefault("notes", [])
    if position.batch is not None and position.batch.kind != "repair":
        notes.append(f"the next run goes on with a begun {position.batch.kind}")
    if source is not None and (error := needs_reexport(position, source, config)) is not None:
        notes.append(f"the next sync exports again: {error.message}")
