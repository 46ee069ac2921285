"""Real services on loopback without Docker: for a `with` block, or in the background for `icecdc services up`.

In: a folder, a port and a version, all optional. Out: the URL of a server that answers, and its end. The server of a
block runs under `watchdog`, so it never outlives its process; one in the background is recorded in the state folder.
"""

from icecdc_core.local.opensearch import running_opensearch, start_opensearch

__all__ = ["running_opensearch", "start_opensearch"]
