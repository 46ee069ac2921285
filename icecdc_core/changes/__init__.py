"""Row changes between two snapshots, found by comparing file sets; knows nothing of OpenSearch.

In: a table and a range of snapshots. Out: a DataFrame of INSERT and DELETE rows, raw (`read_changes`) or one row
for each changed identifier (`net_changes`).
"""

from __future__ import annotations

import icecdc_core.session.compat  # noqa: F401 (it refuses a pyspark that is missing or too old)
from icecdc_core.changes.row_changes import read_changes

__all__ = ["read_changes"]
