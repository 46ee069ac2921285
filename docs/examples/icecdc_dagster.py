"""Dagster: syncs all indexes of a file every five minutes and validates them every night.

Load it with `dagster dev -f icecdc_dagster.py`. The process needs `icecdc` on its PATH, Java, and ICECDC_FILE, the
index file. Schedules ship stopped. A run that meets the one before it ends with exit code 6, which counts as done.
"""

import json
import os
import subprocess

from dagster import Backoff, Definitions, Failure, OpExecutionContext, RetryPolicy, ScheduleDefinition, job, op

RETRY, LOCKED = 5, 6  # exit codes: run again; another run does the work


def run(context: OpExecutionContext, *options: str) -> None:
    """Run a command of icecdc; its report becomes the metadata of the step."""
    command = ["icecdc", *options, "--file", os.environ["ICECDC_FILE"], "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    report = json.loads(ended.stdout.splitlines()[-1])
    context.add_output_metadata({"report": report})
    if ended.returncode not in (0, LOCKED):
        raise Failure(ended.stderr, {"state": report["state"]}, allow_retries=ended.returncode == RETRY)


@op(retry_policy=RetryPolicy(max_retries=2, delay=60, backoff=Backoff.EXPONENTIAL))
def sync(context: OpExecutionContext) -> None:
    """Write the changes since the last run."""
    run(context, "sync")


@op
def validate(context: OpExecutionContext) -> None:
    """Compare the indexes with their tables."""
    run(context, "validate", "--validate-at", "position")


@job(tags={"icecdc": "sync"})
def icecdc_sync() -> None:
    """Sync all indexes of the file."""
    sync()


@job(tags={"icecdc": "validate"})
def icecdc_validate() -> None:
    """Validate all indexes of the file."""
    validate()


defs = Definitions(
    jobs=[icecdc_sync, icecdc_validate],
    schedules=[
        ScheduleDefinition(job=icecdc_sync, cron_schedule="*/5 * * * *"),
        ScheduleDefinition(job=icecdc_validate, cron_schedule="30 3 * * *"),
    ],
)
