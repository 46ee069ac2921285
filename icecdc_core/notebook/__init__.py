"""What notebooks call first and last.

In: parameters of papermill, Jupyter or Databricks widgets. Out: a session, and a report as tables, figures and JSON.
"""

from __future__ import annotations

import icecdc_core.session.compat  # noqa: F401 (it refuses a pyspark that is missing or too old)
from icecdc_core.notebook.front_end import finish, open_services, open_spark
from icecdc_core.notebook.parameters import list_indexes, read_parameters, widget_text

__all__ = ["finish", "list_indexes", "open_services", "open_spark", "read_parameters", "widget_text"]
