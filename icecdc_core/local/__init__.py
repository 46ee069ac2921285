"""A real OpenSearch on loopback without Docker: for a `with` block, or in the background for `icecdc services up`.

In: a folder, a port and a version, all optional. Out: the URL of a server that answers, and its end.

A start goes through `runtime` (the version that fits the Java), `jars` (downloaded once, checked), `ports` (a free one)
and `server` (start, wait until healthy). The server of a block runs under `watchdog`, so it never outlives its process.
A server in the background is recorded by `left_running`. `kafka` and `kafka_detached` do the same for a broker.
"""

from __future__ import annotations

from icecdc_core.local.opensearch import ServerState, running_opensearch, start_opensearch, status, stop_opensearch

__all__ = ["ServerState", "running_opensearch", "start_opensearch", "status", "stop_opensearch"]
