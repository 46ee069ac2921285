"""Documents: put together of one or several tables, the mapping of their index, and the JSON of each bulk operation.

In: a Spark schema, or a DataFrame of rows or change rows. Out: documents, an index mapping, NDJSON bulk lines.
"""

import icecdc_core.session.compat  # noqa: F401 (it refuses a pyspark that is missing or too old)
from icecdc_core.documents.changed_roots import affected_roots
from icecdc_core.documents.nested_documents import assemble

__all__ = ["affected_roots", "assemble"]
