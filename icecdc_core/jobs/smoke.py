"""The smoke test: tries export, sync and validation on scratch tables, drops them, and reports each check."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from icecdc_core.carryover import remove_carryovers
from icecdc_core.changes import read_changes
from icecdc_core.columns import quoted
from icecdc_core.errors import IcecdcError, IndexDiffersError
from icecdc_core.jobs.export import export_table
from icecdc_core.jobs.setup import CheckReport, check_setup
from icecdc_core.jobs.sync import sync_changes
from icecdc_core.jobs.validate import validate_table
from icecdc_core.opensearch.client import typed_errors
from icecdc_core.opensearch.indexes import icecdc_meta, indexes_behind
from icecdc_core.reporting.card import Card
from icecdc_core.reporting.reports import check_report_path
from icecdc_core.runs.dead_letters import table_name
from icecdc_core.runs.run import connect, refuse_dry_run
from icecdc_core.secrets import mask_secrets, shorten
from icecdc_core.session.compat import versions
from icecdc_core.session.job_session import job_session
from icecdc_core.session.jvm import java_class
from icecdc_core.table.failures import spark_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icecdc_core.config import SyncConfig


def describe_environment(spark: SparkSession, config: SyncConfig) -> dict[str, str]:
    """Return what was found, without secrets; ``unknown`` for what this environment does not say."""
    facts: dict[str, Callable[[], str]] = {
        "Iceberg's jar": lambda: _jar(spark, "org.apache.iceberg.IcebergBuild"),
        # A tag of the runtime that Databricks does not document, so it may be missing.
        "access mode": lambda: str(spark.conf.get("spark.databricks.clusterUsageTags.dataSecurityMode", "unknown")),
        "OpenSearch": lambda: _opensearch(config),
    }
    found = {"Databricks runtime": os.environ.get("DATABRICKS_RUNTIME_VERSION", "none"), **versions(spark)}
    found["catalog"] = config.catalog
    for name, fact in facts.items():
        try:
            found[name] = fact()
        except Exception as error:  # the report is there to say what does not work
            found[name] = f"unknown ({type(error).__name__})"
    return found


def _jar(spark: SparkSession, name: str) -> str:
    """The file that a class was loaded from: it shows whose Iceberg library is used."""
    loader = java_class(spark, "java.lang.Thread").currentThread().getContextClassLoader()
    location = loader.loadClass(name).getProtectionDomain().getCodeSource().getLocation()
    return str(location.getFile()).rpartition("/")[2]


def _opensearch(config: SyncConfig) -> str:
    with closing(connect(config)) as client:
        version = client.info()["version"]
    return f"{version.get('distribution', 'opensearch')} {version['number']}"


@dataclass(frozen=True)
class SmokeReport(CheckReport):
    """What was found in an environment, and what of it works.

    Attributes:
        ok: Whether every check passed.
        table: The table beside which the scratch tables were.
        index: The index after which the scratch indexes were named.
        kind: ``smoke``.
        environment: Versions, Iceberg's jar, access mode and catalog.
        checks: Each check: ``kind`` of table, ``check``, ``state`` (passed, failed or skipped), ``seconds``, and of one
            that failed ``error``, ``message`` and ``remedy``.
        seconds: Seconds the test took.
        errors: What failed, as errors.
    """

    ok: bool
    table: str
    index: str
    kind: str = "smoke"
    environment: dict[str, str] = field(default_factory=dict)
    checks: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    errors: list[Exception] = field(default_factory=list, repr=False, compare=False)

    @property
    def line(self) -> str:
        """The verdict, in a few words."""
        return f"{sum(check['state'] == 'passed' for check in self.checks)} of {len(self.checks)} checks passed"

    def card(self) -> Card:
        """What a person sees first, with every check."""
        card = super().card()
        checks = [
            (f"{check['kind']}: {check['check']}", f"{check['state']} {check.get('message', '')}".strip())
            for check in self.checks
        ]
        return card._replace(facts=[*self.environment.items(), *checks, *card.facts], command="")


_Step = tuple[str, Callable[[], None]]

_COLUMNS = "id BIGINT, name STRING"
_MERGE_ON_READ = {f"write.{operation}.mode": "merge-on-read" for operation in ("delete", "update", "merge")}
KINDS = {
    "v2 copy-on-write": {"format-version": "2"},
    "v2 merge-on-read": {"format-version": "2", **_MERGE_ON_READ},
    "v3 deletion vectors": {"format-version": "3", **_MERGE_ON_READ},
}
"""The kinds of table that are tried out, with their properties."""

# How to reach catalog and OpenSearch. Everything else describes a table, and the scratch tables have their own shape.
_CONNECTION = {"catalog_properties", "warehouse", "spark_conf", "request_timeout_seconds", "retry_timeout_seconds"}


def smoke_test(spark: SparkSession, config: SyncConfig) -> SmokeReport:
    """Export, change, sync and validate a scratch table of each kind, drop it, and report how each step ended.

    The scratch tables are beside ``config.table``, which need not exist, with names that no other table has.
    """
    begin = time.monotonic()
    refuse_dry_run(config, "A smoke test writes, to scratch tables of its own", "the setup check, which only reads")
    check_report_path(config.report_path)
    run = uuid.uuid4().hex[:8]
    checks: list[dict[str, Any]] = []
    errors: list[Exception] = []
    with job_session(spark) as own:
        for number, (kind, properties) in enumerate(KINDS.items(), 1):
            scratch = _scratch(config, f"smoke_{run}_{number}")
            try:
                _attempt(scratch, kind, _steps(own, scratch, properties), checks, errors)
            finally:  # an interrupt leaves nothing behind either
                _attempt(scratch, kind, _cleanup(own, scratch), checks, errors)
    return SmokeReport(
        ok=not errors,
        table=config.table,
        index=config.index,
        environment=describe_environment(spark, config),
        checks=checks,
        seconds=round(time.monotonic() - begin, 3),
        errors=errors,
    )


def _scratch(config: SyncConfig, suffix: str) -> SyncConfig:
    """The parameters of a scratch table and index that nobody else has."""
    kept = {name for name in config.model_fields_set if name in _CONNECTION or name.startswith("opensearch_")}
    *places, name = config.table_parts
    index = f"{config.index}-{suffix.replace('_', '-')}"
    scratch = f"{name}_{suffix}"
    return type(config)(
        **{name: getattr(config, name) for name in kept},
        table=".".join(map(quoted, (*places, scratch))),
        # No replay would ever resolve them in the table of the other indexes.
        dead_letter_table=".".join(map(quoted, (*places, f"{scratch}_dead_letters"))),
        index=index,
        positions_index=f"{index}-positions",
        identifier_columns=["id"],
        number_of_replicas=0,
    )


def _attempt(
    scratch: SyncConfig, kind: str, steps: Iterator[_Step], checks: list[dict[str, Any]], errors: list[Exception]
) -> None:
    """Run steps and note how each one ended; after a failure the others are skipped, but not those that clean up."""
    failed = False
    for name, step in steps:
        check: dict[str, Any] = {"kind": kind, "check": name, "state": "skipped", "seconds": 0.0}
        checks.append(check)
        is_cleanup = name.startswith("drop ")
        if failed and not is_cleanup:
            continue
        started = time.monotonic()
        try:
            with typed_errors(scratch.opensearch_url, name, scratch.opensearch_username), spark_errors(scratch):
                step()
            check["state"] = "passed"
        except Exception as error:
            failed = True
            errors.append(error)
            text = error.message if isinstance(error, IcecdcError) else str(error)
            check |= {"state": "failed", "error": type(error).__name__, "message": shorten(mask_secrets(text))}
            check["remedy"] = getattr(error, "remedy", "")
            if is_cleanup:
                tables = f"{scratch.table} and {scratch.dead_letter_table}"
                check["remedy"] = f"drop the tables {tables} and the indexes {scratch.index}-* if they are there"
        check["seconds"] = round(time.monotonic() - started, 3)


def _steps(spark: SparkSession, scratch: SyncConfig, properties: dict[str, str]) -> Iterator[_Step]:
    """The checks of one kind of table, in their order."""
    table = scratch.quoted_table
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())

    def create() -> None:
        spark.sql(f"CREATE TABLE {table} (id BIGINT NOT NULL, name STRING) USING iceberg TBLPROPERTIES ({listed})")
        spark.createDataFrame([(1, "one"), (2, "two"), (3, "three")], _COLUMNS).writeTo(table).append()

    def change() -> None:
        wanted = spark.createDataFrame([(1, None), (2, "zwei"), (4, "four")], _COLUMNS).alias("wanted")
        merge = wanted.mergeInto(table, F.col("wanted.id") == F.col(f"{table}.id"))
        merge.whenMatched(
            F.col("wanted.name").isNull()
        ).delete().whenMatched().updateAll().whenNotMatched().insertAll().merge()

    def changes() -> None:
        _require("changed rows", remove_carryovers(read_changes(spark, scratch.table)).count(), 3)

    def sync() -> None:
        report = sync_changes(spark, scratch)
        _require("upserts and deletes", (report.upserts, report.deletes), (2, 1))

    def validate() -> None:
        report = validate_table(spark, scratch)
        found = (report.source_rows, report.missing, report.extra, report.stale)
        _require("rows, missing, extra and stale documents", found, (3, 0, 0, 0))

    yield "create table", create
    yield "setup", lambda: check_setup(spark, scratch).require_ready()
    yield "export", lambda: _require("exported documents", export_table(spark, scratch).upserts, 3)
    yield "change rows", change
    yield "read changes", changes
    yield "sync", sync
    yield "validate", validate


def _cleanup(spark: SparkSession, scratch: SyncConfig) -> Iterator[_Step]:
    def drop_table() -> None:
        for table in (scratch.quoted_table, table_name(scratch)):
            spark.sql(f"DROP TABLE IF EXISTS {table} PURGE")

    def drop_index() -> None:
        with closing(connect(scratch)) as client:
            # An export that failed left an index without the alias.
            found = client.indices.get(index=f"{scratch.index}--*")
            built = [name for name, entry in found.items() if icecdc_meta(entry).get("index") == scratch.index]
            for index in [*built, *indexes_behind(client, scratch.positions_index)]:
                client.indices.delete(index=index)

    yield "drop table", drop_table
    yield "drop index", drop_index


def _require(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise IndexDiffersError(
            f"Expected {what}: {expected}; found: {found}",
            remedy="please report it, with the report of the smoke test",
        )
