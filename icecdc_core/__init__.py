"""Keep OpenSearch indexes equal to Apache Iceberg tables: export, sync by snapshot diffs, validate."""

from __future__ import annotations

from icecdc_core.config import SyncConfig
from icecdc_core.export import export_table
from icecdc_core.replay import replay_dead_letters
from icecdc_core.report import RunReport, ValidationReport
from icecdc_core.session import get_spark
from icecdc_core.status import status
from icecdc_core.sync import sync_changes
from icecdc_core.validate import validate_table

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
