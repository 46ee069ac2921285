"""Keep OpenSearch indexes in sync with Apache Iceberg tables: export, sync by snapshot diffs, validate."""

from __future__ import annotations

import icecdc_core.session.compat  # noqa: F401 (it comes first, to refuse a pyspark that is too old for the others)
from icecdc_core.config import SyncConfig
from icecdc_core.jobs.export import export_table
from icecdc_core.jobs.replay import replay_dead_letters
from icecdc_core.jobs.status import status
from icecdc_core.jobs.sync import sync_changes
from icecdc_core.jobs.validate import validate_table
from icecdc_core.reporting.reports import RunReport, ValidationReport
from icecdc_core.session import get_spark

__all__ = [
    "RunReport",
    "SyncConfig",
    "ValidationReport",
    "export_table",
    "get_spark",
    "replay_dead_letters",
    "status",
    "sync_changes",
    "validate_table",
]
