"""The jobs: export, sync, validate (and repair), replay, poll, status, setup check; each composes the packages below.

In: a session and the parameters. Out: a report; the index and its position have moved.
"""

import icecdc_core.session.compat  # noqa: F401 (it refuses a pyspark that is missing or too old)
