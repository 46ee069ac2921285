"""Row changes between two snapshots, found by comparing file sets; knows nothing of OpenSearch.

In: a table and a range of snapshots. Out: a DataFrame of INSERT and DELETE rows, raw (`read_changes`) or one row
for each changed identifier (`net_changes`).

Expressions that every sync of a few rows builds are SQL text, because each part of a Column takes several calls to the
JVM (benchmarks/README.md has the figure). Elsewhere expressions are Columns.
"""

import icecdc_core.session.compat  # noqa: F401 (it refuses a pyspark that is missing or too old)
from icecdc_core.changes.row_changes import read_changes

__all__ = ["read_changes"]
