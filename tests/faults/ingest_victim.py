"""An ingest in a process of its own: starts Spark, says READY, ingests when told to. It is there to be killed.

Usage: python ingest_victim.py <IngestConfig as JSON>; then one line on the standard input: changed parameters as JSON.
"""

from __future__ import annotations

import json
import sys

from icecdc_core import get_spark
from icecdc_core.errors import IcecdcError
from icecdc_core.ingest import IngestConfig, ingest


def main(parameters: str) -> None:
    """Wait for the order, then ingest."""
    given = json.loads(parameters)
    spark = get_spark(IngestConfig(**given))
    spark.sql("SHOW NAMESPACES IN lake").collect()
    print("READY", flush=True)
    config = IngestConfig(**{**given, **json.loads(sys.stdin.readline())})
    print("STARTED", flush=True)
    try:
        print("DONE", ingest(spark, config).to_json(), flush=True)
    except IcecdcError as error:
        print("FAILED", type(error).__name__, error, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
