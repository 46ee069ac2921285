"""Run a job in this process and kill it, with no chance to clean up, right after the n-th call of one function.

Usage: python dying_run.py <export|sync> <module.[Class.]function> <n> <SyncConfig as JSON>
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from typing import Any

import icecdc_core


def main(job: str, target: str, calls: str, parameters: str) -> None:
    """Arm the trap, then run the job."""
    left = int(calls)
    module_name, *path = target.split(".")
    owner: Any = importlib.import_module(f"icecdc_core.{module_name}")
    for name in path[:-1]:
        owner = getattr(owner, name)
    original = getattr(owner, path[-1])

    def trapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        result = original(*args, **kwargs)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, path[-1], trapped)
    config = icecdc_core.SyncConfig(**json.loads(parameters))
    spark = icecdc_core.get_spark(config)
    {"export": icecdc_core.export_table, "sync": icecdc_core.sync_changes}[job](spark, config)


if __name__ == "__main__":
    main(*sys.argv[1:])
