"""What to know before and between runs: environment, table, mapping, hazards, counts. It only reads."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from opensearchpy.exceptions import NotFoundError

from icecdc_core.commits.preconditions import check_preconditions
from icecdc_core.documents.mapping import check_supported, index_mapping
from icecdc_core.errors import IcecdcError
from icecdc_core.jobs.run import Run
from icecdc_core.opensearch.indexes import require_ours
from icecdc_core.reporting.reports import Report, check_report_path
from icecdc_core.session.catalog import require_catalog
from icecdc_core.session.compat import require_supported
from icecdc_core.session.jvm import iceberg_class, java_class
from icecdc_core.table.read_failures import spark_errors
from icecdc_core.table.source import Source, open_source, require_unique

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

    from icecdc_core.config import SyncConfig


@dataclass(frozen=True)
class SetupReport(Report):
    """What was found, and everything that stands in the way of a run."""

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

    def to_dict(self) -> dict[str, Any]:
        """The report as plain Python values."""
        return {name: value for name, value in vars(self).items() if name != "errors"}

    def rows(self) -> list[tuple[str, str]]:
        """What a person wants to know first, as pairs of a name and a readable value."""
        return [
            ("verdict", "ready" if self.ok else "NOT ready"),
            ("table", self.table),
            ("index", self.index),
            ("current snapshot", str(self.snapshot_id or "none")),
            ("snapshot of the index", str(self.position_snapshot_id or "none: not exported yet")),
            ("rows in table", "" if self.source_rows is None else f"{self.source_rows:,}"),
            ("identifier columns", ", ".join(self.identifier_columns) or "none"),
            *self.versions.items(),
        ]

    def mapping_table(self) -> pd.DataFrame:
        """The columns with their Iceberg types and the OpenSearch fields they become."""
        import pandas as pd

        return pd.DataFrame(self.columns)

    def hazards(self) -> pd.DataFrame:
        """What forbids a run, and what is good to know; empty when there is nothing to say."""
        import pandas as pd

        found = [("problem", text) for text in self.problems] + [("note", text) for text in self.notes]
        return pd.DataFrame(found, columns=["kind", "what was found"])

    def require_ready(self) -> None:
        """Refuse to go on when something stands in the way.

        Raises:
            IcecdcError: The first problem, as the run itself would raise it.
        """
        if self.errors:
            raise self.errors[0]


def check_setup(spark: SparkSession, config: SyncConfig) -> SetupReport:
    """Look at everything a run depends on and collect all problems instead of stopping at the first.

    Args:
        spark: A session in which the table's catalog is configured, see ``get_spark``.
        config: The job's parameters.
    """
    begin = time.monotonic()
    require_supported(spark)
    errors: list[IcecdcError] = []
    found: dict[str, Any] = {"versions": _versions(spark)}
    _collect(errors, lambda: check_report_path(config.report_path))
    _collect(errors, lambda: require_catalog(spark, config))
    source = _collect(errors, lambda: _open(spark, config))
    if source is not None:
        found |= _about(source)
        _collect(errors, lambda: _check_rows(source, config, found))
    run = _collect(errors, lambda: Run(config))
    if run is not None:
        with run.talking("reading the server's version"):
            found["versions"]["OpenSearch"] = str(run.client.info()["version"]["number"])
        _collect(errors, lambda: _check_index(run, source, found))
        run.close()
    if source is not None:
        source.table.release()
    return SetupReport(
        ok=not errors,
        table=config.table,
        index=config.index,
        problems=[str(error) for error in errors],
        errors=errors,
        seconds=round(time.monotonic() - begin, 3),
        **found,
    )


def count_rows_and_documents(spark: SparkSession, config: SyncConfig) -> dict[str, int]:
    """Count the selected rows of the current snapshot and the documents of the index (0 without an index)."""
    with Run(config) as run, run.stage("count"):
        rows = _count_rows(run.source(spark))
        try:
            run.client.indices.refresh(index=config.index)
            documents = int(run.client.count(index=config.index)["count"])
        except NotFoundError:
            documents = 0
        return {"rows": rows, "documents": documents}


def _open(spark: SparkSession, config: SyncConfig) -> Source:
    source = open_source(spark, config)
    check_supported(source.schema)
    return source


def _versions(spark: SparkSession) -> dict[str, str]:
    return {
        "icecdc": _installed("icecdc"),
        "Python": platform.python_version(),
        "Java": str(java_class(spark, "java.lang.System").getProperty("java.version")),
        "Spark": spark.version,
        "Iceberg": str(iceberg_class(spark, "IcebergBuild").version()),
        "opensearch-py": _installed("opensearch-py"),
    }


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "from source"


def _about(source: Source) -> dict[str, Any]:
    fields = index_mapping(source.schema)["properties"]
    columns = [
        {
            "column": column.name,
            "type": column.dataType.simpleString(),
            "required": not column.nullable,
            "identifier": column.name in source.identifier_columns,
            "OpenSearch field": fields.get(column.name, {}).get("type", "object"),
        }
        for column in source.schema.fields
    ]
    identifiers = source.identifier_columns
    note = "no identifier columns: only appends can be followed; updates and deletes will be refused"
    return {
        "snapshot_id": source.head,
        "identifier_columns": list(identifiers),
        "columns": columns,
        "notes": [] if identifiers else [note],
    }


def _check_rows(source: Source, config: SyncConfig, found: dict[str, Any]) -> None:
    with spark_errors(config, source.table):
        found["source_rows"] = _count_rows(source)
        if source.identifier_columns and source.head is not None:
            rows = source.rows(source.table.plan(source.head))
            require_unique(rows, source.identifier_columns, config.table, config.on_duplicate_identifier == "last")


def _check_index(run: Run, source: Source | None, found: dict[str, Any]) -> None:
    with run.talking("looking at the index"):
        require_ours(run.client, run.config)
    position = run.positions.read()
    if position is None or not position.exists:
        return
    found["position_snapshot_id"] = position.snapshot_id
    notes = found.setdefault("notes", [])
    if position.batch is not None:
        notes.append(f"a begun {position.batch.kind} waits to be finished by the next run")
    if source is not None and (refusal := check_preconditions(position, source)) is not None:
        if getattr(run.config, refusal.policy) != "reexport":
            raise refusal.error
        notes.append(f"the next sync exports again: {refusal.error.message}")


def _count_rows(source: Source) -> int:
    return source.rows(source.table.plan(source.head)).count() if source.head is not None else 0


def _collect(errors: list[IcecdcError], step: Callable[[], Any]) -> Any:
    try:
        return step()
    except IcecdcError as error:
        errors.append(error)
        return None
