"""What a run did, as plain data, and progress bars on the way there."""

from __future__ import annotations

from icecdc_core.reporting.progress import progress
from icecdc_core.reporting.report import Report
from icecdc_core.reporting.report_files import check_report_path, report_json, write_report
from icecdc_core.reporting.run_report import RunReport
from icecdc_core.reporting.validation_report import ValidationReport

__all__ = [
    "Report",
    "RunReport",
    "ValidationReport",
    "check_report_path",
    "progress",
    "report_json",
    "write_report",
]
