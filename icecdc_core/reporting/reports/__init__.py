"""Reports: what a run did, as plain data, and progress bars on the way there.

In: counts, times and ids of a run. Out: a report as a frame, a figure or JSON, also written to `report_path`.
"""

from __future__ import annotations

from icecdc_core.reporting.progress import progress
from icecdc_core.reporting.reports.base import Report
from icecdc_core.reporting.reports.files import check_report_path, report_json, write_report
from icecdc_core.reporting.reports.run import RunReport
from icecdc_core.reporting.reports.validation import ValidationReport

__all__ = [
    "Report",
    "RunReport",
    "ValidationReport",
    "check_report_path",
    "progress",
    "report_json",
    "write_report",
]
