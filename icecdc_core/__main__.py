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
from icecdc_core.ingest import IngestConfig, ingest
from icecdc_core.observation import failure_report
from icecdc_core.parameter_model import ParameterModel
from icecdc_core.polling import follow_changes
from icecdc_core.replay import replay_dead_letters
from icecdc_core.report import Report
from icecdc_core.session import get_spark
from icecdc_core.status import status
from icecdc_core.validate import validate_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JOB = "the job"  # not a name that a parameter has

JOBS: dict[str, Callable[[SparkSession, Any], Report]] = {
    "export": export_table,
    "sync": follow_changes,
    "validate": validate_table,
    "replay": replay_dead_letters,
    "status": status,
    "ingest": ingest,
}
CONFIGURATIONS: dict[str, type[ParameterModel]] = {"ingest": IngestConfig}
"""What a job is told; `SyncConfig` for all others."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one job; returns its exit code."""
    listed = list(sys.argv[1:] if arguments is None else arguments)
    kind = CONFIGURATIONS.get(listed[0] if listed else "", SyncConfig)
    given = vars(_parser(kind).parse_args(listed))
    job = str(given.pop(_JOB))
    parameters = {name: value for name, value in given.items() if value is not None}
    told: dict[str, Any]
    try:
        config = kind(**parameters)
        spark = get_spark(config)
        told = JOBS[job](spark, config).to_dict()
    except Exception as error:
        told = failure_report(error, {"job": job, **{k: parameters.get(k) for k in ("table", "index")}})
        if state_of(error) == "failed":
            raise
    print(json.dumps(told, default=str), flush=True)  # noqa: T201
    return exit_code(told["state"])


def _parser(kind: type[ParameterModel]) -> argparse.ArgumentParser:
    states = "; ".join(f"{state.code} {name}: {state.meaning}" for name, state in EXIT_STATES.items())
    parser = argparse.ArgumentParser("python -m icecdc_core", description=__doc__, epilog=f"Exit codes: {states}.")
    parser.add_argument(_JOB, metavar="job", choices=JOBS)
    for parameter in kind.parameters():
        parser.add_argument(
            f"--{parameter.name.replace('_', '-')}",
            f"--{parameter.name}",
            dest=parameter.name,
            metavar="VALUE",
            required=kind.model_fields[parameter.name].is_required(),
            help=parameter.help.replace("%", "%%"),
        )
    return parser


if __name__ == "__main__":
    sys.exit(main())
