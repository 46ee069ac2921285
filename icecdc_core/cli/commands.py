"""The commands: each with its job, its parameters and an example."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from icecdc_core.config import SyncConfig
from icecdc_core.config.model import ParameterModel
from icecdc_core.config.status import StatusConfig
from icecdc_core.ingest import IngestConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icecdc_core.reporting.reports import Report

Job = Callable[["SparkSession", Any], "Report"]

SERVICES = "services"
"""The command that runs no job: it starts and stops the embedded services."""

_PLACE = ("table", "index", "opensearch_url", "catalog_properties", "warehouse", "identifier_columns")


@dataclass(frozen=True)
class Command:
    """A command that runs a job."""

    target: str
    help: str
    example: str
    main: tuple[str, ...] = _PLACE
    kind: type[ParameterModel] = SyncConfig
    fixed: Mapping[str, str] = field(default_factory=dict)
    of_one: str = ""

    @property
    def job(self) -> Job:
        """The job."""
        return self._imported(self.target.partition(":")[2])

    @property
    def job_of_one(self) -> Job:
        """The job for one index of many."""
        return self._imported(self.of_one) if self.of_one else self.job

    def _imported(self, function: str) -> Job:
        job: Job = getattr(import_module(f"icecdc_core.{self.target.partition(':')[0]}"), function)
        return job

    @property
    def takes_file(self) -> bool:
        """Whether it works on the indexes of a file."""
        return issubclass(self.kind, SyncConfig)


COMMANDS: dict[str, Command] = {
    "setup": Command(
        "jobs.checks.setup:check_setup",
        "check everything that a run needs, and list all problems",
        "--table lake.shop.orders --opensearch-url https://search:9200",
    ),
    "smoke": Command(
        "jobs.checks.smoke:smoke_test",
        "try export, sync and validation on scratch tables, drop them, and report what works",
        "--table lake.scratch.smoke --opensearch-url https://search:9200",
        ("table", "index", "opensearch_url", "catalog_properties", "warehouse", "report_path"),
    ),
    "export": Command(
        "jobs.export:export_table",
        "write the whole table to a new index, then switch the alias to it",
        "--table lake.shop.orders --opensearch-url https://search:9200",
        (*_PLACE, "columns", "row_filter", "number_of_shards", "number_of_replicas", "dry_run"),
    ),
    "sync": Command(
        "jobs.poll:follow_changes",
        "write the changes since the last run; the first run exports the table",
        "--table lake.shop.orders --poll-interval-seconds 30 --max-polls 0",
        (*_PLACE, "poll_interval_seconds", "max_polls", "on_schema_change", "on_history_gap", "dry_run"),
    ),
    "validate": Command(
        "jobs.validate:validate_table",
        "compare the index with the table",
        "--table lake.shop.orders --validate-at position",
        (*_PLACE, "validate_at", "repair"),
    ),
    "repair": Command(
        "jobs.validate:validate_table",
        "compare the index with the table and correct what differs",
        "--table lake.shop.orders",
        fixed={"repair": "true"},
    ),
    "replay": Command(
        "jobs.replay:replay_dead_letters",
        "write rejected documents again, after their cause was removed",
        "--table lake.shop.orders",
        (*_PLACE, "dead_letter_table"),
    ),
    "status": Command(
        "jobs.status:status",
        "show position, lag and last run of every index",
        "--opensearch-url https://search:9200",
        ("opensearch_url", "positions_index", "table", "catalog_properties", "warehouse"),
        StatusConfig,
        of_one="status_of_index",
    ),
    "ingest": Command(
        "ingest:ingest",
        "read Kafka topics into Iceberg tables",
        "--job orders --bootstrap-servers kafka:9092 --topics orders --table lake.shop.orders",
        ("job", "bootstrap_servers", "topics", "table", "format", "mode", "catalog_properties", "warehouse"),
        IngestConfig,
    ),
    "changes": Command(
        "jobs.pending:pending_changes",
        "show what each new snapshot changed and what the next sync would write",
        "--table lake.shop.orders",
    ),
}
