"""Points in time of an index: what all searches in them see stays the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from opensearchpy import OpenSearch
from opensearchpy.exceptions import OpenSearchException, RequestError

from icecdc_core.config.parsing.durations import UNIT_SECONDS
from icecdc_core.opensearch.retry import without_retries

_KEEP_ALIVE = "10m"
_KEEP_ALIVE_LIMIT = re.compile(
    rf"must be less than \(([\d.]+)({'|'.join(UNIT_SECONDS)})\)[^\n]*point_in_time\.max_keep_alive"
)


@contextmanager
def point_in_time(client: OpenSearch, index: str) -> Iterator[str]:
    """Open a point in time of all shards of an index, for readers on the executors, and close it after the block.

    Each search extends it, so it may only not be idle for more than 10 minutes, or for what the cluster allows
    (``point_in_time.max_keep_alive``). With segment replication, replicas may be behind their primary shards, which are
    therefore read.
    """
    params = {"keep_alive": _KEEP_ALIVE, "allow_partial_pit_creation": "false", "preference": "_primary"}
    try:
        created = client.create_pit(index=index, params=params)
    except RequestError as error:
        limit = _KEEP_ALIVE_LIMIT.search(str(error.info))
        if limit is None:
            raise
        # The server rounds its limit down in the message, such as 1.5m, but accepts no fractions.
        shorter = f"{round(float(limit[1]) * UNIT_SECONDS[limit[2]] * 1000)}ms"
        created = client.create_pit(index=index, params={**params, "keep_alive": shorter})
    try:
        yield created["pit_id"]
    finally:
        # If it cannot be closed, it expires by itself.
        with suppress(OpenSearchException), without_retries(client):
            client.delete_pit(body={"pit_id": [created["pit_id"]]})
