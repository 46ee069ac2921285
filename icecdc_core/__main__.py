"""Run a job from the command line or a scheduler.

Example: python -m icecdc_core sync --table lake.shop.orders --opensearch-url https://search:9200

Every parameter is an option: --name value. Lists and mappings are text: --columns "id,name",
--catalog-properties '{"type":"rest","uri":"https://catalog:8181"}'. The last line of the standard output is the report
as one JSON object, also when the run fails. The exit code follows from the state in the report.
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
from icecdc_core.reporting.reports import Report, check_report_path, write_report
from icecdc_core.session import get_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JOB = "the job"  # no parameter has this name
_OPTION = re.compile(r"--[A-Za-z0-9_-]*")
_SAFE_MESSAGE = re.compile(r"the following arguments are required: job|argument [\w/, -]+: expected one argument")

JOBS: dict[str, Callable[[SparkSession, Any], Report]] = {
    "export": export_table,
    "sync": follow_changes,
    "validate": validate_table,
    "replay": replay_dead_letters,
    "status": status,
    "ingest": ingest,
}
CONFIGURATIONS: dict[str, type[ParameterModel]] = {"ingest": IngestConfig}
"""The parameters of a job; those of all others are `SyncConfig`."""
_USES = """jobs:
  export    write the whole table to a new index, then switch the alias to it
            export --table lake.shop.orders --opensearch-url https://search:9200
  sync      write the changes since the last run; export first when there was none
            sync --table lake.shop.orders --poll-interval-seconds 30 --max-polls 0
  validate  compare the index with the table
            validate --table lake.shop.orders --repair true
  replay    write rejected documents again, after their cause was removed
            replay --table lake.shop.orders
  status    show position, lag and last run of every index
            status --table lake.shop.orders --opensearch-url https://search:9200
  ingest    read Kafka topics into Iceberg tables; ingest --help lists its options
            ingest --job orders --bootstrap-servers kafka:9092 --topics orders --table lake.shop.orders
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one job, print its report and return its exit code."""
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
        facts |= config.subject
        check_report_path(config.report_path)
        facts["stage"] = "session"
        spark = get_spark(config)
        facts["stage"] = "run"
        report = JOBS[facts["job"]](spark, config).to_dict()
        if config.report_path:
            write_report(report, config.report_path)
    except (Exception, KeyboardInterrupt) as error:
        if state_of(error) == "failed":
            traceback.print_exc()
        seconds = round(time.monotonic() - begin, 3)
        report = failure_of(error) or failure_report(error, {**facts, "seconds": seconds})
        if parameters.get("report_path"):  # also when the job did not begin: the report of an older run must not stay
            with suppress(ConfigError):  # it must not hide why the run failed
                write_report(report, parameters["report_path"])
    print(json.dumps(report, default=str), flush=True)  # noqa: T201
    return exit_code(report["state"])


def _parsed(kind: type[ParameterModel], listed: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Read the job and its parameters from the command line.

    No error text repeats a value, because it may be a secret.

    Args:
        kind: The parameters of the job.
        listed: The arguments of the command line.

    Returns:
        The name of the job, and its parameters as text.

    Raises:
        ConfigError: An option or the job is wrong.
    """
    # A parser that knows -h reads -hunter2 as -h with the rest of a secret as its value.
    given, others = _parser(kind).parse_known_args(["--help" if text == "-h" else text for text in listed])
    parameters = {name: value for name, value in vars(given).items() if value is not None}
    job = str(parameters.pop(_JOB))
    problems = [] if job in JOBS else [f"There is no such job (not shown). Remedy: name one of {', '.join(JOBS)}."]
    known = [parameter.name for parameter in kind.parameters()]
    left = iter(others)
    for other in left:
        option = _OPTION.match(other)
        if option is None:
            problems.append("There is a value without an option (not shown). Remedy: write --name value.")
            continue
        if option[0] == other:
            next(left, None)  # its value, whatever that looks like
        problems.append(_unknown_option(option[0], known))
    if problems:
        raise ConfigError(f"{len(problems)} options are wrong", problems=problems)
    return job, parameters


def _unknown_option(option: str, known: Sequence[str]) -> str:
    """The problem with an option; one that may have a secret appended to its name is not shown."""
    name = option[2:].replace("-", "_")
    near = next(iter(difflib.get_close_matches(name, known, n=1)), "")
    if name in known:
        return f"{option}: its value is not separated from it. Remedy: write {option} VALUE or {option}=VALUE."
    hint = f"did you mean --{near.replace('_', '-')}" if near else "see --help for all of them"
    shown = f"{option}: unknown option" if len(name) <= len(near) else "unknown option (not shown)"
    return f"{shown}. Remedy: {hint}."


class _Parser(argparse.ArgumentParser):
    """A parser that raises what is wrong instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        # Other messages of argparse repeat the value.
        shown = (
            message if _SAFE_MESSAGE.fullmatch(message) else "An option has a value that it does not take (not shown)"
        )
        raise ConfigError(shown, subject="options", remedy="see --help")


def _parser(kind: type[ParameterModel]) -> argparse.ArgumentParser:
    states = "\n".join(f"  {state.code}  {name}: {state.meaning}" for name, state in EXIT_STATES.items())
    parser = _Parser(
        "python -m icecdc_core",
        description=__doc__,
        epilog=f"{_USES}\nexit codes:\n{states}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )
    parser.add_argument(_JOB, metavar="job", help=f"One of {', '.join(JOBS)}; see below.")
    parser.add_argument("--help", action="help", help="Show this text and exit.")
    for parameter in kind.parameters():
        field = kind.model_fields[parameter.name]
        required = " Required." if field.is_required() else ""
        examples = "".join(f" Example: {example}" for example in field.examples or ())
        parser.add_argument(
            f"--{parameter.name.replace('_', '-')}",
            f"--{parameter.name}",
            dest=parameter.name,
            metavar="VALUE",
            help=(parameter.help + required + examples).replace("%", "%%"),
        )
    return parser


if __name__ == "__main__":
    sys.exit(main())
