"""Run a job from the command line or a scheduler.

Example: icecdc sync --table lake.shop.orders --opensearch-url https://search:9200

Every parameter is an option: --name value. Lists and mappings are text: --columns "id,name",
--catalog-properties '{"type":"rest","uri":"https://catalog:8181"}'. The exit code follows from the state in the report.

`icecdc` prints a table, with --json the report as one JSON object on the last line of the standard output.
`python -m icecdc_core` always prints that object, also when the run fails.
"""

from __future__ import annotations

import shutil
import sys
import time
import traceback
import uuid
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icecdc_core.cli import (
    COMMANDS,
    SERVICES,
    Request,
    help_text,
    parse,
    print_failure,
    print_report,
    write_summaries,
)
from icecdc_core.config import SyncConfig
from icecdc_core.dependencies import installed_version
from icecdc_core.errors import ConfigError
from icecdc_core.reporting.exit_states import exit_code, failure_of, failure_report, state_of
from icecdc_core.reporting.reports import ManyReport, Report, check_report_path, write_report
from icecdc_core.secrets import mask_secrets
from icecdc_core.session.java import jvm_output_to_file
from icecdc_core.session.processes import stop_on_sigterm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icecdc_core.config.model import ParameterModel

_CONSOLE = "icecdc"


def console() -> int:
    """Run the console command `icecdc`."""
    return main(program=_CONSOLE)


def main(arguments: Sequence[str] | None = None, program: str = "python -m icecdc_core") -> int:
    """Run one job, print its report and return its exit code."""
    listed = list(sys.argv[1:] if arguments is None else arguments)
    if listed[:1] == [SERVICES]:
        from icecdc_core.local.__main__ import main as services  # development only: no job needs it

        return services(listed[1:], f"{program} {SERVICES}")
    as_json = program != _CONSOLE or "--json" in listed
    begin = time.monotonic()
    facts: dict[str, Any] = {"job": listed[0] if listed and listed[0] in COMMANDS else None, "run_id": uuid.uuid4().hex}
    facts["stage"] = "parameters"
    request = Request()
    try:
        request = parse(listed)
        if request.flags & {"help", "version"}:
            version = f"icecdc {installed_version('icecdc')}"
            print(help_text(program, request.command) if "help" in request.flags else version)  # noqa: T201
            raise SystemExit(0)
        facts["job"] = request.command
        quiet = program == _CONSOLE and "verbose" not in request.flags
        report = _many(request, facts, quiet) if request.file else _one(request, facts, quiet)
    except (Exception, KeyboardInterrupt) as error:
        is_unexpected = state_of(error) == "failed" and not isinstance(error, KeyboardInterrupt)
        if is_unexpected or "verbose" in request.flags:
            sys.stderr.write(mask_secrets(traceback.format_exc()))
        seconds = round(time.monotonic() - begin, 3)
        failure = failure_of(error) or failure_report(error, {**facts, "seconds": seconds})
        for path in filter(None, facts.get("report_paths", [request.parameters.get("report_path")])):
            with suppress(ConfigError):  # the report of an older run must not stay, nor hide why this one failed
                write_report(failure, path)
        name = f"{_CONSOLE} {facts['job']}" if facts["job"] else _CONSOLE
        print_failure(name, failure["message"], failure["remedy"], facts.get("spark_log", ""))
        print_report(failure, as_json)
        return exit_code(failure["state"])
    if isinstance(report, ManyReport):
        sys.stderr.writelines(report.tracebacks.values())
        for name, message in report.failures.items():
            print_failure(f"{_CONSOLE} {request.command} {name}", message, log=facts.get("spark_log", ""))
    print_report(report, as_json)
    if report.state == "ok" and "spark_log" in facts:
        shutil.rmtree(Path(facts["spark_log"]).parent, ignore_errors=True)
    return exit_code(report.state)


def _one(request: Request, facts: dict[str, Any], quiet: bool) -> Report:
    """Run the job of one index; the facts say how far it came."""
    command = COMMANDS[request.command]
    facts |= {name: request.parameters.get(name) for name in ("table", "index")}
    config = command.kind(**request.parameters)
    facts |= config.subject
    check_report_path(config.report_path)
    facts["stage"] = "session"
    spark = _session([config], facts, quiet)
    facts["stage"] = "run"
    polls = request.command == "sync" and config.polls  # type: ignore[attr-defined]
    with stop_on_sigterm(or_interrupt=True) if polls else nullcontext():
        report = command.job()(spark, config)
    if config.report_path:
        write_report(report, config.report_path)
    return report


def _many(request: Request, facts: dict[str, Any], quiet: bool) -> ManyReport:
    """Run the job of each index of a file; the facts say how far it came."""
    from icecdc_core.jobs.many import require_one_session, run_many

    command = COMMANDS[request.command]
    configs: Mapping[str, SyncConfig] = SyncConfig.load_all(request.file, request.only, **request.parameters)
    facts["report_paths"] = list(dict.fromkeys(config.report_path for config in configs.values()))
    require_one_session(configs)
    for config in configs.values():
        check_report_path(config.report_path)
    facts["stage"] = "session"
    spark = _session([*configs.values()], facts, quiet)
    facts["stage"] = "run"
    # Each report is part of the summary, which is written once.
    own = {name: config.replace(report_path="") for name, config in configs.items()}

    def on_poll(so_far: ManyReport) -> None:
        with suppress(ConfigError):  # the last one says why
            write_summaries(so_far, configs)

    job, parallel = command.job(of_many=True), request.parallel
    report = run_many(spark, job, own, command=request.command, parallel=parallel, on_poll=on_poll)
    write_summaries(report, configs)
    return report


def get_spark(*configs: ParameterModel) -> SparkSession:
    """Return the session of `icecdc_core.get_spark`; Spark is imported here, because no help needs it."""
    from icecdc_core.session import get_spark

    return get_spark(*configs)


def _session(configs: Sequence[ParameterModel], facts: dict[str, Any], quiet: bool) -> SparkSession:
    from icecdc_core.session import running_session

    # Executors write their part of the log to the output of the JVM.
    if not quiet or any(config.log_path == "-" for config in configs) or running_session() is not None:
        return get_spark(*configs)
    with jvm_output_to_file() as log:
        facts["spark_log"] = str(log)
        return get_spark(*configs)


if __name__ == "__main__":
    sys.exit(main())
