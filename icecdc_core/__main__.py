"""The jobs from a command line, for schedulers: `python -m icecdc_core sync --table lake.shop.orders ...`.

Every parameter is `--name value`; lists and mappings as text, as a Databricks job passes them. The last line of the
standard output is the report, one JSON object, also for a run that fails; the exit code is that of its `state`, see
docs/operations.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from icecdc_core.config import SyncConfig
from icecdc_core.exit_states import EXIT_STATES, exit_code, state_of
from icecdc_core.export import export_table
from icecdc_core.observation import failure_report
from icecdc_core.polling import follow_changes
from icecdc_core.replay import replay_dead_letters
from icecdc_core.report import Report
from icecdc_core.session import get_spark
from icecdc_core.status import status
from icecdc_core.validate import validate_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOBS: dict[str, Callable[[SparkSession, SyncConfig], Report]] = {
    "export": export_table,
    "sync": follow_changes,
    "validate": validate_table,
    "replay": replay_dead_letters,
    "status": status,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one job; returns its exit code."""
    given = vars(_parser().parse_args(arguments))
    job = str(given.pop("job"))
    parameters = {name: value for name, value in given.items() if value is not None}
    told: dict[str, Any]
    try:
        config = SyncConfig(**parameters)
        spark = get_spark(config)
        told = JOBS[job](spark, config).to_dict()
    except Exception as error:
        told = failure_report(error, {"job": job, **{k: parameters.get(k) for k in ("table", "index")}})
        if state_of(error) == "failed":
            raise
    print(json.dumps(told, default=str), flush=True)  # noqa: T201
    return exit_code(told["state"])


def _parser() -> argparse.ArgumentParser:
    states = "; ".join(f"{state.code} {name}: {state.meaning}" for name, state in EXIT_STATES.items())
    parser = argparse.ArgumentParser("python -m icecdc_core", description=__doc__, epilog=f"Exit codes: {states}.")
    parser.add_argument("job", choices=JOBS)
    for parameter in SyncConfig.parameters():
        parser.add_argument(
            f"--{parameter.name.replace('_', '-')}",
            f"--{parameter.name}",
            dest=parameter.name,
            metavar="VALUE",
            required=parameter.name == "table",
            help=parameter.help.replace("%", "%%"),
        )
    return parser


if __name__ == "__main__":
    sys.exit(main())
