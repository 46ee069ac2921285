"""The jobs from a command line, for schedulers: `python -m icecdc_core sync --table lake.shop.orders ...`.

Every parameter is `--name value`; lists and mappings as text, as a Databricks job passes them. The last line of the
standard output is the report, one JSON object, also for a run that fails in any way; the exit code is that of its
`state`, see docs/operations.md.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from icecdc_core.config import SyncConfig
from icecdc_core.config.model import ParameterModel
from icecdc_core.errors import ConfigError
from icecdc_core.ingest import IngestConfig, ingest
from icecdc_core.jobs.export import export_table
from icecdc_core.jobs.poll import follow_changes
from icecdc_core.jobs.replay import replay_dead_letters
from icecdc_core.jobs.status import status
from icecdc_core.jobs.validate import validate_table
from icecdc_core.reporting.exit_states import EXIT_STATES, exit_code, state_of
from icecdc_core.reporting.instrumentation import failure_of, failure_report
from icecdc_core.reporting.reports import Report, write_report
from icecdc_core.session import get_spark

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
    begin = time.monotonic()
    facts: dict[str, Any] = {"job": listed[0] if listed and listed[0] in JOBS else None, "run_id": uuid.uuid4().hex}
    parameters: dict[str, str] = {}
    report: dict[str, Any]
    try:
        facts["stage"] = "parameters"
        kind = CONFIGURATIONS.get(listed[0] if listed else "", SyncConfig)
        facts["job"], parameters = _parsed(kind, listed)
        facts |= {name: parameters.get(name) for name in ("table", "index")}
        config = kind(**parameters)
        facts |= {**config.subject, "stage": "session"}
        spark = get_spark(config)
        facts["stage"] = "run"
        report = _reported(JOBS[facts["job"]](spark, config).to_dict(), parameters)
    except (Exception, KeyboardInterrupt) as error:
        if state_of(error) == "failed":
            traceback.print_exc()
        seconds = round(time.monotonic() - begin, 3)
        report = failure_of(error) or _reported(failure_report(error, {**facts, "seconds": seconds}), parameters)
    print(json.dumps(report, default=str), flush=True)  # noqa: T201
    return exit_code(report["state"])


def _parsed(kind: type[ParameterModel], listed: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The job and its parameters; no text repeats what stands after an option, because it may be a secret.

    Raises:
        ConfigError: An option or the job is wrong.
    """
    given, others = _parser(kind).parse_known_args(listed)
    parameters = {name: value for name, value in vars(given).items() if value is not None}
    job = str(parameters.pop(_JOB))
    problems = [] if job in JOBS else [f"There is no such job (not shown). Remedy: name one of {', '.join(JOBS)}."]
    known = [parameter.name for parameter in kind.parameters()]
    left = iter(others)
    for other in left:
        option, *value = re.split(r"[=\s]", other, maxsplit=1)
        if not option.startswith("--"):
            problems.append("There is a value without an option (not shown). Remedy: write --name value.")
            continue
        if not value:
            next(left, None)  # its value, whatever that looks like
        near = difflib.get_close_matches(option[2:].replace("-", "_"), known, n=1)
        hint = f"did you mean --{near[0].replace('_', '-')}" if near else "see --help for all of them"
        problems.append(f"{option}: unknown option. Remedy: {hint}.")
    if problems:
        raise ConfigError(f"{len(problems)} options are wrong", problems=problems)
    return job, parameters


def _reported(report: dict[str, Any], parameters: dict[str, str]) -> dict[str, Any]:
    """Leave the report where it was asked for, even that of a job that did not begin: an older one must not stand."""
    if parameters.get("report_path"):
        with suppress(ConfigError):
            write_report(report, parameters["report_path"])
    return report


class _Parser(argparse.ArgumentParser):
    """A parser that raises what is wrong instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message, subject="options", remedy="see --help")


def _parser(kind: type[ParameterModel]) -> argparse.ArgumentParser:
    states = "; ".join(f"{state.code} {name}: {state.meaning}" for name, state in EXIT_STATES.items())
    parser = _Parser("python -m icecdc_core", description=__doc__, epilog=f"Exit codes: {states}.", allow_abbrev=False)
    parser.add_argument(_JOB, metavar="job", help=f"One of {', '.join(JOBS)}.")
    for parameter in kind.parameters():
        required = " Required." if kind.model_fields[parameter.name].is_required() else ""
        parser.add_argument(
            f"--{parameter.name.replace('_', '-')}",
            f"--{parameter.name}",
            dest=parameter.name,
            metavar="VALUE",
            help=parameter.help.replace("%", "%%") + required,
        )
    return parser


if __name__ == "__main__":
    sys.exit(main())
