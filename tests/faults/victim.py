"""A driver in a process of its own: starts Spark, says READY, does one job, says DONE. It is there to be killed.

Usage: python victim.py <SyncConfig or IngestConfig as JSON>; then one JSON object on the standard input: job, changed
parameters, and a trap (a function of icecdc and the number of its calls after which the process is killed) or null.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from typing import Any

import icecdc_core
from icecdc_core.ingest import IngestConfig, ingest

JOBS = {
    "export": icecdc_core.export_table,
    "sync": icecdc_core.sync_changes,
    "validate": icecdc_core.validate_table,
    "replay": icecdc_core.replay_dead_letters,
    "ingest": ingest,
}


def arm(target: str, calls: int) -> None:
    """Kill this process, with no chance to clean up, right after the n-th call of `room.module.[Class.]function`."""
    room, module, *path = target.split(".")
    owner: Any = importlib.import_module(f"icecdc_core.{room}.{module}")
    for name in path[:-1]:
        owner = getattr(owner, name)
    original, left = getattr(owner, path[-1]), calls

    def trapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        result = original(*args, **kwargs)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, path[-1], trapped)


def main(parameters: str) -> None:
    """Wait for the job, then do it."""
    given = json.loads(parameters)
    kind = IngestConfig if "bootstrap_servers" in given else icecdc_core.SyncConfig
    spark = icecdc_core.get_spark(kind(**given))
    spark.sql(f"SHOW NAMESPACES IN {kind(**given).catalog}").collect()
    print("READY", flush=True)
    order = json.loads(sys.stdin.readline())
    config = kind(**{**given, **order["parameters"]})
    if order["trap"]:
        arm(*order["trap"])
    print("STARTED", flush=True)
    try:
        report = JOBS[order["job"]](spark, config)
        print("DONE", json.dumps(report.to_dict(), default=str), flush=True)
    except icecdc_core.errors.IcecdcError as error:
        print("FAILED", type(error).__name__, error, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
